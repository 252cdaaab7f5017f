"""Transforms along different dims in another order: those along dims that are whole come first.

    %1 = fft(%0) {axes=(1,)}      ->      %1 = fft(%0) {axes=(0,)}        where %0 is [-, x]: dim 0 is whole already,
    %2 = fft(%1) {axes=(0,)}              %2 = fft(%1) {axes=(1,)}        and x moves to it before dim 1 is transformed

Complex transforms along different dims commute, and all values on the way have one type, so only params change places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from meshjit.core.ops_in import op_names_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.transform.rewriting import in_regions, uses_of

IsWhole = Callable[[Var, int], bool]


def commute(program: Program, is_whole: IsWhole) -> Program:
    """The Program with its chains of transforms in order, in nested Programs too; itself where they are already."""
    program = in_regions(program, lambda nested: commute(nested, is_whole), device=False)
    changed: dict[Eqn, Eqn] = {}
    for chain in _chains(program) if "fft" in op_names_in(program) else ():
        first = chain[0].inputs[0]
        ordered = sorted(chain, key=lambda eqn: not is_whole(first, eqn.params["axes"][0]))
        pairs = [(old, new) for old, new in zip(chain, ordered, strict=True) if old is not new]
        changed.update((old, old.with_params(new.params)) for old, new in pairs)
    return replace(program, eqns=tuple(changed.get(eqn, eqn) for eqn in program.eqns)) if changed else program


def _chains(program: Program) -> Iterator[list[Eqn]]:
    """Two or more complex transforms of one kind along different dims, each the only use of the one before."""
    uses = uses_of(program)
    open_chains: dict[Var, list[Eqn]] = {}
    for eqn in program.eqns:
        if eqn.op.name == "fft" and eqn.params["kind"] in ("FFT", "IFFT"):
            chain = open_chains.pop(eqn.inputs[0], [])
            if uses[eqn.inputs[0]] != 1 or not all(_commute(eqn, other) for other in chain):
                chain, ended = [], chain
                if len(ended) > 1:
                    yield ended
            open_chains[eqn.outputs[0]] = [*chain, eqn]
    yield from (chain for chain in open_chains.values() if len(chain) > 1)


def _commute(eqn: Eqn, other: Eqn) -> bool:
    return eqn.params["kind"] == other.params["kind"] and not set(eqn.params["axes"]) & set(other.params["axes"])
