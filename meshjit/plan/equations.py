"""Placements of all values → how every equation is computed, in order, nested Programs included.

A loop's equation is planned by planning its body: the operands need the placements of the body's inputs. Three things
are decided here, for the loop as a whole:

- an invariant is moved once before the loop to the placement that the body uses, if that is cheaper;
- a carry that only collects partial sums stays unreduced through all iterations, and is reduced after the last;
- branches take their operands as they are, so that only the branch that needs a move pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, expected_trips, run_regions
from meshjit.plan.accumulate import accumulators
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Flow, Machine
from meshjit.plan.delay import Delays
from meshjit.plan.events import Accumulation, Hoist
from meshjit.plan.graph import programs_in
from meshjit.plan.recall import PlanRecall, run_through
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, Placement, placement_of


@dataclass(frozen=True)
class Planner:
    """Plans equations against `placements`, which partial sums that flow on change on the way."""

    assigner: Assigner
    placements: dict[Var, Placement]
    rules: Mapping[Eqn, FactorRule]
    blocks: Mapping[Eqn, int]

    @property
    def machine(self) -> Machine:
        return self.assigner.machine

    def equations(
        self, program: Program, outputs: Sequence[Placement], delays: Delays | None = None, flow: Flow | None = None
    ) -> tuple[EquationPlan, ...]:
        """How each equation is computed. `flow` follows them all to price them; `outputs`: the placements that are needed."""
        delays, flow = delays or Delays(program, self.machine), flow or Flow(program, self.machine)
        flow.start([self.placements[v] for v in program.inputs])
        recall = PlanRecall(program, flow, self.placements, delays)
        steps: list[EquationPlan] = []
        while len(steps) < len(program.eqns):
            repeat = recall.repeats.get(len(steps))
            if repeat is None:
                steps.append(self.equation(program.eqns[len(steps)], delays, flow))
            else:
                eqns = program.eqns[repeat.start : repeat.stop]
                steps += recall.steps(repeat, lambda eqns=eqns: [self.equation(eqn, delays, flow) for eqn in eqns])
        for var, target in zip(program.outputs, outputs, strict=True):
            delays.settle(var, target, self.placements, flow)
        return tuple([delays.changed.get(eqn, step) for eqn, step in zip(program.eqns, steps, strict=True)])

    def equation(self, eqn: Eqn, delays: Delays, flow: Flow) -> EquationPlan:
        if eqn.op.regions is None and eqn.op.pinned is not None:
            step = self.pinned(eqn, *eqn.op.pinned(eqn.params))
        elif eqn.op.regions is None:
            step = self.assigner.assign(eqn, self.rules[eqn], self.placements, flow.have, delays.joins(eqn))
        else:
            step = self.with_regions(eqn, run_regions(eqn))
        step = delays.through(eqn, step, self.placements, flow)
        flow.run(eqn, step)
        return step

    def with_regions(self, eqn: Eqn, regions: Sequence[Region]) -> EquationPlan:
        """The plan of an equation whose op has regions."""
        if not any(region.loops for region in regions):
            self.enter_as_they_are(eqn, regions)
        if eqn.op.pinned is not None:
            return self.pinned(eqn, *eqn.op.pinned(eqn.params))
        bodies = [self.body(eqn, region) for region in regions]
        operands = [p.without_partial() for p in map(self.placements.__getitem__, eqn.inputs)]
        results = [self.placements[v].without_partial() for v in eqn.outputs]
        for region, body in zip(regions, bodies, strict=True):
            for i, (operand, placement) in enumerate(zip(region.operands, body.inputs, strict=True)):
                operands[operand] = _stacked(placement) if i in region.sliced else placement
            for i, (result, placement) in enumerate(zip(region.results, body.outputs, strict=True)):
                if result is not None:
                    results[result] = _stacked(placement) if i in region.stacked else placement
        return EquationPlan(self.rules[eqn], {}, tuple(operands), tuple(results), tuple(bodies), self.blocks.get(eqn, 0))

    def pinned(self, eqn: Eqn, operands: Sequence[PartitionSpec], results: Sequence[PartitionSpec]) -> EquationPlan:
        """The plan of an equation whose op says where its operands and results are."""
        sides = (operands, eqn.inputs), (results, eqn.outputs)
        here, there = (tuple(placement_of(s, v.rank) for s, v in zip(*side, strict=True)) for side in sides)
        self.placements.update(zip(eqn.outputs, there, strict=True))
        return EquationPlan(self.rules[eqn], {}, here, there)

    def enter_as_they_are(self, eqn: Eqn, regions: Sequence[Region]) -> None:
        for region in regions:
            for operand, inner in zip(region.operands, region.program.inputs, strict=True):
                self.placements[inner] = self.placements[eqn.inputs[operand]].without_partial()

    def body(self, eqn: Eqn, region: Region) -> Plan:
        """The plan of one nested Program."""
        program, before = region.program, self.snapshot(region.program)
        delays = Delays(program, self.machine)
        steps = self.equations(program, self.output_placements(eqn, region), delays)
        sums = accumulators(region, delays, self.placements)
        while sums:
            self.placements.update({**before, **{program.inputs[i]: p for i, p in sums.items()}})
            delays = Delays(program, self.machine, {program.inputs[i]: p for i, p in sums.items()})
            steps = self.equations(program, self.output_placements(eqn, region), delays)
            outputs = dict(region.carried)
            kept = {i: p for i, p in sums.items() if delays.pending.get(program.outputs[outputs[i]]) == p}
            if kept == sums:
                break
            sums = kept
            if not sums:
                self.placements.update(before)
                delays = Delays(program, self.machine)
                steps = self.equations(program, self.output_placements(eqn, region), delays)
        hoists = self.bring_before(eqn, region, steps)
        inputs, outputs = tuple(self.placements[v] for v in program.inputs), self.output_placements(eqn, region)
        cost, collectives, moves = run_through(program, self.machine, steps, inputs, outputs)
        sums_kept = [Accumulation(program.inputs[i], p) for i, p in sums.items()]
        events = (*hoists, *sums_kept, *delays.events, *moves, *self.assigner.choices(program, steps))
        return Plan(
            program, self.machine.mesh, self.placements, steps, inputs, outputs, cost=cost, collectives=collectives, events=events
        )

    def output_placements(self, eqn: Eqn, region: Region) -> tuple[Placement, ...]:
        """Carries leave as they came; branches give the placements of the results, other regions what they have."""
        outputs = [self.placements[v].without_partial() for v in region.program.outputs]
        for i, result in enumerate(region.results):
            if result is not None and not region.loops and i not in region.stacked:
                outputs[i] = self.placements[eqn.outputs[result]].without_partial()
        for i, output in region.carried:
            outputs[output] = self.placements[region.program.inputs[i]]
        return tuple(outputs)

    def snapshot(self, program: Program) -> dict[Var, Placement]:
        return {v: self.placements[v] for part in programs_in(program) for v in part.vars()}

    def bring_before(self, eqn: Eqn, region: Region, steps: Sequence[EquationPlan]) -> list[Hoist]:
        """Choose for every input that never changes the placement it is cheapest to have it in from the start."""
        trips, hoists = expected_trips(region), list[Hoist]()
        for i in region.invariant if region.loops else ():
            var, program = region.program.inputs[i], region.program
            pairs = [pair for e, s in zip(program.eqns, steps, strict=True) for pair in zip(e.inputs, s.operands, strict=True)]
            uses = {p for v, p in pairs if v is var and not p.partial}
            here = self.placements[eqn.inputs[region.operands[i]]].without_partial()

            def cost(start: Placement, var: Var = var, here: Placement = here, uses: set[Placement] = uses) -> float:
                seconds = self.machine.seconds
                return seconds(var.type, here, start) + trips * sum(seconds(var.type, start, p) for p in uses)

            options = [self.placements[var].without_partial(), *sorted(uses, key=str)]
            ordered = sorted(((p, cost(p)) for p in dict.fromkeys(options)), key=lambda option: option[1])
            self.placements[var] = ordered[0][0]
            if len(ordered) > 1:
                hoists.append(Hoist(var, tuple(ordered)))
        return hoists


def _stacked(placement: Placement) -> Placement:
    """Of slices → of what they are cut from, whose dim 0 is whole."""
    return Placement(((), *placement.dims), placement.partial)
