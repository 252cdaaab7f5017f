"""Tables that say which sets of placements hold what a reader of a value asks for, without an entry for each pair.

Sets that are grouped by their dearest member are prefixes: a value with a home has its placements in the order of their prices,
and set k holds the first k of them. So what is asked for is in the sets from one on, for each home, and a table is told by these
numbers:

    homes [x, -], [-, x]     asked for [-, -]: from k = 2 on where the home is [x, -], from k = 1 on where it is [-, x]
    needs [[2, 1]]           the table over 1 request and 2 * 3 sets has 6 entries, 0 or inf

On 64 devices along three axes a value has 64 homes and 4,160 sets. A table between these and a reader has 266,240 entries, and
messages over it are worked out from 4,160 numbers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.problem import Table

READER: Final = 0
SETS: Final = 1  # sides of such a table
NEVER: Final = np.iinfo(np.int32).max  # the need of what no set holds


@dataclass(frozen=True, eq=False)
class Prefixes:
    """By set of a value its home's number, and how many of the placements in the order of that home it holds."""

    homes: Any
    counts: Any

    def __len__(self) -> int:
        return len(self.homes)

    def over(self, sets: Any) -> Prefixes:
        return Prefixes(self.homes[sets], self.counts[sets])


@dataclass(frozen=True, eq=False)
class Reached:
    """0 where set s holds what request r asks for, `prefixes.counts[s] >= needs[r, prefixes.homes[s]]`; `much` elsewhere."""

    needs: Any
    prefixes: Prefixes
    much: float = math.inf

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.needs), len(self.prefixes)

    @property
    def size(self) -> int:
        """Numbers that are gone through."""
        return self.needs.size + len(self.prefixes)

    def over(self, requests: Any, sets: Any) -> Reached:
        return replace(self, needs=np.ascontiguousarray(self.needs[requests]), prefixes=self.prefixes.over(sets))

    def capped(self, much: float) -> Reached:
        return replace(self, much=min(much, self.much))

    def both(self, other: Reached) -> Reached:
        """Where a set holds what either asks for, of the same requests and sets."""
        return replace(self, needs=np.maximum(self.needs, other.needs))

    def whole(self) -> Table:
        """With all entries. They are 0 and one other number, so they are float32."""
        return self[:, :]

    def __getitem__(self, at: tuple[Any, Any]) -> Table:
        """Of requests and sets, each one or a slice."""
        requests, sets = at
        homes, counts = self.prefixes.homes[sets], self.prefixes.counts[sets]
        needs = self.needs[requests]
        return np.where(counts >= needs[..., homes], np.float32(0), np.float32(self.much))

    def least(self, said: Any, side: int) -> Any:
        """The least of the table, less what was said to the choices of one side, by those of the other."""
        most = self._most_of_sets(said) if side == SETS else self._most_of_requests(said)
        return np.minimum(-most, self.much - said.max()) if math.isfinite(self.much) else -most

    def _most_of_sets(self, said: Any) -> Any:
        """By request, of the sets that hold it."""
        length, prefixes = self._length, self.prefixes
        grid = np.full((self.needs.shape[1], length + 1), -np.inf)
        grid[prefixes.homes, length - prefixes.counts] = said
        most = np.maximum.accumulate(grid, axis=1)
        return most.ravel()[self._from].max(axis=1)

    def _most_of_requests(self, said: Any) -> Any:
        """By set, of those that it holds."""
        order, at = self._in_order
        most = np.full((len(order), order.shape[1] + 1), -np.inf)
        np.maximum.accumulate(said[order], axis=1, out=most[:, 1:])
        return most.ravel()[at]

    @functools.cached_property
    def _length(self) -> int:
        """Of the longest prefix, and one more."""
        return int(self.prefixes.counts.max(initial=0)) + 1

    @functools.cached_property
    def _from(self) -> Any:
        """By request and home, where the last of the sets that hold it is in the grid; they stand in it the longest first."""
        length, (_, homes) = self._length, self.needs.shape
        return np.arange(homes) * (length + 1) + length - np.minimum(self.needs, length)

    @functools.cached_property
    def _in_order(self) -> tuple[Any, Any]:
        """By home, requests in the order of what they need; and by set, where the last of them stands that it holds."""
        needs, prefixes = self.needs.T, self.prefixes
        order: Any = np.argsort(needs, axis=1, kind="stable")
        counts: Any = np.zeros(len(prefixes), np.intp)
        for home in np.unique(prefixes.homes).tolist():
            own = prefixes.homes == home
            counts[own] = np.searchsorted(needs[home][order[home]], prefixes.counts[own], "right")
        return order, prefixes.homes * (order.shape[1] + 1) + counts


Entries: TypeAlias = "Table | Reached"


def taken(table: Entries, index: tuple[Any, ...]) -> Any:
    """The table for these of its entries along each variable."""
    return table.over(*index) if isinstance(table, Reached) else np.ascontiguousarray(table[np.ix_(*index)])


def whole(table: Entries) -> Table:
    return table.whole() if isinstance(table, Reached) else table


def plus(first: Entries, second: Entries) -> Entries:
    """The sum of two tables over the same choices."""
    if isinstance(first, Reached) and isinstance(second, Reached):
        return first.both(second)
    return whole(first) + whole(second)
