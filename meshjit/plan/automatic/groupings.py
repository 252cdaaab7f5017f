"""Sets of placements under which a value with several readers exists, as choices of a variable: its home, and what is brought.

Where prices are lower bounds, sets are grouped by their dearest member, whose price alone counts, so that there are few, whatever
is asked for. With a home they are prefixes of the order in which placements are dear (`reached.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from meshjit.plan.automatic.alike_choices import Groups, common
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.decisions import Decision, Demands, Value
from meshjit.plan.automatic.price_list import FREE, PriceList
from meshjit.plan.automatic.problem import Scope
from meshjit.plan.automatic.reached import NEVER, Entries, Prefixes, Reached, plus, taken
from sharding.placement import Placement

MOST_OF_SETS: Final = 1 << 15  # entries of a table between a reader and sets, where each has one


@dataclass(frozen=True, eq=False)
class Sets:
    """The variable `number`: under which placements a value exists."""

    number: int
    value: Value
    uses: Sequence[tuple[Decision, Demands]]
    weight: float


@dataclass(frozen=True, eq=False)
class Grouping:
    """Sets of placements of a value. By set: its home, and its price, or the number of that; and by placement and set whether it
    is `there`, or where sets are `prefixes`, by placement and home from which on."""

    homes: ByChoice[Placement]
    places: Mapping[Placement, int]
    there: Any
    prices: Any
    prefixes: Prefixes | None = None

    def is_like(self, other: Grouping | None) -> bool:
        return (
            other is not None
            and [*self.homes] == [*other.homes]
            and self.places == other.places
            and np.array_equal(self.there, other.there)
        )

    def holds(self, requests: Sequence[tuple[Placement, ...]]) -> Entries:
        """By request, each for some placements, and set: 0 where they are all in it, inf elsewhere."""
        nowhere = np.full(self.there.shape[1], NEVER if self.prefixes is not None else 0)
        each = [[self.there[self.places[p]] if p in self.places else nowhere for p in asked] for asked in requests]
        if self.prefixes is None:
            return _allowed(np.array([np.all(asked, axis=0) for asked in each]))
        reached = Reached(np.array([np.max(asked, axis=0) for asked in each]), self.prefixes)
        return reached if math.prod(reached.shape) > MOST_OF_SETS else reached.whole()


def grouped(sets: Sequence[tuple[Placement, ...]], prices: Sequence[float]) -> Grouping:
    """Sets as they are, each with its home first."""
    places = {p: i for i, p in enumerate(dict.fromkeys(p for each in sets for p in each))}
    there = np.zeros((len(places), len(sets)), bool)
    for i, each in enumerate(sets):
        there[[places[p] for p in each], i] = True
    return Grouping(ByChoice(each[0] for each in sets), places, there, np.array(prices))


def by_dearest(prices: PriceList, value: Value, homes: Sequence[Placement], asked: Sequence[Placement]) -> Grouping:
    """All sets of a value in groups by their dearest member, whose price counts alone."""
    numbers = prices.numbers(value.prices, value.var, homes, asked, tuple(asked))
    places = {p: i for i, p in enumerate(dict.fromkeys([*homes, *asked]))}
    needs, costs = np.full((len(places), len(homes)), NEVER), list[Any]()
    for at, (home, own) in enumerate(zip(homes, numbers, strict=True)):
        others = np.flatnonzero([p != home for p in asked])
        others = others[np.argsort(prices.seconds[own[others]], kind="stable")]
        needs[[places[asked[i]] for i in others], at] = np.arange(1, len(others) + 1)
        needs[places[home], at] = 0
        costs.append(np.append(FREE, own[others]))
    lengths = [len(each) for each in costs]
    prefixes = Prefixes(np.repeat(np.arange(len(homes)), lengths), np.concatenate([np.arange(n) for n in lengths]))
    firsts = ByChoice(home for home, length in zip(homes, lengths, strict=True) for _ in range(length))
    return Grouping(firsts, places, needs, np.concatenate(costs), prefixes)


def links(
    number: int, value: Value, uses: Sequence[tuple[Decision, Demands]], sets: Grouping
) -> Iterator[tuple[Scope, Entries, Groups]]:
    """Tables between a variable of sets and decisions, by groups of choices that are alike: the home is where the value is made,
    and what is asked for is there. They are many and large, and hold 0 and inf alone, so they are float32."""
    made, count = {home: i for i, home in enumerate(value.homes.different)}, len(sets.homes)
    homes = np.array([made[home] for home in sets.homes.different], np.intp)
    yield (value.maker.number, number), _allowed(np.arange(len(made))[:, None] == homes), (value.homes.at, sets.homes.at)
    for by, demands in uses:
        yield (by.number, number), sets.holds(demands.different), (demands.at, np.arange(count))


def added(first: tuple[Entries, Groups], second: tuple[Entries, Groups]) -> tuple[Entries, Groups]:
    """The sum of two tables over groups of the same choices."""
    groups = common(first[1], second[1])
    firsts = [np.unique(group, return_index=True)[1] for group in groups]
    tables = [taken(table, tuple([g[at] for g, at in zip(own, firsts, strict=True)])) for table, own in (first, second)]
    return plus(*tables), groups


def _allowed(flags: Any) -> Any:
    return np.where(flags, np.float32(0), np.float32(np.inf))
