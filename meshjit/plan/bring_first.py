"""Sums are reduced as soon as they are made where that is better than when the first reader asks for them.

Under several placements they are read from the one from which the others cost least:

    %y partial sum(x); read as [x, -], then as [-, -]      in the order of the readers: a reduce-scatter, then an all-gather
                                                           [-, -] first: an all-reduce, of which [x, -] is a slice

Readers ask for values one after the other, and what was brought for one is there for the next, so the order decides. Once all
equations are planned, all readers of a sum are known. Where another placement than the first reader's had better be first, and
as many bytes are sent, the sum is brought there as soon as it is made.

What is read much later, and is smaller then, does not wait: the gradients of all layers lie reduced and scattered until the
optimizer reads them, not as the partial sums of each device.

    %g partial sum(x) f32[K, N]; read as [x, -] after the backward pass        1 / x of its bytes are held until then
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.planned import Planned, in_order
from sharding.placement import Placement

EQUAL: Final = 1 + 1e-9  # seconds and bytes that differ by less are the same
MOST: Final = 4  # placements of one sum
SOON: Final = 1  # equations further on: who reads a sum there does not let it wait


def bring_first(planned: Planned) -> Planned:
    """The same with `brought` in the plans of equations, where an order of its readers' placements costs less than theirs."""
    machine, asked, known = planned.machine, _asked(planned), dict[object, EquationPlan]()
    changes: dict[int, EquationPlan] = {}
    for at in sorted({readers.made for readers in asked.values() if len(readers.placements) > 1 or readers.is_late}):
        eqn, plan = planned.program.eqns[at], planned.plans[at]
        sides = zip(eqn.outputs, plan.results, strict=True)
        first = tuple(
            [first_of(machine, v.type, p, asked[v].placements, asked[v].is_late) if v in asked else None for v, p in sides]
        )
        if any(first):  # plans of alike equations stay one object
            changes[at] = known.setdefault((id(plan), first), dataclasses.replace(plan, brought=first))
    return planned.changed(changes)


@dataclass
class _Readers:
    """Of a sum: the numbers of the equations that make it and read it first, and the whole placements under which it is read, in
    the order of its readers. `flows`: somebody reads it as it is."""

    made: int
    read: int = -1
    placements: dict[Placement, None] = field(default_factory=dict[Placement, None])
    flows: bool = False

    def add(self, at: int, placement: Placement) -> None:
        self.read = at if self.read < 0 else self.read
        if placement.partial:
            self.flows = True
        else:
            self.placements[placement] = None

    @property
    def is_late(self) -> bool:
        return is_late(self.made, self.read) and not self.flows


def _asked(planned: Planned) -> dict[Var, _Readers]:
    """Of sums, who reads them."""
    program, plans = planned.program, planned.plans
    sums = {id(plan) for plan in {id(plan): plan for plan in plans}.values() if any(map(is_sum, plan.results))}
    asked: dict[Var, _Readers] = {}
    for at in [at for at, plan in enumerate(plans) if id(plan) in sums]:
        made = zip(program.eqns[at].outputs, plans[at].results, strict=True)
        asked.update((var, _Readers(at)) for var, placement in made if is_sum(placement))
    for var, readers in asked.items():
        for read in planned.reads(var):
            readers.add(*read)
    return asked


def is_sum(placement: Placement) -> bool:
    return bool(placement.partial) and placement.partial_kind == "sum"


def is_late(made: int, read: int) -> bool:
    """Whether an equation stands far behind another one. Both by number."""
    return read > made + SOON


def first_of(
    machine: Machine, type: TensorType, made: Placement, asked: Iterable[Placement], is_late: bool = False
) -> Placement | None:
    """The placement to which a sum is brought before its readers ask for it; None where their order costs no more, and nothing is
    gained where they ask late."""
    order, made = list(asked), machine.normal(made)
    first: Placement | None = None
    if is_late and machine.local_bytes(type, order[0]) < machine.local_bytes(type, made):
        first = order[0]
    if not 1 < len(order) <= MOST:
        return first
    best, sent = in_order(machine, type, made, order)
    for placement in order[1:]:
        seconds, bytes_ = in_order(machine, type, made, [placement, *order])
        if seconds * EQUAL < best and bytes_ <= sent * EQUAL:
            first, best = placement, seconds
    return first
