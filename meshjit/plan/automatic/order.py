"""In which order the variables of a Problem are best eliminated, and how much work that is.

To find the best order is hard (Arnborg, Corneil and Proskurowski, 1987), so a few are tried, by two rules. By the first, the
variable goes next that leaves the smallest table over its neighbours. By the second, it is the one that adds least between
pairs of its neighbours that had no table together (weighted min-fill: Kjærulff, 1990). Further tries of each rule add a random
number to what it compares. The numbers are the same each time, so the order is, too.

    a - b, a - c, b - d, c - d      a goes: its neighbours b and c get a table; then b, c and d are chosen together
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from meshjit.plan.automatic.problem import Scope

TRIES: Final = 8  # at random, of each rule
ABOUT: Final = 2.0  # the largest random number
NEAR: Final = 1 << 7  # times as many entries as there may be, from which on there are no tries at random

Neighbours: TypeAlias = Mapping[int, Collection[int]]
Digits: TypeAlias = Mapping[int, float]  # of the numbers of choices
Rank: TypeAlias = Callable[[int, Neighbours, Digits], float]


class Order(NamedTuple):
    """Entries of tables that are gone through, and those of tables that are kept; the variables in order."""

    entries: float
    kept: float
    variables: list[int]


def order_of(sizes: Sequence[int], scopes: Iterable[Scope], most: float = math.inf) -> Order:
    """The best of a few orders for variables with so many choices, and tables over these. `most`: entries that may be gone
    through; where there are many more, few orders are tried."""
    best = min([_tried(sizes, scopes, rank, None) for rank in (_table, _fill)], key=lambda order: order.entries)
    for seed in range(TRIES if best.entries <= NEAR * most else 0):
        tries = [_tried(sizes, scopes, rank, random.Random(seed)) for rank in (_table, _fill)]
        best = min(best, *tries, key=lambda order: order.entries)
    return best


def _table(variable: int, near: Neighbours, digits: Digits) -> float:
    """The table that is left."""
    return sum([digits[v] for v in near[variable]])


def _fill(variable: int, near: Neighbours, digits: Digits) -> float:
    """What is added between pairs of neighbours: for each, the product of their digits."""
    others = [*near[variable]]
    return sum([digits[a] * digits[b] for i, a in enumerate(others) for b in others[i + 1 :] if b not in near[a]])


def _tried(sizes: Sequence[int], scopes: Iterable[Scope], rank: Rank, at_random: random.Random | None) -> Order:
    near = _neighbours(sizes, scopes)
    digits = {v: math.log(sizes[v]) for v in near}

    def ranked(v: int) -> float:
        return rank(v, near, digits) + (0.0 if at_random is None else ABOUT * at_random.random())

    ranks = {v: ranked(v) for v in near}
    waiting, order, entries, kept = [(now, v) for v, now in ranks.items()], list[int](), 0.0, 0.0
    heapq.heapify(waiting)
    while waiting:
        now, gone = heapq.heappop(waiting)
        if ranks.get(gone) != now:
            continue
        left = math.exp(min(500.0, _table(gone, near, digits)))
        entries, kept = entries + sizes[gone] * left, kept + left
        order.append(gone)
        del ranks[gone]
        others = near.pop(gone)
        for v in others:
            near[v] |= others
            near[v] -= {gone, v}
        for v in sorted(others):
            ranks[v] = ranked(v)
            heapq.heappush(waiting, (ranks[v], v))
    return Order(entries, kept, order)


def _neighbours(sizes: Sequence[int], scopes: Iterable[Scope]) -> dict[int, set[int]]:
    """By variable with several choices, those that are in a table with it."""
    near = {v: set[int]() for v, size in enumerate(sizes) if size != 1}
    for scope in scopes:
        several = [v for v in scope if v in near]
        for v in several:
            near[v].update(several)
    return {v: others - {v} for v, others in near.items()}
