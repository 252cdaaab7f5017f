"""Which axes an equation's factors are spread over.

After propagation the values around an equation may still disagree. Each of them suggests a spread: its own placement
read as factors, completed by what the others say about factors it does not have; and so does every version of an
operand that exists by then. The cheapest suggestion wins, where the cost is that of bringing the operands there from
the nearest version, of the work, and of bringing the results to where propagation would have them. Of those that are about as
cheap, which is beyond what prices can say, the one that sends least wins.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import is_contraction
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine, OwnCost
from meshjit.plan.displaced import displaced
from meshjit.plan.events import Choice, Options
from sharding.axes import AxisRef, overlap
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import Placement

Assignment = dict[str, tuple[AxisRef, ...]]
EQUAL: Final = 1.01  # seconds up to this ratio count as equal
GATHERED: Final = 1.1  # times the seconds of a spread that gathers what the op could exchange: it must be clearly faster


class Assigner:
    """Chooses, equation by equation. Equations that are alike, among values that are placed alike, are worked out once."""

    places_results = False  # whether it says where loops put what they stack; else slices lie there as they are made

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.mesh = machine.mesh
        self.assigned: dict[Any, EquationPlan] = {}
        self.options: dict[int, Options] = {}  # by id of the one that was chosen

    def following(self, before: Program, after: Program, originals: Mapping[Var, Var]) -> Assigner:
        """For a Program that was rewritten; `originals` says which of its values are copies of which."""
        return self

    def collects(self, carry: Var) -> bool | None:
        """Whether what a loop carries, an input of its Program, stays a partial sum until after the loop, if it can; None where
        prices say."""
        return None

    def again(self) -> Assigner:
        """One that knows what this one knows; what it learns goes when it goes."""
        other = Assigner(self.machine.again())
        other.assigned, other.options = dict(self.assigned), dict(self.options)
        return other

    def assign(
        self,
        eqn: Eqn,
        rule: FactorRule,
        placements: Mapping[Var, Placement],
        have_of: Callable[[Var], tuple[Placement, ...]],
        joins: bool = False,
        sharers: tuple[float, ...] = (),
    ) -> EquationPlan:
        """The cheapest legal assignment for one equation, and the placements that follow from it.

        `placements` is where propagation would have every value, `have_of` says which versions of an operand exist; none of
        values that come from no operands (iota): partitioning makes these again wherever they are wanted.
        `joins`: whether a partial result is added to another, so that its reduction may cost nothing.
        `sharers`: how many equations share each operand's price, see `Uses.sharers`; (): none is shared.
        """
        inputs = eqn.inputs
        have, sides = tuple(map(have_of, inputs)), tuple(map(placements.__getitem__, inputs))
        homes = tuple(map(placements.__getitem__, eqn.outputs))
        key = self.machine.kinds.of(eqn, rule), joins, sharers, have, sides, homes
        step = self.assigned.get(key)
        if step is None:
            step = self.assigned[key] = self._cheapest(eqn, rule, have, sides, homes, joins, sharers)
        return step

    def _cheapest(
        self,
        eqn: Eqn,
        rule: FactorRule,
        have: Sequence[Sequence[Placement]],
        sides: Sequence[Placement],
        homes: Sequence[Placement],
        joins: bool,
        sharers: tuple[float, ...],
    ) -> EquationPlan:
        wholes = frozenset(f for f, kind in rule.kinds.items() if stays_whole(eqn, kind))
        views = self._views(rule, have, sides, homes)
        candidates: dict[tuple[tuple[str, tuple[AxisRef, ...]], ...], EquationPlan] = {}
        dearer: dict[int, float] = {}  # by id of a candidate
        plain: Assignment | None = None  # what the views come to in their own order
        for first, view in enumerate(views):
            ordered = [view, *views[:first], *views[first + 1 :]]
            if plain is not None and _has_its_axes(view, plain, wholes):
                if rule.is_passthrough:
                    continue
                merged = plain
            else:
                merged = _merge(rule, ordered, wholes)
                plain = merged if plain is None else plain
            others = [*displaced(rule, ordered, merged, wholes, self.mesh), *(() if joins else _unreduced(eqn, rule, merged))]
            gathered = self._made_whole(eqn, rule, ordered, merged)
            for number, spread in enumerate((merged, *others, *gathered)):
                spread = consistent(rule, spread, self.mesh)
                key = tuple(sorted(spread.items()))
                if key not in candidates:
                    candidates[key] = equation_plan(rule, spread, self.mesh)
                    if number > len(others):
                        dearer[id(candidates[key])] = GATHERED
        if not candidates:
            return equation_plan(rule, {}, self.mesh)
        if len(candidates) == 1:
            return next(iter(candidates.values()))
        plans = tuple(candidates.values())

        def price(i: int, least: bool) -> float:
            return dearer.get(id(plans[i]), 1.0) * self._seconds(eqn, plans[i], have, homes, sharers, least)

        exact = functools.cache(functools.partial(price, least=False))
        near = _least_of(exact, [price(i, least=True) for i in range(len(plans))])
        sent = [self._bytes(eqn, plans[i], have, homes, sharers) for i in near] if len(near) > 1 else [0.0]
        _, _, best = min(zip(sent, map(exact, near), near, strict=True))
        self.options[id(plans[best])] = lambda: [
            (plans[i], exact(i)) for i in sorted(range(len(plans)), key=lambda i: (i != best, exact(i)))
        ]
        return plans[best]

    def choices(self, program: Program, plans: Sequence[EquationPlan]) -> list[Choice]:
        """The equations that could have been computed in several ways."""
        options = self.options
        return [Choice(e, options[id(p)]) for e, p in zip(program.eqns, plans, strict=True) if id(p) in options]

    def _made_whole(self, eqn: Eqn, rule: FactorRule, views: Sequence[Assignment], merged: Assignment) -> list[Assignment]:
        """The spread with permuted factors whole, where leaving them in place has a price."""
        permuted = frozenset(f for f, kind in rule.kinds.items() if kind == "permute")
        if not eqn.op.exchanges or not any(merged.get(f) for f in permuted) or not self._sends_much(eqn, rule, merged):
            return []
        rest = {f: axes for f, axes in merged.items() if f not in permuted}
        return [rest, *displaced(rule, views, rest, permuted, self.mesh)]

    def _sends_much(self, eqn: Eqn, rule: FactorRule, spread: Assignment) -> bool:
        """Whether the op's own rule sends more than borders to both sides can be, for which nothing is ever gathered."""
        plan = equation_plan(rule, consistent(rule, spread, self.mesh), self.mesh)
        _, exchange = self.machine.own_work(eqn, plan)
        held = sum(map(self.machine.local_bytes, eqn.input_types, plan.operands))
        return bool(exchange.requests) or exchange.bytes > 2 * held

    def _views(
        self,
        rule: FactorRule,
        have: Sequence[Sequence[Placement]],
        sides: Sequence[Placement],
        homes: Sequence[Placement],
    ) -> list[Assignment]:
        """What each value says about the factors: results first, so that with equal costs results stay where they are."""
        views_of = [*zip(rule.results, homes, strict=True), *zip(rule.operands, sides, strict=True)]
        views_of += [(dims, version) for dims, versions in zip(rule.operands, have, strict=True) for version in versions]
        views: list[Assignment] = []
        for dims, placement in views_of:
            view = rule.project(dims, placement, self.mesh)
            if view not in views:
                views.append(view)
        return views

    def _seconds(
        self,
        eqn: Eqn,
        step: EquationPlan,
        have: Sequence[Sequence[Placement]],
        homes: Sequence[Placement],
        sharers: tuple[float, ...],
        least: bool,
    ) -> float:
        """Predicted seconds of the work and of all that is brought; or at least so many, without a search for walks."""
        machine = self.machine
        between = machine.least if least else machine.seconds
        work, exchange = machine.own_work(eqn, step)
        seconds = work + exchange.moving
        for type, sources, target, share in self._brought(eqn, step, exchange, have, homes, sharers):
            sources = sources if least else (self._source(type, sources, target),)
            seconds += min([between(type, source, target) for source in sources]) / share
        return seconds

    def _bytes(
        self,
        eqn: Eqn,
        step: EquationPlan,
        have: Sequence[Sequence[Placement]],
        homes: Sequence[Placement],
        sharers: tuple[float, ...],
    ) -> float:
        """What the op's own rule and all that is brought send."""
        _, exchange = self.machine.own_work(eqn, step)
        brought = self._brought(eqn, step, exchange, have, homes, sharers)
        walks = ((self.machine.walk(type, self._source(type, sources, to), to), share) for type, sources, to, share in brought)
        return exchange.bytes + sum(walk.bytes / share for walk, share in walks)

    def _brought(
        self,
        eqn: Eqn,
        step: EquationPlan,
        exchange: OwnCost,
        have: Sequence[Sequence[Placement]],
        homes: Sequence[Placement],
        sharers: tuple[float, ...],
    ) -> Iterator[tuple[TensorType, Sequence[Placement], Placement, float]]:
        """What the op's own rule asks for, operands that are not there, and results that go home: the type, where it may come
        from, where it goes, and how many share the price."""
        normal = self.machine.normal
        for i, placement in exchange.requests:
            yield eqn.input_types[i], (normal(step.operands[i]),), normal(placement), 1
        shares = sharers or (1,) * len(have)
        for type, versions, operand, share in zip(eqn.input_types, have, step.operands, shares, strict=True):
            target = normal(operand)
            if versions and target not in versions:
                yield type, versions, target, share
        for type, natural, home in zip(eqn.output_types, step.results, homes, strict=True):
            yield type, (natural,), home.without_partial(), 1

    def _source(self, type: TensorType, sources: Sequence[Placement], target: Placement) -> Placement:
        return sources[0] if len(sources) == 1 else self.machine.nearest(type, sources, target).placements[0]


