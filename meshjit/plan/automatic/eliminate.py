"""Min-sum elimination: the least cost of a Problem, exactly, and all assignments in the order of their cost.

To eliminate a variable, all tables that mention it are added up, and their minimum over it is a new table over its
neighbours (Bertelè and Brioschi, 1972; bucket elimination, Dechter 1999). The work is the product of the choices of a variable
and of its neighbours at that time, so variables go in the order in which these products are least.

    chain x - y - z    eliminate x: a table over y; then y: a table over z; then z: the least cost

Going back, a variable's tables say what every choice costs beyond the best (its *regret*), given the variables that went
after it. The cost of an assignment is the least cost plus its regrets, which gives assignments in the order of their cost. The
tables are kept as they are: their sum is large, and going back asks for one column of it at a time.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from meshjit.plan.automatic.problem import Problem, Scope, Table, joined

LARGEST: Final = 1 << 24  # entries of a table: 128 MiB
TOTAL: Final = 1 << 26  # of all tables of an elimination, together
AT_ONCE: Final = 1 << 20  # of one that is added up in one piece; of larger ones it is one choice of the variable at a time
ENTRIES: Final = 1 << 14  # that are gone through in the time in which a table is begun


class TooWide(Exception):
    """A table of the elimination would be too large."""


@dataclass(frozen=True)
class Bucket:
    """A variable that is eliminated, and its number of choices. `tables`: those that mention it, the smallest first, each with
    the other variables that it mentions; its first axis is the variable's own. `scope`: all of these others."""

    variable: int
    size: int
    scope: Scope
    tables: Sequence[tuple[Scope, Table]]

    def column(self, choices: Sequence[int] | dict[int, int]) -> Table:
        """What each of its choices costs, given those of the others."""
        total: Any = 0.0
        for others, table in self.tables:
            total = total + table[(slice(None), *[choices[v] for v in others])]
        return np.broadcast_to(total, (self.size,))


