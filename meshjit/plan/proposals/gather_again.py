"""Where a plan needs more memory than there is: values that were gathered may be gathered again instead of kept.

A weight that is sharded for memory's sake is gathered for the forward pass, and kept for the backward pass: half the bytes
on the wire, but at the peak all gathered weights are there at once. Of the versions that are only kept at the peak, some
are made anew from the first version of their value when they are read (`transform/separate_uses.py`): as many as
bring the peak below the memory, those first whose bytes are moved fastest. None where that does not suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshjit.core.program import Eqn, Var
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from meshjit.transform.separate_uses import separate_uses


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
    if draft.fits:
        return
    excess, chosen = draft.exact_cost.peak_bytes - draft.machine.topology.memory, dict[Var, Kept]()
    for kept in sorted(_kept(draft), key=lambda kept: kept.seconds / kept.bytes):
        if excess > 0 and kept.var not in chosen:
            chosen[kept.var] = kept
            excess -= kept.bytes
    if chosen and excess <= 0:  # otherwise it would not fit all the same
        waiting: dict[Eqn, tuple[list[Var], Var]] = {}
        for kept in chosen.values():
            waiting.setdefault(kept.eqn, ([], kept.awaited))[0].append(kept.var)
        total, first = sum(kept.bytes for kept in chosen.values()), next(iter(chosen.values()))
        yield Proposal(
            "again", ("again", frozenset(chosen)), f"move {len(chosen)} values again, not keep {total:,} bytes of them",
            source=str(first.eqn.source or ""), saves_memory=True, program=separate_uses(draft.program, waiting), more=propose,
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
