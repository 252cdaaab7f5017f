"""Loops over stencils may exchange the borders of several iterations at once (`partition/blocking.py`).

It pays where starting a collective takes longer than computing the borders twice: small grids on many devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from meshjit.core.program import Eqn
from meshjit.partition.blocking import blocked_loop
from meshjit.partition.stretches import Refused
from meshjit.plan.block_sizes import BlockSizes
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.plan.stencil_loops import stencil_loops


def propose(draft: Draft) -> Iterator[Proposal]:
    for eqn, sizes in _loops(draft):
        count = sizes.best(draft.cost.peak_bytes)
        if count is not None:
            yield _proposal(eqn, sizes, count)


def propose_fastest(draft: Draft) -> Iterator[Proposal]:
    """Of all blocks those that take the least time, also where they send more than the ordinary loop."""
    for eqn, sizes in _loops(draft):
        count = sizes.fastest
        if count is not None:
            yield dataclasses.replace(_proposal(eqn, sizes, count), saves_time=True)


def _loops(draft: Draft) -> Iterator[tuple[Eqn, BlockSizes]]:
    for eqn, plan in stencil_loops(draft.plan):
        if plan.block:
            continue
        try:
            loop = blocked_loop(eqn, plan.bodies[0], draft.machine.mesh)
        except Refused:
            continue
        yield eqn, BlockSizes(loop, draft.machine)


def _proposal(eqn: Eqn, sizes: BlockSizes, count: int) -> Proposal:
    text = f"exchange borders once for {count} iterations of a loop of {sizes.loop.length}"
    return Proposal("block", ("block", eqn, count), text, source=str(eqn.source or ""), blocks={eqn: count})
