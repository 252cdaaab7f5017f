"""The choices of a Model that a proof has not left out, with the tables between them, and what these say to one another.

Prices are lower bounds at first, and made exact where an entry has little excess. Variables are those of the Model; a choice has
the number that it has among those that are left:

    alive {x: [0, 3, 4]}     choice 1 of x is choice 3 of the Model
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from meshjit.plan.automatic.alike_choices import Index
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.groupings import Grouping
from meshjit.plan.automatic.messages import Excess, Messages, Parts
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.price_list import FREE, PriceList
from meshjit.plan.automatic.problem import Problem, Scope, weighted
from meshjit.plan.automatic.reached import Reached, taken
from meshjit.plan.automatic.tables import Term

FORBIDDEN: Final = 10.0  # times the best plan's seconds, in place of inf
MOST_ENTRIES: Final = 1 << 26  # of tables that have one for each choice: 512 MiB


class Left:
    """`upper`: the seconds of a plan that is there; tables have no entry that is much more. The tables of the Model are
    taken from it."""

    def __init__(self, model: Model, upper: float) -> None:
        prices = model.tables.prices
        assert prices is not None
        self.model, self.much = model, FORBIDDEN * upper
        self.prices: PriceList = prices
        self.alive: list[Any] = [np.arange(n) for n in model.problem.sizes]
        self.terms, self.fixed, alike = model.tables.take()  # parts with prices by number, and the others
        self.seconds = prices.array()
        own = [self.table((v,)) for v in range(len(model.problem.sizes))]
        pairs = {scope: self.table(scope) for scope in self._scopes() if len(scope) > 1}
        self.messages = Messages(own, pairs, self._order(), alike)
        self.fixed |= {scope: table for scope, table in pairs.items() if self._is_shared(scope)}
        self.refined = set[int]()  # variables of sets whose members are all told apart
        self.grouping: dict[int, Grouping] = {}  # of others, as it was last

    def again(self) -> Left:
        """The same as it is now, to go on apart."""
        other = copy.copy(self)
        other.alive, other.fixed, other.terms = [*self.alive], {**self.fixed}, {s: [*terms] for s, terms in self.terms.items()}
        other.messages, other.refined, other.grouping = self.messages.again(), {*self.refined}, {**self.grouping}
        return other

    def _scopes(self) -> list[Scope]:
        return [*self.terms, *[scope for scope in self.fixed if scope not in self.terms]]

    def _order(self) -> list[int]:
        """Decisions in the order of the Program, each set of placements behind the first decision that it depends on."""
        count, firsts = len(self.model.decisions), dict[int, int]()
        for scope in self._scopes():
            if scope[-1] >= count and len(scope) > 1:
                firsts[scope[-1]] = min(scope[0], firsts.get(scope[-1], count))
        return sorted(range(len(self.alive)), key=lambda v: (firsts.get(v, v), v))

    @property
    def size(self) -> int:
        """Numbers of all tables that are gone through."""
        return self.messages.size

    def _is_shared(self, scope: Scope) -> bool:
        """Whether a fixed table is that of the messages, too: one without prices is."""
        return scope in self.messages.pairs and scope not in self.terms

    def of_model(self, choices: Mapping[int, int] | Sequence[int]) -> list[int]:
        """An assignment as the Model numbers choices, by number of the decision."""
        return [int(self.alive[d.number][choices[d.number]]) for d in self.model.decisions]

    def problem(self, kept: Sequence[Any] | None = None) -> Problem:
        """What is left to choose from; by variable, these choices alone. TooWide where tables would be larger than memory."""
        problem, entries = Problem(), self.messages.entries(self.alive if kept is None else kept)
        if entries > MOST_ENTRIES:
            raise TooWide(f"tables of {entries:,} entries")
        for v, own in enumerate(self.messages.own):
            problem.variable(own if kept is None else own[kept[v]])
        for scope in self.messages.pairs:
            table = self.messages.table(scope, kept).astype(np.float64, copy=False)
            problem.add(scope, np.where(table >= self.much, np.inf, table))
        return problem

    def without_rent(self) -> Problem:
        """What is left, where the bytes of arguments and results cost nothing."""
        problem = self.problem()
        for number, costs in self.model.tables.rents.items():
            problem.tables[number,] = problem.tables[number,] - costs[self.alive[number]]
        return problem

    def rent(self, kept: Sequence[Any]) -> float:
        """The most that is paid where these choices are kept."""
        rents = self.model.tables.rents.items()
        return sum(float(costs[self.alive[number][kept[number]]].max(initial=0.0)) for number, costs in rents)

    def keep(self, kept: Sequence[Any], excess: Excess, parts: Parts) -> tuple[Excess, Parts]:
        """Leave out all but these choices; the excess of those."""
        if all(len(k) == len(a) for k, a in zip(kept, self.alive, strict=True)):
            return excess, parts
        smaller: dict[Scope, Index] = {(v,): (own,) for v, own in enumerate(kept) if len(own) < len(self.alive[v])}
        self.alive = [a[k] for a, k in zip(self.alive, kept, strict=True)]
        shared = [scope for scope in self.fixed if self._is_shared(scope)]
        smaller |= self.messages.keep(kept)
        self.fixed |= {scope: self.messages.pairs[scope] for scope in shared}
        for scope, at in smaller.items():
            if scope in self.fixed and scope not in shared:
                self.fixed[scope] = taken(self.fixed[scope], at)
            if scope in self.terms:
                self.terms[scope] = [term.over(at) for term in self.terms[scope]]
        less = {scope: [part[kept[v]] for v, part in zip(scope, each, strict=True)] for scope, each in parts.items()}
        return [each[k] for each, k in zip(excess, kept, strict=True)], less

    def forget_prices(self) -> None:
        """Keep only what is asked for once a proof is over: the tables as they are."""
        self.terms, self.fixed = {}, {}

    # --- prices -------------------------------------------------------------------------------------------------------

    def table(self, scope: Scope) -> Any:
        """What choices cost together, by the prices as they are now, with one entry for those that are alike."""
        table: Any = self.fixed.get(scope, 0.0)
        if isinstance(table, Reached):
            return table.capped(self.much)
        for term in self.terms.get(scope, ()):
            seconds = self.seconds[term.numbers]
            seconds = seconds if term.others is None else np.maximum(seconds, self.seconds[term.others])
            table = table + weighted(term.weight, seconds)
        return np.minimum(table, self.much)

    def reprice(self) -> None:
        """All tables by the prices as they are now."""
        self.seconds = self.prices.array()
        for scope in self.terms:
            self._reprice(scope)

    def _reprice(self, scope: Scope) -> None:
        if len(scope) == 1:
            self.messages.own[scope[0]] = self.table(scope)
        else:
            self.messages.change(scope, self.table(scope))

    def sharpen(self, excess: Excess, parts: Parts, slack: float, most: int) -> int:
        """Exact prices of at most so many of the entries with least excess, of those that have no more than `slack`; how many."""
        least, exact = np.full(len(self.seconds), np.inf), self.prices.is_exact[: len(self.seconds)].copy()
        pairs = list[tuple[float, Scope, int, int]]()  # excess, and which entry of which term has two prices that are exact
        has_bounds = not exact.all()
        for scope, terms in self.terms.items():
            if not has_bounds and all(term.others is None for term in terms):
                continue
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
        self._reprice_those(first, changed)
        return len(first) + len(changed)

    def sharpen_those_of(self, choices: Sequence[int]) -> int:
        """Exact prices of one assignment; how many were bounds."""
        numbers, pairs = set[int](), list[tuple[float, Scope, int, int]]()
        for scope, terms in self.terms.items():
            at = self.messages.at(scope, choices)
            for n, term in enumerate(terms):
                if term.others is not None and term.others[at] != FREE:
                    pairs.append((0.0, scope, n, int(np.ravel_multi_index(at, term.numbers.shape))))
                elif not self.prices.is_exact[term.numbers[at]]:
                    numbers.add(int(term.numbers[at]))
        for number in sorted(numbers):
            self.prices.sharpen(number)
        self._reprice_those(sorted(numbers), self._sharpen_together(pairs))
        return len(numbers) + len(pairs)

    @property
    def are_told_apart(self) -> bool:
        """Whether all sets of placements are."""
        return all(sets.number in self.refined for sets in self.model.tables.sets)

    def _reprice_those(self, numbers: Sequence[int], changed: Collection[Scope]) -> None:
        """The tables that have any of these prices, and those that changed."""
        self.seconds = self.prices.array()
        flags = np.zeros(len(self.seconds), bool)
        flags[numbers] = True
        for scope, terms in self.terms.items():
            if scope in changed or any(_has(term, flags) for term in terms):
                self._reprice(scope)

    def inexact(self, excess: Excess, parts: Parts, slack: float) -> int:
        """How many prices of entries with so much excess are bounds."""
        exact, near = self.prices.is_exact[: len(self.seconds)], np.zeros(len(self.seconds), bool)
        for scope, terms in self.terms.items():
            each = (excess[scope[0]] if len(scope) == 1 else self.messages.excess_of(scope, excess, parts)).ravel()
            for term in terms:
                near[term.numbers.ravel()[each <= slack]] = True
        return int((near & ~exact).sum())

    def _sharpen_together(self, pairs: Sequence[tuple[float, Scope, int, int]]) -> set[Scope]:
        """Exact prices of entries of which two prices are known; the tables that change."""
        for _, scope, n, entry in pairs:
            term = self.terms[scope][n]
            assert term.together is not None
            at = np.unravel_index(entry, term.numbers.shape)
            number = term.together(self._choices(scope, at))
            if not self.prices.is_exact[number]:
                self.prices.sharpen(number)
            term.numbers[at], term.others[at] = number, FREE
        return {scope for _, scope, _, _ in pairs}

    def _choices(self, scope: Scope, at: Sequence[Any]) -> list[int]:
        """Those of the Model that lead to an entry; of several that are alike, the first."""
        alike = self.messages.alike[scope]
        own = at if alike is None else [first[i] for first, i in zip(alike.firsts, at, strict=True)]
        return [int(self.alive[v][i]) for v, i in zip(scope, own, strict=True)]


def _has(term: Term, flags: Any) -> bool:
    """Whether a part of a table has any of the prices whose numbers are flagged."""
    return bool(flags[term.numbers].any() or (term.others is not None and flags[term.others].any()))
