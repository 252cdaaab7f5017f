"""A lower bound on the least cost of a Problem of small tables, however wide it is.

Costs can be moved between tables without changing the cost of any assignment: what is added to a variable's own table by
choice is taken from a table of several. The sum of all tables' minima is a lower bound in whichever way costs are moved.
Variables in turn collect what their neighbours say, and hand on an equal share in one direction, then in the other, which
raises the bound (sequential reweighted message passing: Kolmogorov, PAMI 2006 and 2015). It knows nothing of placements.

    x: [0, 1]   (x, y): [[4, 2], [0, 3]]   y: [1, 0]       minima 0 + 0 + 0
    moved to y: (x, y) with x is [[4, 2], [1, 4]]          y: [2, 2]: nothing costs less than 2

What a choice costs at least beyond the bound is its *excess*: choices, and entries of tables, whose excess is more than a plan
that is there already can be left out.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.alike_choices import Groups, kept as kept_groups, shortened
from meshjit.plan.automatic.problem import Scope, Table

Excess: TypeAlias = list[Any]  # by variable and choice
Parts: TypeAlias = dict[Scope, list[Any]]
PAIR: Final = 2
NOT_ALIKE: Final[Mapping[Scope, Groups]] = {}


class Messages:
    """`own` and `pairs` are the tables over one and over several variables, all finite; `groups` of some of these, the choices
    that are alike. `moved[scope]` is what was moved to each variable from the table."""

    def __init__(
        self,
        own: Sequence[Table],
        pairs: dict[Scope, Table],
        order: Sequence[int],
        groups: Mapping[Scope, Groups] = NOT_ALIKE,
    ) -> None:
        self.own, self.pairs, self.order, self.groups = list(own), pairs, list(order), dict(groups)
        self.short = {scope: shortened(table, self.groups.get(scope)) for scope, table in pairs.items()}
        self.halves: dict[Scope, tuple[Any, Any]] = {}  # what was moved to a variable, and what `_without` it gave
        self.moved = {scope: [np.zeros(n) for n in table.shape] for scope, table in pairs.items()}
        self.rank = {v: rank for rank, v in enumerate(order)}
        self.near: list[list[tuple[Scope, int]]] = [[] for _ in own]
        for scope in pairs:
            for side, v in enumerate(scope):
                self.near[v].append((scope, side))
        ranks = {scope: sorted(self.rank[v] for v in scope) for scope in pairs}
        self.ends = {s: [s.index(self.order[rank]) for rank in (ranks[s][0], ranks[s][-1])] for s in pairs}
        self.ahead = [[(s, i) for s, i in near if self.rank[v] < ranks[s][-1]] for v, near in enumerate(self.near)]
        self.behind = [[(s, i) for s, i in near if self.rank[v] > ranks[s][0]] for v, near in enumerate(self.near)]

    def again(self) -> Messages:
        """The same as they are now, to go on apart."""
        other = copy.copy(self)
        other.own, other.pairs, other.groups, other.short = [*self.own], {**self.pairs}, {**self.groups}, {**self.short}
        other.halves = {**self.halves}
        other.moved = {scope: [*moved] for scope, moved in self.moved.items()}
        return other

    @property
    def size(self) -> int:
        """Entries of all tables."""
        return sum(table.size for table in self.pairs.values())

    def sweep(self) -> None:
        """Once forward, once back."""
        ways = ((self.order, self.ahead, self.behind), (self.order[::-1], self.behind, self.ahead))
        for end, (order, ahead, behind) in enumerate(ways):
            for v in order:
                for scope, side in behind[v]:
                    self._collect(scope, side, self.ends[scope][end])
                if ahead[v]:
                    self._hand_on(v, ahead[v], len(behind[v]))

    def _collect(self, scope: Scope, side: int, first: int) -> None:
        """What the others of a table say to one of its variables. The least over the choices of `first` is taken before that over
        those of the rest."""
        rest = self._reduced(scope, first) if len(scope) == PAIR else self._without(scope, first)
        left = [i for i in range(len(scope)) if i != first]
        for i in [i for i in left if i != side]:
            axis = left.index(i)
            rest = np.minimum.reduce(rest - self._said(scope, i).reshape(_along(axis, len(left))), axis=axis)
            left.remove(i)
        short = self.short[scope]
        self.moved[scope][side] = rest if short is None else rest[short.groups[side]]

    def _said(self, scope: Scope, i: int) -> Any:
        """What was moved to a variable: by choice; by group of alike choices, where the table is shortened."""
        moved, short = self.moved[scope][i], self.short[scope]
        return moved if short is None else short.most(moved, i)

    def _without(self, scope: Scope, first: int) -> Any:
        """The least of a table over the choices of one variable. Two variables that collect one after the other ask for the
        same, as long as nothing else was moved to that one."""
        moved, known = self.moved[scope][first], self.halves.get(scope)
        if known is None or known[0] is not moved:
            known = self.halves[scope] = moved, self._reduced(scope, first)
        return known[1]

    def _reduced(self, scope: Scope, first: int) -> Any:
        """The same, worked out."""
        short = self.short[scope]
        table: Any = self.pairs[scope] if short is None else short.table
        return np.minimum.reduce(table - self._said(scope, first).reshape(_along(first, len(scope))), axis=first)

    def _hand_on(self, variable: int, directed: Sequence[tuple[Scope, int]], behind: int) -> None:
        share = self._collected(variable) / max(len(directed), behind)
        for scope, side in directed:
            self.moved[scope][side] = self.moved[scope][side] - share

    def _collected(self, variable: int) -> Table:
        total = self.own[variable].copy()
        for scope, side in self.near[variable]:
            total += self.moved[scope][side]
        return total

    def rest(self, scope: Scope) -> Table:
        """What is left of a table."""
        rest = self.pairs[scope]
        for i, moved in enumerate(self.moved[scope]):
            rest = rest - moved.reshape(_along(i, len(scope)))
        return rest

    def bound(self) -> tuple[float, Excess, Parts]:
        """The bound; by variable and choice the excess; and the parts of that which come from each table."""
        bound, excess, parts = 0.0, list[Any](), dict[Scope, list[Any]]()
        for v in range(len(self.own)):
            collected = self._collected(v)
            bound += float(collected.min())
            excess.append(collected - collected.min())
        for scope in self.pairs:
            rest, sides = self.rest(scope), range(len(scope))
            sums = [rest.min(axis=tuple(j for j in sides if j != i)) for i in sides]
            least = sums[0].min()
            bound += float(least)
            parts[scope] = [each - least for each in sums]
            for v, part in zip(scope, parts[scope], strict=True):
                excess[v] = excess[v] + part
        return bound, excess, parts

    def excess_of(self, scope: Scope, excess: Excess, parts: Parts) -> Table:
        """By entry of a table, what it costs at least beyond the bound."""
        rest = self.rest(scope)
        rest = rest - rest.min()
        for i, (v, part) in enumerate(zip(scope, parts[scope], strict=True)):
            rest += (excess[v] - part).reshape(_along(i, len(scope)))
        return rest

    def decoded(self) -> list[int]:
        """An assignment that is likely to be good: variable by variable, given those before and what the others hand on."""
        choices = [0] * len(self.own)
        for v in self.order:
            total = self._collected(v)
            for scope, side in self.behind[v]:
                rest, others = self.rest(scope), [i for i in range(len(scope)) if i != side]
                before = [i for i in others if self.rank[scope[i]] < self.rank[v]]
                at = tuple([choices[u] if i in before else slice(None) for i, u in enumerate(scope)])
                left = [i for i in range(len(scope)) if i not in before]
                total = total + rest[at].min(axis=tuple([n for n, i in enumerate(left) if i != side]))
            choices[v] = int(total.argmin())
        return choices

    def cost(self, choices: Sequence[int]) -> float:
        own = sum(float(table[c]) for table, c in zip(self.own, choices, strict=True))
        return own + sum(float(table[tuple([choices[v] for v in scope])]) for scope, table in self.pairs.items())

    def change(self, scope: Scope, table: Table, groups: Groups | None) -> None:
        """Other entries of a table."""
        self.pairs[scope], self.short[scope] = table, shortened(table, groups)
        self.halves.pop(scope, None)
        if groups is not None:
            self.groups[scope] = groups

    def replace(self, scope: Scope, table: Table, groups: Groups) -> None:
        """Another table over the same variables, of which the last has other choices than before. What was moved to the others
        stays, and the last collects what that leaves: so the bound hardly falls."""
        self.change(scope, table, groups)
        self.moved[scope][-1] = np.zeros(table.shape[-1])
        self._collect(scope, len(scope) - 1, 0)

    def keep(self, kept: Sequence[Any]) -> None:
        """Leave out all but these choices."""
        self.own = [own[k] for own, k in zip(self.own, kept, strict=True)]
        for scope, table in [*self.pairs.items()]:
            own = [kept[v] for v in scope]
            if any(len(k) < n for k, n in zip(own, table.shape, strict=True)):
                groups = kept_groups(self.groups[scope], own) if scope in self.groups else None
                self.change(scope, np.ascontiguousarray(table[np.ix_(*own)]), groups)
                self.moved[scope] = [moved[k] for moved, k in zip(self.moved[scope], own, strict=True)]


@functools.cache
def _along(axis: int, rank: int) -> tuple[int, ...]:
    """The shape in which what is said of one variable stands beside a table of so many."""
    return tuple([-1 if i == axis else 1 for i in range(rank)])
