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
    asked = _asked(program, machine, plans, outputs)
    known: dict[object, EquationPlan] = {}  # plans of alike equations stay one object

    def planned(results: Sequence[Var], plan: EquationPlan) -> EquationPlan:
        first = [_first(machine, v.type, p, asked.get(v, ())) for v, p in zip(results, plan.results, strict=True)]
        if not any(first):
            return plan
        return known.setdefault((id(plan), *first), dataclasses.replace(plan, brought=tuple(first)))

    several = {v for v, placements in asked.items() if len(placements) > 1}
    return tuple([
        plan if several.isdisjoint(eqn.outputs) else planned(eqn.outputs, plan)
        for eqn, plan in zip(program.eqns, plans, strict=True)
    ])  # fmt: skip


def _asked(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], outputs: Sequence[Placement]
) -> dict[Var, dict[Placement, None]]:
    """The placements, whole, under which sums are read, in the order of their readers."""
    asked: dict[Var, dict[Placement, None]] = {}
    for eqn, plan in zip(program.eqns, plans, strict=True):
        for i, var in enumerate(eqn.inputs if asked else ()):
            if var in asked and not plan.operands[i].partial:
                asked[var][machine.normal(plan.operands[i])] = None
        asked.update((v, {}) for v, p in zip(eqn.outputs, plan.results, strict=True) if p.partial_kind == "sum")
    for var, placement in zip(program.outputs, outputs, strict=True):
        if var in asked and not placement.partial:
            asked[var][machine.normal(placement)] = None
    return asked


def _first(machine: Machine, type: TensorType, made: Placement, asked: Iterable[Placement]) -> Placement | None:
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
