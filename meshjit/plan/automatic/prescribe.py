"""Choices → the Plan: the planner is told how to compute every equation, and does the rest as always.

The rest is what stays unreduced, what loops collect, what is brought before them, and the price, which is that of any plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import rule_of
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.versions import home_of, pin_of
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from sharding.axes import AxisRef
from sharding.placement import Placement
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec

NOTHING_COLLECTED: Final[Mapping[Var, bool]] = {}


class Prescribed(Assigner):
    """Computes equations as `plans` say, and others as is cheapest. `collected`: of what loops carry, whether it stays a partial
    sum until after the loop."""

    places_results = True

    def __init__(
        self, machine: Machine, plans: Mapping[Eqn, EquationPlan], collected: Mapping[Var, bool] = NOTHING_COLLECTED
    ) -> None:
        super().__init__(machine)
        self.plans, self.collected = plans, collected

    def collects(self, carry: Var) -> bool | None:
        return self.collected.get(carry)

    def following(self, before: Program, after: Program, originals: Mapping[Var, Var]) -> Prescribed:
        """Equations on other values, and copies of equations, are computed as these were."""
        eqns = [eqn for part in programs_in(before) for eqn in part.eqns if eqn in self.plans]
        makers = {v: self.plans[eqn] for eqn in eqns for v in eqn.outputs}
        plans = dict(self.plans)
        for eqn in (eqn for part in programs_in(after) for eqn in part.eqns):
            if eqn not in plans and eqn.outputs and eqn.inputs:
                plan = makers.get(originals.get(eqn.outputs[0], eqn.outputs[0]))
                if plan is not None and len(plan.results) == len(eqn.outputs) and plan.rule == rule_of(eqn):
                    plans[eqn] = plan
        return Prescribed(self.machine, plans, self.collected)

    def assign(
        self,
        eqn: Eqn,
        rule: FactorRule,
        placements: Mapping[Var, Placement],
        have_of: Callable[[Var], tuple[Placement, ...]],
        joins: bool = False,
        sharers: tuple[float, ...] = (),
    ) -> EquationPlan:
        plan = self.plans.get(eqn)
        return super().assign(eqn, rule, placements, have_of, joins, sharers) if plan is None else plan


def prescribe(draft: Draft, model: Model, choices: Mapping[int, int] | Sequence[int]) -> Draft:
    """The draft whose decisions are those of `choices`, by number of the Decision."""
    plans: dict[Eqn, EquationPlan] = {}
    for decision in model.decisions:
        for eqn, spreads in decision.eqns:
            if eqn.op.pinned is None:
                plans[eqn] = spreads[choices[decision.number]]
    plans.update(_joined(model, plans))
    homes = {var: _home(model, var, choices) for var in model.values}
    homes |= {var: homes[first] for var, first in model.copies.items()}
    for var, reader in model.made_anywhere.items():
        if reader is not None:
            by, demands = reader
            homes[var] = demands[choices[by.number]][0].without_partial()
    homes.update(_inputs(draft, homes))
    draft.machine.forget_repeats()  # what was recalled of repeats is of other plans
    collected = {v: decision.placements[choices[decision.number]].partial != () for v, decision in model.collectors.items()}
    return draft.with_homes(homes, _outputs(draft, model, choices, homes), Prescribed(draft.machine, plans, collected))


def prescribed_like(draft: Draft, other: Draft) -> Draft:
    """The draft with the decisions of another one of the same Program, whose equations were prescribed for another machine."""
    assert isinstance(other.assigner, Prescribed) and other.program is draft.program
    homes = {var: other.propagated.placements[number] for var, number in draft.flat.numbers.items()}
    assigner = Prescribed(draft.machine, other.assigner.plans, other.assigner.collected)
    draft.machine.forget_repeats()
    return draft.with_homes(homes, list(other.plan.outputs), assigner)


def _joined(model: Model, plans: dict[Eqn, EquationPlan]) -> dict[Eqn, EquationPlan]:
    """The plans of equations that were decided in parts. Each part is an operand and the result that it becomes."""
    parts: dict[Eqn, list[EquationPlan]] = {}
    for part, eqn in model.parts.items():
        parts.setdefault(eqn, []).append(plans.pop(part))
    joined: dict[Eqn, EquationPlan] = {}
    for eqn, each in parts.items():
        rule = model.flat.rules[eqn]
        spread: dict[str, tuple[AxisRef, ...]] = {}
        for dims, plan in zip(rule.results, each, strict=True):
            spread.update(rule.project(dims, plan.results[0], model.machine.mesh))
        joined[eqn] = equation_plan(rule, spread, model.machine.mesh)
    return joined


def _home(model: Model, var: Var, choices: Mapping[int, int] | Sequence[int]) -> Placement:
    value = model.values[var]
    natural = value.homes[choices[value.maker.number]]
    if not natural.partial:
        return natural
    return home_of(natural, [p for by, _, demands in value.uses for p in demands[choices[by.number]]])


def _inputs(draft: Draft, homes: Mapping[Var, Placement]) -> dict[Var, Placement]:
    """Where inputs are: as annotated, also where the Model is one without these annotations (`relax.py`)."""
    sides = zip(draft.program.inputs, draft.annotations.inputs, strict=True)
    return {var: _obeyed(draft, var, spec, homes[var]) for var, spec in sides}


def _outputs(
    draft: Draft, model: Model, choices: Mapping[int, int] | Sequence[int], homes: Mapping[Var, Placement]
) -> list[Placement]:
    """Likewise; those that are tied to an input are where it is."""
    chosen = [decision.placements[choices[decision.number]] for decision in model.outputs]
    sides = zip(draft.program.outputs, draft.annotations.outputs, chosen, strict=True)
    placements = [_obeyed(draft, *side) for side in sides]
    for output, source in model.ties.items():
        placements[output] = homes[draft.program.inputs[source]]
    return placements


def _obeyed(draft: Draft, var: Var, spec: PartitionSpec | None, placement: Placement) -> Placement:
    pin = pin_of(spec, var.rank, draft.machine.mesh)
    return placement if pin is None or pin.allows(placement) else pin.placement
