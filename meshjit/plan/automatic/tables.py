"""The tables of a Model: what its decisions cost by themselves, and what bringing values between them costs.

A value with one reader is a table over who makes and who reads it. One with several has a variable of its own, the set of
placements under which it exists: its home, and what was brought besides (`groupings.py`).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from meshjit.plan.automatic.alike_choices import Alike, Groups, Index, alike_of, common, onto, over
from meshjit.plan.automatic.candidate import rent
from meshjit.plan.automatic.decisions import Decision, Demands, Kind, Value
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.groupings import Sets, added, by_dearest, grouped, links
from meshjit.plan.automatic.price_list import FREE, MOST_ENTRIES, PriceList
from meshjit.plan.automatic.problem import Problem, Scope, Table, weighted
from meshjit.plan.automatic.reached import Entries, whole
from meshjit.plan.automatic.versions import subsets
from meshjit.plan.cost import Machine
from sharding.placement import Placement

TWO: Final = 2  # readers that have a table of their own with the maker,
MOST_OF_READERS: Final = 200_000  # if that has no more entries
MOST_SETS: Final = 600  # of the largest size: of larger ones there are none where there would be more


def few_entries(count: int) -> None:
    """TooWide where these are more than MOST_ENTRIES."""
    if count > MOST_ENTRIES:
        raise TooWide(f"tables of {count:,} entries")


@dataclass(frozen=True, eq=False)
class Term:
    """A part of a table: prices by number, times a weight, with an entry for all choices that are alike. Its axes are those of a
    scope in ascending order. Of entries with a number in `others`, too, the dearer counts: they are bounds on the price of both
    together, whose number `together` gives."""

    weight: float
    numbers: Any
    others: Any = None
    together: Callable[[Sequence[int]], int] | None = None  # by choices of the scope's variables

    def over(self, at: Index) -> Term:
        """The same for other entries, which have those of these places."""
        index = np.ix_(*at)
        return replace(self, numbers=self.numbers[index], others=None if self.others is None else self.others[index])


class Taken(NamedTuple):
    """Parts of tables with prices by number, the others, and which choices of their variables are alike."""

    terms: dict[Scope, list[Term]]
    fixed: dict[Scope, Entries]
    alike: dict[Scope, Alike | None]


@dataclass
class Tables:
    """Fills `problem`. With `prices`, parts that have a price are kept as `terms` and are not in the problem yet, and tables over
    several variables have one entry for all choices that are `alike`."""

    problem: Problem
    versions: int
    prices: PriceList | None = None
    terms: dict[Scope, list[Term]] = field(default_factory=dict[Scope, list[Term]])
    groups: dict[Scope, list[Groups]] = field(default_factory=dict[Scope, list[Groups]])  # of terms over several variables
    allowed: dict[Scope, tuple[Entries, Groups]] = field(default_factory=dict[Scope, Any])  # between sets and decisions
    fixed: dict[Scope, Entries] = field(default_factory=dict[Scope, Any])  # these, in the end
    alike: dict[Scope, Alike | None] = field(default_factory=dict[Scope, "Alike | None"])
    versions_of: dict[object, tuple[int, Sequence[Placement]]] = field(default_factory=dict[object, Any])
    known: dict[object, Any] = field(default_factory=dict[object, Any])  # small tables of prices
    sets: list[Sets] = field(default_factory=list[Any])
    rents: dict[int, Table] = field(default_factory=dict[int, Table])  # by number of the decision
    entries: int = 0  # of terms
    united: int = 0  # of all tables over several variables
    places: int = 0  # in the orders of homes
    is_whole: bool = True  # whether every set of placements is among the choices

    def decisions(self, decisions: Sequence[Decision], kinds: Mapping[object, Kind], machine: Machine) -> None:
        """What decisions cost by themselves: work, and rent for arguments and results."""
        for kind in kinds.values():
            self.problem.add((kind.decision,), kind.count * weighted(kind.weight, kind.effects.costs))
        for decision in [decision for decision in decisions if decision.rents]:
            costs = np.array([rent([decision.vars[0].type], [p], machine) for p in decision.placements])
            self.rents[decision.number] = decision.rents * costs
            self.problem.add((decision.number,), self.rents[decision.number])

    def values(self, values: Mapping[Any, Value]) -> None:
        """What bringing values costs; those with equal tables are counted."""
        counts, firsts = Counter[object](), dict[object, Value]()
        for value in values.values():
            if value.uses:
                key = value.key
                counts[key] += value.count
                firsts.setdefault(key, value)
        for key, value in firsts.items():
            uses = list(value.demanded().items())
            fixed = [by for by, demands in uses if len(demands.different) == 1]
            if len(uses) == 1:
                self._pair(value, *uses[0], value.weight * counts[key])
            elif self.prices is not None and len(uses) == TWO and _are_single(value, uses) and _are_few(value, uses):
                self._pair_of_readers(value, uses, value.weight * counts[key])
            elif len(fixed) == len(uses):
                self._unary(value, tuple(p for _, demands in uses for p in demands[0]), value.weight * counts[key])
            else:
                self._versions(value, uses, value.weight * counts[key])

        self._unite()

    def _unite(self) -> None:
        """The parts of a table over the same choices: those that are alike in each of them."""
        for scope, groups in self.groups.items():
            alike = self._alike(scope, functools.reduce(common, groups))
            self.terms[scope] = [term.over(onto(alike, own)) for term, own in zip(self.terms[scope], groups, strict=True)]
        for scope, (table, groups) in self.allowed.items():
            self.fixed[scope] = over(self._alike(scope, groups), table, groups)
            self.united += self.fixed[scope].size
        self.groups, self.allowed = {}, {}

    def _alike(self, scope: Scope, groups: Groups) -> Alike | None:
        """Which choices of the variables of a table are alike. TooWide where all terms have too many entries."""
        alike = self.alike[scope] = alike_of(groups)
        if scope in self.terms:
            self.united += math.prod(map(len, groups if alike is None else alike.firsts))
            few_entries(self.united)
        return alike

    def take(self) -> Taken:
        """All of them, which are gone from here then: they are large."""
        tables = Taken(self.terms, self.problem.tables | self.fixed, self.alike)
        self.terms, self.fixed, self.problem.tables = {}, {}, {}
        return tables

    def _prices(self, value: Value, asked: tuple[tuple[Placement, ...], ...]) -> Any:
        """By home and what is asked for: seconds, or the numbers of the prices."""
        key = value.prices.kind(value.var), value.homes.different, asked
        prices = self.known.get(key)
        if prices is None:
            prices = self.known[key] = self._worked_out(value, asked)
        return prices

    def _worked_out(self, value: Value, asked: tuple[tuple[Placement, ...], ...]) -> Any:
        homes, by, var = value.homes.different, value.prices, value.var
        if self.prices is None:
            return np.array([[by.seconds(var, home, each) for each in asked] for home in homes])
        numbers = np.empty((len(homes), len(asked)), np.int32)
        single = [i for i, each in enumerate(asked) if len(each) == 1]
        numbers[:, single] = self.prices.numbers(by, var, homes, [asked[i][0] for i in single])
        for i, each in enumerate(asked):
            if len(each) != 1:
                numbers[:, i] = [self.prices.number(by, var, home, each) for home in homes]
        return numbers

    def _add(self, scope: Scope, table: Table, weight: float, groups: Groups) -> None:
        """A part of a table, by groups of choices that are alike in it."""
        if self.prices is None:
            self.problem.add(scope, weighted(weight, table[np.ix_(*groups)]))
        else:
            self._add_term(scope, Term(weight, table), groups)

    def _add_term(self, scope: Scope, term: Term, groups: Groups) -> None:
        """A part of a table over one variable has an entry for each choice."""
        self.entries += term.numbers.size
        few_entries(self.entries)
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        scope, groups = tuple([scope[i] for i in order]), tuple([groups[i] for i in order])
        numbers, others = (None if n is None else np.ascontiguousarray(n.transpose(order)) for n in (term.numbers, term.others))
        term = replace(term, numbers=numbers, others=others)
        self.terms.setdefault(scope, []).append(term if len(scope) > 1 else term.over(groups))
        if len(scope) > 1:
            self.groups.setdefault(scope, []).append(groups)

    def _add_allowed(self, scope: Scope, table: Entries, groups: Groups) -> None:
        """A table between a decision and a variable of sets, whose number is larger."""
        if self.prices is None:
            self.problem.add(scope, whole(table)[np.ix_(*groups)].astype(np.float64))
        else:
            before = self.allowed.get(scope)
            self.allowed[scope] = (table, groups) if before is None else added(before, (table, groups))

    def _unary(self, value: Value, asked: tuple[Placement, ...], weight: float) -> None:
        self._add((value.maker.number,), self._prices(value, (asked,))[:, 0], weight, (value.homes.at,))

    def _pair(self, value: Value, by: Decision, demands: Demands, weight: float) -> None:
        prices, rows, columns = self._prices(value, demands.different), value.homes.at, demands.at
        if by is value.maker:
            self._add((by.number,), prices[rows, columns], weight, (np.arange(len(rows)),))
        else:
            self._add((value.maker.number, by.number), prices, weight, (rows, columns))

    def _pair_of_readers(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A table over the maker and both readers. At first the dearer of the two placements counts alone."""
        assert self.prices is not None
        prices, (first, firsts), (second, seconds) = self.prices, *uses
        few_entries(self.entries + math.prod(len(each.different) for each in (value.homes, firsts, seconds)))
        homes, asked = value.homes, dict.fromkeys(p for d in (*firsts.different, *seconds.different) for p in d)
        whole = tuple(p for p in asked if not p.partial)
        alone, least = (self._numbers(value, tuple(asked), among) for among in ((), whole))
        places = {p: i for i, p in enumerate(asked)}
        left, right = (np.array([places[p] for (p,) in side.different]) for side in (firsts, seconds))
        a, b = alone[:, left][:, :, None], alone[:, right][:, None, :]
        one = (a == FREE) | (b == FREE) | (left[:, None] == right)
        numbers = np.where(one, np.where(a == FREE, b, a), least[:, left][:, :, None])
        others = np.where(one, FREE, least[:, right][:, None, :])
        scope = (value.maker.number, first.number, second.number)
        order = sorted(range(len(scope)), key=lambda i: scope[i])

        def together(choices: Sequence[int]) -> int:
            by = dict(zip(order, choices, strict=True))
            return prices.number(value.prices, value.var, value.homes[by[0]], (*firsts[by[1]], *seconds[by[2]]))

        self._add_term(scope, Term(weight, numbers, others, together), (homes.at, firsts.at, seconds.at))

    def _versions(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A variable for the placements under which a value exists, in the middle between its maker and its uses."""
        homes = value.homes.different
        asked = list(dict.fromkeys(p for _, demands in uses for d in demands.different for p in d if not p.partial))
        if self.prices is None:
            sets = [(h, *s) for h in homes for s in self._subsets(h, asked, len(homes), len(uses))]
            grouping = grouped(sets, [value.prices.seconds(value.var, s[0], s[1:]) for s in sets])
        else:
            self.places += len(homes) * (len(asked) + 1)
            few_entries(self.places)
            grouping = by_dearest(self.prices, value, homes, asked)
        number = self.problem.variable([0.0] * len(grouping.homes))
        self._add((number,), grouping.prices, weight, (np.arange(len(grouping.prices)),))
        self.versions_of[value.key] = number, grouping.homes
        self.sets.append(Sets(number, value, uses, weight))
        for scope, table, groups in links(number, value, uses, grouping):
            self._add_allowed(scope, table, groups)

    def _numbers(self, value: Value, asked: tuple[Placement, ...], among: tuple[Placement, ...]) -> Any:
        """By home and placement that is asked for, the numbers of the prices."""
        assert self.prices is not None
        key = value.prices.kind(value.var), value.homes.different, asked, among
        numbers = self.known.get(key)
        if numbers is None:
            numbers = self.known[key] = self.prices.numbers(value.prices, value.var, value.homes.different, asked, among)
        return numbers

    def _subsets(self, home: Placement, asked: Sequence[Placement], homes: int, uses: int) -> list[tuple[Placement, ...]]:
        most = min(self.versions, uses)
        while most > 1 and homes * math.comb(len(asked), most) > MOST_SETS:
            most -= 1
        self.is_whole = self.is_whole and most >= min(uses, len(asked))
        return subsets([p for p in asked if p != home], most)


def _are_few(value: Value, uses: Sequence[tuple[Decision, Demands]]) -> bool:
    """Whether a table over the maker and both readers is not too large, so that there need be no variable of sets."""
    return math.prod([len(each.different) for each in (value.homes, *[demands for _, demands in uses])]) <= MOST_OF_READERS


def _are_single(value: Value, uses: Sequence[tuple[Decision, Demands]]) -> bool:
    """Whether each reader is another decision than the maker, and asks for one placement."""
    return value.maker not in [by for by, _ in uses] and all(len(d) == 1 for _, demands in uses for d in demands.different)
