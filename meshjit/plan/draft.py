"""A Program, what propagation made of its seeds, and the Plan that follows: what the search compares."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Final

from meshjit.core.plan import Plan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Machine
from meshjit.plan.course import Course
from meshjit.plan.describe import Describer
from meshjit.plan.equations import Planner
from meshjit.plan.flow import Flow, Limit
from meshjit.plan.graph import Annotations, Flattened, flatten, reseeded
from meshjit.plan.last_changes import last_changes
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.planned import Planned
from meshjit.plan.schedule import schedule_seconds
from sharding.graph import Propagated, Seed
from sharding.placement import normalized
from sharding.propagation import propagate
from sharding.spec import Placement, completed as completed_by

NO_COPIES: Final[Mapping[Var, Var]] = {}
NOTHING_PLANTED: Final[Mapping[int, Seed]] = {}
SURELY: Final = 0.8  # of the memory: what holds so much by the quick count fits, for that is seldom too low, and by little


@dataclasses.dataclass(frozen=True, eq=False)
class Draft:
    """One way to place a Program. `propagated` has the seeds: the user's, and those of proposals that were accepted."""

    program: Program
    annotations: Annotations
    flat: Flattened
    propagated: Propagated
    plan: Plan
    assigner: Assigner
    blocks: Mapping[Eqn, int] = dataclasses.field(default_factory=dict[Eqn, int])  # loops done in blocks of iterations
    unmoved: frozenset[Var] = frozenset()  # of what stays the same in loops, what is read where it lies
    handed: tuple[Placement, ...] | None = None  # how outputs are handed over, where somebody chose it

    @property
    def machine(self) -> Machine:
        return self.assigner.machine

    @property
    def cost(self) -> PlanCost:
        assert self.plan.cost is not None
        return self.plan.cost

    @functools.cached_property
    def lifetimes(self) -> Lifetimes:
        plan = self.plan
        return Lifetimes(self.program, self.machine, plan.equations, plan.inputs, plan.outputs)

    @functools.cached_property
    def exact_cost(self) -> PlanCost:
        """The cost where every version of a value is held until its own last use, not until the value's."""
        return dataclasses.replace(self.cost, peak_bytes=float(max(self.lifetimes.held_bytes())))

    @functools.cached_property
    def fits(self) -> bool:
        """Whether it holds no more than the memory, exactly where that is in question."""
        memory = self.machine.topology.memory
        return self.cost.peak_bytes <= SURELY * memory or self.exact_cost.peak_bytes <= memory

    def shards(self, var: Var, dim: int) -> int:
        """Into how many shards the plan divides a dim of a value."""
        return self.plan.placements[var].shards(dim, self.machine.mesh)

    def with_seeds(self, seeds: Mapping[int, Seed], limit: Limit | None) -> Draft:
        """The same Program with other seeds, by the number of their value. TooDear beyond the limit."""
        graph = dataclasses.replace(self.propagated.graph, seeds=dict(seeds))
        propagated = propagate(graph, self.machine.mesh, self.propagated)
        if propagated.placements == self.propagated.placements:
            return dataclasses.replace(self, propagated=propagated)
        return self._replanned(propagated, self.blocks, self.unmoved, limit)

    def with_blocks(self, blocks: Mapping[Eqn, int], limit: Limit | None) -> Draft:
        """The same with more loops done in blocks of iterations. TooDear beyond the limit."""
        return self._replanned(self.propagated, {**self.blocks, **blocks}, self.unmoved, limit)

    def with_unmoved(self, unmoved: frozenset[Var], limit: Limit | None) -> Draft:
        """The same with more of what does not change in loops read where it lies. TooDear beyond the limit."""
        return self._replanned(self.propagated, self.blocks, self.unmoved | unmoved, limit)

    def _replanned(
        self, propagated: Propagated, blocks: Mapping[Eqn, int], unmoved: frozenset[Var], limit: Limit | None
    ) -> Draft:
        flat, assigner = self.flat, self.assigner
        plan = _plan(self.program, self.annotations, flat, propagated, assigner, limit, blocks, self.handed, unmoved)
        return dataclasses.replace(self, propagated=propagated, plan=plan, blocks=blocks, unmoved=unmoved)

    def with_homes(self, homes: Mapping[Var, Placement], outputs: Sequence[Placement], assigner: Assigner) -> Draft:
        """The same Program with values where `homes` say, equations as the assigner says, and outputs handed over like this."""
        numbers, graph = self.flat.numbers, self.propagated.graph
        placements = [*self.propagated.placements]
        for var, placement in homes.items():
            placements[numbers[var]] = placement
        seed_of = functools.cache(Seed)
        seeds = {numbers[var]: seed_of(placement) for var, placement in homes.items()}
        graph = dataclasses.replace(graph, seeds={**seeds, **self.flat.graph.seeds})
        propagated = dataclasses.replace(self.propagated, graph=graph, placements=placements, collide=list)
        handed = tuple(outputs)
        plan = _plan(self.program, self.annotations, self.flat, propagated, assigner, None, {}, handed)
        return dataclasses.replace(self, propagated=propagated, plan=plan, assigner=assigner, blocks={}, handed=handed)

    def with_program(self, program: Program, limit: Limit | None, originals: Mapping[Var, Var] = NO_COPIES) -> Draft:
        """A rewritten Program, which the seeds that proposals planted follow as far as it has their values. `originals`: of
        values that are copies of others, which are placed and made as these are."""
        assigner = self.assigner.following(self.program, program, originals)
        return first_draft(program, self.annotations, assigner, limit, self, originals)


