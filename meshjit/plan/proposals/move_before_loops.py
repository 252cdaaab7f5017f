"""Parts along a sharded dim of what does not change in a loop are taken before it, and added up by themselves in it
(`transform/move_before_loops.py`, `transform/collect_apart.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshjit.core.program import Eqn, Var
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.collect_apart import collect_apart
from meshjit.transform.move_before_loops import move_before_loops
from meshjit.transform.pipeline import simplify


def propose(draft: Draft) -> Iterator[Proposal]:
    placements = draft.plan.placements

    def is_sharded(var: Var, dim: int) -> bool:
        return var in placements and bool(placements[var].dims[dim])

    def are_apart(var: Var, parts: Sequence[Eqn]) -> bool:
        return any(is_sharded(var, d) and part.outputs[0].shape[d] != n for part in parts for d, n in enumerate(var.shape))

    program = collect_apart(move_before_loops(draft.program, are_apart), is_sharded)
    if program is not draft.program:
        text = "take parts along a sharded dim before a loop, and put together after it what it adds up of them"
        yield Proposal("before", "before", text, program=simplify(program))
