"""The plans from which that of an equation is chosen: what the domain has, and what somebody said leaves of it.

    %y = dot(%x, %w), pinned to [x, -]     of the plans over x alone those whose result lies so
    %z = add(%y, %v), linear               each plan; and with partial sums that flow through, over axes that it does not use
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn
from meshjit.core.rules import rule_of
from meshjit.plan.automatic.domain import Domain
from meshjit.plan.automatic.versions import pin_of
from meshjit.plan.cost import Machine
from meshjit.plan.graph import Flattened
from sharding.axes import AxisRef, name_of
from sharding.rule import FactorRule
from sharding.spec import placement_of

Sums: TypeAlias = tuple[tuple[int, ...], list[tuple[AxisRef, ...]]]  # operands that flow together, and over which axes they may
Plans: TypeAlias = list[EquationPlan]


class AllowedPlans:
    """One list for equations that have the same plans."""

    def __init__(self, domain: Domain, machine: Machine, flat: Flattened) -> None:
        self.domain, self.machine, self.flat = domain, machine, flat
        self.plans: dict[object, Plans] = {}  # by kind of equation
        self.both: dict[object, tuple[Plans, Plans]] = {}  # by that, and the sums
        self.counts: dict[object, int] = {}  # by that, and position of an operand or a result

    def rule(self, eqn: Eqn) -> FactorRule:
        rule = self.flat.rules.get(eqn)  # not of parts of an equation that are decided separately
        return rule_of(eqn) if rule is None else rule

    def of(self, eqn: Eqn) -> Plans:
        """Without partial sums that flow through."""
        key = self._alike(eqn)
        plans = self.plans.get(key)
        if plans is None:
            plans = self.plans[key] = self._worked_out(eqn)
        return plans

    def with_sums(self, eqn: Eqn, sums: Sequence[Sums]) -> tuple[Plans, Plans]:
        """By choice, with partial sums that flow through and without."""
        key = self._alike(eqn), *[(group, *axes) for group, axes in sums]
        both = self.both.get(key)
        if both is None:
            allowed = self.of(eqn)
            through = [(p.with_sums(*each), p) for p in allowed for each in _apart(p, sums)]
            both = [*allowed, *(flowing for flowing, _ in through)], [*allowed, *(p for _, p in through)]
            self.both[key] = both
        return both

    def count(self, eqn: Eqn, i: int) -> int:
        """How many placements an operand may have, or with larger numbers a result; without those of sums that flow through."""
        key, count, normal = (self._alike(eqn), i), len(eqn.inputs), self.machine.normal
        if key not in self.counts:
            placements = [p.operands[i] if i < count else p.results[i - count] for p in self.of(eqn)]
            self.counts[key] = len(set(map(normal, placements)))
        return self.counts[key]

    def _alike(self, eqn: Eqn) -> object:
        """The same for equations with the same plans; where somebody said how they are spread, for copies alone."""
        alike = self.domain.alike(eqn, self.rule(eqn))
        return alike if eqn.op.seed is None and eqn.op.pinned is None else (alike, eqn.identity)

    def _worked_out(self, eqn: Eqn) -> Plans:
        rule, mesh = self.rule(eqn), self.machine.mesh
        if eqn.op.pinned is not None:
            return [_pinned_plan(eqn, rule)]
        spreads = [self.domain.plan(eqn, rule, spread) for spread in self.domain.spreads(eqn, rule)]
        pin = None if eqn.op.seed is None else pin_of(eqn.op.seed(eqn.params), eqn.outputs[0].rank, mesh)
        allowed = [s for s in spreads if pin is None or pin.allows(self.machine.normal(s.results[0]))]
        if not allowed:
            assert pin is not None
            allowed = [equation_plan(rule, rule.project(rule.results[0], pin.placement, mesh), mesh)]
        return allowed


def _apart(plan: EquationPlan, sums: Sequence[Sums]) -> Iterator[tuple[tuple[int, ...], tuple[tuple[AxisRef, str], ...]]]:
    """Those of the sums whose axes the plan does not use, as partial axes."""
    busy = {name_of(axis) for p in (*plan.operands, *plan.results) for axis in p.axes()} if sums else set[str]()
    for group, partials in sums:
        for axes in partials:
            if not busy & {name_of(axis) for axis in axes}:
                yield group, tuple([(axis, "sum") for axis in axes])


def _pinned_plan(eqn: Eqn, rule: FactorRule) -> EquationPlan:
    assert eqn.op.pinned is not None
    operands, results, _ = eqn.op.pinned(eqn.params)
    here, there = (
        tuple(placement_of(s, v.rank) for s, v in zip(specs, vars, strict=True))
        for specs, vars in ((operands, eqn.inputs), (results, eqn.outputs))
    )
    return EquationPlan(rule, {}, here, there)
