"""Where axes came from: what propagation did, played again when somebody asks.

Propagation notes which visits changed something. Few are asked about, so origins are made of these notes at the first question.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from sharding.axes import AxisRef, overlap
from sharding.graph import Axes, Origin, Seed
from sharding.propagation_state import Change, Structure

_OriginMap: TypeAlias = dict[tuple[int, int], Mapping[AxisRef, Origin]]  # by first value of a tie, and dim
_NOWHERE: Final[Mapping[AxisRef, Origin]] = {}


class History:
    """What happened in one propagation: seeds planted, then visits (node, changes) in order."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.planted: list[tuple[int, int, Axes, int, Seed]] = []  # first, dim, axes, value, seed
        self.visits: list[tuple[int, tuple[Change, ...]]] = []

    def origins(self) -> _OriginMap:
        """The origins of all axes, by planting and visiting again."""
        origins: _OriginMap = {}
        for first, dim, axes, index, seed in self.planted:
            lost, here = dict(seed.origins), origins.get((first, dim), _NOWHERE)
            origins[first, dim] = {a: here.get(a) or lost.get(a) or Origin(index) for a in axes}
        for index, changes in self.visits:
            slots = self.structure.slots[index]
            for slot, dim, axes, offers in changes:
                here = origins.get((slots[slot], dim), _NOWHERE)
                origins[slots[slot], dim] = {
                    a: _origin_of(here, a) or _origin_at(index, a, slots, offers, origins) for a in axes
                }
        return origins


class Origins(Mapping[tuple[int, int, AxisRef], Origin]):
    """(value, dim, axis) → where the axis came from."""

    def __init__(self, history: History) -> None:
        self._history = history

    @functools.cached_property
    def _origins(self) -> _OriginMap:
        return self._history.origins()

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


def _origin_at(
    index: int, axis: AxisRef, slots: Sequence[int], offers: Sequence[tuple[int, int]], origins: _OriginMap
) -> Origin:
    """By way of this node, from the first offer that has the axis."""
    for slot, dim in offers:
        origin = _origin_of(origins.get((slots[slot], dim), _NOWHERE), axis)
        if origin is not None:
            return Origin(origin.seed, index, origin)
    raise AssertionError(f"axis {axis} of node {index} was offered by nobody")
