"""Where axes came from: what propagation did, played again when somebody asks.

Propagation notes which visits changed something. Few are asked about, so origins are made of these notes at the first question.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Origin, Seed
from sharding.propagation_state import Trail
from sharding.structure import Marks, Structure, Visits

_OriginMap: TypeAlias = dict[tuple[int, int], Mapping[AxisRef, Origin]]  # by first value of a tie, and dim
_NOWHERE: Final[Mapping[AxisRef, Origin]] = {}


class Edge(NamedTuple):
    """In the visit with number `step`, `node` gave `target` an axis that `source` has: firsts of ties."""

    step: int
    node: int
    axis: AxisRef
    source: int
    target: int


class History:
    """What happened in one propagation: seeds planted, then visits in order: (node, changes), or of a repeat several."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.planted: list[tuple[int, Marks, int, Seed]] = []  # first, axes by dim, value, seed
        self.visits: list[tuple[int, Trail] | Visits] = []

    def single_visits(self) -> Iterator[tuple[int, Sequence[int], Trail]]:
        """Nodes, the firsts of their values and the changes."""
        for visit in self.visits:
            if isinstance(visit, Visits):
                occurrence, members = visit.occurrence, visit.occurrence.members
                for i, changes in visit.trails:
                    yield occurrence.start + i, [members[slot] for slot in occurrence.model.part.slots[i]], changes
            else:
                yield visit[0], self.structure.slots_of(visit[0]), visit[1]

    def replayed(self) -> tuple[_OriginMap, list[Edge]]:
        """The origins of all axes, and their steps from value to value, by planting and visiting again."""
        origins: _OriginMap = {}
        edges: list[Edge] = []
        for first, marks, index, seed in self.planted:
            lost = dict(seed.origins)
            for dim, axes in marks:
                here = origins.get((first, dim), _NOWHERE)
                origins[first, dim] = {a: here.get(a) or lost.get(a) or Origin(index) for a in axes}
        for step, (index, slots, changes) in enumerate(self.single_visits()):
            for slot, dim, axes, offers in changes:
                first = slots[slot]
                now: dict[AxisRef, Origin] = {}
                here = origins.get((first, dim))
                for axis in axes:
                    origin = None if here is None else _origin_of(here, axis)
                    if origin is None:
                        source, before = _offered(index, axis, slots, offers, origins)
                        origin = Origin(before.seed, index, before)
                        edges.append(Edge(step, index, axis, source, first))
                    now[axis] = origin
                origins[first, dim] = now
        return origins, edges


class Origins(Mapping[tuple[int, int, AxisRef], Origin]):
    """(value, dim, axis) → where the axis came from."""

    def __init__(self, history: History) -> None:
        self._history = history

    @functools.cached_property
    def _replayed(self) -> tuple[_OriginMap, list[Edge]]:
        return self._history.replayed()

    @property
    def _origins(self) -> _OriginMap:
        return self._replayed[0]

    @property
    def edges(self) -> Sequence[Edge]:
        """Every step of an axis from one value to another, in order."""
        return self._replayed[1]

    def __getitem__(self, key: tuple[int, int, AxisRef]) -> Origin:
        value, dim, axis = key
        return self._origins.get((self._history.structure.firsts[value], dim), _NOWHERE)[axis]

    def __iter__(self) -> Iterator[tuple[int, int, AxisRef]]:
        dims: dict[int, list[int]] = {}
        for first, dim in sorted(self._origins):
            dims.setdefault(first, []).append(dim)
        for value, first in enumerate(self._history.structure.firsts):
            for dim in dims.get(first, ()):
                for axis in self._origins[first, dim]:
                    yield value, dim, axis

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _origin_of(origins: Mapping[AxisRef, Origin], axis: AxisRef) -> Origin | None:
    """Where the axis came from by which a dim has it, or has part of it; the axes of one dim share no part."""
    own = origins.get(axis)
    if own is None and origins:
        own = next((origin for old, origin in origins.items() if overlap(old, axis)), None)
    return own


def _offered(
    index: int, axis: AxisRef, slots: Sequence[int], offers: Sequence[tuple[int, int]], origins: _OriginMap
) -> tuple[int, Origin]:
    """The first value at this node that offers the axis, and where it came from there."""
    for slot, dim in offers:
        origin = _origin_of(origins.get((slots[slot], dim), _NOWHERE), axis)
        if origin is not None:
            return slots[slot], origin
    raise AssertionError(f"axis {axis} of node {index} was offered by nobody")
