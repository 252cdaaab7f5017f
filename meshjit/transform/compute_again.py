"""Later uses of values read copies that are computed again when they come: the values themselves are not kept for them.

    %h = tanh(%z)                              %h = tanh(%z)
    %y = dot(%h, %w)                           %y = dot(%h, %w)
    ...                  %h is kept            ...                  %z is kept
    %g = dot(%h, %dy)                          %z2, %dy2 = optimization_barrier(%z, %dy)
                                               %h2 = tanh(%z2)
                                               %g = dot(%h2, %dy2)

The barrier keeps the compiler from merging both computations, and from doing the second before the cotangent is there. Constants
do not pass the barrier: they are made once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.annotations import optimization_barrier
from meshjit.transform.rewriting import Rewriter

AGAIN = "again"  # the note on the lines of copies


@dataclass(frozen=True)
class Section:
    """Pure equations, in the order of the Program, to be computed again before its equation number `at`, once `awaited` is
    there."""

    eqns: tuple[Eqn, ...]
    at: int
    awaited: Var


def compute_again(program: Program, sections: Sequence[Section]) -> tuple[Program, Mapping[Var, Var]]:
    """The Program in which what these make is read from copies, from where they are computed again on; and copy → original."""
    waiting, originals = defaultdict[int, list[Section]](list), dict[Var, Var]()
    for section in sections:
        waiting[section.at].append(section)
    free, here = _made_of_nothing(program), Rewriter(program)
    with here:
        for at, eqn in enumerate(program.eqns):
            for section in waiting.get(at, ()):
                _repeat(section, here, free, originals)
            here.put(here.renamed(eqn))
    return Program(program.name, program.inputs, tuple(here.eqns), program.outputs), originals


def _repeat(section: Section, here: Rewriter, free: Mapping[Var, Eqn], originals: dict[Var, Var]) -> None:
    own = {v for eqn in section.eqns for v in eqn.outputs}
    kept = dict.fromkeys(v for eqn in section.eqns for v in eqn.inputs if v not in own and v not in free)
    kept[section.awaited] = None
    with here.at(section.eqns[0].source, AGAIN):
        barred = optimization_barrier(*map(here.new, kept))
    _name(here, tuple(kept), barred if isinstance(barred, tuple) else (barred,), originals)
    done = set[Var]()
    for eqn in section.eqns:
        for var in eqn.inputs:
            _copy_free(var, here, free, done, originals)
        _copy(eqn, here, originals)


def _copy_free(var: Var, here: Rewriter, free: Mapping[Var, Eqn], done: set[Var], originals: dict[Var, Var]) -> None:
    """What is made of no operands, made once more."""
    if var in free and var not in done:
        for operand in free[var].inputs:
            _copy_free(operand, here, free, done, originals)
        done.update(free[var].outputs)
        _copy(free[var], here, originals)


def _copy(eqn: Eqn, here: Rewriter, originals: dict[Var, Var]) -> None:
    source = eqn.source.noted(AGAIN) if eqn.source is not None else None
    copies = tuple([Var(v.type, v.hint) for v in eqn.outputs])
    here.put(Eqn(eqn.op, here.renamed(eqn).inputs, copies, eqn.params, source))
    _name(here, eqn.outputs, copies, originals)


def _name(here: Rewriter, vars: Sequence[Var], copies: Sequence[Var], originals: dict[Var, Var]) -> None:
    here.names.update(zip(vars, copies, strict=True))
    originals.update(zip(copies, vars, strict=True))


def _made_of_nothing(program: Program) -> dict[Var, Eqn]:
    """Constants and iota, and what is made of them alone, with the equations that make them."""
    free = dict[Var, Eqn]()
    for eqn in program.eqns:
        if eqn.op.regions is None and is_pure(eqn) and free.keys() >= {*eqn.inputs}:
            free.update(dict.fromkeys(eqn.outputs, eqn))
    return free
