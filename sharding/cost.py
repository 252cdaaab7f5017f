"""Bytes and seconds of a collective, and of a step of resharding.

Bytes are those that one device puts on the wire, by ring formulas; n is the size of a group, `in` the bytes of the
operand:

    all_gather            in * (n - 1)           collective_permute    in
    reduce_scatter        in * (n - 1) / n       collective_broadcast  in
    all_reduce            2 * in * (n - 1) / n
    all_to_all            in * (n - 1) / n
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Final

from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.spec import Placement
from sharding.steps import AllGather, ReduceScatter, Step, operand_shape, step_axes
from sharding.topology import Topology

COLLECTIVES: Final = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
)


def collective_bytes(kind: str, local_bytes_in: float, group_size: int) -> float:
    """Bytes that a device puts on the wire; 0 for groups of one. ValueError for a kind not in COLLECTIVES."""
    if kind not in COLLECTIVES:
        raise ValueError(f"unknown collective {kind!r}; known are {', '.join(COLLECTIVES)}")
    if group_size <= 1:
        return 0.0
    if kind == "all_gather":
        return float(local_bytes_in * (group_size - 1))
    if kind in ("collective_permute", "collective_broadcast"):
        return float(local_bytes_in)
    ring = local_bytes_in * (group_size - 1) / group_size
    return 2 * ring if kind == "all_reduce" else ring


def collective_seconds(
    kind: str,
    local_bytes: float,
    axes: Iterable[AxisRef],
    mesh: BaseMesh,
    topology: Topology,
    dim: int | None = None,
) -> float:
    """Predicted seconds of a collective over `axes` whose operand has `local_bytes` on a device.

    `dim` is the dim along which it gathers or scatters, where there is one; give 0 when all dims before it have
    extent 1. Groups of one cost nothing.
    """
    axes = tuple(axes)
    links = topology.latency_over(axes), topology.bandwidth_over(axes)
    return seconds_over(links, kind, local_bytes, mesh.axes_size(axes), topology, bool(dim))


def seconds_over(
    links: tuple[float, float], kind: str, local_bytes: float, group_size: int, topology: Topology, is_minor: bool
) -> float:
    """collective_seconds over axes of this latency and bandwidth."""
    if group_size <= 1:
        return 0.0
    wire = collective_bytes(kind, local_bytes, group_size) * topology.slowdown.get(kind, 1.0)
    if is_minor:
        wire *= topology.minor_slowdown.get(kind, 1.0)
    start = links[0] + topology.latency_growth * (math.log2(group_size) - 1)
    return start + wire / links[1]


@functools.lru_cache(maxsize=4096)
def price_over(
    links: tuple[float, float], kind: str, group_size: int, topology: Topology, is_minor: bool
) -> tuple[float, float]:
    """Seconds of the start of such a collective, and of a byte."""
    start, whole = (seconds_over(links, kind, size, group_size, topology, is_minor) for size in (0.0, 1.0))
    return start, whole - start


def slice_seconds(shards: int, topology: Topology) -> float:
    """Price of keeping one of `shards` blocks: next to nothing, for XLA fuses it into what follows.

    So much per halving, which makes slicing at once and bit by bit the same.
    """
    return topology.step_latency * math.log2(shards)


def step_cost(
    step: Step, before: Placement, shape: Sequence[int], itemsize: float, mesh: BaseMesh, topology: Topology
) -> tuple[float, float]:
    """(seconds, bytes on the wire per device) of one step from placement `before`."""
    axes = step_axes(step)
    if step.collective is None:
        return slice_seconds(mesh.axes_size(axes), topology), 0.0
    operand = operand_shape(step, before, shape, mesh)
    size = math.prod(operand) * itemsize
    seconds = collective_seconds(step.collective, size, axes, mesh, topology, gathering_dim(step, operand))
    return seconds, collective_bytes(step.collective, size, mesh.axes_size(axes))


def gathering_dim(step: Step, operand: Sequence[int]) -> int:
    """The dim of the operand along which a step gathers or scatters; 0 where all dims before it have extent 1."""
    dim = step.dim if isinstance(step, AllGather | ReduceScatter) else 0
    return dim if math.prod(operand[:dim]) > 1 else 0