def _least_of(exact: Callable[[int], float], least: Sequence[float]) -> list[int]:
    """The candidates whose exact price is about the least. Those that cost more at least are not priced exactly."""
    price, asked = math.inf, list[int]()
    for i in sorted(range(len(least)), key=least.__getitem__):
        if least[i] > EQUAL * price:
            break
        asked.append(i)
        price = min(price, exact(i))
    return [i for i in sorted(asked) if exact(i) <= EQUAL * price]


def stays_whole(eqn: Eqn, kind: str) -> bool:
    """Replicated factors always; permuted ones unless the op brings its own way of exchanging borders."""
    return kind == "replicate" or (kind == "permute" and not eqn.op.exchanges)


def _unreduced(eqn: Eqn, rule: FactorRule, merged: Assignment) -> list[Assignment]:
    """The spread without axes on reduced factors: all of a few updates on every device rather than the sum of results as
    large as what they update, all rows of a weight rather than the sum of a product as large as a batch. Only for ops of which
    it is known what repeating their work costs."""
    if not is_priced(eqn) or not any(merged.get(f) for f in rule.reductions):
        return []
    return [{f: axes for f, axes in merged.items() if f not in rule.reductions}]


def is_priced(eqn: Eqn) -> bool:
    """Whether it is known what repeating the work of an equation that reduces costs: it says so, or is a contraction."""
    return eqn.op.passes is not None or eqn.op.search is not None or is_contraction(eqn)


