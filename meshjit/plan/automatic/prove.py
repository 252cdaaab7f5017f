"""No plan is cheaper: a lower bound on everything that can be chosen, and what is left to look at where the bound falls short.

The Model's tables begin with lower bounds of prices (`floors.py`), so it costs little to have all of them. Then in rounds:

- messages raise the bound (`messages.py`);
- choices whose excess is more than a plan that is there already are left out (`left.py`);
- prices of the entries with the least excess are found exactly;
- the assignment that the messages suggest is planned, which may be a better plan;
- where the bound rises no more, sets of placements of values with many readers are grouped by what prices are by then
  (`regroup.py`).

In the end the bound reaches the best plan, or the few choices that are left are gone through in the order of their cost.
Where messages raise the bound slowly, and the variables that are left have few choices together, an elimination says which
assignment is cheapest. Its prices are made exact, and what is left is eliminated again, until the cheapest has exact prices: then
tables say no more. Eliminations go through as many entries as further rounds would.
Effort is counted, not measured, so it ends at the same place every time.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.frugal import CLOSE
from meshjit.plan.automatic.left import Left
from meshjit.plan.automatic.messages import Excess, Parts
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.order import order_of
from meshjit.plan.automatic.regroup import regroup
from meshjit.plan.automatic.suggest import Assignment, among, around, little
from meshjit.plan.automatic.watch import WATCH

SWEEPS: Final = 10  # between two looks at what can be left out
FEW_SWEEPS: Final = 3  # where there is only one round, for the plans that it finds, or the first tells that no plan is close
SHARPENED: Final = 50  # prices a round, and one more for so many entries:
ENTRIES: Final = 16_000
WALK: Final = 50_000  # entries of tables that are gone through in the time in which a price is found
ROUND: Final = 400_000  # likewise, of what a round costs besides
SLOW_TIMES: Final = 8  # as many, where the bound rises slowly
IDLE: Final = 3  # rounds without a gain, and without a price to be found, after which messages are given up
STALLED: Final = 2  # rounds without a gain after which sets of placements are grouped anew
IN_VAIN: Final = 10  # rounds without a gain, a refinement, a better plan or shorter tables, after which they are given up, too
FEW_IN_VAIN: Final = 3  # likewise, once the cheapest assignment of an elimination has exact prices
SHORTER: Final = 0.99  # of the entries of tables
SLOW: Final = 0.1  # of that distance: where a round raises the bound by less, a plan is supposed that takes
SUPPOSED: Final = 1 / 8  # of it more than the bound at most; twice as much once there is none, half where that cannot be told,
MOST_SUPPOSED: Final = 1 / 2
LEAST_SUPPOSED: Final = 1 / 100  # less is not supposed any more
SUPPOSED_GAIN: Final = 0.02  # a round without gain meanwhile
SUPPOSED_EFFORT: Final = 1 / 4  # with so much of the effort that is left
LEAST_WORTH: Final = 1 / 5  # of the effort, which is worth it however near the best plan is to the bound
GAIN: Final = 1e-3  # of the distance to the best plan: a round that raises the bound by less is without gain
QUICK: Final = 1 << 21  # entries of a table of the elimination of what is left, while decisions are kept for last
LARGEST: Final = 1 << 26  # of all tables of one that keeps nothing for last
NARROW: Final = 1 << 15  # of one around an assignment
WIDENED: Final = 5  # times twice as large, where rounds are in vain
MIDDLING: Final = 1 << 17  # of one among choices with little excess
SEARCHES: Final = 4  # rounds between those around an assignment
SEARCHES_AMONG_FEW: Final = 2  # and between those among few choices, twice as many after each that was in vain,
SHARES: Final = (1 / 64, 1 / 16, 1 / 4)  # whose excess is at most such a part of the distance to the best plan
ROOM: Final = 1 << 24  # entries of tables with one for each choice, around an assignment: 128 MiB
HALVES: Final = 12  # of the distance to the best plan: where choices with so little excess are too many, nothing is gone through
WIDE: Final = 1 << 18  # of one around an assignment, once a proof without plans is at its end
FEW: Final = 1 << 16  # entries of tables that are left, of which an elimination is no work
EQUAL: Final = 1 + 1e-9
KEPT: Final = 1 << 26  # entries of tables that an elimination keeps: 512 MiB
EVERY: Final = 1 << 30  # prices
TINY: Final = 1e-9


class Proof:
    """`upper`: the seconds of the best plan so far. `attempt` plans an assignment, and gives the seconds of the best plan then;
    without it only the bound is sought.
    `effort`: entries of tables to go through. `deadline`: the end in any case, for safety. `rent`: the most that plans pay; what
    is left out is dearer without it, too. `worth`: the gap from which on all of the effort is worth it; 0 for any."""

    def __init__(
        self,
        model: Model,
        upper: float,
        attempt: Callable[[Sequence[int]], float] | None,
        effort: float,
        deadline: float = math.inf,
        rent: float = 0.0,
        worth: float = 0.0,
    ) -> None:
        self.rent, self.worth = rent, worth
        self.model, self.upper, self.attempt, self.effort, self.deadline = model, upper, attempt, effort, deadline
        self.granted, self.spent = effort, 0.0
        self.left = Left(model, upper)
        self.bound = 0.0
        self.rounds, self.idle, self.stalled, self.in_vain = 0, 0, 0, 0
        self.waits, self.next_among_few = SEARCHES_AMONG_FEW, 1  # rounds
        self.tried = set[tuple[int, ...]]()
        self.supposed = SUPPOSED if attempt is not None else 1.0  # of the distance to the best plan; 1 is no supposition
        self.gain = GAIN
        self.near = 0.0  # times the bound: where the best plan takes no more, nothing further is sought
        self.is_watched = True
        self.is_exact = False  # whether the cheapest assignment of an elimination has exact prices: tables say no more then
        self.is_through = False  # whether that is final: sets of placements are told apart as well

    @property
    def is_closed(self) -> bool:
        """Whether the bound reaches the best plan."""
        return self.bound * EQUAL >= self.upper

    @property
    def is_near(self) -> bool:
        """Whether the best plan is as near to the bound as was asked for."""
        return self.is_closed or self.near * self.bound >= self.upper

    @property
    def rent_left(self) -> float:
        """The most rent of choices of which plans may cost less than the best one."""
        bound, excess, _ = self.left.messages.bound()
        return self.left.rent(self._kept(bound, excess))

    def _kept(self, bound: float, excess: Excess) -> list[Any]:
        """By variable, the choices whose excess is not more than what the best plan costs beyond the bound, and any rent."""
        slack = (self.upper - bound) * EQUAL + (EQUAL - 1) * self.upper + self.rent
        return [np.flatnonzero(each <= slack) for each in excess]

    @property
    def is_over(self) -> bool:
        """Whether the bound reaches the best plan or rises no more, or the effort is spent."""
        is_spent = self.worthwhile <= 0 or time.perf_counter() > self.deadline
        is_through = self.is_through and not LEAST_SUPPOSED < self.supposed < 1  # nor is anything left to be supposed
        return is_spent or self.is_near or is_through or self.idle >= IDLE or self.in_vain >= self.most_in_vain

    @property
    def worthwhile(self) -> float:
        """Effort that may still be spent: the nearer the best plan is to the bound, the less of all."""
        if not self.worth or not self.bound:
            return self.effort
        part = min(1.0, max(LEAST_WORTH, (self.upper - self.bound) / (self.worth * self.bound)))
        return min(self.effort, part * self.granted - self.spent)

    @property
    def most_in_vain(self) -> int:
        """Rounds after which messages are given up."""
        return STALLED if self.left.prices.stays else FEW_IN_VAIN if self.is_exact else IN_VAIN

    def grant(self, effort: float) -> None:
        """So much more effort."""
        self.effort, self.granted = self.effort + effort, self.granted + effort

    def run(self, effort: float = math.inf) -> None:
        """Rounds until it is over, or so much more effort is spent."""
        most = self.spent + effort
        while not self.is_over and self.spent < most:
            self._round()
            self.rounds += 1

    def _round(self) -> None:
        spent = self.spent
        self._sweep(FEW_SWEEPS)
        if self.granted > ROUND and (self.rounds or self.left.messages.bound()[0] < CLOSE * self.upper):
            self._sweep(SWEEPS - FEW_SWEEPS)
        self._spend(ROUND)
        before, upper, size, (bound, excess, parts) = self.bound, self.upper, self.left.size, self.left.messages.bound()
        self.bound = max(before, bound)
        self._note()
        if self.is_near:
            return
        excess, parts = self._leave_out(bound, excess, parts)
        if self.attempt is not None:
            self._improved(excess)
        if self.is_closed or self.worthwhile <= 0:
            return
        is_stalled = self.bound - before < self.gain * (self.upper - self.bound)
        is_slow = self.bound - before < SLOW * (self.upper - self.bound)
        count = self._sharpen(excess, parts, SLOW_TIMES if is_slow else 1)
        if (is_slow or self.left.messages.entries(self.left.alive) <= FEW) and not self.is_through:
            spent = self.spent - spent
            self._eliminate(excess, parts, max(spent, self._worth(self.bound - before, spent)))
        self.stalled = self.stalled + 1 if is_stalled else 0
        self.idle = self.idle + 1 if is_stalled and not count else 0
        can_refine = not self.left.prices.stays  # else there is nothing to gain but the bound
        is_refined = can_refine and (self.idle == IDLE or self.stalled == STALLED) and regroup(self.left)
        self.idle, self.stalled = 0 if is_refined else self.idle, self.stalled % STALLED
        is_shorter = can_refine and (self.left.size < SHORTER * size or self.upper < upper / EQUAL)
        self.in_vain = self.in_vain + 1 if is_stalled and not is_refined and not is_shorter else 0
        if LEAST_SUPPOSED < self.supposed < 1 and is_slow:
            self._suppose()

    def _spend(self, entries: float) -> None:
        self.effort -= entries
        self.spent += entries

    def _sweep(self, times: int) -> None:
        for _ in range(times):
            self.left.messages.sweep()
        self._spend(2 * times * self.left.size)

    def _leave_out(self, bound: float, excess: Excess, parts: Parts) -> tuple[Excess, Parts]:
        """Choices that no plan needs to cost less than the best one; the excess of the others."""
        kept = self._kept(bound, excess)
        if any(len(k) == 0 for k in kept):  # nothing is as cheap: the bound was closed
            self.bound = self.upper
            return excess, parts
        return self.left.keep(kept, excess, parts)

    def _sharpen(self, excess: Excess, parts: Parts, times: int) -> int:
        """Exact prices of the entries with least excess; how many."""
        slack, most = (self.upper - self.bound) * EQUAL, times * (SHARPENED + self.left.size // ENTRIES)
        count = self.left.sharpen(excess, parts, slack, most)
        self._spend(WALK * count)
        return count

    def _worth(self, gain: float, spent: float) -> float:
        """Entries that an elimination may go through: as many as rounds like the last one would, until the bound reached the best
        plan. That round raised it by `gain`, and went through `spent` entries."""
        rounds = (self.upper - self.bound) / max(gain, TINY * self.upper)
        return min(self.worthwhile, rounds * spent)

    def _suppose(self) -> None:
        """Seek a plan that takes little more than the bound: what takes longer is left out meanwhile. It is found, or there is
        none, and the bound is higher."""
        aim = self.bound + self.supposed * (self.upper - self.bound)
        other, seconds = self._supposing(aim)
        other.run()
        self._spend(other.spent)
        self.upper = min([self.upper, *seconds])
        if self.upper <= aim:
            self.left, self.bound = other.left, other.bound
            self.idle, self.in_vain = 0, 0
            return
        if other.is_closed:
            self.bound = max(self.bound, aim)
            self.idle, self.in_vain = 0, 0
        elif other.is_through:  # all that it left out takes longer than the cheapest assignment that it has
            self.bound, self.is_through = max(self.bound, other.bound), True
        self.supposed = min(MOST_SUPPOSED, 2 * self.supposed) if other.is_closed else self.supposed / 2
        self.left.reprice()

    def _supposing(self, aim: float) -> tuple[Proof, list[float]]:
        """The same as it is now, as if there were a plan of so many seconds; and what its plans take, once it was run."""
        other, seconds = copy.copy(self), list[float]()

        def attempt(choices: Sequence[int]) -> float:
            assert self.attempt is not None
            seconds.append(self.attempt(choices))
            return seconds[-1]

        other.left = self.left.again()
        other.upper, other.supposed, other.attempt, other.is_watched, other.gain = aim, 1.0, attempt, False, SUPPOSED_GAIN
        other.effort = other.granted = SUPPOSED_EFFORT * self.worthwhile
        other.spent, other.worth = 0.0, 0.0
        other.idle, other.stalled, other.in_vain, other.is_exact, other.is_through = 0, 0, 0, False, False
        return other, seconds

    def _note(self) -> None:
        """For who watches."""
        watch = WATCH.get()
        if watch is not None and self.is_watched:
            watch.proved(self, self.bound, 1 - max(0.0, self.effort) / self.granted if math.isfinite(self.granted) else None)

    def _plan(self, choices: Sequence[int], cost: float) -> None:
        """Plan an assignment that may be better than the best."""
        key = tuple(self.left.of_model(choices))
        if key in self.tried or cost >= self.upper / EQUAL:
            return
        self.tried.add(key)
        assert self.attempt is not None
        self.upper = min(self.upper, self.attempt(key))

    def _improved(self, excess: Excess) -> None:
        """Plan the assignment that the messages suggest, and what elimination finds around it."""
        suggested = self.left.messages.decoded()
        self._plan(suggested, self.left.messages.cost(suggested))
        is_last = self.in_vain == self.most_in_vain - 1
        if self.rounds % SEARCHES == 0 or is_last:
            for cost, choices in self._around(suggested, excess, NARROW << min(self.in_vain, WIDENED)):
                self._plan(choices, cost)
        if self.rounds >= self.next_among_few or is_last:
            before = self.upper
            self._improve_among_few(suggested, excess)
            self.waits = SEARCHES_AMONG_FEW if self.upper < before else 2 * self.waits
            self.next_among_few = self.rounds + self.waits

    def _improve_among_few(self, suggested: Sequence[int], excess: Excess) -> None:
        for share in SHARES:
            kept = little(excess, share * (self.upper - self.bound))
            if self.is_closed or self.left.messages.entries(kept) > ROOM:
                return
            for cost, choices in among(kept, self.left.problem(kept), suggested, MIDDLING):
                self._plan(choices, cost)
            self._spend(ROUND)

    def _around(self, known: Sequence[int], excess: Excess, largest: int) -> Iterator[Assignment]:
        """The best assignments where a part of the one that is known is left as it is; among choices with as little excess as
        tables have room for."""
        entries, most = self.left.messages.entries, max(self.upper - self.bound, TINY * self.upper)
        if entries(self.left.alive) <= ROOM:
            yield from around(self.left.problem(), known, largest)
            return
        few = (little(excess, most / (1 << n)) for n in range(HALVES))
        kept = next((kept for kept in few if entries(kept) <= ROOM), None)
        if kept is not None:
            yield from among(kept, self.left.problem(kept), known, largest)

    def in_order(self, steps: float) -> Iterator[tuple[float, list[int] | None]]:
        """(lower bound, assignment) of all that is left, the cheapest first; after so many steps (the bound of the others, None).
        TooWide where that is too much."""
        problem = self.left.problem()
        numbers = [decision.number for decision in self.model.decisions]
        try:
            elimination = Elimination(problem, last=numbers, largest=QUICK)
        except TooWide:
            order = order_of(problem.sizes, problem.tables, LARGEST)
            if order.entries > LARGEST:
                raise
            elimination = Elimination(problem, order=order.variables)
        for cost, choices in elimination.in_order(steps):
            yield cost, None if choices is None else self.left.of_model(choices)

    def _eliminate(self, excess: Excess, parts: Parts, most: float) -> None:
        """Eliminate what is left, again and again: each time, those prices of the cheapest assignment that are bounds are made
        exact. An assignment without bounds is planned, and ends it; so do `most` entries of tables. All prices that may matter
        are made exact first where that is less work than one elimination."""
        order = order_of([len(choices) for choices in self.left.alive], self.left.messages.pairs, most)
        if max(order.kept, self.left.messages.entries(self.left.alive)) > KEPT or order.entries > most:
            return
        slack = (self.upper - self.bound) * EQUAL
        if WALK * self.left.inexact(excess, parts, slack) <= min(order.entries, most - order.entries):
            self._spend(WALK * self.left.sharpen(excess, parts, slack, EVERY))
        end = self.spent + most
        while self.spent + order.entries <= end:
            self._spend(order.entries + ROUND)
            elimination = Elimination(self.left.problem(), order=order.variables)
            self.bound = max(self.bound, min(elimination.least, self.upper))
            if self.is_closed:
                return
            choices = elimination.best()
            count = self.left.sharpen_those_of(choices)
            self._spend(WALK * count)
            if not count:
                if self.attempt is not None:
                    self._plan(choices, elimination.least)
                self.is_exact = not self.is_closed
                self.is_through = self.is_exact and not regroup(self.left) and self.left.are_told_apart
                return

    def suggested(self) -> Iterator[list[int]]:
        """Assignments that are likely to be good, by number of the decision."""
        _, excess, _ = self.left.messages.bound()
        for cost, choices in self._around(self.left.messages.decoded(), excess, WIDE):
            if math.isfinite(cost):
                yield self.left.of_model(choices)
