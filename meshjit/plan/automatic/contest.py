"""The best plan of a Program that may be written in several ways: each way has its Search, and hears what the others found.

Plans of all ways are made first. Then their proofs go on, that with the least bound first, and what costs more than the best
plan of any is left out of all of them:

    as it is             110.7 ms                                109.8 ms, optimal
    dims kept apart      110.5 ms       110.3 ms                 no plan below 109.8 ms
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from meshjit.core.plan import Plan
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.automatic.frugal import CLOSE, sent
from meshjit.plan.automatic.limits import FIRST
from meshjit.plan.automatic.prove import ROUND
from meshjit.plan.automatic.solve import Search

TOGETHER: Final = 2  # times the effort of one proof, that of all


def best_of(searches: Sequence[Search]) -> tuple[int, Plan]:
    """The number of the Search that has the best plan, and the plan, whose Optimum is among the plans of all. `chosen` of the
    Search is its Candidate."""
    for search in searches:
        search.rival = _least(searches)
        search.begin()
    _prove(searches)
    for search in searches:
        search.conclude()
    settled = [search.settle() for search in searches]
    first = min(range(len(searches)), key=lambda at: (max(0.0, settled[at].peak - searches[at].memory), settled[at].seconds))
    fastest = settled[first]
    at, best = _preferred(searches, fastest) or (first, fastest)
    plan = searches[at].result(best, fastest)
    assert plan.optimum is not None
    known = plan.optimum.known
    for search in [search for search in searches if search is not searches[at]]:
        known = search.known(known)
    is_complete, searched = all(s.is_complete for s in searches), sum(s.searched for s in searches)
    optimum = dataclasses.replace(plan.optimum, known=known, searched=searched, is_complete=is_complete)
    return at, dataclasses.replace(plan, optimum=optimum)


def _prove(searches: Sequence[Search]) -> None:
    """A round of each proof; then of that whose bound is the least, for a better plan is most likely there. Together they take
    twice as much effort as one may."""
    left = sorted(searches, key=lambda search: search.quickest)
    effort = TOGETHER * max(search.effort for search in searches) - sum(search.spent for search in searches)
    while left:
        for search in left:
            search.rival = _least(searches)
        search = min(left, key=lambda search: search.proved)
        if effort <= 0 and search.proved:
            return
        before = search.spent
        goes_on = search.prove(ROUND if len(left) > 1 else math.inf, max(effort, FIRST))
        effort -= search.spent - before
        if not goes_on:
            left.remove(search)


def _least(searches: Sequence[Search]) -> float:
    return min(search.quickest for search in searches)


def _preferred(searches: Sequence[Search], fastest: Candidate) -> tuple[int, Candidate] | None:
    """Of the plans that are about as fast as the fastest one, and no dearer than propagation's, the one that sends least, and
    whose it is; None where that is the fastest one."""
    memory = searches[0].memory
    if not sent(fastest) or fastest.peak > memory or fastest.refined_by == "memory":
        return None
    most = min([s.propagated.seconds for s in searches if s.propagated.peak <= memory], default=math.inf)
    close = [at for at, search in enumerate(searches) if search.quickest <= CLOSE * fastest.seconds]
    rivals = [(at, rival) for at in close if (rival := searches[at].frugal(fastest, most)) is not None]
    return min(rivals, key=lambda each: sent(each[1]), default=None)
