"""The best plan for a Program without annotations, or with few: searched for, or planned by one that was saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from meshjit.core.plan import Optimum, Plan, PlanCost, Trial
from meshjit.core.program import Program
from meshjit.core.target import Target
from meshjit.plan.automatic.candidate import REFINEMENTS, SPREAD, Candidate, propagated, spread, ways_of_inputs
from meshjit.plan.automatic.contest import best_of
from meshjit.plan.automatic.digest import digest
from meshjit.plan.automatic.followed import check_arguments, check_followed, check_way
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.made import EQUAL
from meshjit.plan.automatic.refusal import nearest, refusal, refusal_of_saved
from meshjit.plan.automatic.rewritten import text_of
from meshjit.plan.automatic.saved import check, is_changed, replay, saved_of
from meshjit.plan.automatic.saved_file import edited, read
from meshjit.plan.automatic.solve import Search
from meshjit.plan.automatic.task import Task, task_of
from meshjit.plan.draft import Draft
from meshjit.plan.graph import Annotations
from meshjit.plan.search import search
from sharding.mesh import BaseMesh

SHORT: Final = 16  # letters of a digest


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
    if limits.plan is None:
        return plan_by_search(task_of(program, mesh, annotations, target, ties, limits))
    saved = read(limits.plan)
    within = dataclasses.replace(limits, memory=saved.get("memory", limits.memory))
    task = task_of(program, mesh, annotations, target, ties, within)
    plan = planned_by(task, saved, edited(saved))
    return _within(plan, limits.memory, task, saved)


def _within(plan: Plan, memory: float | None, task: Task, saved: Mapping[str, Any]) -> Plan:
    """A plan that was saved, once more memory is given or less: DoesNotFit where it holds more; within more memory than it was
    saved for, others may take less."""
    assert plan.cost is not None and plan.optimum is not None
    if memory is not None and plan.cost.peak_bytes > memory:
        raise refusal_of_saved(plan, memory, task.machine)
    if memory is None or memory <= saved.get("memory", memory):
        return plan
    return dataclasses.replace(plan, optimum=dataclasses.replace(plan.optimum, known=0.0, is_complete=False))


def plan_by_search(task: Task) -> Plan:
    """The best plan. DoesNotFit where a limit to the memory is given that no plan keeps to."""
    plan = _searched_for(task)
    return dataclasses.replace(plan, saved={**(plan.saved or {}), "asked": _asked(task)})


def _asked(task: Task) -> str:
    """A digest of what bounds hold for beside the Program and the mesh."""
    return digest(task.annotations, task.tied, task.machine.target)[:SHORT]


def _searched_for(task: Task) -> Plan:
    others = [] if task.is_long else [*task.rewritten()]
    searches = [task.search(p) for p in (task.program, *(other for _, other in others))]
    at, best = best_of(searches)
    if at:
        best = _as_written(others[at - 1][0], best, searches[0].chosen.plan)
    if task.limits.memory is not None and not searches[at].fits:
        return _least(task, searches[at])
    return task.bounded_later(best) if task.is_long else best


def _least(task: Task, search: Search) -> Plan:
    """The plan that fits after all; else DoesNotFit, with what fits. No plan of `search` does."""
    memory, annotations = task.limits.memory, task.annotations
    assert memory is not None

    def attempt(mesh: BaseMesh, donated: Sequence[int]) -> Candidate:
        less = dataclasses.replace(annotations, undonated=annotations.undonated.difference(donated))
        return task.briefly(mesh=mesh, annotations=less).chosen

    def within(bytes: float) -> Search:
        return task.briefly(memory=bytes)

    donors = sorted(annotations.undonated.intersection(task.tied.values()))
    least = search if task.is_long else nearest(search, memory, within)
    if least.chosen.peak <= memory:
        return least.result(least.chosen)
    raise refusal(least.chosen, memory, task.machine, attempt if task.limits.explains else None, donors)


def _as_written(ways: Sequence[str], plan: Plan, before: Plan) -> Plan:
    """The plan of a Program that was written in these ways; `before`: the best plan as it is."""
    assert before.cost is not None
    saved = {**(plan.saved or {}), "written": [*ways], "before": dataclasses.asdict(before.cost)}
    return dataclasses.replace(plan, trials=(*_trials(plan, saved), *plan.trials), saved=saved)


def _trials(plan: Plan, saved: Mapping[str, Any]) -> Iterator[Trial]:
    """Of the ways in which the plan's Program was written."""
    if "before" in saved and plan.cost is not None:
        for way in saved["written"]:
            yield Trial(way, text_of(way), "", PlanCost(**saved["before"]), plan.cost, True)


def planned_by(task: Task, saved: Mapping[str, Any], edited: Container[str] = ()) -> Plan:
    """The plan that was saved, or what somebody has edited it to. Its Optimum is the one that was proved then, if it still costs
    the same, and no more may be chosen than then."""
    draft = task.draft(task.written(saved.get("written", ())))
    check(draft, saved)
    check_way(draft, saved)
    plan = _propagated_again(draft, saved, task.ties)
    plan = plan or search(_replayed(draft, saved, edited), REFINEMENTS[saved["refined"]])
    assert plan.cost is not None
    if "arguments" in edited:
        check_arguments(draft, saved, plan.inputs)
    before = saved.get("seconds", 0.0)
    is_the_same = before / EQUAL <= plan.cost.seconds <= before * EQUAL and saved.get("asked") == _asked(task)
    bound, fastest = (saved.get("bound", 0.0), saved.get("fastest")) if is_the_same else (0.0, None)
    optimum = Optimum(
        plan.cost.seconds, bound, fastest=None if fastest is None else PlanCost(**fastest), sent=plan.cost.wire_bytes
    )
    optimum = dataclasses.replace(optimum, is_complete=optimum.is_proved)
    return dataclasses.replace(plan, optimum=optimum, saved=saved, trials=(*_trials(plan, saved), *plan.trials))


def _replayed(draft: Draft, saved: Mapping[str, Any], edited: Container[str]) -> Draft:
    """As it was saved. SavedPlanError for what was edited and is not followed."""
    again = replay(draft, saved)
    check_followed(again, saved, edited)
    return again


def _propagated_again(draft: Draft, saved: Mapping[str, Any], ties: Mapping[int, int]) -> Plan | None:
    """Where nothing is prescribed the annotations' plan, unless somebody changed it since."""
    if not saved["refined"].startswith("propagated"):
        return None
    ways, way = ways_of_inputs(draft), saved.get("way", 0)
    is_spread = saved["refined"] == SPREAD
    plan = (spread(draft, ties, ways, way) if is_spread else propagated(draft, ties, saved["refined"])).plan
    return None if is_changed(saved, saved_of(draft, saved["refined"], plan, way)) else plan
