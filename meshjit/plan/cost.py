"""What a plan is predicted to cost on a machine: seconds of work and of moving data, bytes on the wire, peak memory.

`Flow` goes through a Program as partitioning will, and keeps which versions of every value then exist: a weight that was
gathered once is there for the backward pass, too. Work is what the factors say: a contraction does as many
multiplications as its factors and windows have combinations, everything else reads and writes its values once, in fused loops.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from meshjit.core.collective import Collective, collectives_in
from meshjit.core.once import once_per_program
from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import weighted_regions
from meshjit.core.repeats import repeats
from meshjit.core.rules import rule_of
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.core.versions import Versions, Walks
from meshjit.partition.own_rule import OwnRule, own_rule
from meshjit.plan.events import Event, Exchange, Move, Remake
from meshjit.plan.written import write, write_block
from meshjit.transform.choose_frames import BorderPrices
from meshjit.transform.pipeline import finish
from sharding.cost import collective_seconds, gathering_dim
from sharding.mesh import BaseMesh
from sharding.reshard import Walk
from sharding.rule import FactorRule
from sharding.spec import Placement
from sharding.steps import operand_shape, step_axes

USES_OF_OUTPUT = 2  # an output is reduced when it leaves, so it never counts as used once
FUSED = 0.3  # fraction of the bytes that elementwise equations read and write that is left after fusion
WORTH: Final = 0.998  # a plan is cheaper only below this fraction of the other's time
WORTH_BYTES: Final = 0.5  # the same for a plan that sends more: times are predicted, bytes are certain
EQUAL_BYTES: Final = 1.01  # up to this ratio bytes count as equal


def is_cheaper(new: PlanCost, old: PlanCost, memory: float) -> bool:
    """Less over the memory limit, if either is; then clearly faster, and much faster if it sends more bytes."""
    over = [max(0.0, cost.peak_bytes - memory) for cost in (new, old)]
    worth = WORTH_BYTES if new.wire_bytes > EQUAL_BYTES * old.wire_bytes else WORTH
    return over[0] < over[1] or (over[0] == over[1] and new.seconds < worth * old.seconds)


@dataclass(frozen=True)
class Effect:
    """The effects of an equation under a plan: the placements of its operands and results, how many
    bytes of each a device holds, the seconds of its own work, and what the op's own rule sends and asks for."""

    plan: EquationPlan
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    held: tuple[int, ...]
    work: float
    exchange: OwnCost


@dataclass(frozen=True)
class OwnCost:
    """What an op's own rule does besides: seconds of work and of collectives, bytes on the wire; the operands that it asks
    for under other placements."""

    work: float = 0.0
    moving: float = 0.0
    bytes: float = 0.0
    collectives: tuple[Collective, ...] = ()
    final: tuple[Collective, ...] = ()  # shared, merged and paired: these take the time
    requests: tuple[tuple[int, Placement], ...] = ()


NO_EXCHANGE: Final = OwnCost()


