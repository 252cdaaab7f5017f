"""Putting values onto devices: NumPy arrays cut into shards, Arrays moved from one sharding to another."""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical, dtype_of_python_scalar, is_python_number
from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib, client, sending
from meshjit.runtime.array import Array, LeafKey, leaf_key
from sharding.memory import DEVICE, memory_of
from sharding.mesh import Mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.placement import Placement, normalized
from sharding.spec import PartitionSpec, ShardingError, check_spec


def default_sharding() -> Sharding:
    """Where values go that nobody placed: this process's first device, or that of `config.default_device`."""
    return _on(client.default_device())


@functools.lru_cache(maxsize=64)
def _on(device: Any) -> Sharding:
    return SingleDeviceSharding(device)


def asarray(value: Any) -> Array:
    """An uncommitted Array of a NumPy array or Python scalar (which is weakly typed)."""
    if isinstance(value, Array):
        return value
    weak = is_python_number(value) and not isinstance(value, bool)
    if is_python_number(value):
        array = np.asarray(value, canonical(dtype_of_python_scalar(value), config.enable_x64))
    else:
        array = np.asarray(value)
        array = np.asarray(array, canonical(array.dtype, config.enable_x64))
    return place(array, default_sharding(), committed=False, weak=weak)


def place(
    array: np.ndarray[Any, Any], sharding: Sharding, *, committed: bool, weak: bool = False, alias: bool = False
) -> Array:
    """Cut a NumPy array of a device dtype into shards and put this process's onto their devices. With `alias` these may
    go on reading the array's memory."""
    type = TensorType(tuple(array.shape), array.dtype)
    if isinstance(sharding, SingleDeviceSharding):
        layout = leaf_key(type, weak, sharding, committed).layout
        if layout.local:
            return _jaxlib.put_whole(padded(array, array.shape), layout, alias)
    if isinstance(sharding, NamedSharding):
        check_spec(sharding.spec, type.shape, sharding.mesh, "the array")
        check_addends(type, sharding.spec)
    places = sharding.addressable_devices_indices_map(type.shape)
    local = sharding.shard_shape(type.shape)
    cache: dict[Any, np.ndarray[Any, Any]] = {}
    shards: list[np.ndarray[Any, Any]] = []
    numbers = sharding.addends() if isinstance(sharding, NamedSharding) and sharding.spec.unreduced else ()
    addends = dict(zip(device_row(sharding), numbers, strict=False))
    for device, index in places.items():
        key = (addends.get(device, 0) == 0, *((s.start, s.stop) for s in index))
        if key not in cache:
            cache[key] = padded(array[index] if key[0] else np.zeros_like(array[index]), local)
        shards.append(cache[key])
    key = leaf_key(type, weak, sharding, committed)
    return with_shards(key, shards, list(places), alias)


def with_shards(key: LeafKey, shards: Sequence[Any], devices: Sequence[Any], alias: bool = False) -> Array:
    """The Array of these shards of this process, of which there may be none."""
    if devices:
        return Array(key, _jaxlib.put(shards, devices, row=key.layout, alias=alias))
    assert key.sharding is not None
    return Array(key, _jaxlib.without_shards(key.sharding.shard_shape(key.type.shape), key.type.dtype, key.layout))


def untouched_zeros(type: TensorType, sharding: Sharding, committed: bool, weak: bool) -> Array:
    """Zeros whose shards share memory that the host has not touched: on CPU devices they take none, however large they are."""
    local, places = sharding.shard_shape(type.shape), sharding.addressable_devices_indices_map(type.shape)
    size = max(math.prod(local) * type.dtype.itemsize, 1)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)  # the host reserves nothing for reading
    block = np.frombuffer(memory, type.dtype, math.prod(local)).reshape(local)
    return with_shards(leaf_key(type, weak, sharding, committed), [block] * len(places), list(places), alias=True)


def check_addends(type: TensorType, spec: PartitionSpec) -> None:
    """TypeError for bools that would be unreduced: they have no sum."""
    if spec.unreduced and type.dtype == np.bool_:
        raise TypeError(f"{type} cannot be {spec}: bools are not added up\n  fix: x.astype(int) is a sum of ones")


def is_unreduced(sharding: Sharding) -> bool:
    """Whether devices hold addends, of which one is the value and the others are zeros where it comes from elsewhere."""
    return isinstance(sharding, NamedSharding) and bool(sharding.spec.unreduced)


def device_row(sharding: Sharding) -> tuple[Any, ...]:
    """All devices of a sharding in the order in which programs number them."""
    return sharding._device_assignment  # pyright: ignore[reportPrivateUsage]


def meaning(sharding: Sharding, rank: int) -> Placement:
    """The placement of a value of this rank, written in the one normal way."""
    placement = sharding.placement(rank)
    return normalized(placement, sharding.mesh) if isinstance(sharding, NamedSharding) else placement


def same_place(a: Sharding, b: Sharding, rank: int) -> bool:
    """Whether both put the same shards of a value of this rank into the same memories, whatever their axes are called."""
    return memory_of(a) == memory_of(b) and same_devices(a, b, rank)


def same_devices(a: Sharding, b: Sharding, rank: int) -> bool:
    """The same for the devices alone, in whichever of their memories."""
    if device_row(a) != device_row(b):
        return False
    # Equal words of different meshes mean different things: P("x") on 2 by 3 devices is not P("x") on 3 by 2.
    same_words = getattr(a, "mesh", None) == getattr(b, "mesh", None) and meaning(a, rank) == meaning(b, rank)
    return same_words or a.is_equivalent_to(b.with_memory_kind(a.memory_kind), rank)


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
    if is_python_number(value):
        dtype = canonical(dtype_of_python_scalar(value), config.enable_x64)
        return np.asarray(value, dtype), dtype != np.bool_
    array = np.asarray(value)
    return np.asarray(array, canonical(array.dtype, config.enable_x64)), False


