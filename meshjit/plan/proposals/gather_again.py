"""Where a plan needs more memory than there is: values that were gathered may be gathered again instead of kept.

A weight that is sharded for memory's sake is gathered for the forward pass, and kept for the backward pass: half the bytes
on the wire, but at the peak all gathered weights are there at once. Of the versions that are only kept at the peak, some
are made anew from the first version of their value when they are read (`transform/separate_uses.py`): as many as
bring the peak below the memory, those first whose bytes are moved fastest. None where that does not suffice by far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from meshjit.core.program import Eqn, Var
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.separate_uses import separate_uses

HALF: Final = 0.5  # of what is too much


@dataclass(frozen=True)
class Kept:
    """A version of `bytes` that `eqn` reads next, together with `awaited`, which is newer than the peak. Making the version anew
    takes `seconds`."""

    var: Var
    bytes: int
    seconds: float
    eqn: Eqn
    awaited: Var


def propose(draft: Draft) -> Iterator[Proposal]:
    if not draft.fits:
        kept = sorted(_kept(draft), key=lambda kept: kept.seconds / kept.bytes)
        yield from _proposal(draft, kept, draft.exact_cost.peak_bytes - draft.machine.topology.memory)


def _proposal(draft: Draft, every: Sequence[Kept], excess: float) -> Iterator[Proposal]:
    """To keep `excess` bytes fewer. Where not so many are kept, all that are, if that is at least HALF: the peak may fall by
    more than these."""
    chosen, left = dict[Var, Kept](), excess
    for kept in every:
        if left > 0 and kept.var not in chosen:
            chosen[kept.var] = kept
            left -= kept.bytes
    if not chosen or left > HALF * excess:  # it would not fit all the same
        return
    waiting: dict[Eqn, tuple[list[Var], Var]] = {}
    for kept in chosen.values():
        waiting.setdefault(kept.eqn, ([], kept.awaited))[0].append(kept.var)
    total, first = sum(kept.bytes for kept in chosen.values()), next(iter(chosen.values()))

    def less(peak: float) -> Proposal | None:
        """Fewer values, where the plan holds `peak` bytes, and that is less than the bytes that it held before without these."""
        fewer = draft.exact_cost.peak_bytes - total - peak
        other = next(_proposal(draft, every, excess - fewer), None) if fewer > 0 else None
        return None if other is None or other.key == key else other

    key = "again", frozenset(chosen)
    yield Proposal(
        "again", key, f"move {len(chosen)} values again, not keep {total:,} bytes of them",
        source=str(first.eqn.source or ""), saves_memory=True, program=separate_uses(draft.program, waiting),
        more=propose, less=less,
    )  # fmt: skip


def _kept(draft: Draft) -> Iterator[Kept]:
    program, machine, lifetimes = draft.program, draft.machine, draft.lifetimes
    held = lifetimes.held_bytes()
    peak = held.index(max(held))
    made = {v: n for n, eqn in enumerate(program.eqns) for v in eqn.outputs}
    for var, placement, after in lifetimes.kept(peak):
        bytes = lifetimes.local_bytes(var, placement)
        eqn = program.eqns[after] if after < len(program.eqns) else None
        if eqn is not None and eqn.outputs and bytes and var not in lifetimes.cheap:
            newest, first = max(eqn.inputs, key=lambda v: made.get(v, -1)), next(iter(lifetimes.versions[var]))
            if made.get(newest, -1) >= peak:
                yield Kept(var, bytes, machine.seconds(var.type, first, placement), eqn, newest)