class Machine(Walks):
    """Prices on one mesh of a target; every question is answered once."""

    def __init__(self, mesh: BaseMesh, target: Target) -> None:
        super().__init__(mesh, target)
        self.work = functools.cache(self._work)
        self.local_bytes = functools.cache(self._local_bytes)
        self.effects: dict[int, Effect] = {}  # by id of the plan, which the Effect keeps alive
        self.exchanges: dict[Any, OwnCost] = {}
        self.forget_repeats()

    def forget_repeats(self) -> None:
        """What planning repeats came to is worked out anew."""
        self.uses_of: Callable[[Program], Uses] = once_per_program(Uses)

    def again(self) -> Machine:
        """One that knows what this one knows. What it learns of plans goes when it goes; prices of walks are shared."""
        other = copy.copy(self)
        other.effects = dict(self.effects)
        other.uses_of = once_per_program(lambda program: self.uses_of(program).again())
        return other

    def seconds(self, type: TensorType, source: Placement, target: Placement) -> float:
        return 0.0 if source == target else self.walk(type, source, target).seconds

    def _local_bytes(self, type: TensorType, placement: Placement) -> int:
        return math.prod(placement.local_shape(type.shape, self.mesh)) * type.dtype.itemsize

    def effect(self, eqn: Eqn, plan: EquationPlan) -> Effect:
        """Equations that share a plan are alike."""
        effect = self.effects.get(id(plan))
        if effect is None:
            work, exchange = self.own_work(eqn, plan)
            operands, results = (tuple(map(self.normal, side)) for side in (plan.operands, plan.results))
            held = tuple(map(self.local_bytes, eqn.output_types, results))
            effect = self.effects[id(plan)] = Effect(plan, operands, results, held, work, exchange)
        return effect

    def own_work(self, eqn: Eqn, plan: EquationPlan) -> tuple[float, OwnCost]:
        """Seconds that one device computes for an equation, nested Programs aside, and what the op's own rule exchanges."""
        if plan.bodies:
            return 0.0, self.in_blocks(eqn, plan) if plan.block else NO_EXCHANGE
        rule = own_rule(eqn, plan) if eqn.inputs or eqn.op.pinned is not None else None
        if rule is not None:
            exchange = self.exchange(rule, eqn, plan)
            return exchange.work, exchange
        types, placements = (*eqn.input_types, *eqn.output_types), (*plan.operands, *plan.results)
        return self.work(plan.rule, types, placements, work_passes(eqn), self.window_flops(eqn)), NO_EXCHANGE

    def even_share(self, eqn: Eqn, plan: EquationPlan) -> float:
        """Seconds of the equation's own work that no spread over the devices goes below; 0 where the op has a rule of its own."""
        if plan.bodies or eqn.op.partition is not None or eqn.op.pinned is not None:
            return 0.0
        types = (*eqn.input_types, *eqn.output_types)
        whole = tuple([Placement.replicated(len(type.shape)) for type in types])
        return self.work(plan.rule, types, whole, work_passes(eqn)) / self.mesh.device_count

    def exchange(self, rule: OwnRule, eqn: Eqn, plan: EquationPlan) -> OwnCost:
        lies = (plan.operands, plan.results, plan.manual, *plan.assignment.items())
        key = (eqn.op, eqn.input_types, tuple(eqn.params.items()), *lies)
        exchange = self.exchanges.get(key)
        if exchange is None:
            written = write(rule, eqn, plan, self.mesh, self.target)
            exchange = self.exchanges[key] = self.cost_of_local(written.local, written.requests)
        return exchange

    def in_blocks(self, eqn: Eqn, plan: EquationPlan) -> OwnCost:
        """Of a loop that does several iterations at once, their work aside."""
        cost = self.cost_of_local(write_block(eqn, plan, self.mesh, self.target))
        return dataclasses.replace(cost, work=0.0)

    def cost_of_local(self, local: Program, requests: tuple[tuple[int, Placement], ...] = ()) -> OwnCost:
        """Of local equations; collectives take the time that they take once they are shared, merged and paired."""
        collectives = tuple(collectives_in(local, self.mesh))
        final = self.final(local) if len(collectives) > 1 else collectives
        return OwnCost(self.local_work(local), *self.sum_of(final), collectives, final, requests)

    @functools.cached_property
    def border_prices(self) -> BorderPrices:
        """Of sending a border over the slowest axis of the mesh."""
        axes, count = self.mesh.axis_names, 1 << 20
        start, long = (collective_seconds("collective_permute", size, axes, self.mesh, self.topology) for size in (0, count))
        return BorderPrices(start, (long - start) / count, FUSED / self.topology.memory_bandwidth)

    def moving(self, local: Program) -> tuple[float, float]:
        """Seconds and bytes of the collectives of local equations, as they are in the end."""
        return self.sum_of(self.final(local))

    def final(self, local: Program) -> tuple[Collective, ...]:
        """The collectives of local equations, as they are in the end."""
        return tuple(collectives_in(finish(local, self.mesh, self.topology), self.mesh))

    def sum_of(self, collectives: Iterable[Collective]) -> tuple[float, float]:
        seconds = sent = 0.0
        for each in collectives:
            seconds += each.seconds(self.mesh, self.topology)
            sent += each.wire_bytes(self.mesh)
        return seconds, sent

    def local_work(self, program: Program) -> float:
        """Seconds that a device computes for a local Program, collectives aside. What goes element by element is fused."""
        ends = (*program.inputs, *program.outputs)
        seconds = FUSED * sum(v.type.nbytes for v in ends) / self.topology.memory_bandwidth
        for eqn in program.eqns:
            if eqn.op.regions is not None:
                seconds += sum(times * self.local_work(region.program) for region, times in weighted_regions(eqn))
            elif eqn.op.simulate is None and not (rule := rule_of(eqn)).is_passthrough:
                types = (*eqn.input_types, *eqn.output_types)
                seconds += self.local_seconds(rule, types, work_passes(eqn), self.window_flops(eqn))
        return seconds

    def _work(
        self,
        rule: FactorRule,
        types: tuple[TensorType, ...],
        placements: tuple[Placement, ...],
        passes: float = 0.0,
        window_flops: float = 0.0,
    ) -> float:
        """`types` and `placements` are those of the operands, then of the results."""
        shapes = (p.local_shape(t.shape, self.mesh) for t, p in zip(types, placements, strict=True))
        local = [t.with_shape(shape) for t, shape in zip(types, shapes, strict=True)]
        return self.local_seconds(rule, local, passes, window_flops)

    def local_seconds(self, rule: FactorRule, types: Sequence[TensorType], passes: float, window_flops: float = 0.0) -> float:
        """Seconds of an equation on local types: memory that it touches, or multiplications of a contraction.

        `passes`: further reads of the operands that the op makes; `window_flops`: what reading its windows takes.
        """
        seconds = FUSED * sum(type.nbytes for type in types) / self.topology.memory_bandwidth
        if rule.reductions and len(rule.operands) > 1 and not passes:  # a contraction; others say themselves what they do
            flops = 2 * _multiplications(rule, types) + window_flops
            seconds = max(seconds, flops / self._flops(types[0]))
        operands = sum(type.nbytes for type in types[: len(rule.operands)])
        return seconds + passes * operands / self.topology.memory_bandwidth

    def window_flops(self, eqn: Eqn) -> float:
        """What reading the windows of an equation takes besides, on machines that copy narrow ones."""
        if eqn.op.window_reads is None or not self.target.narrow_windows:
            return 0.0
        reads, features = eqn.op.window_reads(eqn.input_types, eqn.params)
        return self.target.window_flops * reads if features <= self.target.narrow_windows else 0.0

    def _flops(self, type: TensorType) -> float:
        rates = self.topology.flops_of
        return rates.get(type.dtype.name, self.topology.flops) if rates else self.topology.flops


