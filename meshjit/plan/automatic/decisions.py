"""What a Model is made of: its decisions, kinds of equations that are alike in their decision, and values between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.problem import Table
from meshjit.plan.automatic.versions import VersionPrices
from sharding.placement import Placement

Demands: TypeAlias = ByChoice[tuple[Placement, ...]]


@dataclass(eq=False)
class Decision:
    """A variable of the Problem. Of equations, `plans` has one per choice; `spreads` the same without partial sums that flow
    through. Of values, `placements` has one per choice. Equal layers share their decisions, and so do elementwise equations with
    those whose results they read, where `joins` of the Model says so."""

    number: int
    eqns: list[tuple[Eqn, list[EquationPlan]]] = field(default_factory=list[tuple[Eqn, list[EquationPlan]]])  # plans by choice
    vars: list[Var] = field(default_factory=list[Var])
    plans: list[EquationPlan] = field(default_factory=list[EquationPlan])
    spreads: list[EquationPlan] = field(default_factory=list[EquationPlan])
    placements: list[Placement] = field(default_factory=list[Placement])
    rents: int = 0  # how often it pays for the bytes of its value
    flows: bool = False  # whether partial sums may leave its equations
    dims: Any = None  # of the result, if others may join
    latest: Any = None  # Kind of the last equation that joined


@dataclass(frozen=True, eq=False)
class Effects:
    """Of an equation by choice: what it costs, how it is computed, where its results are (by result), and what it asks of its
    operands (by operand)."""

    costs: Table
    spreads: list[EquationPlan]
    homes: list[ByChoice[Placement]]
    demands: list[Demands]


@dataclass(frozen=True, eq=False)
class Sides:
    """Of a loop that runs `weight` times, whose body has `decisions` of its own: where the inputs of the body lie, and its
    outputs."""

    weight: float
    inputs: list[Decision] = field(default_factory=list[Decision])
    outputs: list[Decision] = field(default_factory=list[Decision])
    decisions: list[Decision] = field(default_factory=list[Decision])


@dataclass(eq=False)
class Kind:
    """Of `count` equations that are alike in their decision. `number`: of its places among all; `weight`: how often they run."""

    decision: int
    number: int
    weight: float
    effects: Effects
    count: int = 0


@dataclass(eq=False)
class Value:
    """Who makes a value and as which of its results; who reads it, and as which of their operands. By number of the equation:
    when it is `born`, -1 for inputs of its Program, and the `times` of its uses, after all equations those of outputs; where the
    Model joins decisions nobody asks for these."""

    var: Var
    maker: Decision
    result: int
    weight: float
    prices: VersionPrices
    homes: ByChoice[Placement]
    born: int
    uses: list[tuple[Decision, int, Demands]] = field(default_factory=list[tuple[Decision, int, Demands]])
    times: Sequence[int] = ()
    count: int = 1  # of values that are copies of it, and itself

    @property
    def key(self) -> object:
        """The same for values whose tables are the same."""
        return self.maker.number, self.result, self.weight, self.var.type, tuple([(by.number, i) for by, i, _ in self.uses])

    def demanded(self) -> dict[Decision, Demands]:
        """By reader and its choice, the placements that it asks for."""
        together: dict[Decision, Demands] = {}
        for by, _, demands in self.uses:
            before = together.get(by)
            together[by] = demands if before is None else ByChoice((*a, *b) for a, b in zip(before, demands, strict=True))
        return together
