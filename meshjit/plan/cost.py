"""Prices on a machine: seconds of an equation's work and of what its own rule sends; and which of two plans is cheaper.

Work is what the factors say: a contraction does as many multiplications as its factors and windows have combinations,
everything else reads and writes its values once, in fused loops. `meshjit/plan/flow.py` adds up a whole plan.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshjit.core.collective import Collective, collectives_in
from meshjit.core.once import Once
from meshjit.core.op import ColumnWork
from meshjit.core.plan import EquationPlan, Plan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import weighted_regions
from meshjit.core.repeats import kinds_of
from meshjit.core.rules import Reading, goes_by_element, reading_of, rule_of
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.core.versions import Walks
from meshjit.partition.blocking import BlockedLoop, blocked_loop
from meshjit.partition.own_rule import OwnRule, own_rule
from meshjit.partition.stretches import Refused
from meshjit.plan.block_work import BlockWork
from meshjit.plan.kinds import Kinds
from meshjit.plan.traffic import fused_bytes
from meshjit.plan.uses import Uses
from meshjit.plan.windows import NO_WINDOWS, Windows, search_passes, windows_of
from meshjit.plan.written import write, write_block
from meshjit.transform.choose_frames import BorderPrices
from meshjit.transform.pipeline import finish
from sharding.cost import collective_seconds
from sharding.distances import Distances
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import Placement

# Fraction of the bytes that elementwise equations read and write that is left after fusion. A contraction reads its operands and
# writes its result wholly: products of few rows, as in decoding, were priced at a tenth of the TPU compiler's estimate, now 0.3.
FUSED = 0.3
WORTH: Final = 0.998  # a plan is cheaper only below this fraction of the other's time
WORTH_BYTES: Final = 0.5  # the same for a plan that sends more: times are predicted, bytes are certain
ROUNDED: Final = 1 - 1e-9  # times a sum of seconds, which may come to a little less in another order
EQUAL_BYTES: Final = 1.01  # up to this ratio bytes count as equal
EQUAL_TIME: Final = 1.01  # and seconds
LESS_OVER: Final = 0.99  # of what another plan holds beyond the memory: more than that is hardly less


def is_cheaper(new: PlanCost, old: PlanCost, memory: float) -> bool:
    """Less over the memory limit, if either is; then clearly faster, and much faster if it sends more bytes. Of two plans that do
    not fit, one that holds hardly less holds as much, and one that holds half as much too much may take twice as long."""
    over, others = (max(0.0, cost.peak_bytes - memory) for cost in (new, old))
    worth = WORTH_BYTES if new.wire_bytes > EQUAL_BYTES * old.wire_bytes else WORTH
    is_alike = over == others or min(over, others) > LESS_OVER * max(over, others)
    return new.seconds < worth * old.seconds if is_alike else over < others and new.seconds * over <= old.seconds * others


def is_leaner(new: PlanCost, old: PlanCost, memory: float) -> bool:
    """Fewer bytes on the wire, where the plan that sends more is not the cheaper one all the same."""
    return EQUAL_BYTES * new.wire_bytes < old.wire_bytes and not is_cheaper(old, new, memory)


def is_thriftier(new: PlanCost, old: PlanCost) -> bool:
    """Fewer bytes on the wire, in about the same time."""
    return EQUAL_BYTES * new.wire_bytes < old.wire_bytes and new.seconds < EQUAL_TIME * old.seconds


def is_better_throughout(new: PlanCost, old: PlanCost, memory: float) -> bool:
    """Faster, with as few bytes on the wire, and no more beyond the memory: nothing has to be weighed."""
    return new.seconds < old.seconds and new.wire_bytes <= old.wire_bytes and new.peak_bytes <= max(old.peak_bytes, memory)


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
    """Prices on one mesh of a target; every question is answered once. `undonated`: inputs of the whole Program, which are
    held to its end."""

    def __init__(self, mesh: BaseMesh, target: Target, undonated: frozenset[Var] = frozenset()) -> None:
        super().__init__(mesh, target)
        self.undonated = undonated
        self.work = functools.cache(self._work)
        self.local_bytes = functools.cache(self._local_bytes)
        self.kinds = Kinds()
        self.effects: dict[int, Effect] = {}  # by id of the plan, which the Effect keeps alive
        self.exchanges: dict[Any, OwnCost] = {}
        self.work_left: Callable[[Program], Sequence[float]] = Once(self._work_left)
        self.uses: Callable[[Program], Uses] = Once(Uses)  # with no outcomes
        self.forget_repeats()

    def forget_repeats(self) -> None:
        """What planning repeats came to is worked out anew."""
        self.uses_of: Callable[[Program], Uses] = Once(lambda program: self.uses(program).again())

    def on_host(self, program: Program) -> frozenset[Var]:
        """Values that take none of a device's memory, but of its host's."""
        return self.uses_of(program).on_host if self.target.has_host_memory else frozenset()

    def parts(self, program: Program) -> Mapping[Var, float]:
        """What part of its bytes a value takes where it was made; of fused ones, and of those on hosts. Others take all."""
        fused, on_host = self.uses_of(program).fused, self.on_host(program)
        return {**fused, **dict.fromkeys(on_host, 0.0)} if on_host else fused

    def again(self) -> Machine:
        """One that knows what this one knows. What it learns of plans goes when it goes; prices of walks are shared."""
        other = copy.copy(self)
        other.kinds, other.effects = self.kinds.again(), dict(self.effects)
        other.uses_of = Once(lambda program: self.uses_of(program).again())
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
            exchange = self.in_blocks(eqn, plan) if plan.block else NO_EXCHANGE
            return exchange.work, exchange
        rule = own_rule(eqn, plan) if eqn.inputs or eqn.op.pinned is not None else None
        if rule is not None:
            exchange = self.exchange(rule, eqn, plan)
            return exchange.work, exchange
        types, placements = (*eqn.input_types, *eqn.output_types), (*plan.operands, *plan.results)
        return self.work(plan.rule, types, placements, reading_of(eqn), windows_of(eqn, self.target)), NO_EXCHANGE

    def even_share(self, eqn: Eqn, rule: FactorRule) -> float:
        """Seconds of the equation's own work that no spread over the devices goes below; 0 where the op has a rule of its own."""
        if eqn.op.regions is not None or eqn.op.partition is not None or eqn.op.pinned is not None:
            return 0.0
        return self.local_seconds(rule, (*eqn.input_types, *eqn.output_types), reading_of(eqn)) / self.mesh.device_count

    def _work_left(self, program: Program) -> Sequence[float]:
        """Seconds from each equation of a Program to the end, that of a device: at least so many, however they are spread.

        %1 = dot(..)  3 s     %2 = dot(..)  3 s     %3 = tanh(%2)  1 s      on 8 devices: [0.875, 0.5, 0.125, 0]
        """
        seconds, known = [0.0], dict[int, float]()
        for eqn, kind in zip(reversed(program.eqns), reversed(kinds_of(program)), strict=True):
            least = known.get(kind)
            if least is None:
                least = known[kind] = ROUNDED * self._least_work(eqn)
            seconds.append(seconds[-1] + least)
        return seconds[::-1]

    def _least_work(self, eqn: Eqn) -> float:
        if eqn.op.regions is not None:
            return sum(times * self.work_left(region.program)[0] for region, times in weighted_regions(eqn))
        return 0.0 if eqn.op.touches == "nothing" else self.even_share(eqn, rule_of(eqn))

    def exchange(self, rule: OwnRule, eqn: Eqn, plan: EquationPlan) -> OwnCost:
        lies = (plan.operands, plan.results, plan.manual, *plan.assignment.items())
        key = (eqn.op, eqn.input_types, tuple(eqn.params.items()), *lies)
        exchange = self.exchanges.get(key)
        if exchange is None:
            exchange = self.exchanges[key] = self.cost_of_local(*write(rule, eqn, plan, self.mesh, self.target))
        return exchange

    def in_blocks(self, eqn: Eqn, plan: EquationPlan) -> OwnCost:
        """Of a loop that does several iterations at once, beside what these work where each exchanges its own borders."""
        cost = self.cost_of_local(write_block(eqn, plan, self.mesh, self.target))
        work = self.block_work(blocked_loop(eqn, plan.bodies[0], self.mesh))
        return dataclasses.replace(cost, work=work.besides(plan.block))

    def in_block(self, eqn: Eqn, body: Plan, count: int) -> Plan | None:
        """The plan of a loop's body with what it holds where so many iterations are done at a time; None where they cannot be."""
        assert body.cost is not None
        try:
            loop = blocked_loop(eqn, body, self.mesh)
        except Refused:
            return None
        if count > len(loop.needs):
            return None
        more = self.block_work(loop).held(count)
        return dataclasses.replace(body, cost=dataclasses.replace(body.cost, peak_bytes=body.cost.peak_bytes + more))

    def block_work(self, loop: BlockedLoop) -> BlockWork:
        return BlockWork(loop, self.target, self.local_seconds)

    def cost_of_local(self, local: Program, requests: tuple[tuple[int, Placement], ...] = ()) -> OwnCost:
        """Of local equations; collectives take the time that they take once they are shared, merged and paired."""
        collectives = tuple(collectives_in(local, self.mesh))
        final = self.final(local) if len(collectives) > 1 else collectives
        return OwnCost(self.local_work(local), *self.sum_of(final), collectives, final, requests)

    @functools.cached_property
    def distances(self) -> Distances:
        """What walks take at least."""
        return Distances(self.mesh, self.topology)

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
        fused = {eqn for eqn in program.eqns if goes_by_element(eqn)}
        seconds = FUSED * fused_bytes(program, fused, self.is_view) / self.topology.memory_bandwidth
        for eqn in program.eqns:
            if eqn.op.regions is not None:
                seconds += sum(times * self.local_work(region.program) for region, times in weighted_regions(eqn))
            elif eqn.op.simulate is None and eqn not in fused:
                types = (*eqn.input_types, *eqn.output_types)
                seconds += self.local_seconds(rule_of(eqn), types, reading_of(eqn), windows_of(eqn, self.target))
        return seconds

    def is_view(self, eqn: Eqn) -> bool:
        """Whether the result lies in memory as the operand does, so that nothing is read or written."""
        return eqn.op.touches == "nothing" and self._lie_alike(eqn.input_types[0], eqn.output_types[0])

    def _lie_alike(self, first: TensorType, then: TensorType) -> bool:
        """Whether reshaping is nothing but another name: elements of dims that are registers' lanes are brought elsewhere."""
        return self.target.lanes == 1 or first.shape[-2:] == then.shape[-2:]

    def _work(
        self,
        rule: FactorRule,
        types: tuple[TensorType, ...],
        placements: tuple[Placement, ...],
        reading: Reading = Reading(),  # noqa: B008  (a constant)
        windows: Windows = NO_WINDOWS,
    ) -> float:
        """`types` and `placements` are those of the operands, then of the results."""
        shapes = (p.local_shape(t.shape, self.mesh) for t, p in zip(types, placements, strict=True))
        local = [t.with_shape(shape) for t, shape in zip(types, shapes, strict=True)]
        return self.local_seconds(rule, local, reading, windows)

    def local_seconds(
        self, rule: FactorRule, types: Sequence[TensorType], reading: Reading, windows: Windows = NO_WINDOWS
    ) -> float:
        """Seconds of an equation on local types: memory that it touches, or multiplications of a contraction.

        `windows`: what reading its windows takes.
        """
        if reading.touches == "part":
            results = sum(type.nbytes for type in types[len(rule.operands) :])
            return FUSED * 2 * results / self.topology.memory_bandwidth + windows.seconds
        if reading.touches == "nothing" and self._lie_alike(types[0], types[-1]):
            return 0.0
        passes = reading.passes + (self.target.broken_lines if reading.breaks_lines else 0.0)
        passes += 0.0 if reading.search is None else search_passes(reading.search, self.target)
        filled = windows.filled / self.topology.memory_bandwidth
        seconds = max(FUSED * sum(type.nbytes for type in types) / self.topology.memory_bandwidth, filled)
        if (rule.reductions or windows.flops) and len(rule.operands) > 1 and not passes:  # a contraction
            flops = (2 * _multiplications(rule, types) if rule.reductions else 0) + windows.flops
            whole = sum(type.nbytes for type in types) / self.topology.memory_bandwidth
            besides = windows.bytes + sum([times * types[i].nbytes for i, times in windows.reorders])
            seconds = max(whole, filled, flops / self._flops(types[0])) + besides / self.topology.memory_bandwidth
        operands = sum([self._filled(t) if reading.fills_registers else t.nbytes for t in types[: len(rule.operands)]])
        seconds += windows.seconds + passes * operands / self.topology.memory_bandwidth
        return seconds + self._column_work(reading.column_work, types[: len(rule.operands)])

    def _column_work(self, work: ColumnWork, operands: Sequence[TensorType]) -> float:
        """Seconds of the multiplications of an op that goes by columns, and of its steps, if there is anything to do."""
        count = math.prod(operands[-1].shape) if work.steps else 0
        if not count:
            return 0.0
        return work.steps * self.target.step_seconds + 2 * work.multiplications * count / self._flops(operands[0])

    def _filled(self, type: TensorType) -> float:
        """Bytes of the registers that a value fills. Its dims lie in whichever order leaves fewest of these empty."""
        lanes, sublanes = self.target.lanes, self.target.sublanes
        return type.nbytes if lanes == 1 else _rounded(type.shape, lanes, sublanes) * type.dtype.itemsize

    def _flops(self, type: TensorType) -> float:
        rates = self.topology.flops_of
        return rates.get(type.dtype.name, self.topology.flops) if rates else self.topology.flops


@functools.lru_cache(maxsize=65536)
def _rounded(shape: tuple[int, ...], lanes: int, sublanes: int) -> int:
    """Elements of a shape of which one dim is rounded up to a multiple of `lanes`, and another to one of `sublanes`.

    (32768, 4), 128 lanes, 8 sublanes: 32768 * 8      (32768, 7, 7, 16): 32768 * 7 * 7 * 16
    """
    whole = math.prod(shape)
    if len(shape) < 2 or not whole:
        return -(-whole // lanes) * lanes
    pairs = itertools.permutations(shape, 2)
    return min([whole // (a * b) * (-(-a // lanes) * lanes) * (-(-b // sublanes) * sublanes) for a, b in pairs])


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
