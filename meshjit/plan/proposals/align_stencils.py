"""What is computed from slices of a sharded dim may be computed where the dim's own elements are (`transform/align.py`), be some
of them in reverse order or not (`transform/turn_one_by_one.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.align import align
from meshjit.transform.turn_one_by_one import turn_one_by_one


def propose(draft: Draft) -> Iterator[Proposal]:
    # Mirrors first: once frames are written, there is nothing left that they are put together with.
    turned = turn_one_by_one(draft.program, draft.shards)
    if turned is not draft.program:
        text = "take the elements of a mirror at the end of a sharded dim one by one"
        yield Proposal("align", "turned", text, program=turned, more=propose)
    program = align(draft.program, draft.shards, draft.machine.border_prices)
    if program is not draft.program:
        text = "compute what slices of a sharded dim give at the places of the dim itself"
        yield Proposal("align", "align", text, program=program)
