"""Loops over stencils may exchange the borders of several iterations at once (`partition/blocking.py`).

It pays where starting a collective takes longer than computing the borders twice: small grids on many devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Var
from meshjit.core.rules import Reading, reading_of, rule_of
from meshjit.partition.blocking import BlockedLoop, blocked_loop, fetch_borders
from meshjit.partition.moves import Moves
from meshjit.partition.partition import write_locally
from meshjit.partition.stretches import Refused, Stretches
from meshjit.plan.cost import Machine, is_cheaper
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.plan.stencil_loops import stencil_loops
from meshjit.plan.windows import windows_of

REMAINDER_WEIGHT: Final = 2.0  # remainder iterations cost double: they add a second copy of the body


def propose(draft: Draft) -> Iterator[Proposal]:
    for eqn, plan in stencil_loops(draft.plan):
        if eqn in draft.blocks:
            continue
        try:
            loop = blocked_loop(eqn, plan.bodies[0], draft.machine.mesh)
        except Refused:
            continue
        count = best_block(loop, draft.machine)
        if count is not None:
            text = f"exchange borders once for {count} iterations of a loop of {loop.length}"
            yield Proposal("block", ("block", eqn, count), text, source=str(eqn.source or ""), blocks={eqn: count})


def best_block(loop: BlockedLoop, machine: Machine) -> int | None:
    """How many iterations to do at a time; None for the ordinary loop."""
    exchange, sent = machine.moving(write_locally(loop.plan, machine.target))
    moves = Moves(machine.mesh, machine.target)
    work = [_work(loop, stretches, machine) for stretches in loop.needs]
    borders = [(0.0, 0.0), *(machine.moving(fetch_borders(loop, n, moves)) for n in range(1, len(work) + 1))]
    padding = machine.padding(sum(loop.divisions.type(v, loop.divisions.own(v)).nbytes for v in loop.carried))
    blocks = [0.0, *(n * (w + padding) + borders[n][0] for n, w in enumerate(work, 1))]
    ordinary = PlanCost(loop.length * work[0], loop.length * exchange, loop.length * sent, 0.0)
    costs: dict[int, float] = {}
    for n in range(1, len(blocks)):
        count, left = divmod(loop.length, n)
        seconds = count * blocks[n] + REMAINDER_WEIGHT * blocks[left]
        if is_cheaper(PlanCost(0.0, seconds, count * borders[n][1] + borders[left][1], 0.0), ordinary, math.inf):
            costs[n] = seconds
    return min(costs, key=costs.__getitem__, default=None)


def _work(loop: BlockedLoop, stretches: Mapping[Var, Stretches], machine: Machine) -> float:
    """Seconds of one iteration whose values are computed at these stretches."""
    seconds, plans = 0.0, dict(zip(loop.plan.program.eqns, loop.plan.equations, strict=True))
    for eqn in loop.body.eqns:
        if eqn.inputs and eqn.outputs[0] in stretches:
            types = [loop.divisions.type(v, stretches[v]) if v in stretches else v.type for v in (*eqn.inputs, *eqn.outputs)]
            reading = Reading() if eqn in plans and _is_framed(plans[eqn]) else reading_of(eqn)
            seconds += machine.local_seconds(rule_of(eqn), types, reading, windows_of(eqn, machine.target))
    return seconds


def _is_framed(plan: EquationPlan) -> bool:
    """Whether it moves elements along a dim in frames: there it only reads its operand at another place."""
    return any(plan.assignment.get(factor) for factor, kind in plan.rule.kinds.items() if kind == "permute")
