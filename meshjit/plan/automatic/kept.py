"""Plans that were searched for, kept as JSON from one process for the next: the same plan again, without the search.

What `Plan.save` writes (`saved.py`) is planned by; what the search has proved is kept beside it. A plan that now takes other
seconds was kept by another planner, and is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from meshjit.core.plan import Optimum, Plan, PlanCost
from meshjit.core.printer import print_program
from meshjit.plan.automatic.digest import digest
from meshjit.plan.automatic.make import planned_by
from meshjit.plan.automatic.saved import SavedPlanError
from meshjit.plan.automatic.task import Task
from meshjit.version import __version__

PROVED: Final = ("seconds", "known", "searched", "is_complete", "sent")


def kept_of(plan: Plan) -> dict[str, Any]:
    """JSON of a plan that was searched for. A bound that nobody has asked for yet stays to be worked out."""
    assert plan.saved is not None and plan.optimum is not None and plan.cost is not None
    fastest = None if plan.optimum.fastest is None else dataclasses.asdict(plan.optimum.fastest)
    proved = {name: getattr(plan.optimum, name) for name in PROVED}
    return {"plan": plan.saved, "cost": dataclasses.asdict(plan.cost), "optimum": {**proved, "fastest": fastest}}


def plan_again(task: Task, kept: Mapping[str, Any]) -> Plan:
    """The plan that was kept of the same. SavedPlanError where it is not the same."""
    plan, cost, fastest = planned_by(task, kept["plan"]), PlanCost(**kept["cost"]), kept["optimum"]["fastest"]
    assert plan.cost is not None
    if plan.cost.seconds != cost.seconds:
        before, now = f"the plan that was kept took {cost.seconds} s", f"now it takes {plan.cost.seconds} s"
        raise SavedPlanError(f"{task.program.name}: {before}, {now}")
    optimum = Optimum(**{**kept["optimum"], "fastest": None if fastest is None else PlanCost(**fastest)})
    plan = dataclasses.replace(plan, cost=cost)
    if not task.is_long:
        return dataclasses.replace(plan, optimum=optimum)
    least = optimum.seconds if optimum.fastest is None else optimum.fastest.seconds
    optimum = dataclasses.replace(optimum, proof=lambda: max(optimum.known, task.search(task.program).bounded(least)))
    return task.bounded_later(dataclasses.replace(plan, optimum=optimum))


def key_of(task: Task) -> str:
    """A digest of all that a plan depends on, the same in every process."""
    machine, text = task.machine, print_program(task.program, sources=False, elide=True)
    parts = [__version__, text, [*machine.mesh.shape.items()], task.annotations, machine.target, task.tied, task.limits]
    return digest(*parts)
