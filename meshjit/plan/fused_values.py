"""Values that take no memory: compilers compute what goes element by element in the equations that read it, where it is made of
much less than it would hold.

    %b f32[N, N] = broadcast(%s f32[N])      takes none
    %m bool[N, N] = greater(%i, %j)          of two counts: none
    %y f32[N, N] = multiply(%x, %b)          is held, if %x is

All their readers go element by element, too, or sum over dims. What products and loops read, and what is handed over, lies in
memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat, kinds_of, repeats
from meshjit.core.rules import goes_by_element, rule_of, work_passes
from meshjit.core.splat import is_known_splat

MUCH_LESS: Final = 8  # times fewer bytes


def fused_values(program: Program) -> set[Var]:
    """Those of a Program, nested ones aside."""
    kinds = kinds_of(program)
    facts = {kind: _facts(eqn) for kind, eqn in dict(zip(kinds, program.eqns, strict=True)).items()}
    lies = {*program.outputs}
    for eqn, kind in zip(program.eqns, kinds, strict=True):
        if not facts[kind].reads_fused:
            lies.update(eqn.inputs)
    made_of: dict[Var, int] = {}  # bytes in memory that each of them is made of
    for eqn, kind in zip(program.eqns, kinds, strict=True):
        if facts[kind].is_fused:
            nbytes = facts[kind].nbytes
            if nbytes > facts[kind].most and not made_of.keys().isdisjoint(eqn.inputs):
                nbytes = sum([made_of.get(v, v.type.nbytes) for v in dict.fromkeys(eqn.inputs)])
            if nbytes <= facts[kind].most and eqn.outputs[0] not in lies:
                made_of[eqn.outputs[0]] = nbytes
    return {*made_of} - _unlike(program, made_of)


class _Facts(NamedTuple):
    """Of equations of one kind: whether compilers fuse the result into its readers, and operands into it; bytes of the operands,
    and how many those may be."""

    is_fused: bool
    reads_fused: bool
    nbytes: int = 0
    most: float = 0.0


def _facts(eqn: Eqn) -> _Facts:
    if not _is_fused(eqn):
        return _Facts(False, _sums(eqn))
    return _Facts(True, True, sum(v.type.nbytes for v in {*eqn.inputs}), eqn.outputs[0].type.nbytes / MUCH_LESS)


def _unlike(program: Program, fused: Mapping[Var, int]) -> set[Var]:
    """Values at places of repeats at which another repeat of the kind holds one. What repeats of one kind hold is alike."""
    by_kind: dict[int, list[tuple[Repeat, set[int]]]] = defaultdict(list)
    for repeat in repeats(program):
        by_kind[repeat.kind].append((repeat, {i for i, v in enumerate(repeat.inner) if v in fused}))
    unlike = set[Var]()
    for every in by_kind.values():
        alike = set[int].intersection(*[places for _, places in every])
        unlike.update(repeat.inner[i] for repeat, places in every for i in places - alike)
    return unlike


def _is_fused(eqn: Eqn) -> bool:
    """Whether compilers compute the result where it is read. A barrier hands on what lies in memory."""
    op = eqn.op
    if len(eqn.outputs) != 1 or op.regions is not None or op.pinned is not None or op.prune is not None or not is_pure(eqn):
        return False
    value = eqn.params.get("value")
    return goes_by_element(eqn) if eqn.inputs else value is None or is_known_splat(value)


def _sums(eqn: Eqn) -> bool:
    """Whether it reads its one operand once, and adds it up."""
    return eqn.op.regions is None and len(eqn.inputs) == 1 and bool(rule_of(eqn).reductions) and not work_passes(eqn)