def _multiplications(rule: FactorRule, types: Sequence[TensorType]) -> int:
    """Of a contraction: one for every combination of factors, and every place of the dims that no factor has, of a window.

    b h i, w i o -> b h o | sum i, permute h      w, the kernel's places: 3 times b h i o for a kernel of 3
    """
    sides = zip((*rule.operands, *rule.results), types, strict=True)
    windows = [extent for dims, type in sides for factors, extent in zip(dims, type.shape, strict=True) if not factors]
    return math.prod(_extents(rule, types).values()) * math.prod(windows)


def _extents(rule: FactorRule, types: Sequence[TensorType]) -> dict[str, int]:
    """Local extents of the factors; of those in merged dims alone the global ones."""
    extents: dict[str, int] = {}
    for dims, type in zip((*rule.operands, *rule.results), types, strict=True):
        for factors, extent in zip(dims, type.shape, strict=True):
            if len(factors) == 1:
                extents[factors[0]] = min(extents.get(factors[0], extent), extent)
    return {**rule.sizes, **extents}


def work_passes(eqn: Eqn) -> float:
    """What the op itself says of its work; 0 for most."""
    return eqn.op.passes(eqn.input_types, eqn.params) if eqn.op.passes else 0.0


class Uses:
    """How often a Program uses its values, and after which equation each is needed no more; whatever the plan is."""

    def __init__(self, program: Program) -> None:
        self.ends = _last_uses(program)
        self.counts = Counter([v for eqn in program.eqns for v in eqn.inputs])
        for _ in range(USES_OF_OUTPUT):
            self.counts.update(program.outputs)
        self.addends = {v for v in _addends(program) if self.counts[v] == 1}
        self.unreduced = {*_unreduced(program)}  # values that a user leaves unreduced
        self.reads = dict(_contractions(program))
        self.readers = Counter([key for keys in self.reads.values() for key in keys])
        self.repeats = {repeat.start: repeat for repeat in repeats(program)}
        self.joins = {at: tuple([v in self.addends for v in repeat.inner]) for at, repeat in self.repeats.items()}
        self.outcomes: dict[Any, Any] = {}  # of planning them, see `meshjit.plan.recall`

    def again(self) -> Uses:
        """With outcomes of its own besides those so far."""
        other = copy.copy(self)
        other.outcomes = dict(self.outcomes)
        return other

    def sharers(self, eqn: Eqn) -> tuple[int, ...]:
        """For each operand of a contraction how many alike contractions read it; () for other equations. What is brought for the
        first of them is there for the others: q, k and v share the gather of what they are made of."""
        return tuple([self.readers[key] for key in self.reads.get(eqn, ())])


