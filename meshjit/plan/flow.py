"""What a plan comes to as it runs: seconds, bytes on the wire, the peak of the memory.

`Flow` goes through a Program as partitioning will, and keeps which versions of every value then exist: a weight that was
gathered once is there for the backward pass, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from meshjit.core.collective import Collective
from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import weighted_regions
from meshjit.core.types import TensorType
from meshjit.core.versions import Versions
from meshjit.plan.cost import NO_EXCHANGE, Machine, OwnCost
from meshjit.plan.events import Event, Exchange, Move, Remake
from meshjit.plan.nested import ceded, unstacked
from sharding.cost import gathering_dim
from sharding.mesh import BaseMesh
from sharding.reshard import Walk
from sharding.spec import Placement
from sharding.steps import operand_shape, step_axes


class TooDear(Exception):
    """Planning was stopped: the plan is dearer than the one that it was to be compared with."""


class Limit(NamedTuple):
    """Planning stops once a plan takes more seconds, and holds at least so many bytes."""

    seconds: float = math.inf
    bytes: float = 0.0


@dataclass(frozen=True)
class Log:
    """What happens in a repeat: the work of each; and in order what is moved, as `Flow.note` is told, and what
    becomes of partial sums. `outer`: the positions of values from outside."""

    outer: Mapping[Var, int]
    work: list[float] = field(default_factory=list[float])
    moves: list[Any] = field(default_factory=list[Any])


class Flow(Versions[None]):
    """Follows the values of one Program through its equations: where each is, and what it cost so far. TooDear is raised
    beyond the limit. `lent`: inputs of a nested Program that count around it, as they come."""

    def __init__(
        self, program: Program, machine: Machine, limit: Limit | None = None, lent: frozenset[Var] = frozenset()
    ) -> None:
        super().__init__(machine)
        self.limit = limit or Limit()
        self.left = machine.work_left(program) if limit is not None else None  # what equations will work at least
        self.program = program
        self.machine = machine
        self.lent = lent
        self.sizes: dict[Var, int] = {}  # bytes of all versions of a value
        self.left_behind: dict[Var, int] = {}  # bytes of undonated inputs, which are held to the end
        self.work = self.moving = self.bytes = 0.0
        self.held = self.peak = 0
        self.ends, self.in_place = machine.uses_of(program).ends, machine.uses_of(program).in_place
        self.on_host, self.parts = machine.on_host(program), machine.parts(program)
        self.at = 0
        self.collectives: list[Collective] = []
        self.events: list[Event] = []
        self.eqn: Eqn | None = None  # the one that values are brought for
        self.log: Log | None = None

    def start(self, inputs: Sequence[Placement]) -> None:
        for var, placement in zip(self.program.inputs, inputs, strict=True):
            placement = self.machine.normal(placement)
            self.enter(var, placement, None)
            self._hold(var, 0 if var in self.lent else self.local_bytes(var, placement))
            if var in self.machine.undonated:
                self.left_behind[var] = self.sizes[var]

    def local_bytes(self, var: Var, placement: Placement) -> int:
        """What a version of a value takes of a device's own memory."""
        size, part = self.in_memory(var, placement), self.parts.get(var)
        return size if part is None or self.is_moved(var) else int(part * size)

    def in_memory(self, var: Var, placement: Placement) -> int:
        """The same of one that lies in memory: what is moved does so."""
        return 0 if var in self.on_host else self.machine.local_bytes(var.type, placement)

    def is_moved(self, var: Var) -> bool:
        return len(self.versions[var]) > 1

    def run(self, eqn: Eqn, plan: EquationPlan) -> None:
        """One equation: bring its operands, compute, forget what nobody needs any more."""
        effect, versions = self.machine.effects.get(id(plan)) or self.machine.effect(eqn, plan), self.versions
        self.eqn = eqn
        for var, placement in zip(eqn.inputs, effect.operands, strict=True):
            if placement not in versions[var]:
                self.operand(var, placement)
        if plan.bodies:
            self._nested(eqn, plan)
        self.work += effect.work
        if self.log is not None:
            self.log.work.append(effect.work)
        if effect.exchange is not NO_EXCHANGE:
            self.exchange(eqn, effect.exchange)
        if self.left is not None:
            self.check(self.at + 1)
        if self.at in self.in_place:
            for var, placement in [*self.overwritten(eqn, plan)]:
                self._hold(var, -self.local_bytes(var, placement))
        sizes, parts, left_behind = self.sizes, self.parts, self.left_behind
        for var, placement, size in zip(eqn.outputs, effect.results, effect.held, strict=True):
            versions[var] = {placement: None}
            sizes[var] = size = int(parts[var] * size) if var in parts else size
            self.held += size
        if not eqn.inputs or eqn.inputs[0] in self.cheap:
            self.note_maker(eqn, plan)
        if plan.brought:
            self.bring_results(eqn, plan)
        if self.held > self.peak:
            self.peak = self.held
        for var in self.ends[self.at]:
            self.held -= sizes.get(var, 0) - left_behind.get(var, 0)
        self.at += 1

    def check(self, at: int) -> None:
        """Whether it is known to be too dear before the equation with this number."""
        left = 0.0 if self.left is None else self.left[at]
        if self.work + self.moving + left > self.limit.seconds and self.peak >= self.limit.bytes:
            raise TooDear

    def compute(self, eqn: Eqn, plan: EquationPlan, operands: Sequence[None]) -> Sequence[None]:
        effect = self.machine.effect(eqn, plan)
        self.work += effect.work
        if self.log is not None:
            self.log.work.append(effect.work)
        if effect.exchange is not NO_EXCHANGE:
            self.exchange(eqn, effect.exchange)
        return (None,) * len(eqn.outputs)

    def exchange(self, eqn: Eqn, cost: OwnCost) -> None:
        """What an op's own rule sends and asks for."""
        event = Exchange(eqn, cost.collectives, cost.final) if cost.collectives else None
        self.note(cost.moving, cost.bytes, cost.collectives, event)
        for i, placement in cost.requests:
            self.bring(eqn.inputs[i], placement)

    def addend(self, local: None, placement: Placement) -> None:
        return None

    def remake(self, eqn: Eqn, plan: EquationPlan) -> None:
        self.note(0.0, 0.0, (), Remake(eqn, plan))
        return super().remake(eqn, plan)

    def travel(self, var: Var, walk: Walk, local: None) -> Sequence[None]:
        collectives = collectives_of(walk, var.type, self.machine.mesh)
        self.note(walk.seconds, walk.bytes, collectives, Move(var, walk, self.eqn))
        if var in self.parts and not self.is_moved(var):
            home = next(iter(self.versions[var]))
            self._hold(var, self.in_memory(var, home) - self.local_bytes(var, home))
        for between in walk.placements[1:]:
            if between not in self.versions[var]:
                self._hold(var, self.in_memory(var, between))
        return (None,) * len(walk.steps)

    def note(self, seconds: float, bytes: float, collectives: Sequence[Collective], event: Event | None) -> None:
        """Something is sent, or made again instead."""
        self.moving += seconds
        self.bytes += bytes
        self.collectives += collectives
        if event is not None:
            self.events.append(event)
        if self.log is not None:
            self.log.moves.append((seconds, bytes, collectives, event))

    def skip(self, eqns: Sequence[Eqn], held: int, peak: int) -> None:
        """These equations ran, which changed what is held by so much, in between by at most so much."""
        self.check(self.at + len(eqns))
        self.peak = max(self.peak, self.held + peak)
        self.held += held
        self.at += len(eqns)
        self.eqn = eqns[-1]

    def have(self, var: Var) -> tuple[Placement, ...]:
        """The versions of a value; none for a value that can be computed again at any placement."""
        return () if var in self.cheap else tuple(self.versions[var])

    def _nested(self, eqn: Eqn, plan: EquationPlan) -> None:
        """What the loops or branches of an equation cost: every trip of a loop, and the mean of branches."""
        given = {v: self.local_bytes(v, p) for v, p in self.ceded(eqn, plan)}
        beside = self._beside(eqn, plan)
        for (region, times), body in zip(weighted_regions(eqn), plan.bodies, strict=True):
            assert body.cost is not None
            self.work += times * body.cost.work_seconds
            around = self.held + beside - (sum(given.values()) if region.carried else 0)
            self.peak = max(self.peak, around + int(body.cost.peak_bytes))
            if plan.block:
                continue  # its collectives are those of the block
            self.moving += times * body.cost.move_seconds
            self.bytes += times * body.cost.wire_bytes
            self.collectives += [each.times(times) for each in body.collectives]

        for var, size in given.items():
            self._hold(var, -size)

    def ceded(self, eqn: Eqn, plan: EquationPlan) -> Iterator[tuple[Var, Placement]]:
        """The versions whose memory carries take: the one that an undonated input has from the start is the caller's."""
        for i in ceded(eqn, self.ends[self.at]):
            var, placement = eqn.inputs[i], self.machine.normal(plan.operands[i])
            if self.can_take(var, placement):
                yield var, placement

    def overwritten(self, eqn: Eqn, plan: EquationPlan) -> Iterator[tuple[Var, Placement]]:
        """The versions whose memory results of the equation take, which lie alike."""
        for i, result in self.in_place[self.at]:
            var, placement = eqn.inputs[i], self.machine.normal(plan.operands[i])
            if placement == self.machine.normal(plan.results[result]) and self.can_take(var, placement):
                yield var, placement

    def can_take(self, var: Var, placement: Placement) -> bool:
        """Whether the memory of a version that nobody reads any more is free: not that of inputs that others keep."""
        home, is_others = next(iter(self.versions[var])), var in self.lent or var in self.machine.undonated
        return placement in self.versions[var] and not (is_others and placement == home)

    def _beside(self, eqn: Eqn, plan: EquationPlan) -> int:
        """Bytes of the results that loops fill slice by slice."""
        whole = set(range(len(eqn.outputs))).difference(unstacked(eqn))
        return sum(self.in_memory(eqn.outputs[i], self.machine.normal(plan.results[i])) for i in whole)

    def change(self, eqn: Eqn, plan: EquationPlan) -> None:
        """An equation that has run already is planned otherwise after all: other operands are brought, and its results
        lie elsewhere, in as much memory."""
        held = self.held
        for var, placement in zip(eqn.inputs, plan.operands, strict=True):
            self.operand(var, placement)
        for var, placement in zip(eqn.outputs, plan.results, strict=True):
            self.enter(var, self.machine.normal(placement), None)
        self.held = held

    def _hold(self, var: Var, size: int) -> None:
        self.sizes[var] = self.sizes.get(var, 0) + size
        self.held += size

    def end(self, outputs: Sequence[Placement]) -> PlanCost:
        """Hand the outputs over; what all of it cost."""
        self.eqn = None
        for var, placement in zip(self.program.outputs, outputs, strict=True):
            self.bring(var, placement)
        return PlanCost(self.work, self.moving, self.bytes, float(max(self.peak, self.held)))


def collectives_of(walk: Walk, type: TensorType, mesh: BaseMesh) -> list[Collective]:
    """The collectives of a walk; a value of no elements has nothing to move."""
    if not walk.bytes or 0 in type.shape:
        return []
    collectives: list[Collective] = []
    for step, here in zip(walk.steps, walk.placements, strict=False):
        if step.collective is not None:
            shape = operand_shape(step, here, type.shape, mesh)
            size = math.prod(shape) * type.dtype.itemsize
            collectives.append(Collective(step.collective, step_axes(step), size, gathering_dim(step, shape)))
    return collectives
