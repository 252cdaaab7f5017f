"""Conflicts settled by cost: plan, turn a conflict, plan again, keep what is cheaper.

Turns are tried the weightiest first, and after one that pays the conflicts that are left, or new, are looked at anew.
Where turning all alike conflicts is clearly worse, or changes nothing, parts of them are not tried. No more than TRIALS
plans are made however many conflicts there are, so that planning stays linear in the equations.
Everything here is deterministic: the same Program, annotations and machine give the same plan.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from meshjit.core.plan import Plan, PlanCost
from meshjit.plan.cost import TooDear
from meshjit.plan.slices import SliceTurn
from sharding.alternatives import Turn, turns
from sharding.graph import Graph, Propagated
from sharding.mesh import BaseMesh
from sharding.propagate import propagate

TRIALS: Final = 8
HOPELESS: Final = 0.1  # of the time for moving data: a turn that costs so much more does not become good by half
WORTH: Final = 0.998  # a plan is only cheaper when it takes less than so much of the other's time


def settled(
    graph: Graph,
    mesh: BaseMesh,
    plan_of: Callable[[Propagated, float], Plan],
    memory: float,
    other_turns: Callable[[Propagated], Sequence[SliceTurn]],
) -> Plan:
    """The cheapest plan found. `plan_of` makes a plan of what propagation gives, and stops with TooDear beyond so many
    seconds; `memory` is what a device has; `other_turns` are tried before those of conflicts."""
    best = propagate(graph, mesh)
    plan = plan_of(best, math.inf)
    tried, hopeless = set[object](), set[object]()
    trials = 0
    while trials < TRIALS:
        ways = (*other_turns(best), *turns(best))
        turn = next((turn for turn in ways if not (turn.key in tried or turn.family in hopeless)), None)
        if turn is None:
            break
        tried.add(turn.key)
        trials += 1
        other = propagate(_turned(best, turn), mesh, best)
        assert plan.cost is not None
        try:
            rival = plan_of(other, _hopeless_from(plan.cost) if plan.cost.peak_bytes <= memory else math.inf)
        except TooDear:
            hopeless.add(turn.key)
            continue
        assert rival.cost is not None
        if is_cheaper(rival.cost, plan.cost, memory):
            best, plan = other, rival
        elif _is_hopeless(rival.cost, plan.cost):
            hopeless.add(turn.key)
    return plan


def _is_hopeless(new: PlanCost, old: PlanCost) -> bool:
    """Whether parts of the turn that led from the old to the new need not be tried."""
    return new.seconds > _hopeless_from(old) or (new.seconds == old.seconds and new.wire_bytes == old.wire_bytes)


def _hopeless_from(old: PlanCost) -> float:
    return old.seconds + HOPELESS * old.move_seconds


def _turned(found: Propagated, turn: Turn | SliceTurn) -> Graph:
    return dataclasses.replace(found.graph, seeds=turn.seeds(found))


def is_cheaper(new: PlanCost, old: PlanCost, memory: float) -> bool:
    """Less over the memory limit, if either is; then clearly faster."""
    over = [max(0.0, cost.peak_bytes - memory) for cost in (new, old)]
    return over[0] < over[1] or (over[0] == over[1] and new.seconds < WORTH * old.seconds)