def _contractions(program: Program) -> Iterator[tuple[Eqn, list[Any]]]:
    """With their operands, each as it is read: alike for equal ops and params, whatever the other operand is."""
    copies: dict[tuple[int, ...], bool] = {}
    for eqn in program.eqns:
        if len(eqn.inputs) > 1 and eqn.op.regions is None:
            contracts = copies.get(eqn.identity)
            if contracts is None:
                contracts = copies[eqn.identity] = bool(rule_of(eqn).reductions) and not work_passes(eqn)
            if contracts:
                yield eqn, [(var, i, eqn.op, tuple(eqn.params.items())) for i, var in enumerate(eqn.inputs)]


def _addends(program: Program) -> Iterator[Var]:
    """The operands of equations that are linear in several of them together, and those that are asked for as addends."""
    copies: dict[tuple[int, ...], list[int]] = {}
    for eqn in program.eqns:
        if eqn.op.pinned is not None:
            yield from [v for v, spec in zip(eqn.inputs, eqn.op.pinned(eqn.params)[0], strict=True) if spec.unreduced]
        elif len(eqn.inputs) > 1 and eqn.op.linear != ():
            positions = copies.get(eqn.identity)
            if positions is None:
                groups = [group for group in eqn.op.linear_groups(eqn.input_types, eqn.params) if len(group) > 1]
                positions = copies[eqn.identity] = [i for group in groups for i in group if i < len(eqn.inputs)]
            yield from [eqn.inputs[i] for i in positions]


