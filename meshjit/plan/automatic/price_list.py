"""Prices of versions of values by number: lower bounds at first, exact where somebody asks.

    number 7: %w f32[8, 4], made at [x, -], asked for at [-, -] and [-, x]        0.2 ms, at least
    sharpen(7)                                                                    0.31 ms, exactly
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.core.program import Var
from meshjit.plan.automatic.floors import Floors
from meshjit.plan.automatic.problem import Table
from meshjit.plan.automatic.versions import VersionPrices, besides
from meshjit.plan.cost import Machine
from sharding.mesh import BaseMesh
from sharding.placement import Placement

Asked: TypeAlias = tuple[VersionPrices, Var, Placement, tuple[Placement, ...], Sequence[Placement]]  # the last: by way of any
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
FREE: Final = 0
NEVER: Final = 1  # the numbers of the prices 0 and inf
UNKNOWN: Final = -1
MOST_ENTRIES: Final = 30_000_000
FEW_AXES: Final = 2  # of several devices; on more, ways between two placements take long to find,
MOST_OF_MANY_AXES: Final = 3_000_000  # so that tables of a GPT of two layers on 4x2x2, 7,500,000 entries, take 20 s to fill


def axes_beyond_few(mesh: BaseMesh) -> int:
    """How many axes of several devices there are besides FEW_AXES."""
    return max(0, len([size for size in mesh.axis_sizes if size > 1]) - FEW_AXES)


def has_many_axes(machine: Machine) -> bool:
    """Whether ways between placements take long to find."""
    return axes_beyond_few(machine.mesh) > 0


class Grid:
    """Numbers of prices by home and other placement, of values that cost the same to bring; UNKNOWN where nobody asked."""

    def __init__(self) -> None:
        self.places: dict[Placement, int] = {}
        self.numbers = np.full((0, 0), UNKNOWN, np.int32)

    def at(self, homes: Sequence[Placement], others: Sequence[Placement]) -> tuple[Any, Any]:
        """Indices of rows and of columns."""
        places = self.places
        rows, columns = ([places.setdefault(p, len(places)) for p in side] for side in (homes, others))
        if len(places) > len(self.numbers):
            before, room = self.numbers, 2 * len(places)
            self.numbers = np.full((room, room), UNKNOWN, np.int32)
            self.numbers[: len(before), : len(before)] = before
        return np.array(rows, np.intp)[:, None], np.array(columns, np.intp)


@dataclass(frozen=True, eq=False)
class Block:
    """What the numbers from `first` on are the prices of: of one value, from some of `homes` to some of the `others`, `pairs` of
    their numbers."""

    first: int
    prices: VersionPrices
    var: Var
    homes: Sequence[Placement]
    others: Sequence[Placement]
    pairs: tuple[Any, Any]
    among: Sequence[Placement]

    def asked(self, number: int) -> Asked:
        home, other = (int(side[number - self.first]) for side in self.pairs)
        return self.prices, self.var, self.homes[home], (self.others[other],), self.among


class PriceList:
    """`seconds` and `is_exact` by number. What is asked for is never dearer than its price. `stays`: lower bounds are not made
    exact, and count as if they were. `most`: entries of tables that may have such prices."""

    def __init__(self, machine: Machine, stays: bool = False, floors: Floors | None = None) -> None:
        self.floors, self.stays = floors or Floors(machine), stays
        self.most = MOST_OF_MANY_AXES if has_many_axes(machine) and not stays else MOST_ENTRIES
        self.count = 2
        self.seconds, self.is_exact = np.array([0.0, math.inf]), np.array([True, True])  # and room for more
        self.numbers_of: dict[object, int] = {}  # of having a value under several placements
        self.groups: dict[tuple[Placement, ...], int] = {}
        self.grids: dict[object, Grid] = {}
        self.bounds: dict[object, float] = {}  # on bringing a value from one placement to another
        self.ways: dict[object, Table] = {}  # bounds on bringing values to and from groups of placements
        self.betweens: dict[object, Table] = {}  # from each of a group to each
        self.asked: list[Asked | Block | None] = [None, None]

    def number(self, prices: VersionPrices, var: Var, home: Placement, others: Sequence[Placement]) -> int:
        """The price of having a value that is made at `home` under all of `others`, too."""
        elsewhere = besides(home, others)
        if not elsewhere:
            return FREE
        if any(p.partial for p in elsewhere):
            return NEVER
        if len(elsewhere) == 1:
            return int(self.numbers(prices, var, (home,), elsewhere)[0, 0])
        key = prices.key(var, home, elsewhere)
        number = self.numbers_of.get(key)
        if number is None:
            floor = max(self._ways(prices, var, home, elsewhere))
            number = self.numbers_of[key] = self._add(np.array([floor]), (prices, var, home, elsewhere, ()))
        return number

    def numbers(
        self,
        prices: VersionPrices,
        var: Var,
        homes: Sequence[Placement],
        others: Sequence[Placement],
        among: tuple[Placement, ...] = (),
    ) -> Numbers:
        """By home and other placement, all different ones, the number of the price of having the value there; or a price below
        that of having it there and under any more of the placements `among`."""
        key = prices.kind(var), self.groups.setdefault(among, len(self.groups))
        grid = self.grids.get(key)
        if grid is None:
            grid = self.grids[key] = Grid()
        at = grid.at(homes, others)
        numbers = grid.numbers[at]
        if (numbers == UNKNOWN).any():
            numbers = grid.numbers[at] = self._numbered(numbers, at, prices, var, homes, others, among)
        return numbers

    def _numbered(
        self,
        numbers: Numbers,
        at: tuple[Any, Any],
        prices: VersionPrices,
        var: Var,
        homes: Sequence[Placement],
        others: Sequence[Placement],
        among: tuple[Placement, ...],
    ) -> Numbers:
        """The same with new prices for those that are not known."""
        numbers = np.where(at[0] == at[1], FREE, numbers)
        numbers[(numbers == UNKNOWN) & [p.partial != () for p in others]] = NEVER
        unknown = np.nonzero(numbers == UNKNOWN)
        if len(unknown[0]):
            floors = self._through(prices, var, homes, others, among)[unknown]
            pairs = unknown[0], unknown[1]
            first = self._add(floors, Block(self.count, prices, var, tuple(homes), tuple(others), pairs, among))
            numbers[unknown] = np.arange(first, self.count)
        return numbers

    def _through(
        self,
        prices: VersionPrices,
        var: Var,
        homes: Sequence[Placement],
        others: Sequence[Placement],
        among: tuple[Placement, ...],
    ) -> Table:
        """Bounds by home and other placement; those on the way by any of the placements `among` if that is less."""
        direct = self._bounds(prices, var, homes, others)
        if not among:
            return direct
        between, last = self._between(prices, var, among), self._bounds(prices, var, among, others)
        return np.minimum(direct, _by_way_of(_by_way_of(self._bounds(prices, var, homes, among), between), last))

    def _ways(self, prices: VersionPrices, var: Var, home: Placement, others: Sequence[Placement]) -> list[float]:
        """Bounds on bringing a value to each of a few placements, by way of any of the others if that is less."""
        seconds = {other: self._bound(prices, var, home, other) for other in others}
        left = list(others)
        while left:  # the nearest is at its end (Dijkstra 1959)
            near = min(left, key=seconds.__getitem__)
            left.remove(near)
            for other in left:
                seconds[other] = min(seconds[other], seconds[near] + self._bound(prices, var, near, other))
        return list(seconds.values())

    def _bound(self, prices: VersionPrices, var: Var, home: Placement, other: Placement) -> float:
        key = prices.kind(var), home, other
        bound = self.bounds.get(key)
        if bound is None:
            bound = self.bounds[key] = float(self._bounds(prices, var, (home,), (other,))[0, 0])
        return bound

    def _between(self, prices: VersionPrices, var: Var, among: tuple[Placement, ...]) -> Table:
        """Bounds from each of the placements to each, by way of any of them."""
        key = prices.kind(var), among
        between = self.betweens.get(key)
        if between is None:
            between, before = self._bounds(prices, var, among, among), None
            while before is None or (between < before).any():
                before, between = between, np.minimum(between, _by_way_of(between, between))
            self.betweens[key] = between
        return between

    def _bounds(self, prices: VersionPrices, var: Var, homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        """By home and other placement: of what can be made again, the less of moving and of making it."""
        whole = [i for i, other in enumerate(others) if not other.partial]
        bounds = np.full((len(homes), len(others)), math.inf)
        asked = [others[i] for i in whole]
        if self.stays and var in prices.makers:  # of another machine than plans are made for
            bounds[:, whole] = 0.0
        else:
            bounds[:, whole] = np.minimum(self.floors.table(var.type, homes, asked), prices.made_again(var, asked))
        return bounds

    def _add(self, floors: Table, asked: Asked | Block) -> int:
        """Prices of which bounds are known; the number of the first."""
        first, self.count = self.count, self.count + len(floors)
        if self.count > len(self.seconds):
            self.seconds, self.is_exact = (np.resize(each, 2 * self.count) for each in (self.seconds, self.is_exact))
        self.seconds[first : self.count], self.is_exact[first : self.count] = floors, self.stays
        self.asked += [asked] * len(floors)
        return first

    def sharpen(self, number: int) -> None:
        """Find the exact price."""
        asked = self.asked[number]
        assert asked is not None and not self.is_exact[number]
        prices, var, home, others, by_way_of = asked.asked(number) if isinstance(asked, Block) else asked
        exact = prices.seconds(var, home, others)
        if by_way_of:
            exact = self._by_way_of(prices, var, home, others[0], tuple(by_way_of), exact)
        floor = float(self.seconds[number])
        assert exact >= floor * (1 - 1e-9), f"{var.type}: {home} -> {others} takes {exact}, and the bound is {floor}"
        self.seconds[number], self.is_exact[number] = exact, True

    def _by_way_of(
        self, prices: VersionPrices, var: Var, home: Placement, other: Placement, among: tuple[Placement, ...], exact: float
    ) -> float:
        """Seconds to another placement by way of one that the walk there may not pass, if those are fewer than `exact`."""
        before, after = self._floors(prices, var, home, other, among)
        for i in np.flatnonzero(before + after < exact).tolist():
            between = among[i]
            if between in (home, other) or before[i] + after[i] >= exact:
                continue
            first = prices.seconds(var, home, (between,))
            if first + after[i] < exact:
                exact = min(exact, first + prices.seconds(var, between, (other,)))
        return exact

    def _floors(
        self, prices: VersionPrices, var: Var, home: Placement, other: Placement, among: tuple[Placement, ...]
    ) -> tuple[Table, Table]:
        """Bounds on the way to each of `among`, and from there."""
        key = prices.kind(var), self.groups[among]
        before, after = self.ways.get((*key, home)), self.ways.get(key)
        if before is None:
            before = self.ways[*key, home] = self._bounds(prices, var, (home,), among)[0]
        if after is None:
            after = self.ways[key] = self._bounds(prices, var, among, among)
        return before, after[:, among.index(other)]

    def array(self) -> Table:
        """Seconds by number, as they are now."""
        return self.seconds[: self.count].copy()


def _by_way_of(first: Table, last: Table) -> Table:
    """By start and end, the least of two ways that meet."""
    return np.array([(here[:, None] + last).min(axis=0) for here in first]).reshape(len(first), last.shape[1])
