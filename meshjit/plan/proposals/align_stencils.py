"""What is computed from slices of a sharded dim may be computed where the dim's own elements are (`transform/align.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.align import align


def propose(draft: Draft) -> Iterator[Proposal]:
    placements, mesh = draft.plan.placements, draft.machine.mesh
    program = align(draft.program, lambda var, dim: placements[var].shards(dim, mesh), draft.machine.border_prices)
    if program is not draft.program:
        text = "compute what slices of a sharded dim give at the places of the dim itself"
        yield Proposal("align", "align", text, program=program)
