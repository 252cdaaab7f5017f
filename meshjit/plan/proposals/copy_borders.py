"""What is put at a border of a sharded dim, and was taken elsewhere from it, may go from shard to shard instead of to all
devices (`transform/copy_parts.py`). This is proposed after blocks of iterations, which need neither."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.copy_parts import copy_parts


def propose(draft: Draft) -> Iterator[Proposal]:
    program = copy_parts(draft.program, draft.shards)
    if program is not draft.program:
        text = "send what is put at the border of a sharded dim from where it is to where it goes"
        yield Proposal("copied", "copied", text, program=program, sends_less=True)
