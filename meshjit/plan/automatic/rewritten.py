"""Other ways to write a Program, which automatic plans may be of: what proposals write where it pays, wherever it can be.

    written(program, machine, ("apart", "align"))    dims apart that reshapes merge, and frames for stencils

A proposal (`plan/proposals`) asks where the values of one plan lie. Where they would lie for its sake, only a plan of the Program
that it writes can tell, so that is searched for, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from meshjit.core.program import Program, Var
from meshjit.plan.cost import Machine
from meshjit.transform.align import align
from meshjit.transform.collect_apart import collect_apart
from meshjit.transform.commute import commute
from meshjit.transform.keep_dims_apart import keep_dims_apart
from meshjit.transform.move_before_loops import move_before_loops
from meshjit.transform.pipeline import simplify
from meshjit.transform.turn_one_by_one import turn_one_by_one

DIMS: Final = 3  # that transforms may begin with


def written(program: Program, machine: Machine, ways: Sequence[str]) -> Program:
    """The Program written in these ways, one after the other; itself where none changes it."""
    return functools.reduce(lambda program, way: WAYS[way](program, machine), ways, program)


def rewritten(program: Program, machine: Machine) -> Iterator[tuple[tuple[str, ...], Program]]:
    """The ways in which a Program may be written otherwise, each alone and together with those before it, and what it is then."""
    known: list[tuple[tuple[str, ...], Program]] = [((), program)]
    for way, write in WAYS.items():
        for ways, before in [*known]:
            after = write(before, machine)
            if after is not before and not any(_is_same(after, other) for _, other in known):
                known.append(((*ways, way), after))
                yield known[-1]


def _is_same(a: Program, b: Program) -> bool:
    return len(a.eqns) == len(b.eqns) and str(a) == str(b)


def text_of(way: str) -> str:
    """What a way of writing does, for a user."""
    return _TEXTS[way.partition(" ")[0]]


def _always(*_: Any) -> bool:
    return True


def _before(program: Program, machine: Machine) -> Program:
    changed = collect_apart(move_before_loops(program, _always), _always)
    return program if changed is program else simplify(changed)


def _apart(program: Program, machine: Machine) -> Program:
    return keep_dims_apart(program, _always)


def _aligned(program: Program, machine: Machine) -> Program:
    def shards(var: Var, dim: int) -> int:
        return min(machine.mesh.device_count, var.shape[dim])

    return align(turn_one_by_one(program, shards), shards, machine.border_prices)


def _beginning_with(dim: int, program: Program, machine: Machine) -> Program:
    """Transforms along a dim first."""
    return commute(program, lambda _, each: each == dim)


WAYS: Final[Mapping[str, Callable[[Program, Machine], Program]]] = {
    "before": _before,
    "apart": _apart,
    "align": _aligned,
    **{f"commute {dim}": functools.partial(_beginning_with, dim) for dim in range(DIMS)},
}
_TEXTS: Final = {
    "before": "take parts before loops, and put together after them what they add up of parts",
    "apart": "keep apart the dims that reshapes merge",
    "align": "compute what slices of a dim give at the places of the dim itself",
    "commute": "transform dims in another order",
}
