"""The Plan: a placement for every value of a Program, and for every equation how its factors are spread over axes.

It is what planning gives and what partitioning, reports and tests read; it holds no algorithm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshjit.core.collective import Collective
from meshjit.core.decision import Decision
from meshjit.core.effects import is_pure
from meshjit.core.printer import print_program
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.target import Target
from sharding.axes import AxisRef
from sharding.graph import Conflict, Origin
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import Placement


@dataclass(frozen=True)
class EquationPlan:
    """How one equation is computed: what it wants its operands to be, and what its results then naturally are.

    The plans of nested Programs share the outer one's `placements`.
    Results are partial over the axes of reduced factors, and over the axes of partial sums that flow through.
    """

    rule: FactorRule
    assignment: Mapping[str, tuple[AxisRef, ...]]
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    bodies: tuple[Plan, ...] = ()  # of the op's regions, in their order
    block: int = 0  # of a loop: iterations that exchange their borders at once; 0 where each exchanges its own


def equation_plan(rule: FactorRule, assignment: Mapping[str, tuple[AxisRef, ...]], mesh: BaseMesh) -> EquationPlan:
    """Placements of operands and results when the factors are spread like this."""
    partial = rule.partial(assignment)
    operands = tuple(Placement(rule.placement(dims, assignment, mesh)) for dims in rule.operands)
    results = tuple(Placement(rule.placement(dims, assignment, mesh), partial) for dims in rule.results)
    return EquationPlan(rule, assignment, operands, results)


REMATERIALIZED: Final = 1 << 20  # bytes of all values, whole, up to which making them again is nothing beside moving one


def rematerializable(eqn: Eqn, rule: FactorRule, cheap: Mapping[Var, int]) -> int | None:
    """The bytes of all values on the way, if the equation's one result can be computed again at any placement, so that it
    never has to move; else None. True of constants and iota, and of what a few small elementwise equations make of them;
    `cheap` has the bytes of other such results.

        %1: f32[256] = iota()    %2 = multiply(%1, %1)    one use is over x and another whole: %2 is computed twice
    """
    if len(eqn.outputs) != 1 or eqn.op.regions is not None or not rule.is_passthrough or not is_pure(eqn):
        return None  # a loop of nothing, too: its results are stacked whole
    if not eqn.inputs:
        return 0
    if any(v not in cheap for v in eqn.inputs):
        return None
    size = eqn.outputs[0].type.nbytes + sum(cheap[v] for v in eqn.inputs)
    return size if size <= REMATERIALIZED else None


@dataclass(frozen=True)
class PlanCost:
    """What one device is predicted to spend on a plan: seconds of work and of moving data, bytes on the wire, and the
    most bytes that it holds at a time. Serves to compare plans, not to foretell times."""

    work_seconds: float
    move_seconds: float
    wire_bytes: float
    peak_bytes: float

    @property
    def seconds(self) -> float:
        return self.work_seconds + self.move_seconds


@dataclass(frozen=True)
class Trial:
    """An alternative that was planned: what the plan cost at the time, and what it would have cost (None: clearly more,
    planning it was stopped)."""

    kind: str
    text: str
    source: str
    before: PlanCost
    cost: PlanCost | None
    is_accepted: bool


@dataclass(frozen=True)
class Plan:
    """`placements` is where every value lives; `outputs` is how each output of the Program is handed over."""

    program: Program
    mesh: BaseMesh
    placements: Mapping[Var, Placement]
    equations: tuple[EquationPlan, ...]
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    origins: Mapping[tuple[Var, int, AxisRef], Origin] = field(default_factory=dict[tuple[Var, int, AxisRef], Origin])
    conflicts: tuple[Conflict, ...] = ()
    target: Target | None = None  # the machine that it was priced for
    cost: PlanCost | None = None
    trials: tuple[Trial, ...] = ()
    collectives: tuple[Collective, ...] = ()  # predicted, of one run of the Program
    events: tuple[Any, ...] = ()  # what decisions are told from, see `meshjit.plan.events`
    describe: Callable[[Plan], tuple[Decision, ...]] | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """What planning chose, and why, in the order of the Program; `core/decision.py` says what each is."""
        return self.describe(self) if self.describe is not None else ()

    def __str__(self) -> str:
        return print_program(self.program, self.placements)
