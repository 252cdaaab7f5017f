"""Equations that planning does not tell apart, and their plans, each of which is made once.

    %2 = add(%0, %1)    %5 = multiply(%3, %4)    of equal types: kind 0; on x: one EquationPlan for both
"""

from __future__ import annotations

from typing import Any

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn
from meshjit.core.rules import reading_of
from sharding.mesh import BaseMesh
from sharding.rule import Assignment, FactorRule


class Kinds:
    """Of all that is planned on one machine."""

    def __init__(self) -> None:
        self.of_eqns: dict[Eqn, int] = {}
        self.copies: dict[tuple[int, ...], int] = {}  # the same by identity, which holds as `of_eqns` keeps the equations
        self.numbers: dict[Any, int] = {}
        self.plans: dict[Any, EquationPlan] = {}

    def of(self, eqn: Eqn, rule: FactorRule) -> int:
        """A number for all that work and exchanges of an equation depend on besides placements."""
        number = self.of_eqns.get(eqn)
        if number is None:
            number = self.copies.get(eqn.identity)
            if number is None:
                facts = eqn.op.exchanges, eqn.op.passes is None, reading_of(eqn), _exchanged(eqn)
                number = self.numbers.setdefault((rule, facts, eqn.input_types, eqn.output_types), len(self.numbers))
                self.copies[eqn.identity] = number
            self.of_eqns[eqn] = number
        return number

    def plan(self, eqn: Eqn, rule: FactorRule, spread: Assignment, mesh: BaseMesh) -> EquationPlan:
        """One object for equal spreads of one kind."""
        key = self.of(eqn, rule), tuple(sorted(spread.items()))
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = equation_plan(rule, spread, mesh)
        return plan

    def again(self) -> Kinds:
        """Those that are known here; what is learned there goes when that goes."""
        other = Kinds()
        other.of_eqns, other.copies = dict(self.of_eqns), dict(self.copies)
        other.numbers, other.plans = dict(self.numbers), dict(self.plans)
        return other


def _exchanged(eqn: Eqn) -> Any:
    """What the op's own rule depends on besides types."""
    return (eqn.op.name, *eqn.params.items()) if eqn.op.exchanges and eqn.inputs else None
