"""Links of a machine: what a collective over a mesh axis costs to start, and how many bytes a second it moves.

`sharding/figures.py` has what machines can do, with its sources.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sharding.axes import AxisRef, name_of
from sharding.figures import DEVICES, Figures
from sharding.mesh import BaseMesh


@dataclasses.dataclass(frozen=True)
class Topology:
    """What plans are priced with. Hashable.

    latency: axis -> seconds that a collective over it costs however small.
    bandwidth: axis -> bytes per second that a device puts on the wire along it (ring algorithms, see cost.py).
    slowdown: collective -> factor on its bytes; minor_slowdown: the same again when it gathers or scatters along a dim
    other than the first. Such a collective runs along the first dim, and a local transposition makes that dim the
    right one; where a collective is not listed, the machine does as well along any dim.
    flops, memory_bandwidth (bytes/s), memory (bytes): of one device; flops_of: dtype -> flops where they differ; step_latency:
    seconds that a local op costs at least. latency_growth: seconds more to start a collective for every doubling of a
    group beyond two. overlaps: the collectives that run while the device computes. detour: seconds that a walk of partial
    sums has to gain by way of axes that neither of its ends is sharded over, and gathers in place of a sum.
    """

    name: str
    latency: Mapping[str, float]
    bandwidth: Mapping[str, float]
    slowdown: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    minor_slowdown: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    flops: float = 1e12
    memory_bandwidth: float = 1e11
    memory: float = 16e9
    step_latency: float = 1e-6
    flops_of: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    overlaps: frozenset[str] = frozenset()
    latency_growth: float = 0.0
    detour: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        tables = (self.latency, self.bandwidth, self.slowdown, self.minor_slowdown, self.flops_of)
        scalars = (self.name, self.flops, self.memory_bandwidth, self.memory, self.step_latency, self.latency_growth, self.detour)
        return hash((scalars, self.overlaps, *(frozenset(table.items()) for table in tables)))

    @functools.cached_property
    def is_uniform(self) -> bool:
        """Whether it does not matter over which axes bytes travel: all have the same links, and more devices start as soon."""
        return len(set(self.latency.values())) <= 1 and len(set(self.bandwidth.values())) <= 1 and not self.latency_growth

    def latency_over(self, axes: Iterable[AxisRef]) -> float:
        """Seconds to start a collective over `axes`: the dearest one's."""
        return max((self.latency[name_of(axis)] for axis in axes), default=0.0)

    def bandwidth_over(self, axes: Iterable[AxisRef]) -> float:
        """Bytes per second of a ring over `axes`: the slowest link's, for every byte passes all of them."""
        return min((self.bandwidth[name_of(axis)] for axis in axes), default=float("inf"))

    @staticmethod
    def cpu(mesh: BaseMesh) -> Topology:
        """XLA:CPU devices of one host."""
        return topology_of(DEVICES["cpu"], mesh)


def topology_of(figures: Figures, mesh: BaseMesh, slow_axes: Sequence[str] = ()) -> Topology:
    """What collectives over the axes of `mesh` cost on devices of these figures. `slow_axes` cross from one slice, or one pod,
    to another. Hosts hold consecutive flat positions, so it is the major axes that leave them. A group of which k devices
    lie in each host has k networks to leave it by:

        h100, mesh {hosts: 4, gpus: 8}    gpus: 450 GB/s    hosts: 50 GB/s, one of 8 GPUs is in the group
        h100, mesh {x: 32}                x: 400 GB/s, all eight are
    """
    latency, bandwidth = dict[str, float](), dict[str, float]()
    reach = 1  # devices that the minor axes hold
    for axis, size in reversed(mesh.shape.items()):
        inside = 1 if axis in slow_axes else max(1, min(size, figures.host // reach))
        reach *= size
        if inside < size:
            rate = figures.network * inside if figures.network else figures.link
            latency[axis], bandwidth[axis] = figures.network_latency, min(figures.link, rate)
        elif figures.wraps:
            latency[axis] = figures.latency * max(2, size // 2)
            bandwidth[axis] = figures.link * (2 if size % figures.wraps == 0 else 1)
        else:
            latency[axis], bandwidth[axis] = figures.latency, figures.link
    names = mesh.axis_names
    first, *_ = figures.flops.values()
    return Topology(
        figures.name if figures.platform == "cpu" else f"{figures.platform} {figures.name}",
        {axis: latency[axis] for axis in names},
        {axis: bandwidth[axis] for axis in names},
        figures.slowdown,
        figures.minor_slowdown,
        first,
        figures.memory_bandwidth,
        figures.memory,
        figures.step_latency,
        {dtype: rate for dtype, rate in figures.flops.items() if rate != first},
        figures.overlaps,
        figures.latency_growth,
        figures.detour,
    )


def slice_axes(mesh: BaseMesh) -> tuple[str, ...]:
    """The axes along which the devices' `slice_index` changes: their bytes cross from one TPU slice to another."""
    devices = getattr(mesh, "devices", None)
    if devices is None:
        return ()
    array = np.asarray(devices, dtype=object)
    numbers = np.array([getattr(device, "slice_index", 0) or 0 for device in array.flat], np.int64).reshape(array.shape)
    changing = [bool(np.any(np.diff(numbers, axis=i))) for i in range(numbers.ndim)]
    return tuple(axis for axis, changes in zip(mesh.axis_names, changing, strict=True) if changes)

