"""Loops over stencils may exchange the borders of several iterations at once (`partition/blocking.py`).

It pays where starting a collective takes longer than computing the borders twice: small grids on many devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.partition.blocking import blocked_loop
from meshjit.partition.stretches import Refused
from meshjit.plan.block_sizes import BlockSizes
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.plan.stencil_loops import stencil_loops


def propose(draft: Draft) -> Iterator[Proposal]:
    for eqn, plan in stencil_loops(draft.plan):
        if plan.block:
            continue
        try:
            loop = blocked_loop(eqn, plan.bodies[0], draft.machine.mesh)
        except Refused:
            continue
        count = BlockSizes(loop, draft.machine).best(draft.cost.peak_bytes)
        if count is not None:
            text = f"exchange borders once for {count} iterations of a loop of {loop.length}"
            yield Proposal("block", ("block", eqn, count), text, source=str(eqn.source or ""), blocks={eqn: count})
