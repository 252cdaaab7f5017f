"""Prices of versions of values by number: lower bounds at first, exact where somebody asks.

    number 7: %w f32[8, 4], made at [x, -], asked for at [-, -] and [-, x]        0.2 ms, at least
    sharpen(7)                                                                    0.31 ms, exactly
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.core.program import Var
from meshjit.plan.automatic.floors import Floors
from meshjit.plan.automatic.problem import Table
from meshjit.plan.automatic.versions import VersionPrices, besides
from meshjit.plan.cost import Machine
from sharding.placement import Placement

Asked: TypeAlias = tuple[VersionPrices, Var, Placement, tuple[Placement, ...], Sequence[Placement]]  # the last: by way of any
FREE: Final = 0
NEVER: Final = 1  # the numbers of the prices 0 and inf


class PriceList:
    """`seconds` and `is_exact` by number. What is asked for is never dearer than its price. `stays`: lower bounds are not made
    exact, and count as if they were."""

    def __init__(self, machine: Machine, stays: bool = False, floors: Floors | None = None) -> None:
        self.floors, self.stays = floors or Floors(machine), stays
        self.seconds = [0.0, math.inf]
        self.is_exact = [True, True]
        self.numbers: dict[object, int] = {}
        self.groups: dict[tuple[Placement, ...], int] = {}
        self.tables: dict[object, tuple[Any, Any]] = {}
        self.asked: list[Asked | None] = [None, None]

    def number(self, prices: VersionPrices, var: Var, home: Placement, others: Sequence[Placement]) -> int:
        """The price of having a value that is made at `home` under all of `others`, too."""
        elsewhere = besides(home, others)
        if not elsewhere:
            return FREE
        if any(p.partial for p in elsewhere):
            return NEVER
        key = prices.key(var, home, elsewhere)
        number = self.numbers.get(key)
        if number is None:
            floor = 0.0 if var in prices.makers else self.floors.seconds(var.type, home, elsewhere)
            number = self.numbers[key] = self._add(floor, (prices, var, home, elsewhere, ()))
        return number

    def at_least(self, prices: VersionPrices, var: Var, home: Placement, other: Placement, asked: tuple[Placement, ...]) -> int:
        """A price below that of having the value under `other` and any more of the placements that are asked for."""
        key = prices.key(var, home, (other,)), self.groups.setdefault(asked, len(self.groups))
        number = self.numbers.get(key)
        if number is None:
            floor = 0.0 if var in prices.makers else self.floors.seconds(var.type, home, (other,))
            number = self.numbers[key] = self._add(floor, (prices, var, home, (other,), asked))
        return number

    def matrices(
        self, prices: VersionPrices, var: Var, homes: tuple[Placement, ...], asked: tuple[Placement, ...]
    ) -> tuple[Any, Any]:
        """By home and placement that is asked for: the number of its price alone, and of that with any others."""
        key = prices.key(var, homes[0], ()), homes, asked
        both = self.tables.get(key)
        if both is None:
            alone = [[self.number(prices, var, home, (p,)) for p in asked] for home in homes]
            whole = tuple(p for p in asked if not p.partial)
            among = [[n if n <= NEVER else self.at_least(prices, var, home, p, whole) for p, n in zip(asked, row, strict=True)]
                     for home, row in zip(homes, alone, strict=True)]  # fmt: skip
            both = self.tables[key] = np.array(alone), np.array(among)
        return both

    def _add(self, floor: float, asked: Asked) -> int:
        self.seconds.append(floor)
        self.is_exact.append(self.stays)
        self.asked.append(asked)
        return len(self.seconds) - 1

    def sharpen(self, number: int) -> None:
        """Find the exact price."""
        asked = self.asked[number]
        assert asked is not None and not self.is_exact[number]
        prices, var, home, others, by_way_of = asked
        exact = prices.seconds(var, home, others)
        for between in by_way_of:
            if between not in (home, *others):
                exact = min(exact, self._by_way_of(prices, var, home, between, others[0], exact))
        floor = self.seconds[number]
        assert exact >= floor * (1 - 1e-9), f"{var.type}: {home} -> {others} takes {exact}, and the bound is {floor}"
        self.seconds[number], self.is_exact[number] = exact, True

    def _by_way_of(
        self, prices: VersionPrices, var: Var, home: Placement, between: Placement, other: Placement, most: float
    ) -> float:
        """Seconds to another placement by way of one that the walk there may not pass; inf where that is clearly dearer."""
        floors = [0.0] * 2
        if var not in prices.makers:
            floors = [self.floors.seconds(var.type, *pair) for pair in ((home, (between,)), (between, (other,)))]
        if sum(floors) >= most:
            return math.inf
        first = prices.seconds(var, home, (between,))
        return math.inf if first + floors[1] >= most else first + prices.seconds(var, between, (other,))

    def array(self) -> Table:
        return np.array(self.seconds)
