"""Links of a machine: what a collective over a mesh axis costs to start, and how many bytes a second it moves.

Figures are published peak rates for TPUs and GPUs, and measured ones for XLA on a CPU. They serve to compare plans, not
to foretell times: only their ratios matter.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from sharding.axes import AxisRef, name_of
from sharding.mesh import BaseMesh


@dataclasses.dataclass(frozen=True)
class Topology:
    """What plans are priced with. Hashable.

    latency: axis -> seconds that a collective over it costs however small.
    bandwidth: axis -> bytes per second that a device puts on the wire along it (ring algorithms, see cost.py).
    slowdown: collective -> factor on its bytes; minor_slowdown: the same again when it gathers or scatters along a dim
    other than the first. Such a collective runs along the first dim, and a local transposition makes that dim the
    right one; where a collective is not listed, the machine does as well along any dim.
    flops, memory_bandwidth (bytes/s), memory (bytes): of one device; step_latency: seconds that a local op costs at
    least.
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

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        tables = (self.latency, self.bandwidth, self.slowdown, self.minor_slowdown)
        scalars = (self.name, self.flops, self.memory_bandwidth, self.memory, self.step_latency)
        return hash((scalars, *(frozenset(table.items()) for table in tables)))

    @functools.cached_property
    def is_uniform(self) -> bool:
        """Whether all axes have the same links, so that it does not matter over which of them bytes travel."""
        return len(set(self.latency.values())) <= 1 and len(set(self.bandwidth.values())) <= 1

    def latency_over(self, axes: Iterable[AxisRef]) -> float:
        """Seconds to start a collective over `axes`: the dearest one's."""
        return max((self.latency[name_of(axis)] for axis in axes), default=0.0)

    def bandwidth_over(self, axes: Iterable[AxisRef]) -> float:
        """Bytes per second of a ring over `axes`: the slowest link's, for every byte passes all of them."""
        return min((self.bandwidth[name_of(axis)] for axis in axes), default=float("inf"))

    @staticmethod
    def cpu(mesh: BaseMesh) -> Topology:
        """XLA:CPU devices of one host, measured on 8 of them over 2 cores (jaxlib 0.10.2, 4 KiB to 1 MiB).

        A collective costs 0.13 to 0.2 ms however small, so fewer is better. XLA's own reduce-scatter along a minor dim is
        some nine times as dear per byte as along the first, its all-gather three times; with a local transposition,
        as the figures below have it, they cost 1.5 to 2 times as much. Then a reduce-scatter takes as long as an
        all-reduce and a slice, and moves half the bytes.
        """
        return Topology(
            "cpu",
            latency=dict.fromkeys(mesh.axis_names, 160e-6),
            bandwidth=dict.fromkeys(mesh.axis_names, 0.9e9),
            slowdown={"all_reduce": 1.15, "all_gather": 1.35, "all_to_all": 6.3, "collective_permute": 4.0},
            minor_slowdown={"reduce_scatter": 1.9, "all_gather": 1.6},
            flops=20e9,
            memory_bandwidth=5e9,
            memory=8e9,
            step_latency=2e-6,
        )

    @staticmethod
    def tpu(mesh: BaseMesh, chip: str = "v5e", dcn_axes: Sequence[str] = ()) -> Topology:
        """A TPU slice: each axis a ring of both directions of one link; axes in `dcn_axes` cross slices."""
        flops, memory_bandwidth, memory, link, dcn = _pick(TPU_CHIPS, chip, "TPU chip")
        hop = 1e-6
        across = set(dcn_axes)
        return Topology(
            f"tpu {chip}",
            latency={a: 50e-6 if a in across else hop * max(2, n // 2) for a, n in mesh.shape.items()},
            bandwidth={a: dcn if a in across else 2 * link for a in mesh.axis_names},
            flops=flops,
            memory_bandwidth=memory_bandwidth,
            memory=memory,
        )

    @staticmethod
    def gpu(mesh: BaseMesh, model: str = "h100", node_size: int = 8) -> Topology:
        """GPUs in nodes of `node_size`: an axis whose groups stay inside a node runs over NVLink, others over the
        network.

        Nodes hold consecutive flat positions, so these are the minor axes of the mesh.
        """
        flops, memory_bandwidth, memory, nvlink, network = _pick(GPU_MODELS, model, "GPU model")
        reach, inside = 1, set[str]()
        for axis, size in reversed(mesh.shape.items()):
            reach *= size
            if reach <= node_size:
                inside.add(axis)
        return Topology(
            f"gpu {model}",
            latency={a: 10e-6 if a in inside else 30e-6 for a in mesh.axis_names},
            bandwidth={a: nvlink if a in inside else network for a in mesh.axis_names},
            flops=flops,
            memory_bandwidth=memory_bandwidth,
            memory=memory,
            step_latency=3e-6,
        )


# flops (bfloat16, dense), memory bytes/s, memory bytes, bytes/s of one link in one direction, bytes/s of the network
_Figures = tuple[float, float, float, float, float]

TPU_CHIPS: Final[dict[str, _Figures]] = {
    "v4": (275e12, 1.23e12, 32e9, 45e9, 6.25e9),
    "v5e": (197e12, 0.82e12, 16e9, 45e9, 3.1e9),
    "v5p": (459e12, 2.77e12, 95e9, 90e9, 6.25e9),
    "v6e": (918e12, 1.64e12, 32e9, 90e9, 12.5e9),
}

GPU_MODELS: Final[dict[str, _Figures]] = {
    "a100": (312e12, 2.04e12, 80e9, 300e9, 25e9),
    "h100": (989e12, 3.35e12, 80e9, 450e9, 50e9),
    "h200": (989e12, 4.8e12, 141e9, 450e9, 50e9),
    "b200": (2250e12, 8e12, 192e9, 900e9, 50e9),
}

_TPU_KINDS: Final = {
    "tpu v4": "v4", "tpu v5 lite": "v5e", "tpu v5e": "v5e", "tpu v5": "v5p", "tpu v5p": "v5p", "tpu v6 lite": "v6e",
    "tpu v6e": "v6e",
}  # fmt: skip


def tpu_chip(kind: str) -> str | None:
    """The name in TPU_CHIPS of a device_kind ("TPU v5 lite"); None where there are no figures."""
    return _TPU_KINDS.get(kind.lower())


def gpu_model(kind: str) -> str | None:
    """The name in GPU_MODELS of a device_kind ("NVIDIA H100 80GB HBM3"); None where there are no figures."""
    return next((name for name in GPU_MODELS if name in kind.lower()), None)


def slice_axes(mesh: BaseMesh) -> tuple[str, ...]:
    """The axes along which the devices' `slice_index` changes: their bytes cross from one TPU slice to another."""
    devices = getattr(mesh, "devices", None)
    if devices is None:
        return ()
    array = np.asarray(devices, dtype=object)
    numbers = np.array([getattr(device, "slice_index", 0) or 0 for device in array.flat], np.int64).reshape(array.shape)
    changing = [bool(np.any(np.diff(numbers, axis=i))) for i in range(numbers.ndim)]
    return tuple(axis for axis, changes in zip(mesh.axis_names, changing, strict=True) if changes)


def _pick(table: Mapping[str, _Figures], name: str, what: str) -> _Figures:
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}; known are {', '.join(table)}")
    return table[name]
