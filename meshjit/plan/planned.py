"""A Program all of whose equations are planned: by then it is known who reads which value, and where.

What a value costs is bringing it to all its readers, one after the other:

    %1 made as [x, -]; read as [x, -], then as [-, -]      nothing, then an all-gather
    %1 made as [-, -]; read as [x, -], then as [-, -]      each device keeps a part, then nothing

Another way to compute an equation changes where its operands are asked for, and where its result is brought from.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from meshjit.core.collective import Collective
from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Program, Var
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.delay import Price
from meshjit.plan.events import Event, Move
from meshjit.plan.recall import run_through
from sharding.placement import Placement

NOTHING: Final = Price(0.0, 0.0)


class Read(NamedTuple):
    """The number of an equation, or of the Program's end behind all of them, and the placement under which it reads a value."""

    at: int
    placement: Placement


@dataclass(frozen=True)
class Planned:
    """`plans` are those of the equations, `inputs` and `outputs` the placements under which values come in and leave. `lent`:
    inputs of a nested Program that count around it."""

    program: Program
    machine: Machine
    plans: tuple[EquationPlan, ...]
    inputs: Sequence[Placement]
    outputs: Sequence[Placement]
    lent: frozenset[Var] = frozenset()

    @functools.cached_property
    def outcome(self) -> tuple[PlanCost, tuple[Collective, ...], list[Event]]:
        """What running it costs, its collectives, and how values move."""
        return run_through(self.program, self.machine, self.plans, self.inputs, self.outputs, self.lent)

    @property
    def cost(self) -> PlanCost:
        return self.outcome[0]

    @functools.cached_property
    def moves(self) -> Sequence[Move]:
        """What sends bytes, in order."""
        return [event for event in self.outcome[2] if isinstance(event, Move) and event.walk.bytes]

    @functools.cached_property
    def made(self) -> Mapping[Var, int]:
        """The number of the equation that makes each value."""
        return self.machine.uses_of(self.program).makers

    @functools.cached_property
    def _entered(self) -> Mapping[Var, Placement]:
        return dict(zip(self.program.inputs, self.inputs, strict=True))

    @functools.cached_property
    def _readers(self) -> Mapping[Var, Sequence[tuple[int, int]]]:
        return self.machine.uses_of(self.program).reads

    @functools.cached_property
    def _reads(self) -> dict[Var, Sequence[Read]]:
        return {}

    @functools.cached_property
    def _homes(self) -> dict[Var, Placement]:
        return {}

    def home(self, var: Var) -> Placement:
        """Where a value is made, or comes in."""
        home = self._homes.get(var)
        if home is None:
            at = self.made.get(var)
            made = self._entered[var] if at is None else self.plans[at].results[self.program.eqns[at].outputs.index(var)]
            home = self._homes[var] = self.machine.normal(made)
        return home

    def is_made_again(self, var: Var) -> bool:
        """Whether a value is made of nothing, so that it never moves."""
        at = self.made.get(var)
        return at is not None and not self.program.eqns[at].inputs

    def reads(self, var: Var) -> Sequence[Read]:
        """Who reads a value, in the order of the Program."""
        known = self._reads.get(var)
        if known is None:
            known = self._reads[var] = [Read(at, self._read(at, i)) for at, i in self._readers.get(var, ())]
        return known

    def _read(self, at: int, i: int) -> Placement:
        return self.machine.normal(self.plans[at].operands[i] if at < len(self.plans) else self.outputs[i])

    def asked(self, var: Var, reader: int | None = None, instead: Placement | None = None) -> list[Placement]:
        """Where a value is read; with `instead` in the place of where the equation `reader` reads it."""
        return [instead if instead is not None and at == reader else placement for at, placement in self.reads(var)]

    def price(self, var: Var, order: Iterable[Placement], made: Placement | None = None) -> Price:
        """Of bringing a value to these placements, from where it is made or from `made`."""
        start, others = self.home(var) if made is None else self.machine.normal(made), dict.fromkeys(order)
        others.pop(start, None)
        if not others or (made is None and self.is_made_again(var)):
            return NOTHING
        return Price(*in_order(self.machine, var.type, start, others))

    def work(self, at: int, plan: EquationPlan) -> Price:
        """Of what the equation with this number computes by this plan."""
        return Price(self.machine.own_work(self.program.eqns[at], plan)[0], 0.0)

    def changed(self, changes: Mapping[int, EquationPlan]) -> Planned:
        """The same with other plans of some equations, by number."""
        if not changes:
            return self
        plans = [*self.plans]
        for at, plan in changes.items():
            plans[at] = plan
        return dataclasses.replace(self, plans=tuple(plans))


def in_order(machine: Machine, type: TensorType, made: Placement, order: Iterable[Placement]) -> tuple[float, float]:
    """Seconds and bytes of bringing a value to placements one after the other, each from the nearest that there is by then. Where
    an addend is read of a value that is whole, that is the value (`Versions.operand`)."""
    have, seconds, sent = {made: None}, 0.0, 0.0
    for placement in order:
        starts: Collection[Placement] = have
        if placement.partial:
            starts = [version for version in have if {*placement.partial} <= {*version.partial}]
            placement = placement if starts else placement.without_partial()
        if placement not in have:
            walk = machine.nearest(type, starts or have, placement)
            seconds, sent = seconds + walk.seconds, sent + walk.bytes
            have.update(dict.fromkeys(walk.placements))
    return seconds, sent
