"""The best of the plans that do loops over stencils in blocks of iterations, and a bound on all of them.

Such a plan exchanges the borders of what a loop carries once for a block, and moves nothing else in the loop. So what the loop
takes depends on where things are around it alone, and the work inside. A Model in which nothing in these loops costs anything
but work gives the ways to place what is around them, each with a lower bound of all plans that do so, whatever the block:

    heat, 10 iterations, 2x4 devices      9.75 ms at least: [x, y]       11.7 ms in blocks of 10, 14.8 without
                                          9.76 ms at least: [-, x*y]     11.8 ms in blocks of 5, 13.3 without
                                          9.76 ms at least: [x*y, -]     13.8 ms in blocks of 5, 15.4 without
                                          19.5 ms at least: [-, x]       no plan of these is faster than one that is there

Each is planned with bodies that follow what is around, as those do that are best where exchanging borders costs nothing; and in
those blocks that take the least time. What a loop then takes beyond the bound is known of all other ways to place the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from meshjit.core.program import Eqn
from meshjit.plan.automatic.candidate import BLOCKS, Candidate, candidate_of, most_rent, refined
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.exhaust import QUICK, STEPS
from meshjit.plan.automatic.loops import Around, Loops
from meshjit.plan.automatic.made import EQUAL, Made
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.prescribe import prescribe
from meshjit.plan.automatic.price_list import PriceList
from meshjit.plan.automatic.prove import Proof

PLANS: Final = 128  # that are priced in full
SKIPPED: Final = 64  # assignments, after which what was learnt of some of them is left out of the others
WAYS: Final = 1024  # to place what is around a loop
EFFORT: Final = 2e7  # entries of tables to go through, in order to leave out what cannot be cheaper


@dataclass(frozen=True)
class Found:
    """The best plan, seconds below which there is no other one in blocks, and whether all of these were looked at."""

    best: Candidate
    known: float
    is_complete: bool


class InBlocks:
    """Of the draft of what was `made`. `loops`: those that may be done in blocks. The `best` plan of these and of what is there,
    which takes `known` seconds. TooWide where there is too much to choose from."""

    def __init__(self, made: Made, loops: Sequence[Eqn], best: Candidate, known: float) -> None:
        draft = made.draft
        of = draft.program, draft.flat, draft.machine, draft.annotations, made.ties
        self.made, self.best, self.known, self.tried = made, best, known, set[tuple[int, ...]]()
        self.free = Model(*of, loops=loops, moves=False, bounds=PriceList(draft.machine), is_whole=False)
        self.following = Model(*of, loops=loops, estimates=not made.is_small)
        self.rent = most_rent(draft)
        self.proof = Proof(self.free, known + self.rent, None, EFFORT, made.deadline, self.rent)
        self.left = self.proof.left
        self.loops = Loops(draft, made.ties, self.free, known + self.rent)

    def found(self) -> Found:
        """Once all were looked at, or there were too many."""
        self.proof.run()
        seconds = max(0.0, self.proof.bound - self.rent)
        try:
            while not self.proof.is_closed and (least := self._round()) is not None:
                seconds = max(seconds, least)
                if self._is_over:
                    return Found(self.best, min(self.known, seconds), is_complete=False)
        except TooWide:
            return Found(self.best, min(self.known, seconds), is_complete=False)
        return Found(self.best, self.known, is_complete=True)

    @property
    def _is_over(self) -> bool:
        return len(self.tried) >= PLANS or self.loops.count >= WAYS or self.made.is_late

    def _round(self) -> float | None:
        """Plan what may take least, until more is known of what loops take. The bound; None where nothing may be faster."""
        elimination, count = self._elimination(), self.loops.count
        for number, (seconds, chosen) in enumerate(elimination.in_order(STEPS)):
            if seconds * EQUAL >= self.known:
                return None
            if chosen is None:
                raise TooWide(f"more than {STEPS:,} steps")
            choices = {v: int(self.left.alive[v][chosen[v]]) for v in self.loops.outside}
            around = [self.loops.around(loop, choices) for loop in self.loops.loops]
            is_news, key = self.loops.learn(around), tuple(choices.values())
            if key not in self.tried and any(each.is_possible for each in around) and not is_news:
                self.tried.add(key)
                is_news = self._plan(choices, around)
                is_news = self.left.sharpen_those_of(elimination.completed(chosen)) > 0 or is_news
            if is_news or self._is_over or (number >= SKIPPED and self.loops.count > count):
                return seconds
        return None

    def _elimination(self) -> Elimination:
        """Of what is left to choose from, with what is known of loops."""
        problem = self.left.without_rent()
        problem = problem.where({v: int(np.argmin(problem.tables[v,])) for v in self.loops.inside})
        self.loops.add_to(problem, self.left.alive)
        try:
            return Elimination(problem, last=self.loops.outside, largest=QUICK)
        except TooWide:
            return Elimination(problem)

    def _plan(self, choices: Mapping[int, int], around: Sequence[Around]) -> bool:
        """The plan of what is around loops, with bodies that follow; and whether it tells more of what the loops take."""
        every = Elimination(self.following.problem.where(choices)).best()
        draft = prescribe(self.made.draft, self.following, self.loops.with_others(every, choices, around))
        self.made.searched += 1
        candidate = refined(candidate_of(draft, self.made.machine), self.made.machine, BLOCKS)
        assert candidate.plan.cost is not None
        self.known = min(self.known, candidate.plan.cost.seconds)
        self.best = candidate if candidate.is_better_than(self.best, self.made.memory) else self.best
        return self.loops.learn_of(candidate.plan, around)
