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
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.candidate import rent
from meshjit.plan.automatic.decisions import Decision, Demands, Kind, Value
from meshjit.plan.automatic.eliminate import TooWide
from meshjit.plan.automatic.price_list import FREE, PriceList
from meshjit.plan.automatic.problem import Problem, Scope, Table
from meshjit.plan.automatic.versions import subsets
from meshjit.plan.cost import Machine
from sharding.placement import Placement

TWO: Final = 2  # readers that have a table of their own with the maker
MOST_ENTRIES: Final = 30_000_000  # of tables whose prices are kept by number
MOST_SETS: Final = 600  # of the largest size: of larger ones there are none where there would be more


# of the sets of placements of a value: homes, placements that are there, and the numbers of the prices
Grouping: TypeAlias = tuple[list[Placement], list[frozenset[Placement]], list[int]]


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
    sets: list[Sets] = field(default_factory=list[Any])
    entries: int = 0
    is_whole: bool = True  # whether every set of placements is among the choices

    def decisions(self, decisions: Sequence[Decision], kinds: Mapping[object, Kind], machine: Machine) -> None:
        """What decisions cost by themselves: work, and rent for arguments and results."""
        for kind in kinds.values():
            self.problem.add((kind.decision,), kind.count * kind.costs)
        for decision in [decision for decision in decisions if decision.rents]:
            costs = [rent([decision.vars[0].type], [p], machine) for p in decision.placements]
            self.problem.add((decision.number,), decision.rents * np.array(costs))

    def values(self, values: Mapping[Any, Value]) -> None:
        """What bringing values costs; those with equal tables are counted."""
        counts, firsts = Counter[object](), dict[object, Value]()
        for value in values.values():
            if value.uses:
                counts[value.key] += 1
                firsts.setdefault(value.key, value)
        for key, value in firsts.items():
            uses = list(value.demanded().items())
            fixed = [by for by, demands in uses if len({*demands}) == 1]
            if len(uses) == 1:
                self._pair(value, *uses[0], value.weight * counts[key])
            elif self.prices is not None and len(uses) == TWO and _are_single(value, uses):
                self._pair_of_readers(value, uses, value.weight * counts[key])
            elif len(fixed) == len(uses):
                self._unary(value, tuple(p for _, demands in uses for p in demands[0]), value.weight * counts[key])
            else:
                self._versions(value, uses, value.weight * counts[key])

    def _price(self, value: Value, home: Placement, others: Sequence[Placement]) -> float:
        """Seconds, or the number of the price."""
        return value.prices.seconds(value.var, home, others) if self.prices is None else self._number(value, home, others)

    def _number(self, value: Value, home: Placement, others: Sequence[Placement]) -> int:
        assert self.prices is not None
        return self.prices.number(value.prices, value.var, home, others)

    def _add(self, scope: Scope, table: Table, weight: float) -> None:
        if self.prices is None:
            self.problem.add(scope, weight * table)
            return
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        self._add_term(tuple(scope[i] for i in order), Term(weight, np.ascontiguousarray(np.transpose(table, order))))

    def _add_term(self, scope: Scope, term: Term) -> None:
        self.entries += term.numbers.size
        if self.entries > MOST_ENTRIES:
            raise TooWide(f"tables of {self.entries:,} entries")
        self.terms.setdefault(scope, []).append(term)

    def _unary(self, value: Value, asked: tuple[Placement, ...], weight: float) -> None:
        self._add((value.maker.number,), np.array([self._price(value, home, asked) for home in value.homes]), weight)

    def _pair(self, value: Value, by: Decision, demands: Demands, weight: float) -> None:
        columns = {d: i for i, d in enumerate(dict.fromkeys(demands))}
        rows = {home: i for i, home in enumerate(dict.fromkeys(value.homes))}
        small = np.array([[self._price(value, home, d) for d in columns] for home in rows])
        table = small[np.ix_([rows[home] for home in value.homes], [columns[d] for d in demands])]
        if by is value.maker:
            self._add((by.number,), np.diagonal(table), weight)
        else:
            self._add((value.maker.number, by.number), table, weight)

    def _pair_of_readers(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A table over the maker and both readers. At first the dearer of the two placements counts alone."""
        assert self.prices is not None
        (first, firsts), (second, seconds) = uses
        homes, asked = dict.fromkeys(value.homes), dict.fromkeys(p for d in (*firsts, *seconds) for p in d)
        alone, least = self.prices.matrices(value.prices, value.var, tuple(homes), tuple(asked))
        rows, columns = ({p: i for i, p in enumerate(ps)} for ps in (homes, asked))
        at = np.array([rows[home] for home in value.homes])
        left, right = (np.array([columns[d] for (d,) in demands]) for demands in (firsts, seconds))
        a, b = alone[at][:, left][:, :, None], alone[at][:, right][:, None, :]
        one = (a == FREE) | (b == FREE) | (left[:, None] == right)
        numbers = np.where(one, np.where(a == FREE, b, a), least[at][:, left][:, :, None])
        others = np.where(one, FREE, least[at][:, right][:, None, :])
        scope = (value.maker.number, first.number, second.number)
        order = sorted(range(len(scope)), key=lambda i: scope[i])

        def together(choices: Sequence[int]) -> int:
            by = dict(zip(order, choices, strict=True))
            return self._number(value, value.homes[by[0]], (*firsts[by[1]], *seconds[by[2]]))

        numbers, others = (np.ascontiguousarray(np.transpose(each, order)) for each in (numbers, others))
        self._add_term(tuple(scope[i] for i in order), Term(weight, numbers, others, together))

    def _versions(self, value: Value, uses: Sequence[tuple[Decision, Demands]], weight: float) -> None:
        """A variable for the placements under which a value exists, in the middle between its maker and its uses."""
        homes = list(dict.fromkeys(value.homes))
        asked = list(dict.fromkeys(p for _, demands in uses for d in demands for p in d if not p.partial))
        if self.prices is None:
            sets = [(h, *s) for h in homes for s in self._subsets(h, asked, len(homes), len(uses))]
            have, costs = [frozenset(s) for s in sets], [self._price(value, s[0], s[1:]) for s in sets]
            firsts = [s[0] for s in sets]
        else:
            firsts, have, costs = by_dearest(self.prices, value, homes, asked)
        number = self.problem.variable([0.0] * len(have))
        self._add((number,), np.array(costs), weight)
        self.versions_of[value.key] = number, firsts
        self.sets.append(Sets(number, value, uses, weight))
        for scope, table in links(number, value, uses, firsts, have):
            self.problem.add(scope, table)

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


def by_dearest(prices: PriceList, value: Value, homes: Sequence[Placement], asked: Sequence[Placement]) -> Grouping:
    """All sets of a value in groups by their dearest member, whose price counts alone."""
    firsts, have, costs = list[Placement](), list[frozenset[Placement]](), list[int]()
    among = tuple(asked)
    for home in homes:
        numbers = {p: prices.at_least(value.prices, value.var, home, p, among) for p in asked if p != home}
        order = sorted(numbers, key=lambda p: prices.seconds[numbers[p]])
        firsts += [home] * (len(order) + 1)
        have += [frozenset((home, *order[:n])) for n in range(len(order) + 1)]
        costs += [FREE, *(numbers[p] for p in order)]
    return firsts, have, costs


def _are_single(value: Value, uses: Sequence[tuple[Decision, Demands]]) -> bool:
    """Whether each reader is another decision than the maker, and asks for one placement."""
    return value.maker not in [by for by, _ in uses] and all(len(d) == 1 for _, demands in uses for d in demands)


def links(
    number: int,
    value: Value,
    uses: Sequence[tuple[Decision, Demands]],
    firsts: Sequence[Placement],
    have: Sequence[frozenset[Placement]],
) -> Iterator[tuple[Scope, Table]]:
    """Tables between a variable of sets and decisions: the home is where the value is made, and what is asked for is there."""
    at = {home: np.array([first == home for first in firsts]) for home in dict.fromkeys(value.homes)}
    yield (value.maker.number, number), np.where(np.array([at[home] for home in value.homes]), 0.0, np.inf)
    asked = dict.fromkeys(d for _, demands in uses for d in demands)
    allowed = {d: np.array([have_one.issuperset(d) for have_one in have]) for d in asked}
    for by, demands in uses:
        yield (by.number, number), np.where(np.array([allowed[d] for d in demands]), 0.0, np.inf)
