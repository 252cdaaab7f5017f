"""Where a plan needs more memory than there is: what a loop goes through slice by slice may be gathered slice by slice, too.

    %w f32[L, N@x, N] gathered before the loop    one long message, and all L layers are whole while it runs
    %w f32[L, N@x, N] as it is                    L messages, and one layer is whole at a time
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from meshjit.core.program import Var
from meshjit.core.region import run_regions
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from sharding.graph import Seed
from sharding.placement import Placement


def propose(draft: Draft) -> Iterator[Proposal]:
    """All of them at the loops that hold too much."""
    if draft.fits:
        return
    held, where, lines = draft.lifetimes.held_bytes(), dict[Var, Placement](), Counter[str]()
    for at, eqn in enumerate(draft.program.eqns):
        if held[at] > draft.machine.topology.memory and eqn.op.regions is not None:
            slices = dict(_gathered_before(draft, at))
            where.update(slices)
            lines[str(eqn.source or "")] += len(slices)
    if where:
        numbers, seeds = draft.flat.numbers, draft.propagated.graph.seeds
        planted = {numbers[v]: Seed(placement) for v, placement in where.items()}
        text = f"gather slices of {len(where)} values inside of loops, not the values before them"
        yield Proposal(
            "inside", ("inside", frozenset(where)), text, source=lines.most_common(1)[0][0], saves_memory=True,
            seeds=lambda: {**seeds, **planted},
        )  # fmt: skip


def _gathered_before(draft: Draft, at: int) -> Iterator[tuple[Var, Placement]]:
    """The slices that the loop at an equation is given whole, or in larger shards than the value has; with its shards."""
    eqn, plan, local_bytes = draft.program.eqns[at], draft.plan.equations[at], draft.machine.local_bytes
    for region, body in zip(run_regions(eqn), plan.bodies, strict=True):
        for i in sorted(region.sliced):
            inner, home = region.program.inputs[i], draft.plan.placements[eqn.inputs[region.operands[i]]]
            as_it_lies = Placement(home.dims[1:])
            if local_bytes(inner.type, as_it_lies) < local_bytes(inner.type, body.inputs[i]):
                yield inner, as_it_lies
