"""The plans that hold more than the memory, and what they become when values are moved or computed again instead of kept.

A plan that is made *lighter* so takes longer, and the more, the more it held: so the fastest need not stay it. Three plans are
tried. Of 16 GB:

    4.8 s  23.6 GB    the fastest
    5.4 s  17.0 GB    the fastest that holds at most half as much too much
    5.8 s  16.8 GB    the fastest that holds about as little as any
    8.1 s  16.8 GB    the leanest is not tried: it saves 1 MB for 2.3 s
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from meshjit.plan.automatic.candidate import Candidate

HALF: Final = 0.5  # of what the fastest holds beyond the memory
ABOUT: Final = 1.01  # times the least that any holds beyond it


class Unfit:
    """`memory`: bytes. `make_lighter`: what a plan becomes. `leanest`: the one that holds least. `front`: those that were not
    made lighter, the fastest first, each of which holds less than all before it."""

    def __init__(self, memory: float, make_lighter: Callable[[Candidate], Candidate]) -> None:
        self.memory, self.make_lighter = memory, make_lighter
        self.leanest: Candidate | None = None
        self.front: list[Candidate] = []
        self.made: dict[int, tuple[Candidate, Candidate]] = {}  # by identity, and what they became

    def consider(self, candidate: Candidate) -> None:
        """Keep it if no other is as fast and as lean."""
        if self.leanest is None or candidate.is_better_than(self.leanest, self.memory):
            self.leanest = candidate
        if candidate.refined_by or any(c.seconds <= candidate.seconds and c.peak <= candidate.peak for c in self.front):
            return
        left = [c for c in self.front if c.seconds < candidate.seconds or c.peak < candidate.peak]
        self.front = sorted([*left, candidate], key=lambda c: c.seconds)

    @property
    def lighter(self) -> list[Candidate]:
        """What was made so far."""
        return [lighter for _, lighter in self.made.values()]

    @property
    def quickest(self) -> float:
        """Seconds of the best of these that fits."""
        return min([c.seconds for c in self.lighter if c.peak <= self.memory], default=math.inf)

    def is_faster_than(self, seconds: float) -> bool:
        """Whether one of them takes less."""
        return bool(self.front) and self.front[0].seconds < seconds

    def fastest_lighter(self, below: float) -> Candidate | None:
        """What the fastest becomes, if that takes less than `below` seconds as it is."""
        return self._lighter(self.front[0]) if self.is_faster_than(below) else None

    def best_lighter(self, below: float) -> Candidate | None:
        """The best of what those become that are tried, of those that take less than `below` seconds as they are."""
        best: Candidate | None = None
        for candidate in self._tried([c for c in self.front if c.seconds < below]):
            if candidate.seconds < min(below, self.quickest):
                lighter = self._lighter(candidate)
                best = lighter if best is None or lighter.is_better_than(best, self.memory) else best
        return best

    def _tried(self, front: list[Candidate]) -> list[Candidate]:
        """The fastest, the fastest that is half as far from fitting, and the fastest that is about as near as any."""
        if not front:
            return []
        over = [c.peak - self.memory for c in front]
        aims = over[0], HALF * over[0], ABOUT * over[-1]
        firsts = [next((n for n, each in enumerate(over) if each <= aim), None) for aim in aims]
        return [front[n] for n in dict.fromkeys(firsts) if n is not None]

    def _lighter(self, candidate: Candidate) -> Candidate:
        if id(candidate) not in self.made:
            self.made[id(candidate)] = candidate, self.make_lighter(candidate)
        return self.made[id(candidate)][1]
