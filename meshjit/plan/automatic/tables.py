"""The tables of a Model: what its decisions cost by themselves, and what bringing values between them costs.

A value with one reader is a table over who makes and who reads it. One with several has a variable of its own, the set of
placements under which it exists: its home, and what was brought besides. Where prices are lower bounds, sets are grouped by their
dearest member, whose price alone counts, so that there are few, whatever is asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from meshjit.plan.automatic.alike_choices import Groups, common
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.candidate import rent
from meshjit.plan.automatic.decisions import Decision, Demands, Kind, Value
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.price_list import FREE, PriceList
from meshjit.plan.automatic.problem import Problem, Scope, Table, weighted
from meshjit.plan.automatic.versions import subsets
from meshjit.plan.cost import Machine
from sharding.placement import Placement

TWO: Final = 2  # readers that have a table of their own with the maker
MOST_ENTRIES: Final = 30_000_000  # of tables whose prices are kept by number
BOOLS: Final = 8  # take the bytes of an entry
MOST_SETS: Final = 600  # of the largest size: of larger ones there are none where there would be more


def few_entries(count: int) -> None:
    """TooWide where these are more than MOST_ENTRIES."""
    if count > MOST_ENTRIES:
        raise TooWide(f"tables of {count:,} entries")


@dataclass(frozen=True, eq=False)
class Grouping:
    """Sets of placements of a value. By set: its home, and its price, or the number of that; by set and placement, whether it is
    there."""

    homes: ByChoice[Placement]
    places: Mapping[Placement, int]
    have: Any
    prices: Any

    def is_like(self, other: Grouping | None) -> bool:
        return (
            other is not None
            and [*self.homes] == [*other.homes]
            and self.places == other.places
            and np.array_equal(self.have, other.have)
        )


@dataclass(frozen=True, eq=False)
class Term:
    """A part of a table: prices by number, times a weight. Its axes are those of a scope in ascending order. Of entries with a
    number in `others`, too, the dearer counts: they are bounds on the price of both together, whose number `together` gives."""

    weight: float
    numbers: Any
    others: Any = None
    together: Callable[[Sequence[int]], int] | None = None  # by choices of the scope's variables


@dataclass
class Tables:
    """Fills `problem`. With `prices`, parts that have a price are kept as `terms` and are not in the problem yet."""

    problem: Problem
    versions: int
    prices: PriceList | None = None
    terms: dict[Scope, list[Term]] = field(default_factory=dict[Scope, list[Term]])
    versions_of: dict[object, tuple[int, Sequence[Placement]]] = field(default_factory=dict[object, Any])
    known: dict[object, Any] = field(default_factory=dict[object, Any])  # small tables of prices
    sets: list[Sets] = field(default_factory=list[Any])
    groups: dict[Scope, Groups] = field(default_factory=dict[Scope, Groups])  # of choices that are alike
    rents: dict[int, Table] = field(default_factory=dict[int, Table])  # by number of the decision
    entries: int = 0
    links: int = 0  # entries of tables between sets of placements, and decisions
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
            elif self.prices is not None and len(uses) == TWO and _are_single(value, uses):
                self._pair_of_readers(value, uses, value.weight * counts[key])
            elif len(fixed) == len(uses):
                self._unary(value, tuple(p for _, demands in uses for p in demands[0]), value.weight * counts[key])
            else:
                self._versions(value, uses, value.weight * counts[key])

    def take(self) -> tuple[dict[Scope, list[Term]], dict[Scope, Table]]:
        """All terms, and the tables of the problem, which are gone from here then: they are large."""
        terms, self.terms = self.terms, {}
        fixed, self.problem.tables = self.problem.tables, {}
        return terms, fixed

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
        if self.prices is None:
            self.problem.add(scope, weighted(weight, table))
            return
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        term = Term(weight, np.ascontiguousarray(np.transpose(table, order)))
        self._add_term(tuple(scope[i] for i in order), term, tuple(groups[i] for i in order))

    def _add_term(self, scope: Scope, term: Term, groups: Groups) -> None:
        self.entries += term.numbers.size
        few_entries(self.entries)
        self.terms.setdefault(scope, []).append(term)
        self._group(scope, groups)

    def _group(self, scope: Scope, groups: Groups) -> None:
        """A part of a table for which these choices are alike."""
        if len(scope) > 1:
            before = self.groups.get(scope)
            self.groups[scope] = groups if before is None else common(before, groups)

    def _unary(self, value: Value, asked: tuple[Placement, ...], weight: float) -> None:
        self._add((value.maker.number,), self._prices(value, (asked,))[value.homes.at, 0], weight, (value.homes.at,))

    def _pair(self, value: Value, by: Decision, demands: Demands, weight: float) -> None:
        prices, rows, columns = self._prices(value, demands.different), value.homes.at, demands.at
        if by is value.maker:
            self._add((by.number,), prices[rows, columns], weight, (rows,))
        else:
            self._add((value.maker.number, by.number), prices[rows[:, None], columns], weight, (rows, columns))

    def _pair_of_readers(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A table over the maker and both readers. At first the dearer of the two placements counts alone."""
        assert self.prices is not None
        prices, (first, firsts), (second, seconds) = self.prices, *uses
        few_entries(self.entries + math.prod(len(each.at) for each in (value.homes, firsts, seconds)))
        homes, asked = value.homes, dict.fromkeys(p for d in (*firsts.different, *seconds.different) for p in d)
        whole = tuple(p for p in asked if not p.partial)
        alone, least = (self._numbers(value, tuple(asked), among) for among in ((), whole))
        places = {p: i for i, p in enumerate(asked)}
        left, right = (np.array([places[p] for (p,) in side.different])[side.at] for side in (firsts, seconds))
        alone, least = alone[homes.at], least[homes.at]
        a, b = alone[:, left][:, :, None], alone[:, right][:, None, :]
        one = (a == FREE) | (b == FREE) | (left[:, None] == right)
        numbers = np.where(one, np.where(a == FREE, b, a), least[:, left][:, :, None])
        others = np.where(one, FREE, least[:, right][:, None, :])
        scope = (value.maker.number, first.number, second.number)
        order = sorted(range(len(scope)), key=lambda i: scope[i])

        def together(choices: Sequence[int]) -> int:
            by = dict(zip(order, choices, strict=True))
            return prices.number(value.prices, value.var, value.homes[by[0]], (*firsts[by[1]], *seconds[by[2]]))

        numbers, others = (np.ascontiguousarray(np.transpose(each, order)) for each in (numbers, others))
        groups = homes.at, firsts.at, seconds.at
        term = Term(weight, numbers, others, together)
        self._add_term(tuple(scope[i] for i in order), term, tuple(groups[i] for i in order))

    def _versions(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A variable for the placements under which a value exists, in the middle between its maker and its uses."""
        homes = value.homes.different
        asked = list(dict.fromkeys(p for _, demands in uses for d in demands.different for p in d if not p.partial))
        if self.prices is None:
            sets = [(h, *s) for h in homes for s in self._subsets(h, asked, len(homes), len(uses))]
            grouping = grouped(sets, [value.prices.seconds(value.var, s[0], s[1:]) for s in sets])
        else:
            sets = len(homes) * (len(asked) + 1)
            self.links += sets * sum([len(each.at) for each in (value.homes, *[demands for _, demands in uses])])
            few_entries(max(self.links, sets * (len(homes) + len(asked)) // BOOLS))
            grouping = by_dearest(self.prices, value, homes, asked)
        number = self.problem.variable([0.0] * len(grouping.homes))
        self._add((number,), grouping.prices, weight, (grouping.homes.at,))
        self.versions_of[value.key] = number, grouping.homes
        self.sets.append(Sets(number, value, uses, weight))
        for scope, table, groups in links(number, value, uses, grouping):
            self.problem.add(scope, table.astype(np.float64) if self.prices is None else table)
            self._group(scope, groups)

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


@dataclass(frozen=True, eq=False)
class Sets:
    """The variable `number`: under which placements a value exists."""

    number: int
    value: Value
    uses: Sequence[tuple[Decision, Demands]]
    weight: float


def grouped(sets: Sequence[tuple[Placement, ...]], prices: Sequence[float]) -> Grouping:
    """Sets as they are, each with its home first."""
    places = {p: i for i, p in enumerate(dict.fromkeys(p for each in sets for p in each))}
    have = np.zeros((len(sets), len(places)), bool)
    for row, each in zip(have, sets, strict=True):
        row[[places[p] for p in each]] = True
    return Grouping(ByChoice(each[0] for each in sets), places, have, np.array(prices))


def by_dearest(prices: PriceList, value: Value, homes: Sequence[Placement], asked: Sequence[Placement]) -> Grouping:
    """All sets of a value in groups by their dearest member, whose price counts alone."""
    numbers = prices.numbers(value.prices, value.var, homes, asked, tuple(asked))
    places = {p: i for i, p in enumerate(dict.fromkeys([*homes, *asked]))}
    firsts, have, costs = list[Placement](), list[Any](), list[Any]()
    for home, own in zip(homes, numbers, strict=True):
        others = np.flatnonzero([p != home for p in asked])
        others = others[np.argsort(prices.seconds[own[others]], kind="stable")]
        among = np.zeros((len(others) + 1, len(places)), bool)
        among[:, [places[asked[i]] for i in others]] = np.tri(len(others) + 1, len(others), -1, bool)
        among[:, places[home]] = True
        firsts += [home] * len(among)
        have.append(among)
        costs.append(np.append(FREE, own[others]))
    return Grouping(ByChoice(firsts), places, np.concatenate(have), np.concatenate(costs))


def _are_single(value: Value, uses: Sequence[tuple[Decision, Demands]]) -> bool:
    """Whether each reader is another decision than the maker, and asks for one placement."""
    return value.maker not in [by for by, _ in uses] and all(len(d) == 1 for _, demands in uses for d in demands.different)


def links(
    number: int, value: Value, uses: Sequence[tuple[Decision, Demands]], sets: Grouping
) -> Iterator[tuple[Scope, Table, Groups]]:
    """Tables between a variable of sets and decisions: the home is where the value is made, and what is asked for is there. They
    are many and large, and hold 0 and inf alone, so they are float32."""
    made = {home: i for i, home in enumerate(value.homes.different)}
    homes = np.array([made[home] for home in sets.homes.different], np.intp)[sets.homes.at]
    yield (value.maker.number, number), _allowed(value.homes.at[:, None] == homes), (value.homes.at, homes)
    for by, demands in uses:
        there = np.array([_there(sets, each) for each in demands.different])
        yield (by.number, number), _allowed(there)[demands.at], (demands.at, np.arange(len(homes)))


def _allowed(flags: Any) -> Any:
    return np.where(flags, np.float32(0), np.float32(np.inf))


def _there(sets: Grouping, asked: Sequence[Placement]) -> Any:
    """In which of the sets all of these placements are."""
    if not all(p in sets.places for p in asked):
        return np.zeros(len(sets.have), bool)
    return sets.have[:, [sets.places[p] for p in asked]].all(axis=1)