class Elimination:
    """Of a Problem. `least` is the least cost, inf where nothing is allowed. Variables in `last` are eliminated after all
    others.

    Variables go in the `order` that is given, however much that is. Without one, the variable goes next whose table is least;
    beyond `largest` entries of a table, or TOTAL of all, it raises TooWide; with `hints`, a choice per variable or None, it takes
    the hint of one of the variables of too large a table instead, if possible of one that is not in `spared`. Then `fixed` is not
    empty, and `least` is the least of what is left. One that `waits` stops before the first table that is too large; `with_hints`
    goes on from there, with other hints each time."""

    def __init__(
        self,
        problem: Problem,
        last: Sequence[int] = (),
        largest: int = LARGEST,
        hints: Sequence[int | None] = (),
        spared: Container[int] = (),
        order: Sequence[int] | None = None,
        waits: bool = False,
    ) -> None:
        self.hints, self.spared, self.last, self.waits = hints, spared, last, waits
        self.fixed: dict[int, int] = {}
        self.problem = problem
        self.tables = dict(problem.tables)
        self.of: list[set[Scope]] = [set() for _ in problem.sizes]
        for scope in self.tables:
            for v in scope:
                self.of[v].add(scope)
        self.neighbours = [{u for scope in scopes for u in scope} - {v} for v, scopes in enumerate(self.of)]
        self.largest = largest
        self.buckets: list[Bucket] = []
        self.ahead: list[int] = []  # variables that one that waits has not eliminated yet
        self.entries = 0
        self.single = [v for v, size in enumerate(problem.sizes) if size == 1]  # tables are cut instead of joined
        least = sum([self._cut(v, 0) for v in self.single])
        if order is not None:
            self.least, self.first_kept = least + sum([self._eliminate(v) for v in order]), 0
            return
        kept, several = set(last).difference(self.single), [v for v, size in enumerate(problem.sizes) if size != 1]
        self.least = self._run([v for v in several if v not in kept], least)
        self.first_kept = len(self.buckets)  # the buckets of `last` begin here
        self.least = self._run(sorted(kept), self.least)

    def with_hints(self, hints: Sequence[int | None], spared: Container[int]) -> Elimination:
        """What comes of one that waits, which stays as it is."""
        other = copy.copy(self)
        other.hints, other.spared, other.waits = hints, spared, False
        other.fixed, other.tables, other.buckets = dict(self.fixed), dict(self.tables), [*self.buckets]
        other.of, other.neighbours = [set(scopes) for scopes in self.of], [set(near) for near in self.neighbours]
        other.least = other._run(self.ahead, self.least)
        return other

    def _run(self, variables: Sequence[int], least: float) -> float:
        sizes = {v: self._size(v) for v in variables}
        waiting = [(size, v) for v, size in sizes.items()]
        heapq.heapify(waiting)
        while waiting:
            size, variable = heapq.heappop(waiting)
            if sizes.get(variable) != size:
                continue
            if size > self.largest and self.waits:
                self.ahead = list(sizes)
                return least
            if size > self.largest:
                gone = self._candidate(variable, size)
                near = list(self.neighbours[gone])
                least += self._fix(gone)
            else:
                gone = variable
                if self.entries + size > TOTAL and not (self.hints or self.waits):
                    raise TooWide(f"tables of more than {TOTAL:,} entries")
                least += self._eliminate(variable)
                near = self.buckets[-1].scope
            del sizes[gone]
            for v in near:
                if v in sizes and sizes[v] != (now := self._size(v)):
                    sizes[v] = now
                    heapq.heappush(waiting, (now, v))
        return least

    def _candidate(self, variable: int, size: int) -> int:
        """That of the variables of a table with a hint that has most neighbours."""
        hinted = [v for v in (variable, *sorted(self.neighbours[variable])) if self.hints and self.hints[v] is not None]
        if not hinted:
            raise TooWide(f"a table of {size:,} entries")
        return max(hinted, key=lambda v: (v not in self.spared, len(self.neighbours[v])))

    def _fix(self, variable: int) -> float:
        """The variable takes its hint; what that costs by itself."""
        hint = self.hints[variable]
        assert hint is not None
        self.fixed[variable] = hint
        return self._cut(variable, hint)

    def _cut(self, variable: int, choice: int) -> float:
        """The variable takes a choice; what that costs by itself."""
        seconds = 0.0
        for own in sorted(self.of[variable]):
            table = np.take(self.tables.pop(own), choice, axis=own.index(variable))
            rest = tuple(v for v in own if v != variable)
            for v in rest:
                self.of[v].discard(own)
            if not rest:
                seconds += float(table)
                continue
            self.tables[rest] = table if rest not in self.tables else self.tables[rest] + table
            for v in rest:
                self.of[v].add(rest)
        for v in self.neighbours[variable]:
            self.neighbours[v].discard(variable)
        return seconds

    def _size(self, variable: int) -> int:
        sizes = self.problem.sizes
        return sizes[variable] * math.prod(sizes[v] for v in self.neighbours[variable])

    def _eliminate(self, variable: int) -> float:
        scope = tuple(sorted(self.neighbours[variable]))
        mine = [(own, self.tables.pop(own)) for own in sorted(self.of[variable])]
        full, sizes = (variable, *scope), self.problem.sizes
        ordered = [(tuple([v for v in own if v != variable]), _led_by(variable, own, table)) for own, table in mine]
        ordered.sort(key=lambda each: each[1].size)
        self.buckets.append(Bucket(variable, sizes[variable], scope, ordered))
        self.entries += math.prod(sizes[v] for v in full)
        for own, _ in mine:
            for v in own:
                self.of[v].discard(own)
        for v in scope:
            self.neighbours[v] |= self.neighbours[variable]
            self.neighbours[v] -= {v, variable}
        message = _least(ordered, scope, full, sizes)
        if not scope:
            return float(message)
        self.tables[scope] = message if scope not in self.tables else self.tables[scope] + message
        for v in scope:
            self.of[v].add(scope)
        return 0.0

    @property
    def work(self) -> int:
        """In entries of tables that are gone through."""
        return self.entries + ENTRIES * len(self.buckets)

    def best(self) -> list[int]:
        """An assignment of least cost; of equals the first in the order of choices."""
        choices = [self.fixed.get(v, 0) for v in range(len(self.problem.sizes))]
        for bucket in reversed(self.buckets):
            choices[bucket.variable] = int(np.argmin(bucket.column(choices)))
        return choices

    def completed(self, chosen: Mapping[int, int]) -> list[int]:
        """The best assignment with these choices of the variables in `last`, or of all."""
        choices = [chosen.get(v, 0) for v in range(len(self.problem.sizes))]
        for bucket in reversed(self.buckets):
            if bucket.variable not in chosen:
                choices[bucket.variable] = int(np.argmin(bucket.column(choices)))
        return choices

    def by_choice(self) -> Table:
        """What assignments cost at least, by choice of the one variable in `last`."""
        table = self.buckets[-1].column({})
        return self.least - table.min() + table if math.isfinite(self.least) else np.full(len(table), math.inf)

    def in_order(self, steps: float = math.inf) -> Iterator[tuple[float, dict[int, int] | None]]:
        """(cost, choices of the variables in `last`), the cheapest first; of all variables where `last` is empty. The others are
        as is best with them. After so many `steps`, each a choice of one variable, it ends with (the least cost of what is left,
        None)."""
        buckets = (self.buckets[self.first_kept :] if self.last else self.buckets)[::-1]
        count = itertools.count()
        if not math.isfinite(self.least):
            return
        singles = dict.fromkeys([v for v in self.single if not self.last or v in self.last], 0)
        place = {bucket.variable: n for n, bucket in enumerate(buckets)}
        scopes = [[place[v] for v in bucket.scope] for bucket in buckets]
        heap: list[tuple[float, int, int, tuple[int, ...], Any]] = [(self.least, next(count), 0, (), None)]
        while heap:
            cost, _, depth, chosen, siblings = heapq.heappop(heap)
            steps -= 1
            if steps < 0:
                yield cost, None
                return
            if siblings is not None:
                base, order, regrets, rank = siblings
                if rank + 1 < len(order) and math.isfinite(regrets[order[rank + 1]]):
                    more = base + float(regrets[order[rank + 1]]), (*chosen[:-1], int(order[rank + 1]))
                    heapq.heappush(heap, (more[0], next(count), depth, more[1], (base, order, regrets, rank + 1)))
            if depth == len(buckets):
                yield cost, singles | {b.variable: c for b, c in zip(buckets, chosen, strict=True)}
                continue
            column = buckets[depth].column(dict(zip(buckets[depth].scope, [chosen[n] for n in scopes[depth]], strict=True)))
            regrets = column - column.min()
            order = np.argsort(regrets, kind="stable")
            item = (cost, next(count), depth + 1, (*chosen, int(order[0])), (cost, order, regrets, 0))
            heapq.heappush(heap, item)


def _least(tables: Sequence[tuple[Scope, Table]], scope: Scope, full: Scope, sizes: Sequence[int]) -> Table:
    """The least of a sum of tables over their first variable, by the others of `full`, which are `scope`."""
    shape = [sizes[v] for v in full]
    if math.prod(shape) <= AT_ONCE or not scope or 0 in shape:
        table = np.broadcast_to(joined([((full[0], *own), table) for own, table in tables], full), shape)
        return table.min(axis=0, initial=math.inf)
    least = np.full(shape[1:], math.inf, np.result_type(*[table for _, table in tables]))
    for choice in range(shape[0]):
        np.minimum(least, joined([(own, table[choice]) for own, table in tables], scope), out=least)
    return least


def _led_by(variable: int, own: Scope, table: Table) -> Table:
    at = own.index(variable)
    return table.transpose(at, *range(at), *range(at + 1, len(own))) if at else table
