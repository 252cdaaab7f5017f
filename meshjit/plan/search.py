"""The search for a plan: plan every proposed alternative, and keep it where it costs less.

Proposals are tried in the order of their kinds (`proposals.KINDS`), within a kind the weightiest first. After one is
accepted all kinds propose anew, because further choices depend on the new placements. Parts of a proposal that is clearly
worse, or changes nothing, are not tried. Where a plan is faster, and is not taken because it sends more, the same is planned
with less moved before loops. Of the kinds that save memory, the first proposals are planned together, and the best is taken.
About TRIALS plans are made at most, and OF_ONE_KIND of a kind, whatever the size of the Program, so planning stays linear in the
equations. The search is deterministic: the same Program, annotations and machine give the same plan.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final

from meshjit.core.plan import Plan, PlanCost, Trial
from meshjit.plan.cost import WORTH, WORTH_BYTES, is_cheaper, is_leaner, is_thriftier
from meshjit.plan.draft import Draft
from meshjit.plan.flow import Limit, TooDear
from meshjit.plan.proposals import KINDS, USUAL, Proposal

TRIALS: Final = 16
OF_ONE_KIND: Final = 8
IN_LOOPS: Final = "unmoved"  # the kind of proposal that moves less before loops
ROUNDS: Final = 3  # further proposals of one kind, on top of its first, before the plans are compared
HOPELESS: Final = 0.1  # a plan dearer by this fraction of the time for moving data is not tried in parts


def search(draft: Draft, kinds: Container[str] = USUAL) -> Plan:
    """The cheapest plan among those that proposals of these kinds lead to, one after the other; with its Trials, and what it
    holds exactly."""
    tried, hopeless, for_good = set[object](), set[object](), set[object]()
    trials: list[Trial] = []
    counts, offers = Counter[str](), _offers(draft, kinds)
    while len(trials) < TRIALS and (proposal := next(_untried(offers, tried, hopeless, counts), None)) is not None:
        rival, others = _attempt(draft, proposal), list[Trial]()
        if proposal.saves_memory:
            proposal, rival, others = _lighter(draft, proposal, rival, offers, tried)
        tried.add(proposal.key)
        counts[proposal.kind] += 1
        for_good |= {proposal.key} if proposal.once else set()
        trials += [*others, _trial(draft, proposal, rival)]
        if rival is None or _is_hopeless(rival.cost, draft.cost):
            hopeless.add(proposal.key)
        is_last = trials[-1].is_accepted or len(trials) == TRIALS
        further = _further(draft, rival, kinds) if rival is not None and not is_last else None
        if rival is not None and further is not None:
            rival = _attempt(rival, further, draft)
            trials.append(_trial(draft, further, rival))
        if rival is not None and trials[-1].is_accepted:
            if rival.program is not draft.program:
                tried, hopeless = {proposal.key, *for_good}, set()
            draft = rival
            offers = _offers(draft, kinds)
    return dataclasses.replace(draft.plan, cost=draft.exact_cost, trials=tuple(trials))


def _offers(draft: Draft, kinds: Container[str]) -> Mapping[str, Callable[[], Iterator[Proposal]]]:
    """By kind what is proposed for a draft, from the first each time; each proposal is worked out once, when it is asked for."""
    return {kind: _again(propose(draft)) for kind, propose in KINDS.items() if kind in kinds}


def _again(proposals: Iterable[Proposal]) -> Callable[[], Iterator[Proposal]]:
    (kept,) = itertools.tee(proposals, 1)
    return lambda: copy.copy(kept)


def _untried(
    offers: Mapping[str, Callable[[], Iterator[Proposal]]], tried: set[object], hopeless: set[object], counts: Mapping[str, int]
) -> Iterator[Proposal]:
    for kind, offered in offers.items():
        for proposal in offered() if counts[kind] < OF_ONE_KIND else ():
            if proposal.key not in tried and proposal.family not in hopeless:
                yield proposal


def _lighter(
    draft: Draft,
    proposal: Proposal,
    rival: Draft | None,
    offers: Mapping[str, Callable[[], Iterator[Proposal]]],
    tried: set[object],
) -> tuple[Proposal, Draft | None, list[Trial]]:
    """The best of this proposal and the first one of every other kind that saves memory: once the plan fits, none proposes any
    more. Where it leads to a plan that fits, less is tried once, too. With the Trials of the others, whose keys are added to
    `tried`."""
    memory, others = draft.machine.topology.memory, list[Trial]()
    firsts = [next(offered(), None) for kind, offered in offers.items() if kind != proposal.kind]
    for other in [p for p in firsts if p is not None and p.saves_memory and p.key not in tried]:
        contender = _attempt(draft, other)
        better, worse = (proposal, rival), (other, contender)
        if contender is not None and (rival is None or is_cheaper(contender.exact_cost, rival.exact_cost, memory)):
            better, worse = worse, better
        (proposal, rival), (loser, beaten) = better, worse
        tried.add(loser.key)
        others.append(_beaten(_trial(draft, loser, beaten), proposal))
    less = proposal.less(rival.exact_cost.peak_bytes) if rival is not None and rival.fits and proposal.less is not None else None
    contender = None if less is None else _attempt(draft, less)
    if less is None or rival is None or contender is None or not is_cheaper(contender.exact_cost, rival.exact_cost, memory):
        return proposal, rival, others
    return less, contender, [*others, _beaten(_trial(draft, proposal, rival), less)]


def _beaten(trial: Trial, by: Proposal) -> Trial:
    return dataclasses.replace(trial, is_accepted=False, beaten_by=by.text if trial.is_accepted else "")


def _trial(draft: Draft, proposal: Proposal, rival: Draft | None) -> Trial:
    """How the draft that a proposal leads to compares with one that there is. Where that fits, so must the other."""
    memory = math.inf if draft.fits else draft.machine.topology.memory
    before = draft.cost if draft.fits else draft.exact_cost
    cost = None if rival is None else rival.cost if draft.fits else rival.exact_cost
    is_better = False
    if rival is not None and cost is not None and (rival.fits or not draft.fits):
        is_better = is_cheaper(cost, before, memory) or (proposal.saves_bytes and is_leaner(cost, before, memory))
        is_better = is_better or (draft.fits and proposal.sends_less and is_thriftier(cost, before))
        is_better = is_better or (draft.fits and proposal.saves_time and cost.seconds < WORTH * before.seconds)
    fits = rival is None or rival.fits
    return Trial(proposal.kind, proposal.text, proposal.source, before, cost, is_better, fits, not draft.fits)


def _further(draft: Draft, rival: Draft, kinds: Container[str]) -> Proposal | None:
    """What to try on top of a draft that is faster than another one, and sends more."""
    is_faster = rival.cost.seconds < WORTH * draft.cost.seconds and rival.cost.wire_bytes > draft.cost.wire_bytes
    return next(iter(KINDS[IN_LOOPS](rival)), None) if is_faster and IN_LOOPS in kinds else None


def _attempt(draft: Draft, proposal: Proposal, best: Draft | None = None) -> Draft | None:
    """The draft that a proposal leads to; None where it is clearly worse than the draft itself, or than the best so far."""
    cost, fits = (best or draft).cost, (best or draft).fits
    most = cost.seconds / WORTH_BYTES if proposal.saves_bytes else _hopeless_from(cost)
    limit = Limit(most, 0.0 if fits else cost.peak_bytes) if proposal.more is None else None
    try:
        rival = proposal.apply(draft, limit)
        for _ in range(ROUNDS if proposal.more is not None else 0):
            assert proposal.more is not None
            following = next(iter(proposal.more(rival)), None)
            if following is None:
                break
            rival = following.apply(rival, None)
    except TooDear:
        return None
    return rival


def _is_hopeless(new: PlanCost, old: PlanCost) -> bool:
    """Whether parts of the proposal that led from the old to the new need not be tried."""
    return new.seconds > _hopeless_from(old) or (new.seconds == old.seconds and new.wire_bytes == old.wire_bytes)


def _hopeless_from(old: PlanCost) -> float:
    return old.seconds + HOPELESS * old.move_seconds
