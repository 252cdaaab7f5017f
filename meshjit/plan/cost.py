"""What a plan is predicted to cost on a machine: seconds of work and of moving data, bytes on the wire, peak memory.

`Flow` goes through a Program as partitioning will, and keeps which versions of every value then exist: a weight that was
gathered once is there for the backward pass, too. Work is what the factors say: a contraction does as many
multiplications as its factors have combinations, everything else reads and writes its values once, in fused loops.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshjit.core.plan import EquationPlan, PlanCost, rematerializable
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, run_regions
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.reshard import Walk, plan_reshard
from sharding.rule import FactorRule
from sharding.spec import Placement

USES_OF_OUTPUT = 2  # an output is reduced when it leaves, so it never counts as used once
UNKNOWN_TRIPS = 16  # what a while loop is taken to run where nobody knows
FUSED = 0.3  # of the bytes that elementwise equations read and write, how many are not spared by fusing them


@dataclass(frozen=True)
class Effect:
    """What comes of an equation under a plan: where its operands have to be, where its results then are and how many
    bytes of each a device holds, and the seconds of its own work."""

    step: EquationPlan
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    held: tuple[int, ...]
    work: float


class Machine:
    """Prices on one mesh of a target; every question is answered once."""

    def __init__(self, mesh: BaseMesh, target: Target) -> None:
        self.mesh = mesh
        self.target = target
        self.topology = target.topology
        self.normal = functools.cache(lambda placement: normalized(placement, mesh))
        self.walk = functools.cache(self._walk)
        self.work = functools.cache(self._work)
        self.local_bytes = functools.cache(self._local_bytes)
        self.effects: dict[int, Effect] = {}  # by id of the step, which the Effect keeps alive
        self.uses_of = functools.cache(Uses)

    def _walk(self, type: TensorType, source: Placement, target: Placement) -> Walk:
        return plan_reshard(type.shape, type.dtype.itemsize, source, target, self.mesh, self.topology)

    def seconds(self, type: TensorType, source: Placement, target: Placement) -> float:
        return 0.0 if source == target else self.walk(type, source, target).seconds

    def cheapest(self, type: TensorType, sources: Iterable[Placement], target: Placement) -> Walk:
        """The walk from that of the versions from which it takes least time; of equals the oldest."""
        return min((self.walk(type, source, target) for source in sources), key=lambda walk: walk.seconds)

    def _local_bytes(self, type: TensorType, placement: Placement) -> int:
        return math.prod(placement.local_shape(type.shape, self.mesh)) * type.dtype.itemsize

    def effect(self, eqn: Eqn, step: EquationPlan) -> Effect:
        """Equations that share a step are alike."""
        found = self.effects.get(id(step))
        if found is None:
            types, placements = (*eqn.input_types, *eqn.output_types), (*step.operands, *step.results)
            work = 0.0 if step.bodies else self.work(step.rule, types, placements, work_passes(eqn))
            if eqn.op.price is not None:
                work += eqn.op.price(eqn.input_types, eqn.params, step.assignment, self.mesh, self.target)
            operands, results = (tuple(map(self.normal, side)) for side in (step.operands, step.results))
            held = tuple(map(self.local_bytes, eqn.output_types, results))
            found = self.effects[id(step)] = Effect(step, operands, results, held, work)
        return found

    def _work(
        self,
        rule: FactorRule,
        types: tuple[TensorType, ...],
        placements: tuple[Placement, ...],
        passes: float = 0.0,
    ) -> float:
        """Seconds that one device computes; `types` and `placements` are those of the operands, then of the results.

        `passes`: how often the op goes over its operands besides.
        """
        moved = sum(map(self.local_bytes, types, placements))
        extents: dict[str, int] = {}
        for dims, type, placement in zip((*rule.operands, *rule.results), types, placements, strict=True):
            for factors, extent in zip(dims, placement.local_shape(type.shape, self.mesh), strict=True):
                if len(factors) == 1:
                    extents[factors[0]] = min(extents.get(factors[0], extent), extent)
        for name, size in rule.sizes.items():
            extents.setdefault(name, size)
        seconds = FUSED * moved / self.topology.memory_bandwidth
        if rule.reductions and len(rule.operands) > 1 and not passes:  # a contraction; others say themselves what they do
            seconds = max(seconds, 2 * math.prod(extents.values()) / self.topology.flops)
        operands = sum(map(self.local_bytes, types[: len(rule.operands)], placements))
        return seconds + passes * operands / self.topology.memory_bandwidth


def work_passes(eqn: Eqn) -> float:
    """What the op itself says of its work; 0 for most."""
    return eqn.op.passes(eqn.input_types, eqn.params) if eqn.op.passes else 0.0


def expected_trips(region: Region) -> int:
    """How often a region runs, as far as anybody knows."""
    return UNKNOWN_TRIPS if region.trips is None else region.trips


class Uses:
    """How often a Program uses its values, and after which equation each is needed no more; whatever the plan is."""

    def __init__(self, program: Program) -> None:
        self.ends = _last_uses(program)
        self.counts = Counter([v for eqn in program.eqns for v in eqn.inputs])
        for _ in range(USES_OF_OUTPUT):
            self.counts.update(program.outputs)
        self.addends = {v for eqn in program.eqns for v in _addends(eqn) if self.counts[v] == 1}


def _addends(eqn: Eqn) -> list[Var]:
    """The operands of an equation that is linear in several of them together."""
    if len(eqn.inputs) < 2 or eqn.op.linear == ():
        return []
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    return [eqn.inputs[i] for group in groups if len(group) > 1 for i in group if i < len(eqn.inputs)]


class TooDear(Exception):
    """Planning was stopped: the plan takes longer than the one that it was to be compared with."""


class Flow:
    """Follows the values of one Program through its equations: where each is, and what it cost so far. TooDear is raised
    where that is more than `limit` seconds."""

    def __init__(self, program: Program, machine: Machine, limit: float = math.inf) -> None:
        self.limit = limit
        self.program = program
        self.machine = machine
        self.versions: dict[Var, list[Placement]] = {}
        self.sizes: dict[Var, int] = {}  # bytes of all versions of a value
        self.made: dict[Var, int] = {}
        self.work = self.moving = self.bytes = 0.0
        self.held = self.peak = 0
        self.ends = machine.uses_of(program).ends
        self.at = 0

    def start(self, inputs: Sequence[Placement]) -> None:
        for var, placement in zip(self.program.inputs, inputs, strict=True):
            placement = self.machine.normal(placement)
            self._keep(var, placement, self.machine.local_bytes(var.type, placement))

    def run(self, eqn: Eqn, step: EquationPlan) -> None:
        """One equation: bring its operands, compute, forget what nobody needs any more."""
        effect, versions, made = self.machine.effect(eqn, step), self.versions, self.made
        for var, placement in zip(eqn.inputs, effect.operands, strict=True):
            have = versions.get(var)
            if have is not None and placement not in have:
                self.bring(var, placement)
        if step.bodies:
            self._nested(eqn, step)
        self.work += effect.work
        if self.work + self.moving > self.limit:
            raise TooDear
        size = rematerializable(eqn, step.rule, made) if not eqn.inputs or eqn.inputs[0] in made else None
        if size is not None:
            made[eqn.outputs[0]] = size
        else:
            for var, placement, size in zip(eqn.outputs, effect.results, effect.held, strict=True):
                versions[var] = [placement]
                self.sizes[var] = size
                self.held += size
        if self.held > self.peak:
            self.peak = self.held
        for var in self.ends[self.at]:
            self.held -= self.sizes.get(var, 0)
        self.at += 1

    def _nested(self, eqn: Eqn, step: EquationPlan) -> None:
        """What the loops or branches of an equation cost: every trip of a loop, and the mean of branches."""
        regions = run_regions(eqn)
        branches = len(regions) if not any(region.loops for region in regions) else 1
        for region, body in zip(regions, step.bodies, strict=True):
            assert body.cost is not None
            times = expected_trips(region) / branches
            self.work += times * body.cost.work_seconds
            self.moving += times * body.cost.move_seconds
            self.bytes += times * body.cost.wire_bytes
            self.peak = max(self.peak, self.held + int(body.cost.peak_bytes))

    def bring(self, var: Var, placement: Placement) -> None:
        """Make sure that a version under this placement exists."""
        placement, have = self.machine.normal(placement), self.versions.get(var)
        if have is not None and placement not in have:
            placement = placement.without_partial()  # where an addend is wanted of a whole value, it and zeros are that
        if have is not None and placement not in have:
            walk = self.machine.cheapest(var.type, have, placement)
            self.moving += walk.seconds
            self.bytes += walk.bytes
            for between in walk.placements[1:]:
                if between not in have:
                    self._keep(var, between, self.machine.local_bytes(var.type, between))

    def change(self, eqn: Eqn, step: EquationPlan) -> None:
        """An equation that has run already is planned otherwise after all: other operands are brought, and its results
        lie elsewhere, in as much memory."""
        held = self.held
        for var, placement in zip(eqn.inputs, step.operands, strict=True):
            self.bring(var, placement)
        for var, placement in zip(eqn.outputs, step.results, strict=True):
            self.versions[var] = [self.machine.normal(placement)]
        self.held = held

    def _keep(self, var: Var, placement: Placement, size: int) -> None:
        self.versions.setdefault(var, []).append(placement)
        self.sizes[var] = self.sizes.get(var, 0) + size
        self.held += size

    def end(self, outputs: Sequence[Placement]) -> PlanCost:
        """Hand the outputs over; what all of it cost."""
        for var, placement in zip(self.program.outputs, outputs, strict=True):
            self.bring(var, placement)
        return PlanCost(self.work, self.moving, self.bytes, float(max(self.peak, self.held)))


def run_through(
    program: Program,
    machine: Machine,
    steps: Sequence[EquationPlan],
    inputs: Sequence[Placement],
    outputs: Sequence[Placement],
) -> PlanCost:
    """The cost of equations that are planned."""
    flow = Flow(program, machine)
    flow.start(inputs)
    for eqn, step in zip(program.eqns, steps, strict=True):
        flow.run(eqn, step)
    return flow.end(outputs)


def _last_uses(program: Program) -> list[list[Var]]:
    """For every equation the values that are needed no more after it."""
    last: dict[Var, int] = {}
    for index, eqn in enumerate(program.eqns):
        for var in (*eqn.inputs, *eqn.outputs):
            last[var] = index
    for var in program.outputs:
        last.pop(var, None)
    ends: list[list[Var]] = [[] for _ in program.eqns]
    for var, index in last.items():
        ends[index].append(var)
    return ends
