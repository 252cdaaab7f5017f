"""The search behind plan_reshard: a shortest path over placements. See reshard.py for what it promises and why.

Axes are cut into *atoms* (space.py), small ints here. A state holds the atoms of every dim and the partial ones.
"""

from __future__ import annotations

import heapq
import math
import operator
from typing import Final

from sharding.cost import price_over, slice_seconds
from sharding.edges import Edges
from sharding.floor import floor_of
from sharding.mesh import AbstractMesh
from sharding.outline import Outline, Outlines, outlines_to
from sharding.space import state_count
from sharding.spec import Placement
from sharding.steps import Step
from sharding.topology import Topology
from sharding.writer import Atoms, Edge, State, Writer

_COLLECTIVES: Final = {
    "gather": "all_gather", "exchange": "all_to_all", "permute": "collective_permute", "reduce": "all_reduce",
    "scatter": "reduce_scatter",
}  # fmt: skip
LARGE: Final = 250  # placements of a space in which a search may be long
FEW: Final = 16  # states that are gone through before the ways between outlines are worked out, to go through fewer
SHORT: Final = 100  # outlines of parts of one size, which are worked out sooner than few states are gone through


class _Long(Exception):
    """A search goes through many states."""


class _Seen:
    """What is known of a state: its shard, bounds on what is left to go, a close one once it is asked for, and the quickest way
    to it so far."""

    __slots__ = ("came", "is_done", "least", "local", "outline", "rest", "seconds", "size")

    def __init__(self, local: tuple[int, ...], size: float, least: float, outline: Outline) -> None:
        self.local, self.size, self.least, self.outline = local, size, least, outline
        self.rest: float | None = None
        self.seconds = math.inf
        self.came: tuple[State, Edge] | None = None
        self.is_done = False


