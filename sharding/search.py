"""The search behind plan_reshard: a shortest path over placements. See reshard.py for what it promises and why.

Axes are cut into *atoms* (space.py), small ints here. A state holds the atoms of every dim and the partial ones.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from sharding.axes import AxisRef, canonical_axes, name_of
from sharding.cost import seconds_over, slice_seconds
from sharding.mesh import AbstractMesh
from sharding.space import search_space
from sharding.spec import Placement
from sharding.steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter, Slice, Step, nests
from sharding.topology import Topology

_Atoms: TypeAlias = tuple[int, ...]  # indices into WalkSearch.atoms, major to minor
_State: TypeAlias = tuple[tuple[_Atoms, ...], _Atoms]  # axes per dim; partial axes, sorted
_Edge: TypeAlias = tuple[str, tuple[int, ...], _Atoms, _State]  # step, its dims, its atoms, where it leads
_COLLECTIVES: Final = {
    "gather": "all_gather", "exchange": "all_to_all", "permute": "collective_permute", "reduce": "all_reduce",
    "scatter": "reduce_scatter",
}  # fmt: skip


class WalkSearch:
    """One search. Atoms are small ints here; they become axes again when the walk is written down."""

    def __init__(
        self,
        shape: tuple[int, ...],
        itemsize: float,
        source: Placement,
        target: Placement,
        mesh: AbstractMesh,
        topology: Topology,
    ) -> None:
        self.shape, self.itemsize, self.mesh, self.topology = shape, itemsize, mesh, topology
        self.atoms, self.dims = search_space(shape, source, target, mesh, topology)
        self.sizes = [piece.size for piece in self.atoms]
        self.kind = source.partial_kind or ""
        self.source, self.target = self._state(source), self._state(target)
        self.is_even = all(n % math.prod(self.sizes) == 0 for n in shape)
        self.latency = [topology.latency[piece.name] for piece in self.atoms]
        self.bandwidth = [topology.bandwidth[piece.name] for piece in self.atoms]
        self.cheapest_start = min(topology.latency.values(), default=0.0)
        self.cheapest_byte = topology.slowdown.get("all_gather", 1.0) / max(topology.bandwidth.values(), default=1.0)
        self.known = math.inf  # seconds of the quickest walk found so far
        self.target_bytes = self._bytes(self.target)

    # Setting up ...

    def _state(self, placement: Placement) -> _State:
        dims = tuple(self._indices(axes) for axes in placement.dims)
        return dims, tuple(sorted(self._indices(placement.partial_axes)))

    def _indices(self, axes: Sequence[AxisRef]) -> _Atoms:
        """Every atom inside the axes, axis by axis."""
        found: list[int] = []
        for axis in axes:
            low, high = (1, self.mesh.shape[axis]) if isinstance(axis, str) else (axis.pre, axis.pre * axis.size)
            inside = [i for i, a in enumerate(self.atoms) if a.name == name_of(axis) and low <= a.pre < high]
            found += sorted(inside, key=lambda i: self.atoms[i].pre)
        return tuple(found)

    # ... walking ...

    def walk(self) -> tuple[tuple[Step, ...], tuple[Placement, ...]]:
        """The steps of the quickest walk, and the placements before, between and after."""
        bound = max(self._bytes(self.source), self._bytes(self.target))
        while True:
            found, smallest_refused = self._shortest(bound)
            if found is not None:
                return self._written(found)
            bound = smallest_refused

    def _shortest(self, bound: float) -> tuple[list[_Edge] | None, float]:
        """A* among states whose shard is at most `bound` bytes; or the smallest shard refused for that."""
        best: dict[_State, float] = {self.source: 0.0}
        came: dict[_State, tuple[_State, _Edge]] = {}
        done: set[_State] = set()
        tie = itertools.count()
        heap = [(self._at_least(self.source), next(tie), self.source)]
        refused, self.known = math.inf, math.inf
        while heap:
            _, _, state = heapq.heappop(heap)
            if state in done:
                continue
            if state == self.target:
                return self._traced(came), refused
            done.add(state)
            local, here = self._local_shape(state), best[state]
            for edge in self._edges(state, local, here):
                after = edge[3]
                if after in done:
                    continue
                size = self._bytes(after)
                if size > bound:
                    refused = min(refused, size)
                    continue
                rest = self._at_least(after)
                if here + rest + (0.0 if edge[0] == "slice" else self.cheapest_start) > self.known:
                    continue  # without asking for its price
                reached = here + self._seconds(edge, state, local)
                if reached < best.get(after, math.inf):
                    best[after] = reached
                    came[after] = (state, edge)
                    heapq.heappush(heap, (reached + rest, next(tie), after))
                    self.known = min(self.known, reached if after == self.target else math.inf)
        return None, refused

    def _traced(self, came: dict[_State, tuple[_State, _Edge]]) -> list[_Edge]:
        edges: list[_Edge] = []
        state = self.target
        while state != self.source:
            state, edge = came[state]
            edges.append(edge)
        return edges[::-1]

    # ... the edges out of a state ...

    def _edges(self, state: _State, local: tuple[int, ...], here: float) -> Iterator[_Edge]:
        """Those that lead to the target first; permutations, of which there are many, only if one could pay."""
        found = self._changes_of_count(state, local)
        yield from sorted(found, key=lambda edge: edge[3] != self.target)
        lacking = state[1] != self.target[1] or self._bytes(state) < self.target_bytes  # then another collective follows
        if here + (2 if lacking else 1) * self.cheapest_start <= self.known:
            used = {*itertools.chain.from_iterable(state[0]), *state[1]}
            free = [i for i in range(len(self.atoms)) if i not in used]
            yield from sorted(self._permutations(state, free), key=lambda edge: edge[3] != self.target)

    def _changes_of_count(self, state: _State, local: tuple[int, ...]) -> Iterator[_Edge]:
        dims, partial = state
        used = {*itertools.chain.from_iterable(dims), *partial}
        free = [i for i in range(len(self.atoms)) if i not in used]
        yield from self._slices(state, free)
        for dim in self.dims:
            for count in range(1, len(dims[dim]) + 1):
                kept, moved = dims[dim][:-count], dims[dim][-count:]
                if self._nests(dim, kept, moved):
                    gathered = _replaced(dims, dim, kept)
                    yield "gather", (dim,), moved, (gathered, partial)
                    yield from self._exchanges(dim, moved, gathered, partial)
        yield from self._reductions(state)

    def _slices(self, state: _State, free: list[int]) -> Iterator[_Edge]:
        dims, partial = state
        for dim in self.dims:
            for added in self._additions(dim, dims[dim], free):
                yield "slice", (dim,), added, (_replaced(dims, dim, dims[dim] + added), partial)

    def _additions(self, dim: int, axes: _Atoms, free: Sequence[int]) -> Iterator[_Atoms]:
        """Atoms that may be added behind `axes`: one at a time, and several at once where boundaries nest only so."""
        for atom in free:
            if self._nests(dim, axes, (atom,)):
                yield (atom,)
        if axes:
            return
        for count in range(2, len(free) + 1):
            for added in itertools.permutations(free, count):
                if not all(self._nests(dim, added[:i], added[i : i + 1]) for i in range(1, count)):
                    yield added

    def _exchanges(self, concat: int, moved: _Atoms, dims: tuple[_Atoms, ...], partial: _Atoms) -> Iterator[_Edge]:
        for split in self.dims:
            if split != concat and self._nests(split, dims[split], moved):
                yield "exchange", (split, concat), moved, (_replaced(dims, split, dims[split] + moved), partial)

    def _reductions(self, state: _State) -> Iterator[_Edge]:
        dims, partial = state
        reducible = [atom for atom in partial if atom not in self.target[1]]
        for count in range(1, len(reducible) + 1):
            for chosen in itertools.combinations(reducible, count):
                rest = tuple(atom for atom in partial if atom not in chosen)
                yield "reduce", (), chosen, (dims, rest)
                for order in itertools.permutations(chosen):
                    for dim in self.dims:
                        if self._nests(dim, dims[dim], order):
                            yield "scatter", (dim,), order, (_replaced(dims, dim, dims[dim] + order), rest)

    def _permutations(self, state: _State, free: list[int]) -> Iterator[_Edge]:
        dims, partial = state
        movable = frozenset((*free, *itertools.chain.from_iterable(dims)))
        counts = tuple(math.prod(self.sizes[a] for a in axes) for axes in dims)
        for other in self._arrangements(counts, movable):
            if other != dims:
                yield "permute", (), (), (other, partial)

    def _arrangements(self, counts: tuple[int, ...], movable: frozenset[int]) -> list[tuple[_Atoms, ...]]:
        """Placements with these shard counts that agree with the target as far as both go, dim by dim."""
        if (counts, movable) not in self._arranged:
            found: list[tuple[_Atoms, ...]] = []
            self._arrange(counts, movable, (), found)
            self._arranged[counts, movable] = found
        return self._arranged[counts, movable]

    @functools.cached_property
    def _arranged(self) -> dict[tuple[tuple[int, ...], frozenset[int]], list[tuple[_Atoms, ...]]]:
        return {}

    def _arrange(
        self,
        counts: tuple[int, ...],
        movable: frozenset[int],
        head: tuple[_Atoms, ...],
        found: list[tuple[_Atoms, ...]],
    ) -> None:
        if len(head) == len(counts):
            found.append(head)
            return
        for axes in self._fillings(counts[len(head)], movable, (), self.target[0][len(head)]):
            self._arrange(counts, movable.difference(axes), (*head, axes), found)

    def _fillings(self, count: int, movable: frozenset[int], axes: _Atoms, wanted: _Atoms) -> Iterator[_Atoms]:
        """Ordered atoms whose sizes multiply to `count`; the target's own come first, while they can."""
        if count == 1:
            yield axes
            return
        at = len(axes)
        goes_on = at < len(wanted) and axes == wanted[:at] and wanted[at] in movable
        follows = goes_on and count % self.sizes[wanted[at]] == 0
        for atom in (wanted[at],) if follows else sorted(movable):
            if count % self.sizes[atom] == 0:
                yield from self._fillings(count // self.sizes[atom], movable - {atom}, (*axes, atom), wanted)

    # ... and their prices

    def _nests(self, dim: int, outer: _Atoms, inner: _Atoms) -> bool:
        return nests(self.shape[dim], self._count(outer), self._count(inner))

    def _count(self, axes: _Atoms) -> int:
        if axes not in self._counts:
            self._counts[axes] = math.prod(self.sizes[a] for a in axes)
        return self._counts[axes]

    @functools.cached_property
    def _counts(self) -> dict[_Atoms, int]:
        return {}

    def _local_shape(self, state: _State) -> tuple[int, ...]:
        return tuple(-(-extent // self._count(axes)) for extent, axes in zip(self.shape, state[0], strict=True))

    def _bytes(self, state: _State) -> float:
        if state[0] not in self._sizes:
            self._sizes[state[0]] = math.prod(self._local_shape(state)) * self.itemsize
        return self._sizes[state[0]]

    @functools.cached_property
    def _sizes(self) -> dict[tuple[_Atoms, ...], float]:
        return {}

    def _seconds(self, edge: _Edge, state: _State, local: tuple[int, ...]) -> float:
        key = (edge[0], edge[1], self._edge_atoms(edge, state), local)
        if key not in self._prices:
            self._prices[key] = self._price(edge[0], edge[1], key[2], local)
        return self._prices[key]

    def _price(self, name: str, dims: tuple[int, ...], atoms: _Atoms, local: tuple[int, ...]) -> float:
        if name == "slice":
            return slice_seconds(self._count(atoms), self.topology)
        is_minor = name in ("gather", "scatter") and math.prod(local[: dims[0]]) != 1
        links = max((self.latency[a] for a in atoms), default=0.0), min((self.bandwidth[a] for a in atoms), default=math.inf)
        size = math.prod(local) * self.itemsize
        return seconds_over(links, _COLLECTIVES[name], size, self._count(atoms), self.topology, is_minor)

    @functools.cached_property
    def _prices(self) -> dict[tuple[str, tuple[int, ...], _Atoms, tuple[int, ...]], float]:
        return {}

    def _at_least(self, state: _State) -> float:
        """A lower bound on the seconds from here to the target: what A* needs to look in the right direction.

        Slices alone reach the target from placements that it extends. Otherwise a collective has to start; and where
        the shard is too small, only gathers make it larger, by as many bytes as they put on the wire (padding apart).
        """
        if state[1] == self.target[1] and all(t[: len(s)] == s for s, t in zip(state[0], self.target[0], strict=True)):
            return 0.0
        lacking = max(0.0, self.target_bytes - self._bytes(state)) if self.is_even else 0.0
        return self.cheapest_start + lacking * self.cheapest_byte

    def _edge_atoms(self, edge: _Edge, state: _State) -> _Atoms:
        """The atoms over which the edge's groups run; of a permutation those whose place changes."""
        if edge[0] != "permute":
            return edge[2]
        if self.topology.is_uniform:  # all axes are alike: no need to ask which
            return tuple(range(len(self.atoms)))
        before, after = (
            {(dim, at, atom) for dim, axes in enumerate(dims) for at, atom in enumerate(axes)}
            for dims in (state[0], edge[3][0])
        )
        return tuple(sorted({atom for _, _, atom in before ^ after}))

    # Writing it down.

    def _written(self, edges: list[_Edge]) -> tuple[tuple[Step, ...], tuple[Placement, ...]]:
        edges = self._merged_slices(edges)
        placements = tuple(self._placement(state) for state in (self.source, *(edge[3] for edge in edges)))
        steps = tuple(self._step(e, b, a) for e, b, a in zip(edges, placements, placements[1:], strict=False))
        return steps, placements

    def _merged_slices(self, edges: list[_Edge]) -> list[_Edge]:
        """Slices of one dim in a row are one slice."""
        merged: list[_Edge] = []
        for edge in edges:
            last = merged[-1] if merged else None
            if last is not None and edge[0] == last[0] == "slice" and edge[1] == last[1]:
                merged[-1] = ("slice", edge[1], last[2] + edge[2], edge[3])
            else:
                merged.append(edge)
        return merged

    def _axes(self, chosen: _Atoms) -> tuple[AxisRef, ...]:
        return canonical_axes([self.atoms[i] for i in chosen], self.mesh.shape)

    def _placement(self, state: _State) -> Placement:
        dims, partial = state
        ordered = tuple(sorted(partial, key=lambda i: (self.atoms[i].name, self.atoms[i].pre)))
        reduced = tuple((axis, self.kind) for axis in self._axes(ordered))
        return Placement(tuple(self._axes(axes) for axes in dims), reduced)

    def _step(self, edge: _Edge, before: Placement, after: Placement) -> Step:
        name, dims, chosen, _ = edge
        if name == "permute":
            return Permute(before, after)
        axes = self._axes(chosen)
        if name == "slice":
            return Slice(dims[0], axes)
        if name == "gather":
            return AllGather(dims[0], axes)
        if name == "exchange":
            return AllToAll(dims[0], dims[1], axes)
        if name == "scatter":
            return ReduceScatter(dims[0], axes, self.kind)
        return AllReduce(axes, self.kind)


def _replaced(dims: tuple[_Atoms, ...], dim: int, axes: _Atoms) -> tuple[_Atoms, ...]:
    return (*dims[:dim], axes, *dims[dim + 1 :])
