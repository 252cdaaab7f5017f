"""Transforms along several dims may begin with those that are whole (`transform/commute.py`).

Where one chain of transforms leaves its result is where the next begins, so one proposal leads to more.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.commute import commute


def propose(draft: Draft) -> Iterator[Proposal]:
    placements = draft.plan.placements
    program = commute(draft.program, lambda var, dim: var not in placements or not placements[var].dims[dim])
    if program is not draft.program:
        yield Proposal("commute", "commute", "transform whole dims before sharded ones", program=program, more=propose)
