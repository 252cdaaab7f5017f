"""A problem of choices: variables that take one of a few choices each, and tables of what choices cost together.

    x: 2 choices, y: 3 choices    tables {(x,): [0, 1], (x, y): [[0, 4, 2], [3, 0, inf]]}    least: x=0 y=0 costs 0

The cost of an assignment is the sum over all tables; `inf` forbids. It knows nothing of placements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Table: TypeAlias = "np.ndarray[Any, np.dtype[np.floating[Any]]]"
Scope: TypeAlias = tuple[int, ...]


class Problem:
    """`sizes` is the number of choices of each variable. Tables over the same variables are added up."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.tables: dict[Scope, Table] = {}

    def variable(self, costs: Sequence[float] | Table) -> int:
        """A new variable, one choice per cost; its number."""
        table = np.asarray(costs, np.float64)
        self.sizes.append(len(table))
        self.add((len(self.sizes) - 1,), table)
        return len(self.sizes) - 1

    def add(self, scope: Scope, table: Table) -> None:
        """One more table, an axis for each variable of `scope`, in that order."""
        if len(scope) > 1:
            order = sorted(range(len(scope)), key=lambda i: scope[i])
            scope, table = tuple([scope[i] for i in order]), np.transpose(table, order)
        before = self.tables.get(scope)
        self.tables[scope] = table if before is None else before + table

    def rounded(self) -> Problem:
        """The same in half the bytes: seven digits of each cost."""
        problem = Problem()
        problem.sizes, problem.tables = self.sizes, {scope: table.astype(np.float32) for scope, table in self.tables.items()}
        return problem

    def where(self, chosen: Mapping[int, int]) -> Problem:
        """The same with these choices of some variables, which have no other then."""
        problem = Problem()
        problem.sizes = [1 if v in chosen else size for v, size in enumerate(self.sizes)]
        for scope, table in self.tables.items():
            problem.tables[scope] = table[tuple([slice(chosen[v], chosen[v] + 1) if v in chosen else slice(None) for v in scope])]
        return problem

    def cost(self, choices: Sequence[int]) -> float:
        """What an assignment costs, one choice per variable."""
        return float(sum(table[tuple([choices[v] for v in scope])] for scope, table in self.tables.items()))


def weighted(weight: float, table: Table) -> Table:
    """`weight * table`; what is forbidden stays so in a loop that runs 0 times, too."""
    return weight * table if weight else np.where(np.isinf(table), table, 0.0)


def joined(tables: Iterable[tuple[Scope, Table]], scope: Scope) -> Table:
    """The sum of tables as one over `scope`, which has all their variables in ascending order."""
    total: Any = 0.0
    for own, table in sorted(tables, key=lambda each: each[1].size):
        there = table.reshape([table.shape[own.index(v)] if v in own else 1 for v in scope])
        if all(n >= m for n, m in zip(np.shape(total), there.shape, strict=False)) and np.ndim(total):
            total += there
        else:
            total = total + there
    return total
