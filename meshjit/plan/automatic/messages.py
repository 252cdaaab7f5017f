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
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.alike_choices import Alike, Index, kept as kept_alike
from meshjit.plan.automatic.problem import Scope, Table
from meshjit.plan.automatic.reached import READER, SETS, Entries, Reached, taken, whole

Excess: TypeAlias = list[Any]  # by variable and choice
Parts: TypeAlias = dict[Scope, list[Any]]
PAIR: Final = 2
NOT_ALIKE: Final[Mapping[Scope, Alike | None]] = {}


class Messages:
    """`own` and `pairs` are the tables over one and over several variables, all finite; `alike`: of which of these choices are
    alike; they have one entry for these. `moved[scope]` is what was moved to each variable from the table, by choice."""

    def __init__(
        self,
        own: Sequence[Table],
        pairs: Mapping[Scope, Entries],
        order: Sequence[int],
        alike: Mapping[Scope, Alike | None] = NOT_ALIKE,
    ) -> None:
        self.own, self.pairs, self.order = list(own), dict(pairs), list(order)
        self.alike = {scope: alike.get(scope) for scope in pairs}
        self.halves: dict[Scope, tuple[Any, Any]] = {}  # what was moved to a variable, and what `_without` it gave
        self.moved = {scope: [np.zeros(len(own[v])) for v in scope] for scope in pairs}
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
        other.own, other.pairs, other.alike, other.halves = [*self.own], {**self.pairs}, {**self.alike}, {**self.halves}
        other.moved = {scope: [*moved] for scope, moved in self.moved.items()}
        return other

    @property
    def size(self) -> int:
        """Numbers of all tables that are gone through."""
        return sum([table.size for table in self.pairs.values()])

    def entries(self, kept: Sequence[Any]) -> int:
        """Those that all tables have where there is one for each of these choices."""
        return sum([math.prod([len(kept[v]) for v in scope]) for scope in self.pairs])

    def table(self, scope: Scope, kept: Sequence[Any] | None) -> Table:
        """With an entry for each of these choices, or for all."""
        alike, table = self.alike[scope], self.pairs[scope]
        if kept is None:
            return whole(table if alike is None else taken(table, alike.groups))
        own = [kept[v] for v in scope]
        at = own if alike is None else [group[choices] for group, choices in zip(alike.groups, own, strict=True)]
        return whole(taken(table, tuple(at)))

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
            rest = np.minimum.reduce(rest - _along(self._said(scope, i), axis, len(left)), axis=axis)
            left.remove(i)
        self.moved[scope][side] = self._by_choice(scope, rest, side)

    def _said(self, scope: Scope, i: int) -> Any:
        """What was moved to a variable, by entry of the table along it."""
        moved, alike = self.moved[scope][i], self.alike[scope]
        return moved if alike is None else alike.most(moved, i)

    def _by_choice(self, scope: Scope, values: Any, i: int) -> Any:
        """What entries of the table along a variable have, by choice."""
        alike = self.alike[scope]
        return values if alike is None else values[alike.groups[i]]

    def _without(self, scope: Scope, first: int) -> Any:
        """The least of a table over the choices of one variable. Two variables that collect one after the other ask for the
        same, as long as nothing else was moved to that one."""
        moved, known = self.moved[scope][first], self.halves.get(scope)
        if known is None or known[0] is not moved:
            known = self.halves[scope] = moved, self._reduced(scope, first)
        return known[1]

    def _reduced(self, scope: Scope, first: int) -> Any:
        """The same, worked out."""
        table, said = self.pairs[scope], self._said(scope, first)
        if isinstance(table, Reached):
            return table.least(said, first)
        return np.minimum.reduce(table - _along(said, first, len(scope)), axis=first)

    def _hand_on(self, variable: int, directed: Sequence[tuple[Scope, int]], behind: int) -> None:
        share = self._collected(variable) / max(len(directed), behind)
        for scope, side in directed:
            self.moved[scope][side] = self.moved[scope][side] - share

    def _collected(self, variable: int) -> Table:
        total = self.own[variable].copy()
        for scope, side in self.near[variable]:
            total += self.moved[scope][side]
        return total

    def _rest(self, scope: Scope, table: Table) -> Table:
        """What is left of a table at least, by entry."""
        rest = table - _along(self._said(scope, 0), 0, len(scope))
        for i in range(1, len(scope)):
            rest -= _along(self._said(scope, i), i, len(scope))
        return rest

    def _leasts(self, scope: Scope) -> list[Any]:
        """Of what is left of a table, by entry along each of its variables."""
        table, sides = self.pairs[scope], range(len(scope))
        if isinstance(table, Reached):
            said = [self._said(scope, i) for i in sides]
            return [table.least(said[SETS], SETS) - said[READER], table.least(said[READER], READER) - said[SETS]]
        rest = self._rest(scope, table)
        return [rest.min(axis=tuple(j for j in sides if j != i)) for i in sides]

    def bound(self) -> tuple[float, Excess, Parts]:
        """The bound; by variable and choice the excess; and the parts of that which come from each table."""
        bound, excess, parts = 0.0, list[Any](), dict[Scope, list[Any]]()
        for v in range(len(self.own)):
            collected = self._collected(v)
            bound += float(collected.min())
            excess.append(collected - collected.min())
        for scope in self.pairs:
            leasts = self._leasts(scope)
            least = leasts[0].min()
            bound += float(least)
            parts[scope] = [self._part(scope, i, each - least) for i, each in enumerate(leasts)]
            for v, part in zip(scope, parts[scope], strict=True):
                excess[v] = excess[v] + part
        return bound, excess, parts

    def _part(self, scope: Scope, i: int, least: Any) -> Any:
        """What a table adds to the excess of choices, of which it is known by entry for those to which most was moved."""
        if self.alike[scope] is None:
            return least
        return self._by_choice(scope, least + self._said(scope, i), i) - self.moved[scope][i]

    def excess_of(self, scope: Scope, excess: Excess, parts: Parts) -> Table:
        """By entry of a table that has prices, what it costs at least beyond the bound."""
        alike, table = self.alike[scope], self.pairs[scope]
        assert not isinstance(table, Reached)
        rest = table - self._rest(scope, table).min()
        for i, (v, part, moved) in enumerate(zip(scope, parts[scope], self.moved[scope], strict=True)):
            more = excess[v] - part - moved
            rest += _along(more if alike is None else alike.least(more, i), i, len(scope))
        return rest

    def decoded(self) -> list[int]:
        """An assignment that is likely to be good: variable by variable, given those before and what the others hand on."""
        choices = dict[int, int]()
        for v in self.order:
            total = self._collected(v)
            for scope, side in self.behind[v]:
                total = total + self._column(scope, side, choices)
            choices[v] = int(total.argmin())
        return [choices[v] for v in range(len(self.own))]

    def _column(self, scope: Scope, side: int, choices: Mapping[int, int]) -> Any:
        """What is left of a table by choice of one variable, given those of others; but for what depends on these alone."""
        left = [i for i, v in enumerate(scope) if v not in choices]
        table: Any = self.pairs[scope]
        rest = table[tuple([self._entry(scope, i, choices.get(v)) for i, v in enumerate(scope)])]
        for n, i in enumerate(left):
            rest = rest - _along(self._said(scope, i), n, len(left)) if i != side else rest
        least = rest.min(axis=tuple([n for n, i in enumerate(left) if i != side]))
        return self._by_choice(scope, least, side) - self.moved[scope][side]

    def _entry(self, scope: Scope, i: int, choice: int | None) -> int | slice:
        """Where a choice is along a variable of a table; all of them of one that has not chosen."""
        alike = self.alike.get(scope)
        if choice is None:
            return slice(None)
        return choice if alike is None else int(alike.groups[i][choice])

    def at(self, scope: Scope, choices: Sequence[int]) -> tuple[Any, ...]:
        """The entry of a table for these choices of all variables."""
        return tuple([self._entry(scope, i, choices[v]) for i, v in enumerate(scope)])

    def cost(self, choices: Sequence[int]) -> float:
        own, pairs = sum(float(table[c]) for table, c in zip(self.own, choices, strict=True)), 0.0
        for scope, table in self.pairs.items():
            at: Any = self.at(scope, choices)
            pairs += float(table[at])
        return own + pairs

    def change(self, scope: Scope, table: Entries) -> None:
        """Other entries of a table."""
        self.pairs[scope] = table
        self.halves.pop(scope, None)

    def replace(self, scope: Scope, table: Entries, alike: Alike | None) -> None:
        """Another table over the same variables, of which the last has other choices than before. What was moved to the others
        stays, and the last collects what that leaves: so the bound hardly falls."""
        self.alike[scope] = alike
        self.change(scope, table)
        self.moved[scope][-1] = np.zeros(len(self.own[scope[-1]]))
        self._collect(scope, len(scope) - 1, 0)

    def keep(self, kept: Sequence[Any]) -> dict[Scope, Index]:
        """Leave out all but these choices; where entries were before, of the tables that are smaller."""
        before, changed = [len(own) for own in self.own], dict[Scope, Index]()
        self.own = [own[k] for own, k in zip(self.own, kept, strict=True)]
        for scope, table in [*self.pairs.items()]:
            if any(len(self.own[v]) < before[v] for v in scope):
                own = [kept[v] for v in scope]
                self.alike[scope], changed[scope] = kept_alike(self.alike[scope], own)
                self.change(scope, taken(table, changed[scope]))
                self.moved[scope] = [moved[k] for moved, k in zip(self.moved[scope], own, strict=True)]
        return changed


def _along(values: Any, axis: int, rank: int) -> Any:
    """What is said of one variable, as it stands beside a table of so many."""
    return values.reshape(_shape(axis, rank))


@functools.cache
def _shape(axis: int, rank: int) -> tuple[int, ...]:
    return tuple([-1 if i == axis else 1 for i in range(rank)])
