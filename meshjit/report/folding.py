"""Equal layers: stretches of a list that repeat at once, such as a b (c d) (c d) (c d) e. They are detected as periods."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

BEGINNING: Final = 8  # members that are compared first: most distances are no period, which shows soon


@dataclass(frozen=True)
class Folded:
    """`times` copies of a stretch of `period` members that begin at `start`. `parts`: the first copy, folded itself; its numbers
    count from its own beginning."""

    start: int
    period: int
    times: int
    parts: tuple[int | Folded, ...]


def folded(keys: Sequence[Hashable]) -> list[int | Folded]:
    """Positions in order, with stretches that repeat as one; at each position the longest run of copies counts.

    folded("abcdcdcde") is [0, 1, Folded(start=2, period=2, times=3, parts=(0, 1)), 8]."""
    numbers: dict[Hashable, int] = {}
    row = [numbers.setdefault(key, len(numbers)) for key in keys]
    places: list[list[int]] = [[] for _ in numbers]
    for i, number in enumerate(row):
        places[number].append(i)
    parts: list[int | Folded] = []
    at = 0
    while at < len(row):
        period, times = _longest(row, places[row[at]], at)
        if times == 1:
            parts.append(at)
            at += 1
        else:
            parts.append(Folded(at, period, times, tuple(folded(keys[at : at + period]))))
            at += period * times
    return parts


def _longest(row: Sequence[int], places: Sequence[int], at: int) -> tuple[int, int]:
    """The period with which most members repeat from here on, the shortest among equals; and how often."""
    best = 1, 1
    for later in places[bisect.bisect_right(places, at) :]:
        period = later - at
        if at + 2 * period > len(row):
            break
        if period > BEGINNING and row[at : at + BEGINNING] != row[later : later + BEGINNING]:
            continue
        times = _copies(row, at, period)
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def _copies(row: Sequence[int], at: int, period: int) -> int:
    first, times = row[at : at + period], 1
    while row[at + times * period : at + (times + 1) * period] == first:
        times += 1
    return times
