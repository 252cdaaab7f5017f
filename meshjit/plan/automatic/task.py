"""What is planned automatically, and for what: a Program, what is said of it, the machine, and how long may be searched."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.fit import RETRIED
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.made import REFINED
from meshjit.plan.automatic.rewritten import rewritten, written
from meshjit.plan.automatic.solve import Search
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.graph import Annotations
from meshjit.targets import target_of
from sharding.mesh import BaseMesh


@dataclass(frozen=True)
class Task:
    """`tied`: output → input that it is placed like; `ties`: those of them that are not annotated. `deadline`: on the clock of
    `time.perf_counter`."""

    program: Program
    annotations: Annotations
    machine: Machine
    tied: Mapping[int, int]
    limits: Limits
    deadline: float

    @property
    def ties(self) -> Mapping[int, int]:
        return {o: i for o, i in self.tied.items() if self.annotations.outputs[o] is None}

    @property
    def effort(self) -> float:
        return self.limits.entries(len(self.program.eqns))

    @property
    def later(self) -> float:
        return self.limits.entries_later(len(self.program.eqns))

    @property
    def is_long(self) -> bool:
        """Whether the Program is searched as it is written alone, and its bound is worked out when somebody asks."""
        return bool(self.later) or (not self.effort and len(self.program.eqns) > REFINED)

    @functools.cached_property
    def assigner(self) -> Assigner:
        """Of all ways to write the Program, which have most equations in common."""
        return Assigner(self.machine)

    def draft(self, program: Program) -> Draft:
        """Of the Program, as it may be written otherwise."""
        return first_draft(program, self.annotations, self.assigner)

    def search(self, program: Program) -> Search:
        draft, worth = self.draft(program), self.limits.worth
        return Search(draft, self.ties, self.deadline, self.effort, later=self.later, is_frugal=True, worth=worth)

    def briefly(
        self, mesh: BaseMesh | None = None, annotations: Annotations | None = None, memory: float | None = None
    ) -> Search:
        """A short search of the same but for what is given, at its end: its plan fits, or is nearest to it."""
        mesh, annotations = mesh or self.machine.mesh, annotations or self.annotations
        target = self.machine.target if memory is None else with_memory(self.machine.target, memory)
        machine = Machine(mesh, target, annotations.undonated_of(self.program))
        search = Search(first_draft(self.program, annotations, Assigner(machine)), self.ties, priced=RETRIED)
        search.plan()
        return search

    def rewritten(self) -> Iterator[tuple[tuple[str, ...], Program]]:
        """The ways in which the Program may be written otherwise, and what it is then."""
        return rewritten(self.program, self.machine)

    def written(self, ways: Sequence[str]) -> Program:
        return written(self.program, self.machine, ways)

    def bounded_later(self, plan: Plan) -> Plan:
        """The plan, whose bound is worked out when somebody asks, with those of other ways to write the Program."""
        optimum = plan.optimum
        assert optimum is not None
        least = optimum.seconds if optimum.fastest is None else optimum.fastest.seconds

        def bound() -> float:
            return min([optimum.bound, *(self.search(other).bounded(least) for _, other in self.rewritten())])

        return dataclasses.replace(plan, optimum=dataclasses.replace(optimum, proof=bound))


def task_of(
    program: Program,
    mesh: BaseMesh,
    annotations: Annotations,
    target: Target | None = None,
    ties: Mapping[int, int] | None = None,
    limits: Limits | None = None,
) -> Task:
    """To plan the Program on a mesh, that of the target's devices if one is given, within the memory of the limits."""
    limits, target = limits or Limits(), target or target_of(mesh)
    target = target if limits.memory is None else with_memory(target, float(limits.memory))
    program = without_sharing(program)
    machine = Machine(mesh, target, annotations.undonated_of(program))
    return Task(program, annotations, machine, dict(ties or {}), limits, limits.deadline)


def with_memory(target: Target, memory: float) -> Target:
    return dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=memory))
