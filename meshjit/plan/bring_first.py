"""Sums that are read under several placements are reduced to the one from which the others cost least.

    %y partial sum(x); read as [x, -], then as [-, -]      in the order of the readers: a reduce-scatter, then an all-gather
                                                           [-, -] first: an all-reduce, of which [x, -] is a slice

Readers ask for values one after the other, and what was brought for one is there for the next, so the order decides. Once all
equations are planned, all readers of a sum are known. Where another placement than the first reader's had better be first, and
as many bytes are sent, the sum is brought there as soon as it is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Program, Var
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from sharding.placement import Placement

EQUAL: Final = 1 + 1e-9  # seconds and bytes that differ by less are the same
MOST: Final = 4  # placements of one sum


def bring_first(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], outputs: Sequence[Placement]
) -> tuple[EquationPlan, ...]:
    """The plans of a Program's equations, with `brought` where an order of its readers' placements costs less than theirs."""
    asked, known, steps = _asked(program, machine, plans, outputs), dict[object, EquationPlan](), list(plans)
    for at in sorted({at for at, placements in asked.values() if len(placements) > 1}):
        eqn, plan = program.eqns[at], plans[at]
        sides = zip(eqn.outputs, plan.results, strict=True)
        first = tuple([first_of(machine, v.type, p, asked[v][1]) if v in asked else None for v, p in sides])
        if any(first):  # plans of alike equations stay one object
            steps[at] = known.setdefault((id(plan), first), dataclasses.replace(plan, brought=first))
    return tuple(steps)


def _asked(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], outputs: Sequence[Placement]
) -> dict[Var, tuple[int, dict[Placement, None]]]:
    """Of sums, the number of the equation that makes each, and the whole placements under which it is read, in the order of its
    readers."""
    sums = {id(plan) for plan in {id(plan): plan for plan in plans}.values() if any(map(is_sum, plan.results))}
    asked: dict[Var, tuple[int, dict[Placement, None]]] = {}
    for at in [at for at, plan in enumerate(plans) if id(plan) in sums]:
        made = zip(program.eqns[at].outputs, plans[at].results, strict=True)
        asked.update((var, (at, {})) for var, placement in made if is_sum(placement))
    is_unread = {*asked}.isdisjoint
    for at in [at for at, eqn in enumerate(program.eqns) if not is_unread(eqn.inputs)] if asked else ():
        for var, placement in zip(program.eqns[at].inputs, plans[at].operands, strict=True):
            if var in asked and not placement.partial:
                asked[var][1][machine.normal(placement)] = None
    for var, placement in zip(program.outputs, outputs, strict=True):
        if var in asked and not placement.partial:
            asked[var][1][machine.normal(placement)] = None
    return asked


def is_sum(placement: Placement) -> bool:
    return bool(placement.partial) and placement.partial_kind == "sum"


def first_of(machine: Machine, type: TensorType, made: Placement, asked: Iterable[Placement]) -> Placement | None:
    """The placement to which a sum is brought before its readers ask for it; None where their order costs no more."""
    order, made = list(asked), machine.normal(made)
    if not 1 < len(order) <= MOST:
        return None
    best, sent = _in_order(machine, type, made, order)
    first: Placement | None = None
    for placement in order[1:]:
        seconds, bytes_ = _in_order(machine, type, made, [placement, *order])
        if seconds * EQUAL < best and bytes_ <= sent * EQUAL:
            first, best = placement, seconds
    return first


def _in_order(machine: Machine, type: TensorType, made: Placement, order: Sequence[Placement]) -> tuple[float, float]:
    """Seconds and bytes of bringing a value to placements one after the other."""
    have, seconds, sent = {made: None}, 0.0, 0.0
    for placement in order:
        if placement not in have:
            walk = machine.nearest(type, have, placement)
            seconds, sent = seconds + walk.seconds, sent + walk.bytes
            have.update(dict.fromkeys(walk.placements))
    return seconds, sent
