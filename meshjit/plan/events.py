"""What happens while a Program is planned, as data: the raw material of `Plan.decisions` (`describe.py` words them).

Each is a few references, so that recording costs nothing; a nested Program's Plan has its own. Those of which a Program has most
are tuples, which are made in a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from meshjit.core.collective import Collective
from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from sharding.reshard import Walk
from sharding.spec import Placement

Options: TypeAlias = Callable[[], Sequence[tuple[EquationPlan, float]]]  # the chosen one first


class Move(NamedTuple):
    """A value was brought to another placement, for an equation or (None) as an output."""

    var: Var
    walk: Walk
    eqn: Eqn | None


class Exchange(NamedTuple):
    """What an op's own rule sends in the course of an equation: the collectives that it writes, and what they are in the end,
    shared, merged and paired."""

    eqn: Eqn
    collectives: Sequence[Collective]
    final: Sequence[Collective]


class Remake(NamedTuple):
    """A value was made again, by this plan of its equation, instead of moved."""

    eqn: Eqn
    plan: EquationPlan


@dataclass(frozen=True, slots=True)
class Delay:
    """A partial sum stayed unreduced through an equation; `shared`, if others read it as well. `sooner`: seconds of reducing it
    before."""

    eqn: Eqn
    partial: Placement
    shared: bool
    sooner: float


class Reduction(NamedTuple):
    """Where a chain of delayed equations ended: the seconds of reducing its result, and of reducing before its last equation."""

    eqn: Eqn
    late: float
    sooner: float
    is_late: bool


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A carry of a loop collects partial sums, or (None) does not, because of a refusal or of its price: seconds of reducing it
    after the loop, and what is added to it in all iterations; None where nobody asked."""

    var: Var
    placement: Placement | None
    refusal: str = ""
    after: float | None = None
    inside: float | None = None


@dataclass(frozen=True, slots=True)
class Hoist:
    """What does not change in a loop is brought before it: (placement, seconds of all trips), the chosen one first."""

    var: Var
    options: tuple[tuple[Placement, float], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """How an equation is computed, and the other ways with their seconds, which are worked out when somebody asks."""

    eqn: Eqn
    options: Options


class Elsewhere(NamedTuple):
    """An equation is computed by another plan than the one that was made before its readers were known; so are, by number, those
    of `changes`, itself among them. Seconds of what they cost, and of what they cost as planned before."""

    eqn: Eqn
    plan: EquationPlan
    changes: Mapping[int, EquationPlan]
    seconds: float
    before: float
    reason: str


Event: TypeAlias = Move | Exchange | Remake | Delay | Reduction | Accumulation | Hoist | Choice | Elsewhere
