"""Program → what is compiled: simplify, plan, partition, emit."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshjit.config import config
from meshjit.core.garbage import rarely_collected
from meshjit.core.memories import memories_of
from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.rename_axes import rename_axes
from meshjit.core.target import Target
from meshjit.core.verify import verify
from meshjit.emit.module import emit
from meshjit.partition.partition import partition
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.make import make_automatic_plan
from meshjit.plan.make import Annotations, PlanAgain, make_plan
from meshjit.runtime.donation import match, tied, undonated
from meshjit.runtime.kept_plans import plan_or_load
from meshjit.runtime.targets import target_for
from meshjit.transform.pipeline import clean, simplify
from meshjit.transform.place_in_memories import place_in_memories
from meshjit.transform.update_early import update_early


@dataclass(frozen=True)
class Lowering:
    """A planned and partitioned Program: everything that is known before XLA sees it."""

    plan: Plan
    local: Program
    text: str
    aliases: Mapping[int, int]  # donated input → the output that takes its memory
    annotations: Annotations
    seconds: Mapping[str, float] = field(default_factory=dict)
    captured: int = 0  # so many of the inputs, the last ones, are arrays that a function closes over: the text has them first
    memories: tuple[Sequence[str], Sequence[str]] = ((), ())  # of inputs and outputs, see `memories_of`

    @property
    def mesh(self) -> Any:
        return self.plan.mesh


@dataclass(frozen=True)
class Planning:
    """A Plan before anything is partitioned, and the annotations that it obeys."""

    plan: Plan
    annotations: Annotations
    seconds: Mapping[str, float]
    plan_again: PlanAgain = make_plan  # for other annotations, as this plan was made; a search is brief then
    program: Program | None = None  # what was planned; that of the plan may have been rewritten since
    memories: tuple[Sequence[str], Sequence[str]] = ((), ())  # of inputs and outputs, see `memories_of`


@rarely_collected
def plan_program(
    program: Program,
    mesh: Any,
    annotations: Annotations,
    donated: Sequence[int] = (),
    target: Target | None = None,
    automatic: Limits | None = None,
    ties: Mapping[int, int] | None = None,
) -> Planning:
    """Simplify and plan, for the mesh's devices if no target is given. `donated` are positions of inputs whose memory results
    may take. With `automatic`, what nobody placed is placed as is best, and the outputs in `ties` as their inputs."""
    seconds: dict[str, float] = {}
    target = target or target_for(mesh)
    annotations = dataclasses.replace(annotations, undonated=undonated(program, donated))
    memories = memories_of(program)
    program = _timed(seconds, "simplify", lambda: checked(update_early(simplify(rename_axes(program, mesh))), "simplify"))
    if automatic is not None:
        plan = _timed(seconds, "plan", lambda: plan_or_load(program, mesh, annotations, target, ties or {}, automatic))
        brief = automatic.briefly(len(program.eqns))
        again = functools.partial(make_automatic_plan, ties=ties, limits=brief)
        return Planning(plan, annotations, seconds, again, program, memories)
    plan = _timed(seconds, "plan", lambda: make_plan(program, mesh, annotations, target))
    closer = tied(plan, annotations, donated, memories)
    if closer is not None:
        annotations = closer
        plan = _timed(seconds, "plan", lambda: make_plan(program, mesh, annotations, target, plan))
    return Planning(plan, annotations, seconds, functools.partial(make_plan, like=plan), program, memories)


def lower(
    program: Program, mesh: Any, annotations: Annotations, donated: Sequence[int] = (), target: Target | None = None
) -> Lowering:
    """Plan, partition and emit."""
    return lower_plan(plan_program(program, mesh, annotations, donated, target), donated)


@rarely_collected
def lower_plan(planning: Planning, donated: Sequence[int] = (), captured: int = 0) -> Lowering:
    """Partition and emit for the plan's target. The last `captured` inputs are arrays that a function closes over."""
    plan, seconds = planning.plan, dict(planning.seconds)
    assert plan.target is not None, "planning names its target"
    target = plan.target
    local = _timed(seconds, "partition", lambda: checked(clean(partition(plan), target), "partition"))
    memories = planning.memories
    if target.has_host_memory:
        local = checked(place_in_memories(local, *memories), "place_in_memories")
    aliases = match(plan, donated, memories)
    text = _timed(seconds, "emit", lambda: emit(local, plan.mesh, aliases, target, captured, memories))
    return Lowering(plan, local, text, aliases, planning.annotations, seconds, captured, memories)


def checked(program: Program, after: str) -> Program:
    """The Program after a pass; whether its types are right is looked at where an option says so."""
    return verify(program, after, types=config.enable_checks)


def _timed(seconds: dict[str, float], name: str, run: Callable[[], Any]) -> Any:
    """What `run` gives; the time it took is added to seconds[name]."""
    start = time.perf_counter()
    result = run()
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
    return result
