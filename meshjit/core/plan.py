"""The Plan: a placement for every value of a Program, and for every equation how its factors are spread over axes.

It is what planning gives and what partitioning, reports and tests read; it holds no algorithm.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import html
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshjit.core.collective import Collective
from meshjit.core.decision import Decision, rounded
from meshjit.core.effects import is_pure
from meshjit.core.printer import print_program
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.target import Target
from sharding.axes import AxisRef
from sharding.graph import Conflict, Origin
from sharding.mesh import BaseMesh
from sharding.placement import placed
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
    brought: tuple[Placement | None, ...] = ()  # where results are brought as soon as they are made, if anywhere
    manual: frozenset[str] = frozenset()  # axes along which the user's code around the equation runs once each

    def with_sums(self, group: Sequence[int], partial: tuple[tuple[AxisRef, str], ...]) -> EquationPlan:
        """On operands of which those in `group` are partial sums over these axes, as the results then are."""
        operands = tuple([placed(p.dims, partial) if i in group else p for i, p in enumerate(self.operands)])
        results = tuple([placed(p.dims, (*p.partial, *partial)) for p in self.results])
        return EquationPlan(self.rule, self.assignment, operands, results)


def equation_plan(rule: FactorRule, assignment: Mapping[str, tuple[AxisRef, ...]], mesh: BaseMesh) -> EquationPlan:
    """Placements of operands and results when the factors are spread like this."""
    partial = rule.partial(assignment)
    operands = tuple([placed(rule.placement(dims, assignment, mesh)) for dims in rule.operands])
    results = tuple([placed(rule.placement(dims, assignment, mesh), partial) for dims in rule.results])
    return EquationPlan(rule, assignment, operands, results)


EQUAL: Final = 1 + 1e-4  # seconds that differ by less are the same to the digits in which they are said
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
class Optimum:
    """How good a plan is that was searched for automatically.

    seconds: predicted for the plan. known: seconds below which no plan is, as far as the search knows. searched: plans that were
    priced in full. is_complete: False where the effort or the width of the Program cut the search. proof: a bound that is worked
    out when somebody asks, for a large Program. fastest: the cost of the fastest plan, where a plan that is about as
    fast and sends less was preferred to it; sent: the bytes that this one sends.
    """

    seconds: float
    known: float
    searched: int = 1
    is_complete: bool = True
    proof: Callable[[], float] | None = field(default=None, repr=False, compare=False)
    fastest: PlanCost | None = None
    sent: float = 0.0

    @functools.cached_property
    def bound(self) -> float:
        """No plan of those that were to choose from takes less; 0 where nothing is known."""
        least = self.seconds if self.fastest is None else self.fastest.seconds
        return self.known if self.proof is None else min(least, self.proof())

    @property
    def gap(self) -> float:
        """The fraction of the bound by which the plan may be dearer than the best: 0 of an optimal plan, inf without a bound."""
        if self.seconds <= self.bound * EQUAL:
            return 0.0
        return self.seconds / self.bound - 1 if self.bound > 0 else float("inf")

    @property
    def is_optimal(self) -> bool:
        return self.gap == 0.0

    @property
    def is_proved(self) -> bool:
        """Whether no plan is faster than this one, or than the one that it was preferred to."""
        least = self.seconds if self.fastest is None else self.fastest.seconds
        return least <= self.bound * EQUAL

    def __str__(self) -> str:
        time = f"{self.seconds * 1e3:.4g} ms"
        if self.is_optimal:
            return f"{time}, optimal"
        if self.gap == float("inf"):
            return f"{time}, no bound is known"
        if self.gap >= 1:
            return f"{time}, at most {float(f'{1 + self.gap:.3g}'):,g} times the optimum"
        if self.fastest is None:
            return f"{time}, at most {self.gap * 100:.2g} % from the optimum"
        slower, less = 100 * (self.seconds / self.fastest.seconds - 1), 100 * (1 - self.sent / self.fastest.wire_bytes)
        chosen = f"chosen because it sends {f'{less:.0f} % less' if self.sent else 'nothing'}"
        if self.is_proved:
            return f"{time}, {slower:.2g} % slower than the optimum, {chosen}"
        return f"{time}, at most {self.gap * 100:.2g} % from the optimum: {slower:.2g} % slower than the fastest plan, {chosen}"


DIGEST: Final = "digest"  # of a saved plan: that of its other entries
APART: Final = ("equations", "values", "arguments")  # entries that have a digest of their own


def digest_of(saved: Mapping[str, Any]) -> str:
    """By which a plan that somebody edited is told from the one that was saved: the digests of `APART`, and of the rest."""
    rest = {name: value for name, value in saved.items() if name not in (DIGEST, *APART)}
    texts = [json.dumps(each, sort_keys=True) for each in (*map(saved.get, APART), rest)]
    return "-".join([hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts])


# What bounds are of, docs/automatic.md, "What is chosen from".
COMPARED: Final = (
    "of plans over whole axes that compute nothing again; loops of long programs in blocks, and rewrites of some equations, are"
    " tried on a few of them"
)


def _searched(name: str, optimum: Optimum) -> Decision:
    ends = "no further choice can be cheaper" if optimum.is_complete else "that no further choice is cheaper is not proved"
    plans = "1 plan was" if optimum.searched == 1 else f"{optimum.searched} plans were"
    least = f"on this mesh none takes less than {optimum.bound * 1e3:.4g} ms" if optimum.bound > 0 else "no bound is known"
    reasons = f"{plans} priced in full; {ends}", f"{least}, {COMPARED}"
    if optimum.fastest is not None:
        rival = f"{optimum.fastest.seconds * 1e3:.4g} ms and sends {optimum.fastest.wire_bytes:,.0f} bytes"
        reasons = *reasons, f"the fastest takes {rival}: this one is about as fast and sends fewer"
    return Decision("search", name, str(optimum), reasons, rounded(optimum.seconds))


@dataclass(frozen=True)
class Trial:
    """An alternative that was planned: what the plan cost at the time, and what it would have cost (None: clearly more,
    planning it was stopped). `fits`: whether the alternative does; `is_short`: whether the plan before it did not. `beaten_by`:
    what else was planned, and was better."""

    kind: str
    text: str
    source: str
    before: PlanCost
    cost: PlanCost | None
    is_accepted: bool
    fits: bool = True
    is_short: bool = False
    beaten_by: str = ""


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
    optimum: Optimum | None = None  # of plans that were searched for automatically
    saved: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)  # see `meshjit.plan.automatic.saved`
    events: tuple[Any, ...] = ()  # what decisions are told from, see `meshjit.plan.events`
    describe: Callable[[Plan], tuple[Decision, ...]] | None = field(default=None, repr=False, compare=False)
    schedule: Callable[[Plan], float] | None = field(default=None, repr=False, compare=False)  # seconds, where sending overlaps

    @functools.cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """What planning chose, and why, in the order of the Program; `core/decision.py` says what each is."""
        told = self.describe(self) if self.describe is not None else ()
        return told if self.optimum is None else (_searched(self.program.name, self.optimum), *told)

    @functools.cached_property
    def overlapped_seconds(self) -> float:
        """Predicted seconds of a step if the collectives that the target overlaps run beside the work: the length of a schedule
        (`meshjit/plan/schedule.py`) in which whoever reads a value waits until it is there. At most `cost.seconds`, by which
        plans are compared."""
        assert self.cost is not None
        topology = self.target.topology if self.target is not None else None
        if topology is None or self.schedule is None or not any(each.kind in topology.overlaps for each in self.collectives):
            return self.cost.seconds
        return min(self.cost.seconds, self.schedule(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was chosen as JSON, which `meshjit.auto(…, plan=path)` plans by again. ValueError for a plan that was not
        searched for automatically: annotations say all of it."""
        if self.saved is None:
            problem = "this plan follows from annotations; there is nothing else to save"
            raise ValueError(f"{self.program.name}: {problem}\n  fix: save a plan of meshjit.auto(…)")
        entries = {**self.saved, **self._how_good()}
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**entries, DIGEST: digest_of(entries)}, file, indent=1)
            file.write("\n")

    def _how_good(self) -> Mapping[str, Any]:
        optimum = self.optimum
        if optimum is None:
            return {}
        fastest = None if optimum.fastest is None else dataclasses.asdict(optimum.fastest)
        return {"seconds": optimum.seconds, "bound": optimum.bound, "optimum": str(optimum), "fastest": fastest}

    def __str__(self) -> str:
        return print_program(self.program, self.placements)

    def _repr_html_(self) -> str:
        """In a notebook: the Program with its placements."""
        return f"<pre>{html.escape(print_program(self.program, self.placements, elide=True))}</pre>"


def plans_in(plan: Plan) -> Iterator[Plan]:
    """A plan, and those of nested Programs."""
    yield plan
    for step in plan.equations:
        for body in step.bodies:
            yield from plans_in(body)


def steps_in(plan: Plan) -> Iterator[tuple[Eqn, EquationPlan]]:
    """How each equation is computed, nested ones included."""
    for each in plans_in(plan):
        yield from zip(each.program.eqns, each.equations, strict=True)
