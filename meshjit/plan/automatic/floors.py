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
from meshjit.plan.cost import Machine
from sharding.axes import AxisRef
from sharding.cost import COLLECTIVES
from sharding.placement import Placement

REDUCING: Final = ("all_reduce", "reduce_scatter")


class Floors:
    """Of the values on one machine; every question is answered once."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.mesh = machine, machine.mesh
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

    def seconds(self, type: TensorType, home: Placement, others: Sequence[Placement]) -> float:
        """At least what it costs to have a value that was made at `home` under all of `others`, too: the dearest of them."""
        return max((self._one(type, home, other) for other in others if other != home), default=0.0)

    def _one(self, type: TensorType, home: Placement, other: Placement) -> float:
        key = type, home, other
        seconds = self.known.get(key)
        if seconds is None:
            seconds = self.known[key] = self._floor(type, home, other)
        return seconds

    def _floor(self, type: TensorType, home: Placement, other: Placement) -> float:
        size = type.dtype.itemsize
        if home.partial and not other.partial:
            addends, holders = self.mesh.axes_size(home.partial_axes), self._holders(other)
            messages = (addends + holders - 2) / self.mesh.device_count
            bytes_ = max(messages * type.nbytes, float(self.machine.local_bytes(type, other)))
            return self.start + bytes_ * self.byte
        needed = self._needed(type.shape, home, other)
        return self.start + needed * size * self.moved_byte if needed else 0.0

    def _holders(self, placement: Placement) -> float:
        """How many devices have each element."""
        return self.mesh.device_count / math.prod([self.mesh.axes_size(axes) for axes in placement.dims])

    def _needed(self, shape: tuple[int, ...], home: Placement, other: Placement) -> float:
        """The elements that a device needs and does not have, on average."""
        (low, high), (first, last) = self._block(shape, home), self._block(shape, other)
        have = np.clip(np.minimum(high, last) - np.maximum(low, first), 0, None).prod(axis=0)
        return float(((last - first).prod(axis=0) - have).mean())

    def _block(self, shape: tuple[int, ...], placement: Placement) -> Any:
        """By dim and device, where its block begins and ends."""
        key = shape, placement.dims
        block = self.blocks.get(key)
        if block is None:
            firsts, lasts = list[Any](), list[Any]()
            for extent, axes in zip(shape, placement.dims, strict=True):
                at = self._index(axes)
                local = -(-extent // self.mesh.axes_size(axes))
                firsts.append(np.minimum(at * local, extent))
                lasts.append(np.minimum(at * local + local, extent))
            ends = (len(shape), self.mesh.device_count)
            block = self.blocks[key] = np.reshape(firsts, ends), np.reshape(lasts, ends)
        return block

    def _index(self, axes: Sequence[AxisRef]) -> Any:
        """By device, the number of its block along a dim over these axes."""
        at: Any = np.zeros(self.mesh.device_count)
        for axis in axes:
            name, low, size = (axis, 1, self.mesh.shape[axis]) if isinstance(axis, str) else (axis.name, axis.pre, axis.size)
            at = at * size + self.places[name] // (self.mesh.shape[name] // (low * size)) % size
        return at
