"""No plan is cheaper: a lower bound on everything that can be chosen, and what is left to look at where the bound falls short.

The Model's tables begin with lower bounds of prices (`floors.py`), so it costs little to have all of them. Then in rounds:

- messages raise the bound (`messages.py`);
- choices whose excess is more than a plan that is there already are left out;
- prices of the entries with the least excess are found exactly;
- the assignment that the messages suggest is planned, which may be a better plan;
- where the bound rises no more, sets of placements of values with many readers are grouped by what prices are by then.

In the end the bound reaches the best plan, or the few choices that are left are gone through in the order of their cost.
Effort is counted, not measured, so it ends at the same place every time.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.frugal import CLOSE
from meshjit.plan.automatic.messages import Excess, Messages, Parts
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.price_list import FREE, PriceList
from meshjit.plan.automatic.problem import Problem, Scope, Table, weighted
from meshjit.plan.automatic.suggest import among_few, around
from meshjit.plan.automatic.tables import Grouping, Sets, Term, by_dearest, grouped, links
from meshjit.plan.automatic.watch import WATCH
from sharding.placement import Placement

SWEEPS: Final = 10  # between two looks at what can be left out
FEW_SWEEPS: Final = 3  # where there is only one round, for the plans that it finds, or the first tells that no plan is close
SHARPENED: Final = 50  # prices a round, and one more for so many entries:
ENTRIES: Final = 16_000
WALK: Final = 50_000  # entries of tables that are gone through in the time in which a price is found
ROUND: Final = 400_000  # likewise, of what a round costs besides
STALLED_TIMES: Final = 8  # as many, where the bound does not rise
IDLE: Final = 3  # rounds without a gain, and without a price to be found, after which messages are given up
STALLED: Final = 2  # rounds without a gain after which sets of placements are grouped anew
IN_VAIN: Final = 10  # rounds without a gain, a refinement, a better plan or shorter tables, after which they are given up, too
SHORTER: Final = 0.99  # of the entries of tables
SLOW: Final = 0.1  # of that distance: where a round raises the bound by less, a plan is supposed that takes
SUPPOSED: Final = 1 / 8  # of it more than the bound at most; twice as much once there is none,
SUPPOSED_EFFORT: Final = 1 / 4  # with so much of the effort that is left
STATE: Final = ("alive", "fixed", "terms", "messages", "refined", "grouping", "seconds", "bound", "few")  # of a proof
GAIN: Final = 1e-3  # of the distance to the best plan: a round that raises the bound by less is without gain
MOST_STATES: Final = 3000  # sets of placements of one value
MOST_TOGETHER: Final = 5  # placements in one of them
QUICK: Final = 1 << 21  # entries of a table of the elimination of what is left, while decisions are kept for last
LARGEST: Final = 1 << 23  # of one without an order
NARROW: Final = 1 << 15  # of one around an assignment
WIDENED: Final = 5  # times twice as large, where rounds are in vain
MIDDLING: Final = 1 << 17  # of one among choices with little excess
SEARCHES: Final = 4  # rounds between those around an assignment
SEARCHES_AMONG_FEW: Final = 2  # and between those among few choices,
SHARES: Final = (1 / 64, 1 / 16, 1 / 4)  # whose excess is at most such a part of the distance to the best plan
MEDIUM: Final = 1 << 19  # of one of what is left, where that is FEW entries
WIDE: Final = 1 << 18  # of one around an assignment, once a proof without plans is at its end
FEW: Final = 1 << 16  # entries of tables that are left, from which on elimination says what is least
EQUAL: Final = 1 + 1e-9
FORBIDDEN: Final = 10.0  # times the best plan's seconds, in place of inf
State: TypeAlias = tuple[Placement, tuple[Placement, ...]]  # of a value: its home, and what is brought besides


class Proof:
    """`upper`: the seconds of the best plan so far. `attempt` plans an assignment, and gives the seconds of the best plan then;
    without it only the bound is sought.
    `effort`: entries of tables to go through. `deadline`: the end in any case, for safety. `rent`: the most that plans pay; what
    is left out is dearer without it, too."""

    def __init__(
        self,
        model: Model,
        upper: float,
        attempt: Callable[[Sequence[int]], float] | None,
        effort: float,
        deadline: float = math.inf,
        rent: float = 0.0,
    ) -> None:
        self.rent = rent
        self.model, self.upper, self.attempt, self.effort, self.deadline = model, upper, attempt, effort, deadline
        self.granted = effort
        prices = model.tables.prices
        assert prices is not None
        self.prices: PriceList = prices
        self.much = FORBIDDEN * upper
        self.alive: list[Any] = [np.arange(n) for n in model.problem.sizes]
        self.terms = {scope: list(terms) for scope, terms in model.tables.terms.items()}
        zeros = {scope: np.zeros([model.problem.sizes[v] for v in scope]) for scope in self.terms}
        self.fixed: dict[Scope, Table] = {**zeros, **model.problem.tables}
        self.seconds = prices.array()
        own = [self._table((v,)) for v in range(len(model.problem.sizes))]
        pairs = {scope: self._table(scope) for scope in self.fixed if len(scope) > 1}
        self.messages = Messages(own, pairs, self._order())
        self.bound, self.few = 0.0, FEW
        self.refined = set[int]()  # variables of sets whose members are all told apart
        self.grouping: dict[int, Grouping] = {}  # of others, as it was last
        self.rounds, self.idle, self.stalled, self.in_vain = 0, 0, 0, 0
        self.tried = set[tuple[int, ...]]()
        self.supposed = SUPPOSED if attempt is not None else 1.0  # of the distance to the best plan; 1 is no supposition
        self.is_watched = True

    @property
    def is_closed(self) -> bool:
        """Whether the bound reaches the best plan."""
        return self.bound * EQUAL >= self.upper

    @property
    def rent_left(self) -> float:
        """The most rent of choices of which plans may cost less than the best one."""
        bound, excess, _ = self.messages.bound()
        kept = self._kept(bound, excess)
        rents = self.model.tables.rents.items()
        return sum(float(costs[self.alive[number][kept[number]]].max(initial=0.0)) for number, costs in rents)

    def _kept(self, bound: float, excess: Excess) -> list[Any]:
        """By variable, the choices whose excess is not more than what the best plan costs beyond the bound, and any rent."""
        slack = (self.upper - bound) * EQUAL + (EQUAL - 1) * self.upper + self.rent
        return [np.flatnonzero(each <= slack) for each in excess]

    def _order(self) -> list[int]:
        """Decisions in the order of the Program, each set of placements behind the first decision that it depends on."""
        count, firsts = len(self.model.decisions), dict[int, int]()
        for scope in self.fixed:
            if scope[-1] >= count and len(scope) > 1:
                firsts[scope[-1]] = min(scope[0], firsts.get(scope[-1], count))
        return sorted(range(len(self.alive)), key=lambda v: (firsts.get(v, v), v))

    def _table(self, scope: Scope) -> Table:
        table = self.fixed[scope]
        for term in self.terms.get(scope, ()):
            seconds = self.seconds[term.numbers]
            seconds = seconds if term.others is None else np.maximum(seconds, self.seconds[term.others])
            table = table + weighted(term.weight, seconds)
        return np.minimum(table, self.much)

    @property
    def is_over(self) -> bool:
        """Whether the bound reaches the best plan or rises no more, or the effort is spent."""
        is_spent = self.effort <= 0 or time.perf_counter() > self.deadline
        return is_spent or self.is_closed or self.idle >= IDLE or self.in_vain >= IN_VAIN

    def run(self, effort: float = math.inf) -> None:
        """Rounds until it is over, or so much more effort is spent."""
        least = self.effort - effort
        while not self.is_over and self.effort > least:
            self._round()
            self.rounds += 1

    def _round(self) -> None:
        self._sweep(FEW_SWEEPS)
        if self.granted > ROUND and (self.rounds or self.messages.bound()[0] < CLOSE * self.upper):
            self._sweep(SWEEPS - FEW_SWEEPS)
        self.effort -= ROUND
        before, upper, size, (bound, excess, parts) = self.bound, self.upper, self.messages.size, self.messages.bound()
        self.bound = max(before, bound)
        self._note()
        if self.is_closed:
            return
        excess, parts = self._leave_out(bound, excess, parts)
        if self.attempt is not None:
            self._improved(excess)
            if self.messages.size <= self.few:
                self._eliminate()
        if self.is_closed or self.effort <= 0:
            return
        is_stalled = self.bound - before < GAIN * (self.upper - self.bound)
        count = self._sharpen(excess, parts, STALLED_TIMES if is_stalled else 1)
        self.stalled = self.stalled + 1 if is_stalled else 0
        self.idle = self.idle + 1 if is_stalled and not count else 0
        is_refined = (self.idle == IDLE or self.stalled == STALLED) and self._refine()
        self.idle, self.stalled = 0 if is_refined else self.idle, self.stalled % STALLED
        is_shorter = self.messages.size < SHORTER * size or self.upper < upper / EQUAL
        self.in_vain = self.in_vain + 1 if is_stalled and not is_refined and not is_shorter else 0
        if self.supposed < 1 and self.bound - before < SLOW * (self.upper - self.bound):
            self._suppose()

    def _sweep(self, times: int) -> None:
        for _ in range(times):
            self.messages.sweep()
        self.effort -= 2 * times * self.messages.size

    def _suppose(self) -> None:
        """Seek a plan that takes little more than the bound: what takes longer is left out meanwhile. It is found, or there is
        none, and the bound is higher."""
        aim = self.bound + self.supposed * (self.upper - self.bound)
        other, seconds = self._supposing(aim)
        other.run()
        self.effort -= other.granted - max(0.0, other.effort)
        self.upper = min([self.upper, *seconds])
        if self.upper <= aim:
            for name in STATE:
                setattr(self, name, getattr(other, name))
            return
        self.supposed = 2 * self.supposed if other.is_closed else 1.0
        self.bound = max(self.bound, aim) if other.is_closed else self.bound
        self.seconds = self.prices.array()
        for scope in self.terms:
            self._reprice(scope)

    def _supposing(self, aim: float) -> tuple[Proof, list[float]]:
        """The same as it is now, as if there were a plan of so many seconds; and what its plans take, once it was run."""
        other, seconds = copy.copy(self), list[float]()

        def attempt(choices: Sequence[int]) -> float:
            assert self.attempt is not None
            seconds.append(self.attempt(choices))
            return seconds[-1]

        other.alive, other.fixed, other.terms = [*self.alive], {**self.fixed}, {s: [*terms] for s, terms in self.terms.items()}
        other.messages, other.refined, other.grouping = self.messages.again(), {*self.refined}, {**self.grouping}
        other.upper, other.supposed, other.attempt, other.is_watched = aim, 1.0, attempt, False
        other.effort = other.granted = SUPPOSED_EFFORT * self.effort
        other.idle, other.stalled, other.in_vain = 0, 0, 0
        return other, seconds

    def _note(self) -> None:
        """For who watches."""
        watch = WATCH.get()
        if watch is not None and self.is_watched:
            watch.proved(self, self.bound, 1 - max(0.0, self.effort) / self.granted if math.isfinite(self.granted) else None)

    def _refine(self) -> bool:
        """Sets of placements as they are best told apart by now; whether that changed anything.

        Every set that is still possible is a choice of its own, where these are few. Else they are grouped by their dearest
        member again, as prices are now that more of them are exact."""
        changed = False
        for sets in self.model.tables.sets:
            if sets.number in self.refined:
                continue
            states = self._states(sets)
            if states is not None:
                self.refined.add(sets.number)
                grouping = self._apart(sets, states)
            else:
                grouping = self._grouped(sets)
                if grouping.is_like(self.grouping.get(sets.number)):
                    continue
                self.grouping[sets.number] = grouping
            self._regroup(sets, grouping)
            changed = True
        return changed

    def _apart(self, sets: Sets, states: Sequence[State]) -> Grouping:
        prices, var = sets.value.prices, sets.value.var
        return grouped([(h, *rest) for h, rest in states], [self.prices.number(prices, var, h, rest) for h, rest in states])

    def _grouped(self, sets: Sets) -> Grouping:
        value, asked = sets.value, dict[Placement, None]()
        for by, demands in sets.uses:
            asked |= dict.fromkeys([p for d in demands.of(self.alive[by.number]) for p in d if not p.partial])
        return by_dearest(self.prices, value, value.homes.of(self.alive[value.maker.number]), list(asked))

    def _regroup(self, sets: Sets, grouping: Grouping) -> None:
        """The variable of the sets gets these choices."""
        self.seconds = self.prices.array()
        at, scope = sets.number, (sets.number,)
        self.alive[at] = np.arange(len(grouping.homes))
        self.fixed[scope], self.terms[scope] = np.zeros(len(grouping.homes)), [Term(sets.weight, grouping.prices)]
        self.messages.own[at] = self._table(scope)
        whole: dict[Scope, Table] = {}
        for pair, table in links(at, sets.value, sets.uses, grouping):
            whole[pair] = table if pair not in whole else whole[pair] + table
        for pair, table in whole.items():
            self.fixed[pair] = table[self.alive[pair[0]]]
            self.messages.replace(pair, self._table(pair))

    def _states(self, sets: Sets) -> list[State] | None:
        """Homes, and what may be asked for together; None where there are too many."""
        value = sets.value
        homes = value.homes.of(self.alive[value.maker.number])
        unions: dict[frozenset[Placement], None] = {frozenset(): None}
        for by, demands in sets.uses:
            asked = [frozenset(p for p in d if not p.partial) for d in demands.of(self.alive[by.number])]
            unions = dict.fromkeys([union | each for union in unions for each in dict.fromkeys(asked)])
            if len(unions) * len(homes) > MOST_STATES or any(len(union) > MOST_TOGETHER for union in unions):
                return None
        states = [(home, union - {home}) for home in homes for union in unions]
        return [(home, tuple(sorted(rest, key=str))) for home, rest in dict.fromkeys(states)]

    def _leave_out(self, bound: float, excess: Excess, parts: Parts) -> tuple[Excess, Parts]:
        """Choices that no plan needs to cost less than the best one; the excess of the others."""
        kept = self._kept(bound, excess)
        if any(len(k) == 0 for k in kept):  # nothing is as cheap: the bound was closed
            self.bound = self.upper
            return excess, parts
        if all(len(k) == len(a) for k, a in zip(kept, self.alive, strict=True)):
            return excess, parts
        self.alive = [a[k] for a, k in zip(self.alive, kept, strict=True)]
        for scope in self.fixed:
            if all(len(kept[v]) == n for v, n in zip(scope, self.fixed[scope].shape, strict=True)):
                continue
            at = np.ix_(*[kept[v] for v in scope])
            self.fixed[scope] = self.fixed[scope][at]
            if scope in self.terms:
                self.terms[scope] = [
                    dataclasses.replace(t, numbers=t.numbers[at], others=None if t.others is None else t.others[at])
                    for t in self.terms[scope]
                ]
        self.messages.keep(kept)
        less = {scope: [part[kept[v]] for v, part in zip(scope, each, strict=True)] for scope, each in parts.items()}
        return [each[k] for each, k in zip(excess, kept, strict=True)], less

    def _plan(self, choices: Sequence[int], cost: float) -> None:
        """Plan an assignment that may be better than the best."""
        key = tuple([int(self.alive[d.number][choices[d.number]]) for d in self.model.decisions])
        if key in self.tried or cost >= self.upper / EQUAL:
            return
        self.tried.add(key)
        assert self.attempt is not None
        self.upper = min(self.upper, self.attempt(key))

    def _improved(self, excess: Excess) -> None:
        """Plan the assignment that the messages suggest, and what elimination finds around it."""
        suggested = self.messages.decoded()
        self._plan(suggested, self.messages.cost(suggested))
        is_last = self.in_vain == IN_VAIN - 1
        if self.rounds % SEARCHES == 0 or is_last:
            for cost, choices in around(self._left(), suggested, NARROW << min(self.in_vain, WIDENED)):
                self._plan(choices, cost)
        if self.rounds % SEARCHES_AMONG_FEW == 1 or is_last:
            self._improved_among_few(suggested, excess)

    def _improved_among_few(self, suggested: Sequence[int], excess: Excess) -> None:
        problem = self._left()
        for share in SHARES:
            if self.is_closed:
                return
            for cost, choices in among_few(problem, suggested, MIDDLING, excess, share * (self.upper - self.bound)):
                self._plan(choices, cost)
            self.effort -= ROUND

    def _sharpen(self, excess: Excess, parts: Parts, times: int) -> int:
        """Exact prices of the entries with least excess; how many."""
        slack, most = (self.upper - self.bound) * EQUAL, times * (SHARPENED + self.messages.size // ENTRIES)
        least, exact = np.full(len(self.seconds), np.inf), self.prices.is_exact[: len(self.seconds)].copy()
        pairs = list[tuple[float, Scope, int, int]]()  # excess, and which entry of which term has two prices that are exact
        for scope, terms in self.terms.items():
            each = (excess[scope[0]] if len(scope) == 1 else self.messages.excess_of(scope, excess, parts)).ravel()
            near = np.flatnonzero(each <= slack)
            for n, term in enumerate(terms):
                numbers = term.numbers.ravel()[near]
                np.minimum.at(least, numbers, each[near])
                if term.others is not None:
                    others = term.others.ravel()[near]
                    np.minimum.at(least, others, each[near])
                    ready = near[(others != FREE) & exact[numbers] & exact[others]]
                    first = ready[np.argsort(each[ready], kind="stable")[:most]]
                    pairs += [(float(each[i]), scope, n, i) for i in first.tolist()]
        least[exact] = np.inf
        first = [int(n) for n in np.argsort(least, kind="stable")[:most] if least[n] <= slack]
        for number in first:
            self.prices.sharpen(number)
        changed = self._sharpen_together(sorted(pairs)[: most - len(first)])
        self.effort -= WALK * (len(first) + len(changed))
        self.seconds = self.prices.array()
        flags = np.zeros(len(self.seconds), bool)
        flags[first] = True
        for scope, terms in self.terms.items():
            if scope in changed or any(flags[t.numbers].any() or (t.others is not None and flags[t.others].any()) for t in terms):
                self._reprice(scope)
        return len(first) + len(changed)

    def _sharpen_together(self, pairs: Sequence[tuple[float, Scope, int, int]]) -> set[Scope]:
        """Exact prices of entries of which two prices are known; the tables that change."""
        for _, scope, n, entry in pairs:
            term = self.terms[scope][n]
            assert term.together is not None
            at = np.unravel_index(entry, term.numbers.shape)
            number = term.together([int(self.alive[v][i]) for v, i in zip(scope, map(int, at), strict=True)])
            if not self.prices.is_exact[number]:
                self.prices.sharpen(number)
            place = tuple(map(int, at))
            term.numbers[place], term.others[place] = number, FREE
        return {scope for _, scope, _, _ in pairs}

    def _reprice(self, scope: Scope) -> None:
        if len(scope) == 1:
            self.messages.own[scope[0]] = self._table(scope)
        else:
            self.messages.pairs[scope] = self._table(scope)

    def in_order(self, steps: float) -> Iterator[tuple[float, list[int] | None]]:
        """(lower bound, assignment) of all that is left, the cheapest first; after so many steps (the bound of the others, None).
        TooWide where that is too much."""
        problem = self._left()
        numbers = [decision.number for decision in self.model.decisions]
        try:
            elimination = Elimination(problem, last=numbers, largest=QUICK)
        except TooWide:
            elimination = Elimination(problem, largest=LARGEST)
        for cost, choices in elimination.in_order(steps):
            yield cost, None if choices is None else [int(self.alive[d.number][choices[d.number]]) for d in self.model.decisions]

    def _left(self) -> Problem:
        """What is left to choose from."""
        problem = Problem()
        for own in self.messages.own:
            problem.variable(own)
        for scope, table in self.messages.pairs.items():
            problem.add(scope, np.where(table >= self.much, np.inf, table))
        return problem

    def without_rent(self) -> Problem:
        """What is left, where the bytes of arguments and results cost nothing."""
        problem = self._left()
        for number, costs in self.model.tables.rents.items():
            problem.tables[number,] = problem.tables[number,] - costs[self.alive[number]]
        return problem

    def _eliminate(self) -> None:
        """Where few choices are left: what they cost at least, exactly, and the plan of the cheapest."""
        self.effort -= ROUND
        try:
            elimination = Elimination(self._left(), largest=MEDIUM)
        except TooWide:
            self.few = self.messages.size // 2
            return
        self.bound = max(self.bound, min(elimination.least, self.upper))
        if math.isfinite(elimination.least):
            self._plan(elimination.best(), elimination.least)

    def suggested(self) -> Iterator[list[int]]:
        """Assignments that are likely to be good, by number of the decision."""
        for cost, choices in around(self._left(), self.messages.decoded(), WIDE):
            if math.isfinite(cost):
                yield [int(self.alive[d.number][choices[d.number]]) for d in self.model.decisions]
