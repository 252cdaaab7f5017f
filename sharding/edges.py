"""The space that a search for a walk goes through: states, and the edges between them. space.py says which states there are.

Axes are cut into *atoms*, small ints here. A state holds the atoms of every dim and the partial ones.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from sharding.axes import AxisRef, name_of
from sharding.mesh import AbstractMesh
from sharding.space import search_space
from sharding.spec import Placement
from sharding.steps import nests
from sharding.topology import Topology
from sharding.writer import Atoms, Edge, State


class _Counts(dict[Atoms, int]):
    """Atoms → into how many shards they cut."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def __missing__(self, atoms: Atoms) -> int:
        count = self[atoms] = math.prod([self.sizes[atom] for atom in atoms])
        return count


class Edges:
    """The steps out of states, on ways from the placement `source` to `target` of a value of this shape."""

    def __init__(
        self,
        shape: tuple[int, ...],
        source: Placement,
        target: Placement,
        mesh: AbstractMesh,
        topology: Topology,
        has_detours: bool,
    ) -> None:
        self.shape, self.mesh = shape, mesh
        self.atoms, self.dims = search_space(shape, source, target, mesh, topology, has_detours)
        self.sizes = [piece.size for piece in self.atoms]
        self.counts = _Counts(self.sizes)
        self.source, self.target = self.state(source), self.state(target)
        self.is_even = all(n % math.prod(self.sizes) == 0 for n in shape)

    def state(self, placement: Placement) -> State:
        dims = tuple(self._indices(axes) for axes in placement.dims)
        return dims, tuple(sorted(self._indices(placement.partial_axes)))

    def _indices(self, axes: Sequence[AxisRef]) -> Atoms:
        """Every atom inside the axes, axis by axis."""
        indices: list[int] = []
        for axis in axes:
            low, high = (1, self.mesh.shape[axis]) if isinstance(axis, str) else (axis.pre, axis.pre * axis.size)
            inside = [i for i, a in enumerate(self.atoms) if a.name == name_of(axis) and low <= a.pre < high]
            indices += sorted(inside, key=lambda i: self.atoms[i].pre)
        return tuple(indices)

    def changes_of_count(self, state: State) -> list[Edge]:
        dims, partial = state
        free = self._free(state)
        edges: list[Edge] = []
        for dim in self.dims:
            for added in self._additions(dim, dims[dim], free) if free else ():
                edges.append(("slice", (dim,), added, (_replaced(dims, dim, dims[dim] + added), partial)))
        for dim in self.dims:
            for count in range(1, len(dims[dim]) + 1):
                kept, moved = dims[dim][:-count], dims[dim][-count:]
                if not kept or self._nests(dim, kept, moved):
                    gathered = _replaced(dims, dim, kept)
                    edges.append(("gather", (dim,), moved, (gathered, partial)))
                    for split in self.dims:
                        there = gathered[split]
                        if split != dim and (not there or self._nests(split, there, moved)):
                            joined = (*gathered[:split], there + moved, *gathered[split + 1 :])
                            edges.append(("exchange", (split, dim), moved, (joined, partial)))
        if partial:
            edges += self._reductions(state)
        return edges

    def _free(self, state: State) -> list[int]:
        """The atoms that the state does not use."""
        used = {*itertools.chain.from_iterable(state[0]), *state[1]}
        return [i for i in range(len(self.atoms)) if i not in used]

    def _additions(self, dim: int, axes: Atoms, free: Sequence[int]) -> Iterator[Atoms]:
        """Atoms that may be added behind `axes`: one at a time, and several at once where boundaries nest only so."""
        for atom in free:
            if self._nests(dim, axes, (atom,)):
                yield (atom,)
        if axes or self.is_even:  # where all divides evenly, everything nests
            return
        for count in range(2, len(free) + 1):
            for added in itertools.permutations(free, count):
                if not all(self._nests(dim, added[:i], added[i : i + 1]) for i in range(1, count)):
                    yield added

    def _reductions(self, state: State) -> Iterator[Edge]:
        dims, partial = state
        reducible = [atom for atom in partial if atom not in self.target[1]]
        if not self.dims:  # nothing to scatter along, so parts of one axis are best reduced together
            for chosen in self._whole_axes(reducible):
                yield "reduce", (), chosen, (dims, tuple(atom for atom in partial if atom not in chosen))
            return
        for count in range(1, len(reducible) + 1):
            for chosen in itertools.combinations(reducible, count):
                rest = tuple(atom for atom in partial if atom not in chosen)
                yield "reduce", (), chosen, (dims, rest)
                for order in itertools.permutations(chosen):
                    for dim in self.dims:
                        if self._nests(dim, dims[dim], order):
                            yield "scatter", (dim,), order, (_replaced(dims, dim, dims[dim] + order), rest)

    def _whole_axes(self, atoms: Sequence[int]) -> Iterator[Atoms]:
        """The atoms of one axis, of two, …"""
        axes = [tuple(group) for _, group in itertools.groupby(atoms, key=lambda atom: self.atoms[atom].name)]
        for count in range(1, len(axes) + 1):
            for chosen in itertools.combinations(axes, count):
                yield tuple(sorted(itertools.chain.from_iterable(chosen)))

    def permutations(self, state: State) -> list[Edge]:
        dims, partial = state
        movable = frozenset((*self._free(state), *itertools.chain.from_iterable(dims)))
        others = self._arrangements(tuple([self.counts[axes] for axes in dims]), movable)
        return [("permute", (), (), (other, partial)) for other in others if other != dims]

    def _arrangements(self, counts: tuple[int, ...], movable: frozenset[int]) -> list[tuple[Atoms, ...]]:
        """Placements with these shard counts that agree with the target as far as both go, dim by dim."""
        if (counts, movable) not in self._arranged:
            arrangements: list[tuple[Atoms, ...]] = []
            self._arrange(counts, movable, (), arrangements)
            self._arranged[counts, movable] = arrangements
        return self._arranged[counts, movable]

    @functools.cached_property
    def _arranged(self) -> dict[tuple[tuple[int, ...], frozenset[int]], list[tuple[Atoms, ...]]]:
        return {}

    def _arrange(
        self,
        counts: tuple[int, ...],
        movable: frozenset[int],
        head: tuple[Atoms, ...],
        arrangements: list[tuple[Atoms, ...]],
    ) -> None:
        if len(head) == len(counts):
            arrangements.append(head)
            return
        for axes in self._fillings(counts[len(head)], movable, (), self.target[0][len(head)]):
            self._arrange(counts, movable.difference(axes), (*head, axes), arrangements)

    def _fillings(self, count: int, movable: frozenset[int], axes: Atoms, target: Atoms) -> Iterator[Atoms]:
        """Ordered atoms whose sizes multiply to `count`; the target's own come first, while they can."""
        if count == 1:
            yield axes
            return
        at = len(axes)
        goes_on = at < len(target) and axes == target[:at] and target[at] in movable
        follows = goes_on and count % self.sizes[target[at]] == 0
        for atom in (target[at],) if follows else sorted(movable):
            if count % self.sizes[atom] == 0:
                yield from self._fillings(count // self.sizes[atom], movable - {atom}, (*axes, atom), target)

    def _nests(self, dim: int, outer: Atoms, inner: Atoms) -> bool:
        return self.is_even or not outer or nests(self.shape[dim], self.counts[outer], self.counts[inner])


def _replaced(dims: tuple[Atoms, ...], dim: int, axes: Atoms) -> tuple[Atoms, ...]:
    return (*dims[:dim], axes, *dims[dim + 1 :])
