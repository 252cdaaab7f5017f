"""Choices of a variable for which all entries of a table are the same.

Several ways to compute an equation make a value at one placement, or ask for one, and the price of bringing it depends on these
alone. So what a table says can be worked out from fewer entries:

    by choice of x and y   [[0, 4, 4],     alike: choices 0 and 2 of x, 1 and 2 of y     [[0, 4],
                            [3, 1, 1],     groups [0, 1, 0], [0, 1, 1]                    [3, 1]]
                            [0, 4, 4]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.problem import Table

Groups: TypeAlias = tuple[Any, ...]  # by variable of a table and choice, the number of those that are alike
SHORTENED: Final = 1 << 11  # entries of a table from which on it is shortened,
WORTH: Final = 2  # if it has at least so many times as many as then


def common(first: Groups, second: Groups) -> Groups:
    """The groups of the sum of two tables: choices are alike in it if they are in both."""
    return tuple([_numbered(a * (int(b.max(initial=0)) + 1) + b) for a, b in zip(first, second, strict=True)])


def kept(groups: Groups, choices: Sequence[Any]) -> Groups:
    """The groups where each variable keeps these choices alone."""
    return tuple([_numbered(group[own]) for group, own in zip(groups, choices, strict=True)])


def apart(groups: Groups, entry: Sequence[int]) -> Groups:
    """The choices of one entry are alike to no others any more: the entry has changed, and theirs have not."""
    changed = tuple([group.copy() for group in groups])
    for group, choice in zip(changed, entry, strict=True):
        group[choice] = group.max() + 1
    return tuple([_numbered(group) for group in changed])


def _numbered(groups: Any) -> Any:
    """The same with numbers from 0 on, none of which is missing."""
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True, eq=False)
class Short:
    """A table with one entry for all that are the same. By variable: the `groups` of choices, and choices in the `orders` of
    their groups, each of which begins at one of the `starts`."""

    table: Table
    groups: Groups
    orders: Sequence[Any]
    starts: Sequence[Any]

    def most(self, moved: Any, i: int) -> Any:
        """Of what was `moved` to choices of one variable, the most in each group."""
        return np.maximum.reduceat(moved[self.orders[i]], self.starts[i])


def shortened(table: Table, groups: Groups | None) -> Short | None:
    """A table with one entry for all that are the same; None where that saves little, or nobody knows which are."""
    if groups is None or table.size < SHORTENED:
        return None
    counts = [int(group.max()) + 1 for group in groups]
    if WORTH * math.prod(counts) > table.size:
        return None
    orders = [np.argsort(group, kind="stable") for group in groups]
    starts = [np.searchsorted(group[order], np.arange(n)) for group, order, n in zip(groups, orders, counts, strict=True)]
    firsts = [order[start] for order, start in zip(orders, starts, strict=True)]
    return Short(table[np.ix_(*firsts)].astype(np.float64, copy=False), groups, orders, starts)
