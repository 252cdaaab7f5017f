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
from typing import Final, NamedTuple, TypeAlias

from sharding.cost import price_over, slice_seconds
from sharding.topology import Topology

Outline: TypeAlias = tuple[int, ...]  # shards by dim, then the number of addends

ROUNDED: Final = 1 - 1e-9  # times a sum of seconds, which may come to a little less in another order


class OutlineStep(NamedTuple):
    """From the outline `before` to another by a slice, or a collective among so many devices, of dim `dim`. `scatters`: whether
    it cuts that dim into so many times as many shards, which it is grown to whole blocks for."""

    before: Outline
    kind: str
    devices: int
    dim: int
    scatters: bool


class Ways(dict[Outline, tuple[OutlineStep, ...]]):
    """By outline the steps that lead there, whatever the shape is. `sizes`: of the axes, or parts of axes, that may be used;
    `dims`: those that they may shard."""

    def __init__(self, sizes: tuple[int, ...], dims: tuple[int, ...]) -> None:
        self.dims, self.devices = dims, math.prod(sizes)
        groups = (group for n in range(1, len(sizes) + 1) for group in itertools.combinations(sizes, n))
        self.factors = sorted({math.prod(group) for group in groups})
        self.counts = frozenset((1, *self.factors))

    def __missing__(self, after: Outline) -> tuple[OutlineStep, ...]:
        steps = self[after] = tuple(self._steps_to(after))
        return steps

    def _steps_to(self, after: Outline) -> Iterator[OutlineStep]:
        free, counts = self.devices // math.prod(after), self.counts
        for factor in self.factors:
            is_free = free % factor == 0 and free // factor in counts
            if is_free and after[-1] * factor in counts:
                yield OutlineStep(_changed(after, -1, after[-1] * factor), "all_reduce", factor, 0, False)
            for dim in self.dims:
                if is_free and after[dim] * factor in counts:
                    yield OutlineStep(_changed(after, dim, after[dim] * factor), "all_gather", factor, dim, False)
                if after[dim] % factor == 0 and after[dim] // factor in counts:
                    yield from self._steps_cutting(after, dim, factor)

    def _steps_cutting(self, after: Outline, dim: int, factor: int) -> Iterator[OutlineStep]:
        """Those that cut a dim into so many times as many shards."""
        whole = _changed(after, dim, after[dim] // factor)
        yield OutlineStep(whole, "slice", factor, dim, False)
        if after[-1] * factor in self.counts:
            yield OutlineStep(_changed(whole, -1, after[-1] * factor), "reduce_scatter", factor, dim, True)
        for other in self.dims:
            if other != dim and after[other] * factor in self.counts:
                yield OutlineStep(_changed(whole, other, after[other] * factor), "all_to_all", factor, dim, True)


ways_of = functools.lru_cache(maxsize=256)(Ways)


class Outlines:
    """Seconds from outlines to `goal`, at least. `sizes` and `dims` are those of `Ways`."""

    def __init__(
        self,
        shape: tuple[int, ...],
        itemsize: float,
        sizes: tuple[int, ...],
        dims: tuple[int, ...],
        goal: Outline,
        topology: Topology,
    ) -> None:
        self.shape, self.itemsize, self.topology = shape, itemsize, topology
        self.ways = ways_of(sizes, dims)
        self.links = min(topology.latency.values(), default=0.0), max(topology.bandwidth.values(), default=1.0)
        self.prices: dict[tuple[str, int, bool], tuple[float, float]] = {}
        self.shards: dict[Outline, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # extents of one, and their products
        self.rest: dict[Outline, float] = {}  # the shortest ways that are known
        self.reached = {goal: 0.0}
        self.heap = [(0.0, goal)]

    def seconds(self, outline: Outline, limit: float = math.inf) -> float:
        """At least so many from here to the goal; infinite where there is no way, or none within the limit."""
        rest, heap = self.rest, self.heap
        while outline not in rest and heap:
            if ROUNDED * heap[0][0] > limit:
                return math.inf
            seconds, nearest = heapq.heappop(heap)
            if nearest not in rest:
                rest[nearest] = ROUNDED * seconds
                self._reach(nearest, seconds)
        return rest.get(outline, math.inf)

    def _reach(self, after: Outline, seconds: float) -> None:
        """Note how soon the steps that lead to `after`, from which it is so far, come from where they start."""
        rest, reached, shards, prices = self.rest, self.reached, self.shards, self.prices
        for before, kind, devices, dim, scatters in self.ways[after]:
            if before in rest:
                continue
            shard = shards.get(before)
            if shard is None:
                local = tuple([-(-extent // n) for extent, n in zip(self.shape, before, strict=False)])
                shard = shards[before] = local, tuple(itertools.accumulate(local, operator.mul, initial=1))
            local, heads = shard
            key = kind, devices, heads[dim] != 1
            price = prices.get(key)
            if price is None:
                price = prices[key] = self._price(*key)
            size = heads[-1]
            if scatters and local[dim]:
                size = size // local[dim] * devices * -(-self.shape[dim] // after[dim])
            then = seconds + (price[0] + size * self.itemsize * price[1])
            if then < reached.get(before, math.inf):
                reached[before] = then
                heapq.heappush(self.heap, (then, before))

    def _price(self, kind: str, devices: int, is_minor: bool) -> tuple[float, float]:
        """Seconds of the start, and of a byte."""
        if kind == "slice":
            return slice_seconds(devices, self.topology), 0.0
        return price_over(self.links, kind, devices, self.topology, is_minor and kind in ("all_gather", "reduce_scatter"))


def _changed(outline: Outline, at: int, count: int) -> Outline:
    counts = [*outline]
    counts[at] = count
    return tuple(counts)


outlines_to = functools.lru_cache(maxsize=1024)(Outlines)
