"""What walks between all placements of a value take at least: shortest paths in the graph of all steps, many at once.

`reshard.py` finds the walk of one pair by a search. Its steps are those of this graph, of which it may leave some out: it
permutes only to what agrees with the target, and holds no larger shard than it has to. So no walk takes less than the way here,
and most take as much.

    f32[8, 6] on x=2, y=2    11 placements, 14 more with partial sums: from each of the 25 to each of the 11 at once
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from sharding.mesh import AbstractMesh, BaseMesh
from sharding.placement import Placement
from sharding.search import WalkSearch
from sharding.space import MOST_STATES, state_count
from sharding.topology import Topology
from sharding.writer import Atoms, State

K = TypeVar("K", bound=Hashable)
_Hub: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # of states with these shards that are partial over these atoms
_Price: TypeAlias = tuple[float, float, float, int]  # to start; a byte, along the first dim and along the dim; which dim
_NOTHING: Final[_Price] = 0.0, 0.0, 0.0, 0
MISSING: Final = -1  # no number of a placement
PARTIAL: Final = -1  # where an axis is that no dim has and the value is partial over


@dataclass(frozen=True, eq=False)
class _Graph:
    """Of values of one rank. By state `counts`, the shards of each dim. By edge where it leads from and to, and its price; edges
    that lead to one state follow one another, from `firsts` on. `ends`: the states that are whole placements."""

    counts: Any
    before: Any
    firsts: Any
    after: Any
    start: Any
    byte: Any
    minor_byte: Any
    dim: Any
    ends: Mapping[Placement, int]


class Distances:
    """Between placements over whole axes of one mesh."""

    def __init__(self, mesh: BaseMesh, topology: Topology) -> None:
        names = [name for name, size in mesh.shape.items() if size > 1]
        self.mesh = AbstractMesh(tuple(mesh.shape[name] for name in names), tuple(names))
        self.topology = topology
        self.tables: dict[tuple[tuple[int, ...], float], Any] = {}
        self.graph, self.of_kinds = functools.cache(self._graph), functools.cache(functools.partial(self._graph, are_alike=True))

    def seconds(
        self, shape: Sequence[int], itemsize: float, homes: Sequence[Placement], others: Sequence[Placement]
    ) -> Any:
        """By home and other placement, seconds of a walk at least, nan where axes are on dims of extent 1; None where there would
        be too many states. The others are not partial."""
        known = self.every(shape, itemsize)
        if known is None:
            return None
        (ends, table), dims = known, long_dims(shape)
        rows, columns = (np.array([ends.get(along(p, dims), MISSING) for p in side], np.intp) for side in (homes, others))
        return between(table, rows, columns)

    def every(self, shape: Sequence[int], itemsize: float) -> tuple[Mapping[Placement, int], Any] | None:
        """The placements of the value's long dims, numbered; by two numbers, seconds of a walk at least. None where there would
        be too many states."""
        longer = tuple([shape[d] for d in long_dims(shape)])
        graph = self.graph(self._class_of(longer))
        if graph is None:
            return None
        table = self.tables.get((longer, itemsize))
        if table is None:
            table = self.tables[longer, itemsize] = _Prices(graph, longer, itemsize, self.is_even(longer)).table()
        return graph.ends, table

    def least(
        self, shape: Sequence[int], itemsize: float, kind_of: Callable[[Placement], K]
    ) -> tuple[Mapping[K, int], Any] | None:
        """The same of kinds of placements: by two numbers, the least between any of the one kind and any of the other. Placements
        are of one kind that differ only in which of several alike axes they take, so a state stands for all such."""
        longer = tuple([shape[d] for d in long_dims(shape)])
        graph = self.of_kinds(self._class_of(longer))
        if graph is None:
            return None
        numbers = dict[K, int]()
        kinds = np.array([numbers.setdefault(kind_of(p), len(numbers)) for p in graph.ends], np.intp)
        return numbers, _Prices(graph, longer, itemsize, self.is_even(longer)).table(kinds)

    def _class_of(self, longer: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of the same graph as this one without dims of extent 1: one for all whose shards are even."""
        return (2 * self.mesh.device_count,) * len(longer) if self.is_even(longer) else longer

    def is_even(self, shape: Sequence[int]) -> bool:
        """Whether all placements cut a value of this shape into even shards, those aside that have axes on dims of extent 1. All
        shards of an empty value have no elements."""
        return 0 in shape or all(extent == 1 or extent % self.mesh.device_count == 0 for extent in shape)

    def _graph(self, shape: tuple[int, ...], are_alike: bool = False) -> _Graph | None:
        """Of values of this shape; of all of its rank, where shards are even. `are_alike`: one state for all that differ in which
        of several alike axes they take."""
        whole = Placement.replicated(len(shape))
        search = WalkSearch(shape, 1.0, whole, whole, self.mesh, self.topology)
        is_whole = math.prod(search.sizes) == self.mesh.device_count
        if not is_whole or state_count(len(search.atoms), len(shape)) > MOST_STATES:
            return None
        return _Explored(search, len(shape), are_alike).graph()


