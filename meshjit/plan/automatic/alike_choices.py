"""Choices of a variable for which all entries of a table are the same.

Several ways to compute an equation make a value at one placement, or ask for one, and the price of bringing it depends on these
alone. So a table has one entry for all that are the same:

    by choice of x and y   [[0, 4, 4],     alike: choices 0 and 2 of x, 1 and 2 of y     [[0, 4],
                            [3, 1, 1],     groups [0, 1, 0], [0, 1, 1]                    [3, 1]]
                            [0, 4, 4]]

On three axes of a mesh the tables of a model have some hundred million entries, a third of which are left then.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.reached import Entries, taken

Groups: TypeAlias = tuple[Any, ...]  # by variable of a table and choice, the number of those that are alike
Index: TypeAlias = tuple[Any, ...]  # by variable of a table and entry along it, the entry of another table
SHORTENED: Final = 1 << 11  # entries of a table from which on it is shortened,
WORTH: Final = 2  # if it has at least so many times as many as then


class Alike:
    """Which choices are alike, by variable. A table over them has an entry for each group of choices."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.orders = [np.argsort(group, kind="stable") for group in groups]  # choices in the order of their groups,
        pairs = zip(groups, self.orders, strict=True)
        self.starts = [np.searchsorted(group[order], np.arange(count_of(group))) for group, order in pairs]  # which begin here

    @functools.cached_property
    def firsts(self) -> Index:
        """By variable, a choice of each group."""
        return tuple([order[start] for order, start in zip(self.orders, self.starts, strict=True)])

    def most(self, values: Any, i: int) -> Any:
        """Of what choices of one variable have, the most in each group."""
        return self._of_each(np.maximum, values, i)

    def least(self, values: Any, i: int) -> Any:
        """Likewise the least."""
        return self._of_each(np.minimum, values, i)

    def _of_each(self, best: Any, values: Any, i: int) -> Any:
        values, starts = values[self.orders[i]], self.starts[i]
        return values if len(starts) == len(values) else best.reduceat(values, starts)


def alike_of(groups: Groups) -> Alike | None:
    """None where a table with one entry for all that are the same would be hardly shorter."""
    whole, short = math.prod(map(len, groups)), math.prod(map(count_of, groups))
    return None if whole < SHORTENED or WORTH * short > whole else Alike(groups)


def onto(alike: Alike | None, groups: Groups) -> Index:
    """Where entries of a table over these choices are in one over `groups`, which tells no more of them apart."""
    return groups if alike is None else tuple([group[first] for group, first in zip(groups, alike.firsts, strict=True)])


def over(alike: Alike | None, table: Entries, groups: Groups) -> Any:
    """A table over `groups` as one over these choices."""
    return taken(table, onto(alike, groups))


def common(first: Groups, second: Groups) -> Groups:
    """The groups of the sum of two tables: choices are alike in it if they are in both."""
    return tuple([_numbered(a * count_of(b) + b) for a, b in zip(first, second, strict=True)])


def kept(alike: Alike | None, choices: Sequence[Any]) -> tuple[Alike | None, Index]:
    """What is alike where each variable keeps these choices alone, and where entries were before."""
    if alike is None:
        return None, tuple(choices)
    groups = tuple([group[own] for group, own in zip(alike.groups, choices, strict=True)])
    fewer = alike_of(tuple(map(_numbered, groups)))
    return fewer, onto(fewer, groups)


def count_of(group: Any) -> int:
    """How many groups there are."""
    return int(group.max(initial=-1)) + 1


def _numbered(groups: Any) -> Any:
    """The same with numbers from 0 on, none of which is missing."""
    return np.unique(groups, return_inverse=True)[1].reshape(-1)
