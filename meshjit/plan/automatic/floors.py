"""Quick lower bounds on the price of bringing a value from one placement to others.

Resharding finds the cheapest walk by a search of a millisecond; a proof would ask for tens of thousands. Whatever the walk is, it
starts a collective, and its collectives carry at least the elements that a device needs and does not have:

    f32[8, 6]  [x, -] -> [-, x] over x=2    a device has 12 of the 24 elements that it needs: 48 bytes

At least so many bytes are on the wire, at the least price of a byte over any axis. Where a device has all of its elements
already, the walk is free. Of a sum of n addends that k devices need, n - 1 messages come before the first of them has it, for
every other holder of an addend sends it on; and k - 1 after that, one to each of the others. What is made again instead of moved
has no bound but 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.types import TensorType
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.problem import Table
from meshjit.plan.cost import Machine
from sharding.axes import AxisRef
from sharding.cost import COLLECTIVES
from sharding.placement import Placement

REDUCING: Final = ("all_reduce", "reduce_scatter")
LARGEST: Final = 1 << 20  # numbers by home, placement and device that are worked out at once


class Floors:
    """Of the values on one machine; every question is answered once. `has_walks`: whether its walks are those of plans, so that
    shortest ways bound them (`sharding/distances.py`); else only the elements that devices lack do."""

    def __init__(self, machine: Machine, has_walks: bool = True) -> None:
        self.machine, self.mesh, self.has_walks = machine, machine.mesh, has_walks
        topology = machine.topology
        self.start = min(topology.latency.values(), default=0.0)
        quickest = max(topology.bandwidth.values(), default=float("inf"))
        prices = {kind: topology.slowdown.get(kind, 1.0) / quickest for kind in COLLECTIVES}
        self.byte = min(prices.values())
        self.moved_byte = min(price for kind, price in prices.items() if kind not in REDUCING)
        places = np.indices(self.mesh.axis_sizes).reshape(len(self.mesh.axis_sizes), -1)
        self.places = dict(zip(self.mesh.axis_names, places, strict=True))
        self.blocks: dict[Any, Any] = {}
        self.known: dict[Any, float] = {}
        self.distances = machine.distances

    def seconds(self, type: TensorType, home: Placement, others: Sequence[Placement]) -> float:
        """At least what it costs to have a value that was made at `home` under all of `others`, too: the dearest of them."""
        key = type, home, tuple(others)
        seconds = self.known.get(key)
        if seconds is None:
            elsewhere = [other for other in others if other != home]
            seconds = self.known[key] = float(self.table(type, [home], elsewhere).max()) if elsewhere else 0.0
        return seconds

    def table(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        """By home and other placement, at least what it costs to have the value there, too."""
        can_walk = self.has_walks and not any(other.partial for other in others)
        distances = self._distances(type, homes, others) if can_walk else None
        if distances is None:
            return self.by_elements(type, homes, others)
        if np.isnan(distances).any():
            return np.fmax(self.by_elements(type, homes, others), distances)
        return distances if self.distances.is_even(type.shape) else self._uneven(type, homes, others, distances)

    def _uneven(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement], distances: Table) -> Table:
        """The same of a value whose shards are not even, by the shortest ways. These bring what devices lack, whatever they pass;
        but of a sum, which is scattered in blocks of one size, only what it has itself counts in them."""
        sums = [i for i, home in enumerate(homes) if home.partial]
        if sums:
            distances[sums] = np.maximum(distances[sums], self._of_sums(type, [homes[i] for i in sums], others))
        return distances

    def _distances(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement]) -> Table | None:
        return self.distances.seconds(type.shape, type.dtype.itemsize, homes, others)

    def by_elements(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        """By the elements that a device lacks."""
        needed = self._needed(type.shape, homes, others)
        seconds = np.where(needed > 0, self.start + needed * type.dtype.itemsize * self.moved_byte, 0.0)
        sums = [i for i, home in enumerate(homes) if home.partial]
        whole = [i for i, other in enumerate(others) if not other.partial]
        if sums and whole:
            seconds[np.ix_(sums, whole)] = self._of_sums(type, [homes[i] for i in sums], [others[i] for i in whole])
        return seconds

    def _of_sums(self, type: TensorType, homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        addends = np.array([self.mesh.axes_size(home.partial_axes) for home in homes])
        holders = np.array([self._holders(type.shape, other) for other in others])
        local = np.array([float(self.machine.local_bytes(type, other)) for other in others])
        messages = (addends[:, None] + holders - 2) / self.mesh.device_count
        return self.start + np.maximum(messages * type.nbytes, local) * self.byte

    def _holders(self, shape: tuple[int, ...], placement: Placement) -> float:
        """How many devices have each element."""
        return self.mesh.device_count / math.prod([self.mesh.axes_size(axes) for axes in placement.dims])

    def _needed(self, shape: tuple[int, ...], homes: Sequence[Placement], others: Sequence[Placement]) -> Table:
        """By home and other placement, the elements that a device needs and does not have, on average."""
        most = max(1, LARGEST // max(1, len(others) * self.mesh.device_count))
        if len(homes) > most:
            parts = [self._needed(shape, homes[i : i + most], others) for i in range(0, len(homes), most)]
            return np.concatenate(parts)
        have = np.ones((len(homes), len(others), self.mesh.device_count))
        asked = np.ones((len(others), self.mesh.device_count))
        for dim, extent in enumerate(shape):
            before, after = (ByChoice(placement.dims[dim] for placement in side) for side in (homes, others))
            (low, high), (first, last) = (self._blocks(extent, side.different) for side in (before, after))
            common = np.minimum(high[:, None], last) - np.maximum(low[:, None], first)
            have *= np.clip(common, 0, None)[before.at[:, None], after.at]
            asked *= (last - first)[after.at]
        return (asked - have).mean(axis=-1)

    def _blocks(self, extent: int, dims: Sequence[tuple[AxisRef, ...]]) -> tuple[Any, Any]:
        """By axes of a dim and device, where its block begins and ends."""
        blocks = [self._block(extent, axes) for axes in dims]
        return np.array([first for first, _ in blocks]), np.array([last for _, last in blocks])

    def _block(self, extent: int, axes: tuple[AxisRef, ...]) -> tuple[Any, Any]:
        block = self.blocks.get((extent, axes))
        if block is None:
            at, local = self._index(axes), -(-extent // self.mesh.axes_size(axes))
            block = self.blocks[extent, axes] = np.minimum(at * local, extent), np.minimum(at * local + local, extent)
        return block

    def _index(self, axes: Sequence[AxisRef]) -> Any:
        """By device, the number of its block along a dim over these axes."""
        at: Any = np.zeros(self.mesh.device_count)
        for axis in axes:
            name, low, size = (axis, 1, self.mesh.shape[axis]) if isinstance(axis, str) else (axis.name, axis.pre, axis.size)
            at = at * size + self.places[name] // (self.mesh.shape[name] // (low * size)) % size
        return at
