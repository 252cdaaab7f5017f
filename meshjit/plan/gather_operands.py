"""A sum that meets no other is not made where what it is made of is less to gather.

    %2 = dot(%0: f32[B, D@x], %1: f32[D@x, F])    partial sum(x), which is reduced for its reader
    %2 = dot(%0: f32[B, D], %1: f32[D, F])        %0 is whole for another reader anyway: %1 is gathered, nothing is reduced

While an equation is planned whose result only joins sums, it is not known what reducing it costs, if anything (`joins` in
`meshjit/plan/assign.py`). Once all equations are planned, it is known which of these sums are reduced by themselves, and where.
Their equations are then computed there; a plan that does not come out cheaper for it is dropped. Gathers have to gain
`Topology.detour`, as in walks of sums: a compiler that puts gradients off until their operands are there holds them, and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.assign import consistent, is_priced
from meshjit.plan.cost import Machine
from meshjit.plan.events import Event, Move
from sharding.placement import Placement
from sharding.reshard import Walk

CLEARLY: Final = 0.9  # of the seconds of making and reducing the sum, which others may read elsewhere


class _Whole(NamedTuple):
    """How an equation is computed without a sum, and by how many seconds its operands may cost more for that."""

    plan: EquationPlan
    gain: float


def gather_operands(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], inputs: Sequence[Placement], moves: Iterable[Event]
) -> tuple[EquationPlan, ...] | None:
    """The plans of a Program's equations, those of lone sums computed where these are read if that is less; None if it is for
    none."""
    moved = [event for event in moves if isinstance(event, Move) and event.walk.bytes]
    lone = _lone_sums(program, machine, plans, moved)
    if not lone:
        return None
    have, steps = _versions(program, machine, plans, inputs, lone), list(plans)
    own: dict[Eqn, list[Move]] = {program.eqns[at]: [] for at in lone}  # what was moved for each
    is_less: dict[Any, bool] = {}  # equal layers are asked about once
    made = {program.eqns[at].outputs[0]: at for at in lone}
    for move in moved:
        at = made.pop(move.var, None) if move.walk.placements[0].partial else None
        if at is not None:
            eqn = program.eqns[at]
            versions, spent = tuple([have[v] for v in eqn.inputs]), sum([each.walk.seconds for each in own[eqn]])
            key = id(plans[at]), id(move.walk), versions, spent
            if key not in is_less:
                is_less[key] = _seconds(eqn, lone[at].plan, versions, machine) < lone[at].gain + spent
            steps[at] = lone[at].plan if is_less[key] else plans[at]
        if move.eqn in own:
            own[move.eqn].append(move)
        elif move.var in have:
            have[move.var] = *have[move.var], *move.walk.placements[1:]
    return tuple(steps) if any(a is not b for a, b in zip(steps, plans, strict=True)) else None


def _lone_sums(
    program: Program, machine: Machine, plans: Sequence[EquationPlan], moved: Iterable[Move]
) -> Mapping[int, _Whole]:
    """By number of its equation, each sum that is reduced by itself though made to join others, if it might be cheaper whole."""
    uses, known, lone = machine.uses_of(program), dict[tuple[int, int], _Whole | None](), dict[int, _Whole]()
    for move in moved:
        if move.walk.placements[0].partial and move.var in uses.addends and move.var in uses.makers:
            at = uses.makers[move.var]
            key = id(plans[at]), id(move.walk)
            if key not in known:
                known[key] = _whole(program.eqns[at], plans[at], move.walk, machine)
            if (whole := known[key]) is not None:
                lone.setdefault(at, whole)
    return lone


def _whole(eqn: Eqn, plan: EquationPlan, walk: Walk, machine: Machine) -> _Whole | None:
    """How an equation is computed so that its result lies where the walk brings it; None if its work alone is too much."""
    rule, target = plan.rule, walk.placements[-1]
    if target.partial or plan.bodies or not is_priced(eqn) or not any(plan.assignment.get(f) for f in rule.reductions):
        return None
    spread = consistent(rule, rule.project(rule.results[0], target, machine.mesh), machine.mesh)
    there = equation_plan(rule, spread, machine.mesh)
    gain = CLEARLY * (walk.seconds + machine.own_work(eqn, plan)[0]) - machine.own_work(eqn, there)[0] - machine.topology.detour
    return _Whole(there, gain) if gain > 0 and machine.normal(there.results[0]) == target else None


def _versions(
    program: Program,
    machine: Machine,
    plans: Sequence[EquationPlan],
    inputs: Sequence[Placement],
    numbers: Iterable[int],
) -> dict[Var, tuple[Placement, ...]]:
    """Where the operands of these equations are made, or come in."""
    made, entered = machine.uses_of(program).makers, dict(zip(program.inputs, inputs, strict=True))

    def first(var: Var) -> Placement:
        at = made.get(var)
        return entered[var] if at is None else plans[at].results[program.eqns[at].outputs.index(var)]

    return {v: (machine.normal(first(v)),) for at in numbers for v in program.eqns[at].inputs}


def _seconds(eqn: Eqn, plan: EquationPlan, have: Sequence[Sequence[Placement]], machine: Machine) -> float:
    """Of bringing an equation's operands from the nearest of these placements each."""
    targets = [machine.normal(placement) for placement in plan.operands]
    sides = zip(eqn.input_types, have, targets, strict=True)
    return sum([machine.nearest(type, versions, target).seconds for type, versions, target in sides if target not in versions])
