"""Walks in outline: into how many shards each dim is cut, and of how many addends the value is the sum, whichever axes these are.

Every step but a permutation changes the outline, and costs what the outlines say, over the quickest links. So no walk takes less
than the shortest way between the outlines of its ends. There are few of these, and the bound is close: a search in a large space
goes past few placements that lie on no quickest walk.

    f32[32, 128, 4096] on x=8, y=512: [x, -, y] -> [x, -, -] is (8, 1, 512; 1) -> (8, 1, 1; 1): no less than a gather along dim 2
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Final, TypeAlias

from sharding.cost import price_over, slice_seconds
from sharding.topology import Topology

Outline: TypeAlias = tuple[int, ...]  # shards by dim, then the number of addends

ROUNDED: Final = 1 - 1e-9  # times a sum of seconds, which may come to a little less in another order


class Outlines:
    """Seconds from outlines to `goal`, at least. `sizes`: of the axes, or parts of axes, that may be used; `dims`: those that
    they may shard."""

    def __init__(
        self,
        shape: tuple[int, ...],
        itemsize: float,
        sizes: tuple[int, ...],
        dims: tuple[int, ...],
        goal: Outline,
        topology: Topology,
    ) -> None:
        self.shape, self.itemsize, self.dims, self.topology = shape, itemsize, dims, topology
        self.devices = math.prod(sizes)
        groups = (group for n in range(1, len(sizes) + 1) for group in itertools.combinations(sizes, n))
        self.factors = sorted({math.prod(group) for group in groups})
        self.counts = frozenset((1, *self.factors))
        self.links = min(topology.latency.values(), default=0.0), max(topology.bandwidth.values(), default=1.0)
        self.prices: dict[tuple[str, int, bool], tuple[float, float]] = {}
        self.locals: dict[Outline, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # extents of a shard, and their products
        self.rest: dict[Outline, float] = {}  # the shortest ways that are known
        self.reached = {goal: 0.0}
        self.heap = [(0.0, goal)]

    def seconds(self, outline: Outline) -> float:
        """At least so many from here to the goal; infinite where there is no way."""
        while outline not in self.rest and self.heap:
            seconds, nearest = heapq.heappop(self.heap)
            if nearest not in self.rest:
                self.rest[nearest] = ROUNDED * seconds
                for before, step in self._steps_to(nearest):
                    if before not in self.rest and seconds + step < self.reached.get(before, math.inf):
                        self.reached[before] = seconds + step
                        heapq.heappush(self.heap, (seconds + step, before))
        return self.rest.get(outline, math.inf)

    def _steps_to(self, after: Outline) -> Iterator[tuple[Outline, float]]:
        """The outlines from which one step leads here, and what it takes."""
        free, counts = self.devices // math.prod(after), self.counts
        for factor in self.factors:
            is_free = free % factor == 0 and free // factor in counts
            if is_free and after[-1] * factor in counts:
                before = _changed(after, -1, after[-1] * factor)
                yield before, self._price("all_reduce", before, factor)
            for dim in self.dims:
                if is_free and after[dim] * factor in counts:
                    before = _changed(after, dim, after[dim] * factor)
                    yield before, self._price("all_gather", before, factor, dim)
                if after[dim] % factor == 0 and after[dim] // factor in counts:
                    yield from self._steps_cutting(after, dim, factor)

    def _steps_cutting(self, after: Outline, dim: int, factor: int) -> Iterator[tuple[Outline, float]]:
        """Those that cut a dim into so many times as many shards."""
        whole, length = _changed(after, dim, after[dim] // factor), factor * -(-self.shape[dim] // after[dim])
        yield whole, slice_seconds(factor, self.topology)
        if after[-1] * factor in self.counts:
            before = _changed(whole, -1, after[-1] * factor)
            yield before, self._price("reduce_scatter", before, factor, dim, length)
        for other in self.dims:
            if other != dim and after[other] * factor in self.counts:
                before = _changed(whole, other, after[other] * factor)
                yield before, self._price("all_to_all", before, factor, dim, length)

    def _price(self, kind: str, before: Outline, count: int, dim: int = 0, length: int | None = None) -> float:
        """Of a collective among so many devices. `length`: that of the dim that it scatters, grown to whole blocks."""
        known = self.locals.get(before)
        if known is None:
            local = tuple([-(-extent // n) for extent, n in zip(self.shape, before, strict=False)])
            known = self.locals[before] = local, tuple(itertools.accumulate(local, operator.mul, initial=1))
        local, heads = known
        key = kind, count, heads[dim] != 1 and kind in ("all_gather", "reduce_scatter")
        price = self.prices.get(key)
        if price is None:
            price = self.prices[key] = price_over(self.links, kind, count, self.topology, key[2])
        size = heads[-1] if length is None or not local[dim] else heads[-1] // local[dim] * length
        return price[0] + size * self.itemsize * price[1]


def _changed(outline: Outline, at: int, count: int) -> Outline:
    counts = [*outline]
    counts[at] = count
    return tuple(counts)


outlines_to = functools.lru_cache(maxsize=1024)(Outlines)