def move(array: Array, sharding: Sharding) -> Array:
    """An Array under another sharding, the cheapest way there is:

    nothing, where both say the same; copies from one memory of a device to another; a resharding program, on the same devices
    in the same order; copies from device to device, for as many devices in another order or other ones; messages between
    processes (`sending`), for which all that have devices of either must come here; else through this process's memory, whole.
    Only what lies in the devices' own memories is resharded and sent."""
    key = leaf_key(array.type, array.weak_type, sharding, True)
    if isinstance(sharding, NamedSharding):
        check_addends(array.type, sharding.spec)
    if same_place(array.sharding, sharding, array.ndim):
        return Array.over(key, array)
    if (memory_of(array.sharding), memory_of(sharding)) != (DEVICE, DEVICE):
        return _between_memories(key, array, sharding)
    way = _resharded if device_row(array.sharding) == device_row(sharding) else _sent
    moved = way(array, sharding)
    if moved is not None:
        return moved
    if _needs_others(array, sharding):
        array = _finished(array)
        if sending.is_meant_by_all(array, sharding):
            return with_shards(key, *sending.send(array, sharding))
    elif not array.sharding.has_addressable_devices:
        return with_shards(key, (), ())
    return place(_whole(array), sharding, committed=True, weak=array.weak_type)


def in_place_of(array: Array, other: Array) -> Array:
    """The array where another is, if that was placed. ShardingError where each was placed on other devices."""
    goal = other.sharding
    if not other.committed or (array.committed and array.sharding == goal):
        return array
    if array.committed and array.sharding.device_set != goal.device_set:
        raise ShardingError(
            f"an array on {array.sharding} is assigned to a Ref on {goal}\n"
            "  a Ref stays on its devices\n  fix: ref[...] = meshjit.device_put(x, ref.sharding)"
        )
    return move(array, goal)


def _between_memories(key: LeafKey, array: Array, sharding: Sharding) -> Array:
    if same_devices(array.sharding, sharding, array.ndim):
        return Array(key, _jaxlib.copy_to_layout(array._live(), key.layout))  # pyright: ignore[reportPrivateUsage]
    if memory_of(array.sharding) != DEVICE:
        array = move(array, array.sharding.with_memory_kind(DEVICE))
    return move(move(array, sharding.with_memory_kind(DEVICE)), sharding)


def _needs_others(array: Array, sharding: Sharding) -> bool:
    """Whether processes have to meet for this move. They need not where each has the whole value, or nothing to do with it."""
    me, source, target = client.process_index(), sending.processes_of(array.sharding), sending.processes_of(sharding)
    if me not in source | target or len(source | target) == 1:
        return False
    if len(source) == 1 and not array.committed:  # every process has its own
        return False
    return not (array.is_fully_replicated and len(target) == 1 and target <= source)


def _finished(array: Array) -> Array:
    """Without addends."""
    if not is_unreduced(array.sharding):
        return array
    from meshjit.runtime.resharding import reshard  # see `_resharded`

    assert isinstance(array.sharding, NamedSharding)
    return reshard(array, array.sharding.with_spec(array.sharding.spec.update(unreduced=())))


def _resharded(array: Array, sharding: Sharding) -> Array | None:
    """By a program; None if the axes of the two meshes cannot say the same things."""
    from meshjit.runtime.resharding import reshard  # which runs on Arrays that are placed
    from meshjit.runtime.shardings import spec_on

    if not isinstance(sharding, NamedSharding):
        return None
    spec = spec_on(sharding.mesh, array.sharding, array.ndim)
    if spec is None:
        return None
    same = NamedSharding(sharding.mesh, spec)  # where it is, in the words of the target's mesh
    return reshard(Array.over(leaf_key(array.type, array.weak_type, same, True), array), sharding)


def _sent(array: Array, sharding: Sharding) -> Array | None:
    """Each shard to the device at its place in the target's row, and from there on by a program."""
    source, row = array.sharding, device_row(sharding)
    if len(device_row(source)) != len(row) or not (source.is_fully_addressable and sharding.is_fully_addressable):
        return None
    there: Sharding = SingleDeviceSharding(row[0])
    if isinstance(source, NamedSharding):
        assert isinstance(source.mesh, Mesh)
        mesh = Mesh(_shaped(row, source.mesh.devices.shape), source.mesh.axis_names, source.mesh.axis_types)
        there = NamedSharding(mesh, source.spec)
    key = leaf_key(array.type, array.weak_type, there, True)
    sent = Array(key, _jaxlib.copy_to_devices(array, row))
    if any(a == b for a, b in zip(device_row(source), row, strict=True)):
        sent._shared = array.memory  # pyright: ignore[reportPrivateUsage] - these shards are not copied
    return move(sent, sharding)


def _shaped(row: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    devices = np.empty(len(row), dtype=object)
    devices[:] = row
    return devices.reshape(shape)


def _whole(array: Array) -> np.ndarray[Any, Any]:
    """All elements, on every process that has a part of them."""
    if is_unreduced(array.sharding) or not array._is_whole_on_each:
        from meshjit.runtime.resharding import reshard  # see `_resharded`

        assert isinstance(array.sharding, NamedSharding)
        array = reshard(array, array.sharding.with_spec(PartitionSpec()))
    return array.numpy()