def _unreduced(program: Program) -> Iterator[Var]:
    for eqn in program.eqns:
        if eqn.op.pinned is not None:
            yield from [v for v, spec in zip(eqn.outputs, eqn.op.pinned(eqn.params)[1], strict=True) if spec.unreduced]


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
    beyond the limit."""

    def __init__(self, program: Program, machine: Machine, limit: Limit | None = None) -> None:
        super().__init__(machine)
        self.limit = limit or Limit()
        self.program = program
        self.machine = machine
        self.sizes: dict[Var, int] = {}  # bytes of all versions of a value
        self.work = self.moving = self.bytes = 0.0
        self.held = self.peak = 0
        self.ends = machine.uses_of(program).ends
        self.at = 0
        self.collectives: list[Collective] = []
        self.events: list[Event] = []
        self.eqn: Eqn | None = None  # the one that values are brought for
        self.log: Log | None = None

    def start(self, inputs: Sequence[Placement]) -> None:
        for var, placement in zip(self.program.inputs, inputs, strict=True):
            placement = self.machine.normal(placement)
            self.enter(var, placement, None)
            self._hold(var, self.machine.local_bytes(var.type, placement))

    def run(self, eqn: Eqn, plan: EquationPlan) -> None:
        """One equation: bring its operands, compute, forget what nobody needs any more."""
        effect, versions = self.machine.effect(eqn, plan), self.versions
        self.eqn = eqn
        for var, placement in zip(eqn.inputs, effect.operands, strict=True):
            if placement not in versions[var]:
                self.operand(var, placement)
        if plan.bodies:
            self._nested(eqn, plan)
        self.compute(eqn, plan, ())
        self.check()
        for var, placement, size in zip(eqn.outputs, effect.results, effect.held, strict=True):
            versions[var] = {placement: None}
            self._hold(var, size)
        if not eqn.inputs or eqn.inputs[0] in self.cheap:
            self.note_maker(eqn, plan)
        if plan.brought:
            self.bring_results(eqn, plan)
        if self.held > self.peak:
            self.peak = self.held
        for var in self.ends[self.at]:
            self.held -= self.sizes.get(var, 0)
        self.at += 1

    def check(self) -> None:
        if self.work + self.moving > self.limit.seconds and self.peak >= self.limit.bytes:
            raise TooDear

    def compute(self, eqn: Eqn, plan: EquationPlan, operands: Sequence[None]) -> Sequence[None]:
        effect = self.machine.effect(eqn, plan)
        self.work += effect.work
        if self.log is not None:
            self.log.work.append(effect.work)
        exchange = effect.exchange
        if exchange is not NO_EXCHANGE:
            event = Exchange(eqn, exchange.collectives, exchange.final) if exchange.collectives else None
            self.note(exchange.moving, exchange.bytes, exchange.collectives, event)
            for i, placement in exchange.requests:
                self.bring(eqn.inputs[i], placement)
        return (None,) * len(eqn.outputs)

    def addend(self, local: None, placement: Placement) -> None:
        return None

    def remake(self, eqn: Eqn, plan: EquationPlan) -> None:
        self.note(0.0, 0.0, (), Remake(eqn, plan))
        return super().remake(eqn, plan)

    def travel(self, var: Var, walk: Walk, local: None) -> Sequence[None]:
        collectives = collectives_of(walk, var.type, self.machine.mesh)
        self.note(walk.seconds, walk.bytes, collectives, Move(var, walk, self.eqn))
        for between in walk.placements[1:]:
            if between not in self.versions[var]:
                self._hold(var, self.machine.local_bytes(var.type, between))
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
        self.check()
        self.peak = max(self.peak, self.held + peak)
        self.held += held
        self.at += len(eqns)
        self.eqn = eqns[-1]

    def have(self, var: Var) -> tuple[Placement, ...]:
        """The versions of a value; none for a value that can be computed again at any placement."""
        return () if var in self.cheap else tuple(self.versions[var])

    def _nested(self, eqn: Eqn, plan: EquationPlan) -> None:
        """What the loops or branches of an equation cost: every trip of a loop, and the mean of branches."""
        for (_, times), body in zip(weighted_regions(eqn), plan.bodies, strict=True):
            assert body.cost is not None
            self.work += times * body.cost.work_seconds
            self.peak = max(self.peak, self.held + int(body.cost.peak_bytes))
            if plan.block:
                continue  # its collectives are those of the block
            self.moving += times * body.cost.move_seconds
            self.bytes += times * body.cost.wire_bytes
            self.collectives += [each.times(times) for each in body.collectives]

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


def _last_uses(program: Program) -> list[list[Var]]:
    """For every equation the values that are needed no more after it."""
    later = set(program.outputs)
    ends: list[list[Var]] = []
    for eqn in reversed(program.eqns):
        last = {*eqn.inputs, *eqn.outputs}.difference(later)
        ends.append([*last])
        later |= last
    return ends[::-1]