def between(table: Any, rows: Any, columns: Any) -> Any:
    """A part of a table, nan where the number of a row or column is MISSING."""
    return np.where((rows[:, None] == MISSING) | (columns == MISSING), np.nan, table[np.ix_(rows, columns)])


def long_dims(shape: Sequence[int]) -> list[int]:
    """The dims that can be spread, all but those of one element. Those of none count: to send an empty value costs what it takes
    to start."""
    return [d for d, extent in enumerate(shape) if extent != 1]


def along(placement: Placement, dims: Sequence[int]) -> Placement:
    """Of a value without the other dims, of extent 1; as it is where they are spread."""
    if len(dims) == placement.rank or any(axes for d, axes in enumerate(placement.dims) if d not in dims):
        return of_any_sum(placement)
    return of_any_sum(Placement(tuple([placement.dims[d] for d in dims]), placement.partial))


def of_any_sum(placement: Placement) -> Placement:
    """What is partial costs the same whatever it is reduced by."""
    if not placement.partial:
        return placement
    return Placement(placement.dims, tuple((axis, "sum") for axis in sorted(placement.partial_axes, key=str)))


class _Explored:
    """The graph that is reached from all placements over whole axes. Where all axes are alike, a permutation costs the same to
    whichever state with the same shards, so it leads to a hub, and from there to all of them at no cost."""

    def __init__(self, search: WalkSearch, rank: int, are_alike: bool) -> None:
        self.search = search
        self.alike: Mapping[int, Atoms] = _alike_atoms(search) if are_alike else {}
        self.price = functools.cache(self._price)
        self.numbers: dict[State | _Hub, int] = {}
        self.counts: list[tuple[int, ...]] = []
        self.edges: dict[tuple[int, int, _Price], None] = {}
        ends = [(placement, search.state(placement)) for placement in _placements(search.mesh, rank)]
        ends = [(placement, state) for placement, state in ends if self._first(state) == state]
        self.ends = {placement: self._number(state) for placement, state in ends}
        self.waiting = [state for _, state in ends]
        while self.waiting:
            self._explore(self.waiting.pop())

    def _first(self, state: State) -> State:
        """The state that stands for all that differ only in which of several alike atoms they have: each atom is replaced by the
        first of its group that is not taken."""
        if not self.alike:
            return state
        left = {group: iter(group) for group in self.alike.values()}
        first = {atom: next(left[self.alike[atom]]) for atom in itertools.chain(*state[0], state[1])}
        return tuple([tuple([first[a] for a in axes]) for axes in state[0]]), tuple(sorted([first[a] for a in state[1]]))

    def _number(self, state: State) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = self.numbers[state] = len(self.counts)
            self.counts.append(self._shards(state))
        return number

    def _shards(self, state: State) -> tuple[int, ...]:
        return tuple([self.search.counts[axes] for axes in state[0]])

    def _explore(self, state: State) -> None:
        """Note where the steps from a state lead."""
        search, here = self.search, self.numbers[state]
        edges = search.changes_of_count(state)
        if search.topology.is_uniform:
            self._through_hub(state, here)
        else:
            edges += search.permutations(state)
        for edge in edges:
            there = self._first(edge[3])
            if there not in self.numbers:
                self.waiting.append(there)
            atoms = search.moved_atoms(edge, state) if edge[0] == "permute" else edge[2]
            self.edges[here, self._number(there), self.price(edge[0], edge[1], atoms)] = None

    def _through_hub(self, state: State, here: int) -> None:
        hub = "hub", self._shards(state), self._first(((), state[1]))[1]
        if hub not in self.numbers:
            self.numbers[hub] = len(self.counts)
            self.counts.append(self._shards(state))
        self.edges[here, self.numbers[hub], self.price("permute", (), self.search.every)] = None
        self.edges[self.numbers[hub], here, _NOTHING] = None

    def _price(self, name: str, dims: tuple[int, ...], atoms: tuple[int, ...]) -> _Price:
        start, byte = self.search.price(name, atoms, False)
        if name not in ("gather", "scatter"):
            return start, byte, byte, 0
        return start, byte, self.search.price(name, atoms, True)[1], dims[0]

    def graph(self) -> _Graph:
        edges = sorted(self.edges, key=lambda edge: edge[1])
        before = np.array([here for here, _, _ in edges], np.intp)
        after, firsts = np.unique(np.array([there for _, there, _ in edges], np.intp), return_index=True)
        start, byte, minor_byte, dim = (np.array([price[i] for _, _, price in edges]) for i in range(4))
        counts = np.array(self.counts, np.int64).reshape(len(self.counts), -1)
        return _Graph(counts, before, firsts, after, start, byte, minor_byte, dim.astype(np.intp), self.ends)


