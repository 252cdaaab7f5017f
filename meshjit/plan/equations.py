"""Placements of all values → how every equation is computed, in order, nested Programs included.

A loop's equation is planned by planning its body: the operands need the placements of the body's inputs. Three things
are decided here, for the loop as a whole:

- an invariant is moved once before the loop to the placement that the body uses, if that is cheaper;
- a carry that only collects partial sums stays unreduced through all iterations, and is reduced after the last;
- branches take their operands as they are, so that only the branch that needs a move pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Var
from meshjit.core.region import Region, expected_trips, run_regions
from meshjit.plan.accumulate import Verdict, considered, verdicts
from meshjit.plan.assign import Assigner
from meshjit.plan.branch_sums import branch_sums
from meshjit.plan.cost import Machine
from meshjit.plan.course import Course
from meshjit.plan.delay import Price
from meshjit.plan.events import Accumulation, Hoist
from meshjit.plan.flow import Flow
from meshjit.plan.graph import programs_in
from meshjit.plan.last_changes import last_changes
from meshjit.plan.nested import lent
from meshjit.plan.planned import Planned
from meshjit.plan.recall import PlanRecall
from sharding.axes import name_of
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, Placement, completed, placement_of

DEAR: Final = 1e-3  # iterations that share the price of a move which is not to be made: it costs a thousand times as much


@dataclass(frozen=True)
class Planner:
    """Plans equations. `placements` are where values are by then, those of nested Programs included. `unmoved`: inputs of
    loops' bodies that are moved only where nothing else can be. `manual`: the axes along which the code around them runs once
    each. `summed`: results of branches that are given as addends."""

    assigner: Assigner
    rules: Mapping[Eqn, FactorRule]
    blocks: Mapping[Eqn, int]
    unmoved: frozenset[Var] = frozenset()
    manual: frozenset[str] = frozenset()
    summed: Mapping[Var, Placement] = field(default_factory=dict[Var, Placement])

    @property
    def machine(self) -> Machine:
        return self.assigner.machine

    def equations(self, course: Course, outputs: Sequence[Placement]) -> tuple[EquationPlan, ...]:
        """How each equation is computed; the course goes through all of them. `outputs`: the placements that are needed."""
        program, recall, steps = course.program, PlanRecall(course), list[EquationPlan]()
        while len(steps) < len(program.eqns):
            repeat = recall.repeats.get(len(steps))
            if repeat is None:
                steps.append(self.equation(program.eqns[len(steps)], course))
            else:
                eqns = program.eqns[repeat.start : repeat.stop]
                steps += recall.steps(repeat, lambda eqns=eqns: [self.equation(eqn, course) for eqn in eqns])
        for var, target in zip(program.outputs, outputs, strict=True):
            course.settle(var, target)
        for eqn, step in course.changed.items():
            steps[course.uses.makers[eqn.outputs[0]]] = step
        return tuple(steps)

    def equation(self, eqn: Eqn, course: Course) -> EquationPlan:
        if eqn.op.regions is None and eqn.op.pinned is None:
            joins = bool(self.rules[eqn].reductions) and course.delays.joins(eqn)
            step = self.assigner.assign(eqn, self.rules[eqn], course.placements, course.flow.have, joins, course.sharers(eqn))
        else:
            regions = run_regions(eqn) if eqn.op.regions is not None else ()
            step, inside = self.with_regions(eqn, regions, course.placements)
            course.placements.update(inside)
        return course.take(eqn, step)

    def with_regions(
        self, eqn: Eqn, regions: Sequence[Region], placements: Mapping[Var, Placement]
    ) -> tuple[EquationPlan, dict[Var, Placement]]:
        """The plan of an equation whose op has regions, or says where its values are, and where that places values."""
        if eqn.op.pinned is not None:
            step = self.pinned(eqn, regions, placements, *eqn.op.pinned(eqn.params))
            inside = {var: placement for body in step.bodies for var, placement in body.placements.items()}
            return step, {**inside, **dict(zip(eqn.outputs, step.results, strict=True))}
        entering = {} if any(region.loops for region in regions) else _as_they_are(eqn, regions, placements)
        bodies = [self.body(eqn, region, placements, entering) for region in regions]
        operands = [p.without_partial() for p in map(placements.__getitem__, eqn.inputs)]
        results = [placements[v].without_partial() for v in eqn.outputs]
        for region, body in zip(regions, bodies, strict=True):
            for i, (operand, placement) in enumerate(zip(region.operands, body.inputs, strict=True)):
                operands[operand] = placement.stacked() if i in region.sliced else placement
            for i, (result, placement) in enumerate(zip(region.results, body.outputs, strict=True)):
                if result is not None:
                    results[result] = placement.stacked() if i in region.stacked else placement
        inside = {var: placement for body in bodies for var, placement in body.placements.items()}
        block, bodies = self.in_block(eqn, bodies)
        return EquationPlan(self.rules[eqn], {}, tuple(operands), tuple(results), tuple(bodies), block), inside

    def in_block(self, eqn: Eqn, bodies: Sequence[Plan]) -> tuple[int, Sequence[Plan]]:
        """How many iterations are done at a time, and the bodies with what they then hold. None are, although it was proposed,
        where values have been placed otherwise since, so that neighbours lack the borders."""
        block = self.blocks.get(eqn, 0)
        changed = [each for body in bodies if (each := self.machine.in_block(eqn, body, block))] if block else []
        return (block, changed) if len(changed) == len(bodies) else (0, bodies)

    def pinned(
        self,
        eqn: Eqn,
        regions: Sequence[Region],
        placements: Mapping[Var, Placement],
        operands: Sequence[PartitionSpec],
        results: Sequence[PartitionSpec],
        names: frozenset[str],
    ) -> EquationPlan:
        """The plan of an equation whose op says where its operands and results are. A region that is planned computes with
        shards, over the axes that the op leaves."""
        sides = (operands, eqn.inputs), (results, eqn.outputs)
        if not regions:
            here, there = (tuple(completed(s, placements[v]) for s, v in zip(*side, strict=True)) for side in sides)
            return EquationPlan(self.rules[eqn], {}, here, there, manual=self.manual)
        here, there = (tuple(placement_of(s, v.rank) for s, v in zip(*side, strict=True)) for side in sides)
        (region,), mesh = regions, self.machine.mesh
        outer, inner = eqn.inputs, region.program.inputs
        entering = {v: _shared(own, placements[x], v, names, mesh) for x, v, own in zip(outer, inner, here, strict=True)}
        body = replace(self, manual=self.manual | names).body(eqn, region, placements, entering)
        here, there = (
            tuple(Placement(tuple((*a, *b) for a, b in zip(own.dims, p.dims, strict=True))) for own, p in zip(*side, strict=True))
            for side in ((here, body.inputs), (there, body.outputs))
        )
        return EquationPlan(self.rules[eqn], {}, here, there, (body,))

    def body(
        self, eqn: Eqn, region: Region, outside: Mapping[Var, Placement], entering: Mapping[Var, Placement]
    ) -> Plan:
        """The plan of one nested Program, with the placements of its own values. In a loop branches may give addends."""
        program, trips = region.program, max(expected_trips(region), 1.0)
        inside = {v: entering.get(v, outside[v]) for part in programs_in(program) for v in part.vars()}
        plan, later = self.attempt(eqn, region, outside, inside)
        sums = branch_sums(program, plan.equations, plan.placements, self.machine) if region.loops else {}
        if sums:
            rival, rivals = replace(self, summed={**self.summed, **sums}).attempt(eqn, region, outside, inside)
            prices = [Price.of((_moving(p).times(trips), after)) for p, after in ((rival, rivals), (plan, later))]
            plan = rival if prices[0].is_below(prices[1]) else plan
        return plan

    def attempt(
        self, eqn: Eqn, region: Region, outside: Mapping[Var, Placement], inside: Mapping[Var, Placement]
    ) -> tuple[Plan, Price]:
        """The plan of one nested Program whose values are `inside`, and what reducing the carries that collect costs after it."""
        program, machine = region.program, self.machine
        ends = zip(region.results, program.outputs, strict=True)
        given = [v for result, v in ends if result is not None and not region.loops and eqn.outputs[result] in self.summed]
        trips = max(expected_trips(region), 1.0)
        same = [program.inputs[i] for i in region.invariant] if region.loops else []
        iterations = {v: DEAR if v in self.unmoved else trips for v in same}
        around = lent(region)

        def with_sums(sums: Mapping[int, Placement]) -> tuple[Course, tuple[EquationPlan, ...]]:
            pending = {program.inputs[i]: p for i, p in sums.items()}
            flow = Flow(program, machine, lent=around)
            course = Course(program, machine, {**inside}, pending, flow, given=given, iterations=iterations)
            return course, self.equations(course, self.outputs(eqn, region, outside, course.placements))

        sums: dict[int, Placement] = {}
        course, steps = with_sums(sums)
        collects = {i: self.assigner.collects(program.inputs[i]) for i, _ in region.carried}
        asked = {i: there for i, there in considered(region, course.delays, course.placements) if collects[i] is not False}
        kept = {i: there for i, there in asked.items() if isinstance(there, Placement)}
        told = {i: Verdict(None, refusal=there) for i, there in asked.items() if isinstance(there, str)}
        while kept != sums:
            sums, (course, steps) = kept, with_sums(kept)
            told |= verdicts(region, course.delays, sums, _targets(eqn, region, outside))
            kept = {i: p for i, p in sums.items() if told[i].pays or (collects[i] and told[i].placement)}
        hoists = list(self.bring_before(eqn, region, steps, outside, course.placements))
        placements = {**course.placements, **{hoist.var: hoist.options[0][0] for hoist in hoists}}
        inputs = tuple([placements[v] for v in program.inputs])
        outputs = self.outputs(eqn, region, outside, placements)
        planned, happened = last_changes(Planned(program, machine, steps, inputs, outputs, around), course.delays.events)
        steps, (cost, collectives, _) = planned.plans, planned.outcome
        events = (
            *[hoist for hoist in hoists if len(hoist.options) > 1],
            *[_accumulation(program.inputs[i], verdict, i in sums) for i, verdict in told.items()],
            *happened, *self.assigner.choices(program, steps),
        )  # fmt: skip
        targets = _targets(eqn, region, outside)
        leaving = {output: sums[i] for i, output in region.carried if i in sums}
        types = {output: program.outputs[output].type for output in leaving}
        after = [course.delays.price(types[o], p, targets[o] or p.without_partial()) for o, p in leaving.items()]
        plan = Plan(program, machine.mesh, placements, steps, inputs, outputs, cost=cost, collectives=collectives, events=events)
        return plan, Price.of(after)

    def outputs(
        self, eqn: Eqn, region: Region, outside: Mapping[Var, Placement], inside: Mapping[Var, Placement]
    ) -> tuple[Placement, ...]:
        """Carries leave as they came; branches give the placements of the results, other regions what they have."""
        outputs = [inside[v].without_partial() for v in region.program.outputs]
        if eqn.op.pinned is not None:
            _, specs, names = eqn.op.pinned(eqn.params)
            sides = zip(region.program.outputs, specs, outputs, strict=True)
            return tuple(_shared(placement_of(s, v.rank), p, v, names, self.machine.mesh) for v, s, p in sides)
        for i, result in enumerate(region.results):
            if result is not None and not region.loops and i not in region.stacked:
                var = eqn.outputs[result]
                outputs[i] = self.summed.get(var) or outside[var].without_partial()
        for i in region.stacked if self.assigner.places_results else ():
            result = region.results[i]
            if result is not None:
                outputs[i] = Placement(outside[eqn.outputs[result]].dims[1:])
        for i, output in region.carried:
            outputs[output] = inside[region.program.inputs[i]]
        return tuple(outputs)

    def bring_before(
        self,
        eqn: Eqn,
        region: Region,
        steps: Sequence[EquationPlan],
        outside: Mapping[Var, Placement],
        inside: Mapping[Var, Placement],
    ) -> Iterator[Hoist]:
        """For every input that never changes the placements that it may have from the start, the cheapest first."""
        trips, program, seconds = expected_trips(region), region.program, self.machine.seconds
        for i in region.invariant if region.loops else ():
            var = program.inputs[i]
            pairs = [pair for e, s in zip(program.eqns, steps, strict=True) for pair in zip(e.inputs, s.operands, strict=True)]
            uses = {p for v, p in pairs if v is var and not p.partial}
            here = outside[eqn.inputs[region.operands[i]]].without_partial()
            prices: dict[Placement, float] = {}
            for start in (inside[var].without_partial(), *sorted(uses, key=str)):
                prices[start] = seconds(var.type, here, start) + trips * sum(seconds(var.type, start, p) for p in uses)
            yield Hoist(var, tuple(sorted(prices.items(), key=lambda option: option[1])))


def _shared(own: Placement, placement: Placement, inner: Var, names: frozenset[str], mesh: BaseMesh) -> Placement:
    """How shards of the op's placement `own` over axes `names` lie over further axes, if the value lies like this. What is
    spread over both is spread evenly: else blocks of blocks were no blocks."""
    rest = [tuple(axis for axis in dim if name_of(axis) not in names) for dim in placement.dims]
    sides = zip(rest, own.dims, inner.shape, strict=True)
    return Placement(tuple(() if first and extent % mesh.axes_size(axes) else axes for axes, first, extent in sides))


def _as_they_are(eqn: Eqn, regions: Sequence[Region], placements: Mapping[Var, Placement]) -> dict[Var, Placement]:
    """The operands of branches, inside of them."""
    return {
        inner: placements[eqn.inputs[operand]].without_partial()
        for region in regions
        for operand, inner in zip(region.operands, region.program.inputs, strict=True)
    }


def _targets(eqn: Eqn, region: Region, outside: Mapping[Var, Placement]) -> list[Placement | None]:
    """Where the results go that the region\'s outputs become."""
    return [None if result is None else outside[eqn.outputs[result]].without_partial() for result in region.results]


def _accumulation(var: Var, verdict: Verdict, is_kept: bool) -> Accumulation:
    seconds = (None if p is None else p.seconds for p in (verdict.after, verdict.inside))
    return Accumulation(var, verdict.placement if is_kept else None, verdict.refusal, *seconds)


def _moving(plan: Plan) -> Price:
    """What a Program that is planned sends, each time."""
    assert plan.cost is not None
    return Price(plan.cost.move_seconds, plan.cost.wire_bytes)
