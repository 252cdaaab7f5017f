"""Arrays of devices for `Mesh`, as `jax.experimental.mesh_utils`: neighbours in the array share links."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.experimental.topologies import in_order_of_links
from meshjit.missing import explain as _explain
from meshjit.runtime import client


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """The devices (None: all) as an array of this shape, whose last axis has the fastest links (`jax.experimental.mesh_utils`).

    Devices with coordinates go along their torus, so a mesh axis may take several axes of it, or a part of one, whether
    allow_split_physical_axes says so or not; those of one process then follow one another.

    ValueError where the numbers differ."""
    devices = list(client.devices() if devices is None else devices)
    if math.prod(mesh_shape) != len(devices):
        raise ValueError(
            f"create_device_mesh: a mesh of shape {tuple(mesh_shape)} has {math.prod(mesh_shape)} devices, "
            f"{len(devices)} were given\n"
            f"  fix: create_device_mesh(..., devices=jax.devices()[:{math.prod(mesh_shape)}]), or another shape"
        )
    mesh = np.empty(len(devices), object)
    mesh[:] = in_order_of_links(devices)
    return mesh.reshape(tuple(mesh_shape))


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, Any]:
    """An array of shape mesh_shape × dcn_mesh_shape, dim by dim: the first within a slice (or process), the second between them.

    ValueError where the devices name no slice, or where there are more or fewer slices than dcn_mesh_shape has."""
    devices = list(client.devices() if devices is None else devices)
    attribute = "process_index" if process_is_granule else "slice_index"
    slices: defaultdict[int, list[Any]] = defaultdict(list)
    for device in devices:
        if not hasattr(device, attribute):
            raise ValueError(
                f"create_hybrid_device_mesh: {device} has no {attribute}\n  fix: process_is_granule={not process_is_granule}"
            )
        slices[getattr(device, attribute)].append(device)
    if math.prod(dcn_mesh_shape) != len(slices):
        raise ValueError(
            f"create_hybrid_device_mesh: dcn_mesh_shape {tuple(dcn_mesh_shape)} does not have the "
            f"{len(slices)} slices of the devices"
        )
    order = sorted(slices) if should_sort_granules_by_key else slices
    inner = np.stack([create_device_mesh(mesh_shape, slices[key]) for key in order])
    inner = inner.reshape(*dcn_mesh_shape, *mesh_shape)
    rank = len(mesh_shape)
    pairs = [axis for d in range(rank) for axis in (d, rank + d)]
    return inner.transpose(pairs).reshape([a * b for a, b in zip(dcn_mesh_shape, mesh_shape, strict=True)])

_explain(__name__)