def _alike_atoms(search: WalkSearch) -> Mapping[int, Atoms]:
    """For each atom those that are whole axes of its size, with links as quick; nothing where parts of axes are atoms."""
    if len(search.atoms) != len(search.mesh.axis_names):
        return {}
    kinds = [(search.sizes[atom], search.latency[atom], search.bandwidth[atom]) for atom in search.every]
    return {atom: tuple([other for other in search.every if kinds[other] == kinds[atom]]) for atom in search.every}


def _placements(mesh: AbstractMesh, rank: int) -> Iterator[Placement]:
    """All over whole axes, with all partial sums."""
    names = mesh.axis_names
    for rooms in itertools.product(range(-2, rank), repeat=len(names)):
        partial = tuple([(name, "sum") for name, room in zip(names, rooms, strict=True) if room == PARTIAL])
        held = [[name for name, room in zip(names, rooms, strict=True) if room == d] for d in range(rank)]
        for dims in itertools.product(*map(itertools.permutations, held)):
            yield Placement(dims, tuple(sorted(partial)))


class _Prices:
    """What each edge of a graph costs a value of this shape."""

    def __init__(self, graph: _Graph, shape: tuple[int, ...], itemsize: float, is_even: bool) -> None:
        local: Any = -(-np.array(shape, np.int64) // graph.counts)
        heads: Any = np.concatenate([np.ones((len(local), 1)), local.cumprod(axis=1)], axis=1)  # elements of the dims before each
        is_minor: Any = heads[graph.before, graph.dim] != 1
        self.graph, self.is_even = graph, is_even
        self.ends: Any = np.array(list(graph.ends.values()), np.intp)
        self.size: Any = local.prod(axis=1, dtype=np.float64) * itemsize
        self.prices: Any = graph.start + self.size[graph.before] * (graph.byte + is_minor * (graph.minor_byte - graph.byte))

    def table(self, kinds: Any = None) -> Any:
        """Between all ends; or between ends of all `kinds`, each end's, the least. No walk holds a larger shard than its ends,
        where shards are even."""
        graph, kinds = self.graph, np.arange(len(self.ends)) if kinds is None else kinds
        if not self.is_even:
            return self._between(self.prices, self.ends, kinds)
        own: Any = np.zeros(kinds.max() + 1)
        np.maximum.at(own, kinds, self.size[self.ends])
        table: Any = np.full((len(own), len(own)), np.inf)
        lengths: Any = np.diff(np.append(graph.firsts, len(graph.before)))  # of the runs of edges that lead to one state
        for most in sorted({*own.tolist()}):
            inside: Any = np.flatnonzero(own <= most)
            members: Any = np.flatnonzero(own[kinds] <= most)
            fits: Any = np.repeat(self.size[graph.after] <= most, lengths)
            allowed: Any = np.where(fits, self.prices, np.inf)
            between = self._between(allowed, self.ends[members], np.searchsorted(inside, kinds[members]))
            at = np.ix_(inside, inside)
            table[at] = np.where(np.maximum(own[inside, None], own[inside]) == most, between, table[at])
        return table

    def _between(self, prices: Any, ends: Any, kinds: Any) -> Any:
        """By kind of ends and kind of ends, the seconds of the quickest way."""
        seconds = _shortest(self.graph, prices, ends, kinds)
        order: Any = np.argsort(kinds, kind="stable")
        _, firsts = np.unique(np.array(kinds[order], np.intp), return_index=True)
        return np.minimum.reduceat(seconds[ends[order]], firsts, axis=0).T


def _shortest(graph: _Graph, prices: Any, sources: Any, kinds: Any) -> Any:
    """By state and kind, the seconds of the quickest way from any source of this kind."""
    seconds = np.full((len(graph.counts), kinds.max() + 1), np.inf)
    seconds[sources, kinds] = 0.0
    while True:
        reached = np.minimum.reduceat(seconds[graph.before] + prices[:, None], graph.firsts, axis=0)
        nearer = np.minimum(seconds[graph.after], reached)
        if np.array_equal(nearer, seconds[graph.after]):
            return seconds
        seconds[graph.after] = nearer
