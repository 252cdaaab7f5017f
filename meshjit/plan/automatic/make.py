"""The best plan for a Program without annotations, or with few: searched for, or planned by one that was saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshjit.core.plan import Optimum, Plan, PlanCost, Trial
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import REFINEMENTS, Candidate, propagated
from meshjit.plan.automatic.contest import best_of
from meshjit.plan.automatic.fit import RETRIED
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.made import EQUAL, REFINED
from meshjit.plan.automatic.refusal import nearest, refusal
from meshjit.plan.automatic.rewritten import rewritten, text_of, written
from meshjit.plan.automatic.saved import check, is_edited, read, replay, saved_of
from meshjit.plan.automatic.solve import Search
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from meshjit.plan.graph import Annotations
from meshjit.plan.search import search
from meshjit.targets import target_of
from sharding.mesh import BaseMesh


def make_automatic_plan(
    program: Program,
    mesh: BaseMesh,
    annotations: Annotations,
    target: Target | None = None,
    *,
    ties: Mapping[int, int] | None = None,
    limits: Limits | None = None,
) -> Plan:
    """The plan that takes least time on `mesh` among those that hold at most `limits.memory` bytes a device.

    What is annotated stays as annotated; every other value is placed as is best. `ties`: output → input that it is placed
    like, where the output is not annotated. `Plan.optimum` says how good the plan is. DoesNotFit where `limits.memory` is given
    and no plan keeps to it; the device's own is kept to as far as possible."""
    limits = limits or Limits()
    deadline = limits.deadline
    saved = None if limits.plan is None else read(limits.plan)
    target, memory = target or target_of(mesh), limits.memory if saved is None else saved.get("memory", limits.memory)
    if memory is not None:
        target = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=float(memory)))
    program = without_sharing(program)
    machine = Machine(mesh, target, annotations.undonated_of(program))
    own = {o: i for o, i in (ties or {}).items() if annotations.outputs[o] is None}
    if saved is not None:
        program = written(program, machine, saved.get("written", ()))
        return _replayed(first_draft(program, annotations, Assigner(machine)), saved, own)
    count = len(program.eqns)
    effort, later = limits.entries(count), limits.entries_later(count)

    def searched(program: Program) -> Search:
        draft = first_draft(program, annotations, Assigner(machine))
        return Search(draft, own, deadline, effort, later=later, is_frugal=True)

    is_long = bool(later) or (not effort and count > REFINED)
    others = [] if is_long else [*rewritten(program, machine)]
    searches = [searched(p) for p in (program, *(other for _, other in others))]
    at, best = best_of(searches)
    if at:
        best = _as_written(others[at - 1][0], best, searches[0].chosen.plan)
    if memory is not None and not searches[at].fits:

        def attempt(mesh: BaseMesh, donated: Sequence[int]) -> Candidate:
            less = dataclasses.replace(annotations, undonated=annotations.undonated.difference(donated))
            return _briefly(program, mesh, less, own, target).chosen

        def within(bytes: float) -> Search:
            more = dataclasses.replace(target, topology=dataclasses.replace(target.topology, memory=bytes))
            return _briefly(program, mesh, annotations, own, more)

        donors = sorted(annotations.undonated.intersection((ties or {}).values()))
        least = searches[at] if is_long else nearest(searches[at], memory, within)
        if least.chosen.peak <= memory:
            return least.result(least.chosen)
        raise refusal(least.chosen, memory, machine, attempt, donors)
    return _bounded_later(best, lambda: [searched(p) for _, p in rewritten(program, machine)]) if is_long else best


def _as_written(ways: Sequence[str], plan: Plan, before: Plan) -> Plan:
    """The plan of a Program that was written in these ways; `before`: the best plan as it is."""
    assert plan.cost is not None and before.cost is not None
    trials = [Trial(way, text_of(way), "", before.cost, plan.cost, True) for way in ways]
    return dataclasses.replace(plan, trials=(*trials, *plan.trials), saved={**(plan.saved or {}), "written": [*ways]})


def _bounded_later(best: Plan, others: Callable[[], Sequence[Search]]) -> Plan:
    """The best plan, whose bound is worked out when somebody asks, with those of other ways to write the Program."""
    optimum = best.optimum
    assert optimum is not None
    least = optimum.seconds if optimum.fastest is None else optimum.fastest.seconds

    def bound() -> float:
        return min([optimum.bound, *(search.bounded(least) for search in others())])

    return dataclasses.replace(best, optimum=dataclasses.replace(optimum, proof=bound))


def _replayed(draft: Draft, saved: Mapping[str, Any], ties: Mapping[int, int]) -> Plan:
    """The plan that was saved. Its Optimum is the one that was proved then, if it still costs the same."""
    check(draft, saved)
    plan = _propagated_again(draft, saved, ties) or search(replay(draft, saved), REFINEMENTS[saved["refined"]])
    assert plan.cost is not None
    is_as_fast = plan.cost.seconds <= saved.get("seconds", 0.0) * EQUAL
    bound, fastest = (saved.get("bound", 0.0), saved.get("fastest")) if is_as_fast else (0.0, None)
    optimum = Optimum(
        plan.cost.seconds, bound, fastest=None if fastest is None else PlanCost(**fastest), sent=plan.cost.wire_bytes
    )
    return dataclasses.replace(plan, optimum=optimum, saved=saved)


def _propagated_again(draft: Draft, saved: Mapping[str, Any], ties: Mapping[int, int]) -> Plan | None:
    """Where nothing is prescribed the annotations' plan, unless somebody changed it since."""
    if not saved["refined"].startswith("propagated"):
        return None
    plan = propagated(draft, ties, saved["refined"]).plan
    return None if is_edited(saved, saved_of(draft, saved["refined"], plan)) else plan


def _briefly(program: Program, mesh: BaseMesh, annotations: Annotations, ties: Mapping[int, int], target: Target) -> Search:
    """A short search, at its end: its plan fits, or is nearest to it. `mesh`: of the same kind of devices."""
    draft = first_draft(program, annotations, Assigner(Machine(mesh, target, annotations.undonated_of(program))))
    solver = Search(draft, ties, priced=RETRIED)
    solver.plan()
    return solver