def first_draft(
    program: Program,
    annotations: Annotations,
    assigner: Assigner,
    limit: Limit | None = None,
    before: Draft | None = None,
    originals: Mapping[Var, Var] = NO_COPIES,
) -> Draft:
    """The plan that propagation of the user's annotations alone gives; with the seeds planted since in `before`."""
    flat = flatten(program, annotations, assigner.machine.mesh)
    if before is None:
        return _drafted(program, annotations, flat, assigner, limit)
    planted = _planted(before, flat, originals)
    return _drafted(program, annotations, flat, assigner, limit, handed=before.handed, planted=planted, unmoved=before.unmoved)


def draft_again(program: Program, annotations: Annotations, like: Plan) -> Draft:
    """The first draft with what was worked out for a plan of the same Program, or of one with most of its equations; on the
    same mesh, for the same target."""
    known = like.describe
    assert isinstance(known, Describer), "the plan was made here"
    assigner, mesh = known.assigner.again(), like.mesh
    if program is not like.program:
        return _drafted(program, annotations, flatten(program, annotations, mesh, known.flat.rules), assigner)
    flat = reseeded(known.flat, program, annotations, mesh)
    return _drafted(program, annotations, flat, assigner, like=known.propagated)


def _drafted(
    program: Program,
    annotations: Annotations,
    flat: Flattened,
    assigner: Assigner,
    limit: Limit | None = None,
    like: Propagated | None = None,
    handed: tuple[Placement, ...] | None = None,
    planted: Mapping[int, Seed] = NOTHING_PLANTED,
    unmoved: frozenset[Var] = frozenset(),
) -> Draft:
    graph = dataclasses.replace(flat.graph, seeds={**flat.graph.seeds, **planted}) if planted else flat.graph
    propagated = propagate(graph, assigner.machine.mesh, like)
    plan = _plan(program, annotations, flat, propagated, assigner, limit, {}, handed, unmoved)
    return Draft(program, annotations, flat, propagated, plan, assigner, handed=handed, unmoved=unmoved)


def _planted(before: Draft, flat: Flattened, originals: Mapping[Var, Var]) -> dict[int, Seed]:
    """The seeds that proposals planted, or ranked, on the same values of another graph, and on copies of them."""
    planted = dict(before.propagated.graph.seeds.items() - before.flat.graph.seeds.items())
    kept = [(var, planted[number]) for var, number in before.flat.numbers.items() if number in planted and var in flat.numbers]
    numbers = {copy: before.flat.numbers[var] for copy, var in originals.items()}
    kept += [(copy, planted[number]) for copy, number in numbers.items() if number in planted]
    given = flat.graph.seeds
    copies = {flat.numbers[var]: dataclasses.replace(seed, origins=()) for var, seed in kept}
    return {v: s if v not in given else dataclasses.replace(given[v], rank=s.rank) for v, s in copies.items()}


def _plan(
    program: Program,
    annotations: Annotations,
    flat: Flattened,
    propagated: Propagated,
    assigner: Assigner,
    limit: Limit | None,
    blocks: Mapping[Eqn, int],
    outputs: tuple[Placement, ...] | None = None,
    unmoved: frozenset[Var] = frozenset(),
) -> Plan:
    machine = assigner.machine
    placements = flat.placements(propagated)
    annotated = [(v, s) for v, s in zip(program.inputs, annotations.inputs, strict=True) if s is not None]
    sums = {v: completed_by(s, placements[v]) for v, s in annotated if s.unreduced}
    inputs = tuple(sums.get(v, placements[v]) for v in program.inputs)
    completed = functools.cache(lambda spec, placement: normalized(completed_by(spec, placement), machine.mesh))
    outputs = outputs or tuple(
        placements[v].without_partial() if spec is None else completed(spec, placements[v])
        for v, spec in zip(program.outputs, annotations.outputs, strict=True)
    )
    course = Course(program, machine, placements, sums, Flow(program, machine, limit), sums)
    equations = Planner(assigner, flat.rules, blocks, unmoved).equations(course, outputs)
    planned, happened = last_changes(Planned(program, machine, equations, inputs, outputs), course.delays.events)
    equations, (cost, collectives, _) = planned.plans, planned.outcome
    events = (*happened, *assigner.choices(program, equations))
    return Plan(
        program, machine.mesh, course.placements, equations, inputs, outputs, flat.origins(propagated),
        tuple(propagated.conflicts), machine.target, cost, collectives=collectives, events=events,
        describe=Describer(flat, propagated, annotations, assigner),
        schedule=functools.partial(schedule_seconds, machine=machine),
    )  # fmt: skip
