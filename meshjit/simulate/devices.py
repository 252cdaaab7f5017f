"""Arrays as shards and back, for `simulate`, which runs a local Program on the imaginary devices of any mesh: the oracle for
every per-device program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.evaluate import Array
from meshjit.core.simulate import simulate as simulate
from meshjit.core.types import is_inexact
from meshjit.ops.base.families import widened
from sharding.mesh import BaseMesh
from sharding.spec import Placement


def scatter(array: Array, placement: Placement, mesh: BaseMesh) -> list[Array]:
    """The shards of an array; padding is poison (nan, or a large integer), so that a leak shows.

    Partial placements get the value on the first device along the partial axes and the identity on the others for
    sums; for the other kinds every device gets the value.
    """
    local = placement.local_shape(array.shape, mesh)
    padded = _poisoned(array, [n * placement.shards(d, mesh) for d, n in enumerate(local)])
    places = [mesh.axes_index(axes) for axes in placement.dims]
    sums = tuple(axis for axis, kind in placement.partial if kind == "sum")
    addend = mesh.axes_index(sums)
    shards: list[Array] = []
    for device in range(mesh.size):
        index = tuple(slice(int(p[device]) * n, (int(p[device]) + 1) * n) for p, n in zip(places, local, strict=True))
        shard = np.array(padded[index])
        shards.append(shard if not addend[device] else np.zeros_like(shard))
    return shards


def gather(shards: Sequence[Array], placement: Placement, shape: Sequence[int], mesh: BaseMesh) -> Array:
    """The array that shards hold together, addends summed up; raises AssertionError if replicas differ."""
    if placement.partial:
        assert placement.partial_kind == "sum", f"{placement} holds candidates, not values"
        shards = _summed(shards, placement, mesh)
    local = placement.local_shape(shape, mesh)
    whole = np.zeros([n * placement.shards(d, mesh) for d, n in enumerate(local)], shards[0].dtype)
    seen: dict[tuple[int, ...], Array] = {}
    places = [mesh.axes_index(axes) for axes in placement.dims]
    inside = tuple(slice(0, n) for n in shape)
    for device, shard in enumerate(shards):
        assert shard.shape == local, f"device {device} holds {shard.shape}, {placement} of {shape} says {local}"
        key = tuple(int(p[device]) for p in places)
        whole[tuple(slice(k * n, (k + 1) * n) for k, n in zip(key, local, strict=True))] = shard
        kept = _logical(shard, key, local, shape)
        if key in seen:
            np.testing.assert_array_equal(widened(kept), widened(seen[key]), err_msg=f"replicas differ on device {device}")
        seen[key] = kept
    return whole[inside]


def _summed(shards: Sequence[Array], placement: Placement, mesh: BaseMesh) -> list[Array]:
    """The sum of its group's addends on every device."""
    summed = [*shards]
    for group in mesh.replica_groups(placement.partial_axes).tolist():
        total = np.add.reduce([shards[d] for d in group], dtype=shards[0].dtype)
        for d in group:
            summed[d] = total
    return summed


def _logical(shard: Array, key: Sequence[int], local: Sequence[int], shape: Sequence[int]) -> Array:
    """A shard without its padding."""
    return shard[tuple(slice(0, max(0, min(n, e - k * n))) for k, n, e in zip(key, local, shape, strict=True))]


def _poisoned(array: Array, shape: Sequence[int]) -> Array:
    poison: Any = True if array.dtype == np.bool_ else np.nan if is_inexact(array.dtype) else 77
    padded = np.full(shape, poison, array.dtype)
    padded[tuple(slice(0, n) for n in array.shape)] = array
    return padded
