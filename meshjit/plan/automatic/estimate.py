"""A quick estimate of what bringing a value from one placement to another costs, for searching large Programs.

Resharding finds the cheapest walk by a search; of a large Program tens of thousands of walks would be asked for. This adds up
the collectives that a walk usually has, in their usual order. Plans that are chosen by it are priced in full afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from sharding.axes import AxisRef
from sharding.cost import seconds_over, slice_seconds
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.topology import Topology


def estimate(machine: Machine, type: TensorType, source: Placement, target: Placement) -> float:
    """Seconds of bringing a value of `type` from `source` to `target`."""
    if source == target or not type.nbytes:
        return 0.0
    first = bool(type.rank) and (source.dims[0] != target.dims[0] or type.shape[0] == 1)
    return _estimate(type.nbytes, source, target, first, machine.mesh, machine.topology)


@functools.lru_cache(maxsize=1 << 18)
def _estimate(total: int, source: Placement, target: Placement, first: bool, mesh: BaseMesh, topology: Topology) -> float:
    before = {axis: d for d, axes in enumerate(source.dims) for axis in axes}
    after = {axis: d for d, axes in enumerate(target.dims) for axis in axes}
    partial = [axis for axis in source.partial_axes if axis not in target.partial_axes]
    added = [axis for axis in after if axis not in before and axis not in partial]
    moved = [axis for axis in after if before.get(axis, after[axis]) != after[axis]]
    gone = [axis for axis in before if axis not in after]
    local, seconds = total / mesh.axes_size(source.axes()) * mesh.axes_size(source.partial_axes), 0.0

    def over(kind: str, axes: Sequence[AxisRef]) -> float:
        links = topology.latency_over(axes), topology.bandwidth_over(axes)
        return seconds_over(links, kind, local, mesh.axes_size(axes), topology, not first)

    if added:
        seconds += slice_seconds(mesh.axes_size(added), topology)
        local /= mesh.axes_size(added)
    scattered = [axis for axis in partial if axis in after]
    if scattered:
        seconds += over("reduce_scatter", scattered)
        local /= mesh.axes_size(scattered)
    summed = [axis for axis in partial if axis not in after]
    if summed:
        seconds += over("all_reduce", summed)
    if moved:
        seconds += over("all_to_all", moved)
    if not moved and not _nests(source, target, gone):
        seconds += over("collective_permute", gone or list(before))
    if gone:
        seconds += over("all_gather", gone)
    return seconds


def _nests(source: Placement, target: Placement, gone: Sequence[AxisRef]) -> bool:
    """Whether every dim's axes stay in order, and those that go are the minor ones."""
    for have, asked in zip(source.dims, target.dims, strict=True):
        kept = [axis for axis in have if axis not in gone]
        if [*have[: len(kept)]] != kept or [axis for axis in asked if axis in kept] != kept or [*asked[: len(kept)]] != kept:
            return False
    return True
