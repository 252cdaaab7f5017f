"""Where a plan needs more memory than there is: what a loop goes through slice by slice may be gathered slice by slice, too.

    %w f32[L, N@x, N] gathered before the loop    one long message, and all L layers are whole while it runs
    %w f32[L, N@x, N] as it is                    L messages, and one layer is whole at a time

As many of these values as bring the peak below the memory, by what is known before planning; or all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.program import Var
from meshjit.core.region import run_regions
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from sharding.graph import Seed
from sharding.placement import Placement


@dataclass(frozen=True)
class Slices:
    """Of the value `whole`, which is gathered before the loop at an equation: the input `inner` of the body is given a slice at a
    time, which would be placed as `home` without that. Gathered before, all slices take so many `bytes` more; gathered one by
    one, they take so many `seconds` more."""

    at: int
    whole: Var
    inner: Var
    home: Placement
    bytes: int
    seconds: float


def propose(draft: Draft) -> Iterator[Proposal]:
    if draft.fits:
        return
    memory, held = draft.machine.topology.memory, draft.lifetimes.held_bytes()
    excess = {at: held[at] - memory for at, eqn in enumerate(draft.program.eqns) if eqn.op.regions is not None}
    every = [slices for at, more in excess.items() if more > 0 for slices in _gathered_before(draft, at)]
    for chosen in (_enough(every, excess), every):
        if chosen:
            where = {slices.inner: slices.home for slices in chosen}
            lines = Counter(str(draft.program.eqns[slices.at].source or "") for slices in chosen)
            text = f"gather slices of {len(where)} values inside of loops, not the values before them"
            yield Proposal(
                "inside", ("inside", frozenset(where)), text, source=lines.most_common(1)[0][0], saves_memory=True,
                seeds=lambda where=where: _planted(draft, where),
            )  # fmt: skip


def _planted(draft: Draft, where: Mapping[Var, Placement]) -> dict[int, Seed]:
    numbers, seeds = draft.flat.numbers, draft.propagated.graph.seeds
    return {**seeds, **{numbers[v]: Seed(placement) for v, placement in where.items()}}


def _enough(every: Sequence[Slices], excess: Mapping[int, float]) -> list[Slices]:
    """Those of as few values as suffice at each loop, first those whose gathering takes least for their bytes."""
    by_value: dict[Var, list[Slices]] = defaultdict(list)
    for slices in every:
        by_value[slices.whole].append(slices)
    left, chosen = dict(excess), list[Slices]()
    for each in sorted(by_value.values(), key=lambda each: sum(s.seconds for s in each) / sum(s.bytes for s in each)):
        if any(left[slices.at] > 0 for slices in each):
            chosen += each
            for slices in each:
                left[slices.at] -= slices.bytes
    return chosen


def _gathered_before(draft: Draft, at: int) -> Iterator[Slices]:
    """The slices that the loop is given whole, or in larger shards than the value has."""
    eqn, plan, machine = draft.program.eqns[at], draft.plan.equations[at], draft.machine
    for region, body in zip(run_regions(eqn), plan.bodies, strict=True):
        for i in sorted(region.sliced):
            operand = region.operands[i]
            inner, whole, home = region.program.inputs[i], eqn.inputs[operand], draft.plan.placements[eqn.inputs[operand]]
            as_it_lies = Placement(home.dims[1:])
            more = machine.local_bytes(inner.type, body.inputs[i]) - machine.local_bytes(inner.type, as_it_lies)
            count = whole.type.shape[0]
            if count * more > 0:
                one_by_one = count * machine.seconds(inner.type, as_it_lies, body.inputs[i])
                at_once = machine.seconds(whole.type, home, machine.normal(plan.operands[operand]))
                yield Slices(at, whole, inner, as_it_lies, count * more, one_by_one - at_once)