def _merge(rule: FactorRule, views: Sequence[Assignment], wholes: frozenset[str]) -> Assignment:
    """The first view's axes, then for factors without any those of the next views, as far as axes are free.

    No axis serves two factors of one part, even two that meet in no value: one device cannot be two different rows at
    once.
    """
    merged: Assignment = {}
    taken: dict[int, list[AxisRef]] = {}
    for view in views:
        for factor, axes in view.items():
            if factor in wholes or merged.get(factor):
                continue
            used = taken.setdefault(rule.parts[factor], [])
            free = _free_prefix(axes, used)
            if free:
                merged[factor] = free
                used.extend(free)
    return merged


def _has_its_axes(view: Assignment, merged: Assignment, wholes: frozenset[str]) -> bool:
    """Whether a view got all that it suggests, among others that came before it: then the same comes of merging it first."""
    return all([merged.get(factor) == axes for factor, axes in view.items() if axes and factor not in wholes])


def _free_prefix(axes: Iterable[AxisRef], used: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    kept: list[AxisRef] = []
    for axis in axes:
        if any(overlap(axis, other) for other in used):
            break
        kept.append(axis)
    return tuple(kept)


def consistent(rule: FactorRule, assignment: Assignment, mesh: BaseMesh) -> Assignment:
    """The assignment without axes that some dim of several factors cannot express.

    `(a b) -> a b` with b over x but a over nothing: the merged dim would be strided, so b gives x up. Repeated until
    every value agrees, because one dim's loss may be another's.
    """
    if rule.is_simple:
        return assignment
    while True:
        before = dict(assignment)
        for dims in (*rule.operands, *rule.results):
            for dim in dims:
                if len(dim) > 1:
                    placed = Placement(rule.placement((dim,), assignment, mesh))
                    kept = rule.project((dim,), placed, mesh)
                    assignment = {f: a if f not in dim else kept.get(f, ()) for f, a in assignment.items()}
        assignment = {f: a for f, a in assignment.items() if a}
        if assignment == {f: a for f, a in before.items() if a}:
            return assignment
