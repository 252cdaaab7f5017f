"""A sum that meets no other is not made where what it is made of is less to gather.

    %2 = dot(%0: f32[B, D@x], %1: f32[D@x, F])    partial sum(x), which is reduced for its reader
    %2 = dot(%0: f32[B, D], %1: f32[D, F])        %0 is whole for another reader anyway: %1 is gathered, nothing is reduced

While an equation is planned whose result only joins sums, it is not known what reducing it costs, if anything (`joins` in
`meshjit/plan/assign.py`). Once all equations are planned, it is known which of these sums are reduced by themselves, and where.
Both ways then have a price: that of the work, and of bringing the operands and the result to all their readers. Gathers have to
gain `Topology.detour`, as in walks of sums: a compiler that puts gradients off until their operands are there holds these, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Var
from meshjit.plan.assign import consistent, is_priced
from meshjit.plan.cost import Machine
from meshjit.plan.delay import Price
from meshjit.plan.events import Elsewhere
from meshjit.plan.planned import Planned
from sharding.reshard import Walk

CLEARLY: Final = 0.9  # of the price as planned: within a limit to the memory, where sums are kept is searched for, too
REASON: Final = "its operands are less to gather than its sum to reduce"


def gather_operands(planned: Planned) -> Sequence[Elsewhere]:
    """The equations of lone sums that are computed where these are read, of gathered operands."""
    lone = _lone_sums(planned)
    eqns = planned.program.eqns
    prices: dict[Any, tuple[Price, Price]] = {}  # equal layers are asked about once
    found: list[Elsewhere] = []
    for at, there in lone.items():
        values = *eqns[at].inputs, *eqns[at].outputs
        if any([placement.partial for placement in planned.asked(values[-1])]):
            continue  # somebody reads the sum as it is
        alike = id(planned.plans[at]), id(there), *[(planned.home(v), *planned.asked(v)) for v in values]
        if alike not in prices:
            prices[alike] = _prices(planned, at, there)
        gathered, summed = prices[alike]
        if gathered.is_below(summed.times(CLEARLY)):
            found.append(Elsewhere(eqns[at], there, {at: there}, gathered.seconds, summed.seconds, REASON))
    return found


def _lone_sums(planned: Planned) -> Mapping[int, EquationPlan]:
    """By number of its equation, each sum that is reduced by itself though made to join others, if it might be cheaper whole; and
    how its equation is computed then."""
    addends = planned.machine.uses_of(planned.program).addends
    walks: dict[Var, list[Walk]] = {}
    for move in planned.moves:
        if move.var in walks or (move.walk.placements[0].partial and move.var in addends and move.var in planned.made):
            walks.setdefault(move.var, []).append(move.walk)
    known, lone = dict[tuple[int, ...], EquationPlan | None](), dict[int, EquationPlan]()
    for var, own in walks.items():
        at = planned.made[var]
        key = id(planned.plans[at]), *map(id, own)
        if key not in known:
            known[key] = _whole(planned.program.eqns[at], planned.plans[at], own, planned.machine)
        if (whole := known[key]) is not None:
            lone[at] = whole
    return lone


def _whole(eqn: Eqn, plan: EquationPlan, walks: Sequence[Walk], machine: Machine) -> EquationPlan | None:
    """How an equation is computed without a sum, so that its result lies where the first of its walks brings it; None where the
    work alone takes longer then than as planned together with the walks."""
    rule, target = plan.rule, walks[0].placements[-1]
    if target.partial or plan.bodies or len(eqn.outputs) != 1 or not is_priced(eqn):
        return None
    if not any(plan.assignment.get(f) for f in rule.reductions):
        return None
    spread = consistent(rule, rule.project(rule.results[0], target, machine.mesh), machine.mesh)
    there = equation_plan(rule, spread, machine.mesh)
    works = [machine.own_work(eqn, each)[0] for each in (plan, there)]
    gain = works[0] + sum([walk.seconds for walk in walks]) - works[1] - machine.topology.detour
    return there if gain > 0 and machine.normal(there.results[0]) == target else None


def _prices(planned: Planned, at: int, there: EquationPlan) -> tuple[Price, Price]:
    """What an equation costs without a sum, and as planned: its work, and bringing its operands and its result to all their
    readers."""
    eqn = planned.program.eqns[at]
    (result,) = eqn.outputs
    asked, detour = planned.asked(result), Price(planned.machine.topology.detour, 0.0)
    gathered = [planned.work(at, there), detour, planned.price(result, asked, there.results[0])]
    summed = [planned.work(at, planned.plans[at]), planned.price(result, asked)]
    for operand, placement in dict.fromkeys(zip(eqn.inputs, there.operands, strict=True)):
        gathered.append(planned.price(operand, planned.asked(operand, at, planned.machine.normal(placement))))
        summed.append(planned.price(operand, planned.asked(operand)))
    return Price.of(gathered), Price.of(summed)
