"""Where two annotations offer a value different axes, the one that lost may win (`sharding.alternatives`)."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from sharding.alternatives import Turn, spread_on, turns
from sharding.axes import axes_text


def propose(draft: Draft) -> Iterator[Proposal]:
    candidates = turns(draft.propagated)
    for turn in candidates:
        yield _proposal(draft, turn, ("turn", turn.family))
    for turn in candidates:
        further = spread_on(draft.propagated, turn)
        if further is not None:
            is_most = len(further.conflicts) < 2 * len(turn.conflicts)  # what was hopeless for these is so for a few more
            yield _proposal(draft, further, ("turn", turn.key) if is_most else None)


def _proposal(draft: Draft, turn: Turn, family: object) -> Proposal:
    return Proposal(
        "turn", ("turn", turn.key), _text(draft, turn), family, _source(draft, turn),
        seeds=lambda: turn.seeds(draft.propagated),
    )  # fmt: skip


def _text(draft: Draft, turn: Turn) -> str:
    conflict = turn.conflicts[0]
    shape, count = draft.propagated.graph.shapes[conflict.value], len(turn.conflicts)
    values = f"a value of shape {list(shape)}" if count == 1 else f"{count} values of shape {list(shape)}"
    choice = f"shard dim {conflict.dim} of {values} over {axes_text(conflict.lost)}"
    holder = conflict.holder(draft.propagated.placements[conflict.value])
    if not conflict.kept:
        return f"{choice}, not leave it whole"
    kept = axes_text(conflict.kept)
    return f"{choice}, not over {kept}" if holder in (None, conflict.dim) else f"{choice}, not dim {holder} over {kept}"


def _source(draft: Draft, turn: Turn) -> str:
    return draft.flat.source(turn.conflicts[0].node)
