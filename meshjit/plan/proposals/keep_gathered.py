"""What an op gathers to make every device's block of its result: the result may be whole, too.

    %1: i32[128@x] = sort(%0: i32[128@x])    %0 is gathered, each device keeps its block; another gather where %1 is read whole
    %1: i32[128] = sort(%0: i32[128])        %0 is gathered, once; what follows from %1 is worked out on every device

The second is a seed on the results of all such equations. It is asked for where something is moved that depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Var
from meshjit.plan.draft import Draft
from meshjit.plan.events import Exchange, Move
from meshjit.plan.proposals.proposal import Proposal
from sharding.graph import Seed
from sharding.placement import Placement


def propose(draft: Draft) -> Iterator[Proposal]:
    numbers, seeds = draft.flat.numbers, draft.propagated.graph.seeds
    whole = dict(_gathering(draft, draft.plan))
    pairs = [pair for eqn, results in whole.items() for pair in zip(eqn.outputs, results, strict=True)]
    planted = {numbers[v]: Seed(placement) for v, placement in pairs if numbers[v] not in seeds}
    if planted:
        first = next(iter(whole))
        shapes = ", ".join([str(list(v.shape)) for v in first.outputs])
        yield Proposal(
            "whole", ("whole", *planted), f"keep whole what {first.op.name} makes of gathered operands: {shapes}",
            source=str(first.source or ""), seeds=lambda: {**seeds, **planted},
        )  # fmt: skip


def _gathering(draft: Draft, plan: Plan) -> Iterator[tuple[Eqn, tuple[Placement, ...]]]:
    """The equations for which operands are gathered whose results are then shards, if something is moved that depends on them;
    and their results without the axes that are gathered."""
    brought = {event.eqn for event in plan.events if isinstance(event, Move) and event.walk.bytes}
    gathered = dict[Eqn, tuple[Placement, ...]]()
    pairs = [*zip(plan.program.eqns, plan.equations, strict=True)]
    copies = {id(step): (eqn, step) for eqn, step in pairs}  # equal equations share a step
    gathers = {i for i, (eqn, step) in copies.items() if not step.bodies and draft.machine.effect(eqn, step).exchange.requests}
    for eqn, step in [(eqn, step) for eqn, step in pairs if id(step) in gathers or eqn in brought or step.bodies]:
        for body in step.bodies:
            yield from _gathering(draft, body)
        if step.bodies or eqn.op.pinned is not None:
            continue
        results = _by_own_rule(draft, eqn, step) or (_as_made(draft, plan, eqn, step) if eqn in brought else None)
        if results is not None:
            gathered[eqn] = results
    if gathered and _is_moved(plan, gathered):
        yield from gathered.items()


def _by_own_rule(draft: Draft, eqn: Eqn, step: EquationPlan) -> tuple[Placement, ...] | None:
    """The results without axes on the factors along which the op's own rule gathers operands; None if it gathers none."""
    machine, rule = draft.machine, step.rule
    requests = machine.effect(eqn, step).exchange.requests
    if not requests:
        return None
    lost = set[str]()
    for i, placement in requests:
        kept = rule.project(rule.operands[i], placement, machine.mesh)
        lost |= {f for dims in rule.operands[i] for f in dims if step.assignment.get(f) and not kept.get(f)}
    spread = {f: axes for f, axes in step.assignment.items() if f not in lost}
    results = tuple([Placement(rule.placement(dims, spread, machine.mesh)) for dims in rule.results])
    return results if lost and results != step.results else None


def _as_made(draft: Draft, plan: Plan, eqn: Eqn, step: EquationPlan) -> tuple[Placement, ...] | None:
    """The results as they are made, if propagation has them over more axes; None if it has not, or if they are sums."""
    mesh, made = draft.machine.mesh, tuple(map(draft.machine.normal, step.results))
    homes = [draft.machine.normal(plan.placements[v]) for v in eqn.outputs]
    if any(p.partial for p in made) or made == tuple(homes):
        return None
    sides = [(m.shards(d, mesh), h.shards(d, mesh)) for m, h in zip(made, homes, strict=True) for d in range(m.rank)]
    return made if all([there >= here for here, there in sides]) else None


def _is_moved(plan: Plan, gathered: Mapping[Eqn, object]) -> bool:
    """Whether values that depend on what these equations make are moved, or take part in what others send."""
    follows = set[Var]()
    for eqn in plan.program.eqns:
        if eqn in gathered or not follows.isdisjoint(eqn.inputs):
            follows.update(eqn.outputs)
    for event in plan.events:
        if isinstance(event, Move) and event.var in follows and event.walk.bytes:
            return True
        if isinstance(event, Exchange) and event.eqn not in gathered and not follows.isdisjoint(event.eqn.inputs):
            return True
    return False