class WalkSearch(Edges):
    """One search. Atoms are small ints here; they become axes again when the walk is written down."""

    def __init__(
        self,
        shape: tuple[int, ...],
        itemsize: float,
        source: Placement,
        target: Placement,
        mesh: AbstractMesh,
        topology: Topology,
        has_detours: bool = True,
    ) -> None:
        super().__init__(shape, source, target, mesh, topology, has_detours)
        self.itemsize, self.topology = itemsize, topology
        self.kind = source.partial_kind or ""
        self.writer = Writer(self.atoms, mesh, self.kind)
        self.latency = [topology.latency[piece.name] for piece in self.atoms]
        self.bandwidth = [topology.bandwidth[piece.name] for piece in self.atoms]
        self.links: dict[Atoms, tuple[float, float]] = {}
        self.prices: dict[tuple[str, Atoms, bool], tuple[float, float]] = {}
        self.shards: dict[tuple[Outline, bool], tuple[tuple[int, ...], float, float]] = {}  # see `_shard`
        self.every = tuple(range(len(self.atoms)))
        self.floor = floor_of(topology, self.is_even)
        self.quickest = math.inf  # seconds of the quickest walk found so far
        self.target_bytes = self._bytes(self.target)
        self.target_counts = [self.counts[axes] for axes in self.target[0]]
        self.is_large = state_count(len(self.atoms), len(self.dims)) > LARGE
        self.outlines = self._outlines() if self.is_large and self._has_few_outlines() else None

    # Setting up ...

    def _outlines(self) -> Outlines:
        sizes, goal = tuple(sorted(self.sizes)), self._outline(self.target)
        return outlines_to(self.shape, self.itemsize, sizes, self.dims, goal, self.topology)

    def _has_few_outlines(self) -> bool:
        places = len(self.dims) + 1
        return len({*self.sizes}) == 1 and math.comb(len(self.atoms) + places, places) <= SHORT

    # ... walking ...

    def walk(self) -> tuple[tuple[Step, ...], tuple[Placement, ...]]:
        """The steps of the quickest walk, and the placements before, between and after."""
        bound = max(self._bytes(self.source), self._bytes(self.target))
        while True:
            try:
                edges, smallest_refused = self._shortest(bound)
            except _Long:
                self.outlines = self._outlines()
                continue
            if edges is not None:
                return self.writer.written(self.source, edges)
            bound = smallest_refused

    def _shortest(self, bound: float) -> tuple[list[Edge] | None, float]:
        """A* among states whose shard is at most `bound` bytes; or the smallest shard refused for that. _Long where that goes
        through more than a few states without a close bound."""
        left = FEW if self.is_large and self.outlines is None else math.inf
        self.quickest = self.refused = math.inf
        self.seen: dict[State, _Seen] = {}
        self.permuted: dict[tuple[tuple[int, ...], Atoms], float] = {}  # by shards of each dim, and partial atoms
        start = self.seen[self.source] = self._seen(self.source)
        start.seconds = 0.0
        self.heap = [(self._at_least(start, math.inf), 0, self.source)]
        self.pushed = 1
        while self.heap:
            _, _, state = heapq.heappop(self.heap)
            at = self.seen[state]
            if at.is_done:
                continue
            if state == self.target:
                return self._traced(), self.refused
            at.is_done = True
            left -= 1
            if left < 0:
                raise _Long
            self._follow(state, at, self.changes_of_count(state), bound)
            lacking = state[1] != self.target[1] or at.size < self.target_bytes  # then another collective follows
            if at.seconds + (2 if lacking else 1) * self.floor.start <= self.quickest and self._permutes_first(state, at.seconds):
                self._follow(state, at, self.permutations(state), bound)
        return None, self.refused

    def _permutes_first(self, state: State, here: float) -> bool:
        """Whether permutations of this state may be quicker than those of states that permute to the same ones. Where links are
        alike these take as long, so the first such state that is reached at least as soon has led to all of them."""
        if not self.topology.is_uniform:
            return True
        alike = tuple([self.counts[axes] for axes in state[0]]), state[1]
        if self.permuted.get(alike, math.inf) <= here:
            return False
        self.permuted[alike] = here
        return True

    def _follow(self, state: State, at: _Seen, edges: list[Edge], bound: float) -> None:
        """Note where the edges lead from `state`, those that lead to the target first."""
        seen, target, here = self.seen, self.target, at.seconds
        direct = [edge for edge in edges if edge[3] == target]
        for edge in (*direct, *[edge for edge in edges if edge[3] != target]) if direct else edges:
            after = edge[3]
            there = seen.get(after)
            if there is None:
                there = seen[after] = self._seen(after)
            if there.is_done:
                continue
            if there.size > bound:
                self.refused = min(self.refused, there.size)
                continue
            limit = self.quickest - here - (0.0 if edge[0] == "slice" else self.floor.start)
            if there.least > limit or (rest := there.rest or self._at_least(there, limit)) > limit:
                continue  # without asking for its price
            reached = here + self._seconds(edge, state, at)
            if self.outlines is not None and there.came is not None and math.isclose(reached, there.seconds):
                if here < seen[there.came[0]].seconds:  # of equals the one whose last step is the longest
                    there.came = (state, edge)
                continue
            if reached < there.seconds:
                there.seconds, there.came = reached, (state, edge)
                heapq.heappush(self.heap, (reached + rest, self.pushed, after))
                self.pushed += 1
                if after == target and reached < self.quickest:
                    self.quickest = reached

    def _seen(self, state: State) -> _Seen:
        """A state, with a bound on the seconds from there to the target that takes no time to know."""
        dims, partial = state
        counts = self.counts
        outline, is_reduced = (*[counts[axes] for axes in dims], counts[partial]), partial == self.target[1]
        known = self.shards.get((outline, is_reduced))
        if known is None:
            known = self.shards[outline, is_reduced] = self._shard(outline, is_reduced)
        local, size, least = known
        if not least and any([target[: len(axes)] != axes for axes, target in zip(dims, self.target[0], strict=True)]):
            least = self.floor.start
        return _Seen(local, size, least, outline)

    def _shard(self, outline: Outline, is_reduced: bool) -> tuple[tuple[int, ...], float, float]:
        """Extents of a shard, its bytes, and at least how many seconds it is from the target, if slices do not reach it."""
        local = tuple([-(-extent // count) for extent, count in zip(self.shape, outline, strict=False)])
        size = math.prod(local) * self.itemsize
        too_sharded = sum(map(operator.gt, outline, self.target_counts))
        return local, size, self.floor.seconds(is_reduced, True, too_sharded, size, self.target_bytes)

    def _traced(self) -> list[Edge]:
        edges: list[Edge] = []
        state = self.target
        while state != self.source:
            came = self.seen[state].came
            assert came is not None
            state, edge = came
            edges.append(edge)
        return edges[::-1]

    # ... and their prices

    def _local_shape(self, dims: tuple[Atoms, ...]) -> tuple[int, ...]:
        return tuple([-(-extent // self.counts[axes]) for extent, axes in zip(self.shape, dims, strict=True)])

    def _bytes(self, state: State) -> float:
        return math.prod(self._local_shape(state[0])) * self.itemsize

    def _seconds(self, edge: Edge, state: State, at: _Seen) -> float:
        """Every step costs something to start, and something a byte of its operand."""
        name, dims, atoms, _ = edge
        if name == "permute":
            atoms = self.moved_atoms(edge, state)
        key = name, atoms, name in ("gather", "scatter") and math.prod(at.local[: dims[0]]) != 1
        price = self.prices.get(key)
        if price is None:
            price = self.prices[key] = self.price(*key)
        is_grown = not self.is_even and (name == "exchange" or name == "scatter")
        size = math.prod(self._operand(edge, at.local)) * self.itemsize if is_grown else at.size
        return price[0] + size * price[1]

    def price(self, name: str, atoms: Atoms, is_minor: bool) -> tuple[float, float]:
        """Seconds of the start, and of a byte."""
        if name == "slice":
            return slice_seconds(self.counts[atoms], self.topology), 0.0
        return price_over(self._links(atoms), _COLLECTIVES[name], self.counts[atoms], self.topology, is_minor)

    def _operand(self, edge: Edge, local: tuple[int, ...]) -> tuple[int, ...]:
        """The local shape that a collective is given that scatters a dim: this is grown to whole blocks first."""
        dim = edge[1][0]
        block = -(-self.shape[dim] // self.counts[edge[3][0][dim]])
        return (*local[:dim], block * self.counts[edge[2]], *local[dim + 1 :])

    def _links(self, atoms: Atoms) -> tuple[float, float]:
        """Latency and bandwidth of the slowest of the axes."""
        links = self.links.get(atoms)
        if links is None:
            slowest = min([self.bandwidth[a] for a in atoms], default=math.inf)
            links = self.links[atoms] = max([self.latency[a] for a in atoms], default=0.0), slowest
        return links

    def _at_least(self, there: _Seen, limit: float) -> float:
        """A close bound on the seconds from a state to the target; infinite where that is beyond the limit."""
        seconds = there.least if self.outlines is None else max(there.least, self.outlines.seconds(there.outline, limit))
        if seconds < math.inf:
            there.rest = seconds
        return seconds

    def _outline(self, state: State) -> tuple[int, ...]:
        return (*[self.counts[axes] for axes in state[0]], self.counts[state[1]])

    def moved_atoms(self, edge: Edge, state: State) -> Atoms:
        """The atoms whose place a permutation changes."""
        if self.topology.is_uniform:  # all axes are alike: no need to ask which
            return self.every
        before, after = (
            {(dim, at, atom) for dim, axes in enumerate(dims) for at, atom in enumerate(axes)}
            for dims in (state[0], edge[3][0])
        )
        return tuple(sorted({atom for _, _, atom in before ^ after}))
