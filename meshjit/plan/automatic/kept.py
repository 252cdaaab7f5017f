"""Plans that were searched for, kept as JSON from one process for the next: the same plan again, without the search.

What `Plan.save` writes (`saved.py`) is planned by; what the search has proved is kept beside it. A plan that now takes other
seconds was kept by another planner, and is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshjit.core.plan import Optimum, Plan, PlanCost
from meshjit.core.printer import print_program, print_value
from meshjit.core.program import Program
from meshjit.core.target import Target
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import planned_by
from meshjit.plan.automatic.saved import SavedPlanError
from meshjit.plan.automatic.task import task_of
from meshjit.plan.graph import Annotations
from meshjit.version import __version__
from sharding.mesh import BaseMesh
from sharding.spec import PartitionSpec

PROVED: Final = ("seconds", "known", "searched", "is_complete", "sent")


def kept_of(plan: Plan) -> dict[str, Any]:
    """JSON of a plan that was searched for. A bound that nobody has asked for yet stays to be worked out."""
    assert plan.saved is not None and plan.optimum is not None and plan.cost is not None
    fastest = None if plan.optimum.fastest is None else dataclasses.asdict(plan.optimum.fastest)
    proved = {name: getattr(plan.optimum, name) for name in PROVED}
    return {"plan": plan.saved, "cost": dataclasses.asdict(plan.cost), "optimum": {**proved, "fastest": fastest}}


def plan_again(
    kept: Mapping[str, Any],
    program: Program,
    mesh: BaseMesh,
    annotations: Annotations,
    target: Target,
    ties: Mapping[int, int],
    limits: Limits,
) -> Plan:
    """The plan that was kept of the same. SavedPlanError where it is not the same."""
    task = task_of(program, mesh, annotations, target, ties, limits)
    plan, cost, fastest = planned_by(task, kept["plan"]), PlanCost(**kept["cost"]), kept["optimum"]["fastest"]
    assert plan.cost is not None
    if plan.cost.seconds != cost.seconds:
        raise SavedPlanError(f"{program.name}: the plan that was kept took {cost.seconds} s, now it takes {plan.cost.seconds} s")
    optimum = Optimum(**{**kept["optimum"], "fastest": None if fastest is None else PlanCost(**fastest)})
    plan = dataclasses.replace(plan, cost=cost)
    if not task.is_long:
        return dataclasses.replace(plan, optimum=optimum)
    least = optimum.seconds if optimum.fastest is None else optimum.fastest.seconds
    optimum = dataclasses.replace(optimum, proof=lambda: max(optimum.known, task.search(task.program).bounded(least)))
    return task.bounded_later(dataclasses.replace(plan, optimum=optimum))


def key_of(
    program: Program, mesh: BaseMesh, annotations: Annotations, target: Target, ties: Mapping[int, int], limits: Limits
) -> str:
    """A digest of all that a plan depends on, the same in every process."""
    text, axes = print_program(program, sources=False, elide=True), [*mesh.shape.items()]
    parts = [__version__, text, axes, annotations, target, ties, limits]
    return hashlib.sha256(json.dumps([_plain(part) for part in parts]).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A value as JSON, in one order; of what is no data, such as kernels that an installed jaxlib has, its kind."""
    if isinstance(value, Mapping):
        return sorted([[_plain(key), _plain(each)] for key, each in value.items()], key=str)
    if isinstance(value, frozenset):
        return sorted(map(_plain, value), key=str)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, PartitionSpec):
        return print_value(value)
    return [_plain(each) for each in value] if isinstance(value, Sequence) else type(value).__name__
