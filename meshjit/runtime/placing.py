"""Putting values onto devices: NumPy arrays cut into shards, Arrays moved from one sharding to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical, dtype_of_python_scalar
from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import Array, leaf_key
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.placement import Placement, normalized
from sharding.spec import check_spec


def default_sharding() -> Sharding:
    """Where values go that nobody placed: this process's first device."""
    return SingleDeviceSharding(client.local_devices()[0])


def asarray(value: Any) -> Array:
    """An uncommitted Array of a NumPy array or Python scalar (which is weakly typed)."""
    if isinstance(value, Array):
        return value
    weak = isinstance(value, int | float | complex) and not isinstance(value, bool)
    if isinstance(value, bool | int | float | complex):
        array = np.asarray(value, canonical(dtype_of_python_scalar(value), config.enable_x64))
    else:
        array = np.asarray(value)
        array = np.asarray(array, canonical(array.dtype, config.enable_x64))
    return place(array, default_sharding(), committed=False, weak=weak)


def single_device_array(array: np.ndarray[Any, Any], device: Any) -> Array:
    return place(array, SingleDeviceSharding(device), committed=True)


def place(
    array: np.ndarray[Any, Any], sharding: Sharding, *, committed: bool, weak: bool = False, alias: bool = False
) -> Array:
    """Cut a NumPy array of a device dtype into shards and put this process's onto their devices. With `alias` these may
    go on reading the array's memory."""
    type = TensorType(tuple(array.shape), array.dtype)
    if isinstance(sharding, NamedSharding):
        check_spec(sharding.spec, type.shape, sharding.mesh, "the array")
    places = sharding.addressable_devices_indices_map(type.shape)
    local = sharding.shard_shape(type.shape)
    cache: dict[Any, np.ndarray[Any, Any]] = {}
    shards: list[np.ndarray[Any, Any]] = []
    for index in places.values():
        key = tuple((s.start, s.stop) for s in index)
        if key not in cache:
            cache[key] = padded(array[index], local)
        shards.append(cache[key])
    key = leaf_key(type, weak, sharding, committed)
    return Array(key, _jaxlib.put(shards, list(places), row=key.layout, alias=alias))


def device_row(sharding: Sharding) -> tuple[Any, ...]:
    """All devices of a sharding in the order in which programs number them."""
    return sharding._device_assignment  # pyright: ignore[reportPrivateUsage]


def meaning(sharding: Sharding, rank: int) -> Placement:
    """The placement of a value of this rank, written in the one normal way."""
    placement = sharding.placement(rank)
    return normalized(placement, sharding.mesh) if isinstance(sharding, NamedSharding) else placement


def same_place(a: Sharding, b: Sharding, rank: int) -> bool:
    """Whether both put the same shards of a value of this rank on the same devices, whatever their axes are called."""
    if device_row(a) != device_row(b):
        return False
    return meaning(a, rank) == meaning(b, rank) or a.is_equivalent_to(b, rank)


def padded(block: np.ndarray[Any, Any], local: Sequence[int]) -> np.ndarray[Any, Any]:
    """A shard grown to the local shape; the padding's content means nothing."""
    if block.shape == tuple(local):
        return np.ascontiguousarray(block) if block.ndim else np.array(block)
    grown = np.zeros(local, block.dtype)
    grown[tuple(slice(0, n) for n in block.shape)] = block
    return grown


def device_put(value: Any, sharding: Sharding | Any | None = None, may_alias: bool = False) -> Array:
    """One array on a sharding (or device); without one, on the default device and uncommitted. See `meshjit.device_put`."""
    if sharding is None:
        return asarray(value)
    if not isinstance(sharding, Sharding):
        sharding = SingleDeviceSharding(sharding)
    if not isinstance(value, Array):
        value = asarray_host(value)
        return place(value[0], sharding, committed=True, weak=value[1], alias=may_alias)
    return move(value, sharding)


def asarray_host(value: Any) -> tuple[np.ndarray[Any, Any], bool]:
    """(array in a device dtype, weak) of a NumPy array or Python scalar, without putting it anywhere."""
    if isinstance(value, bool | int | float | complex):
        dtype = canonical(dtype_of_python_scalar(value), config.enable_x64)
        return np.asarray(value, dtype), dtype != np.bool_
    array = np.asarray(value)
    return np.asarray(array, canonical(array.dtype, config.enable_x64)), False


def move(array: Array, sharding: Sharding) -> Array:
    """An Array under another sharding: nothing, a resharding program on the same devices, or a way through the host."""
    key = leaf_key(array.type, array.weak_type, sharding, True)
    if same_place(array.sharding, sharding, array.ndim):
        return Array.over(key, array)
    if isinstance(sharding, NamedSharding) and device_row(array.sharding) == device_row(sharding):
        from meshjit.runtime.executable import reshard, spec_on

        spec = spec_on(sharding.mesh, array.sharding, array.ndim)
        if spec is not None:
            same = NamedSharding(sharding.mesh, spec)  # where it is, in the words of the target's mesh
            return reshard(Array.over(leaf_key(array.type, array.weak_type, same, True), array), sharding)
    return place(array.numpy(), sharding, committed=True, weak=array.weak_type)
