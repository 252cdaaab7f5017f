"""Global arrays from what each process has: a callback, its own rows, or shards that lie on the devices already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.keys import KeyType, PRNGKeyArray
from meshjit.core.promotion import canonical
from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.runtime.placing import asarray_host, move, padded, place, with_shards
from sharding.memory import memory_of
from sharding.named import Index, NamedSharding, Sharding, SingleDeviceSharding
from sharding.spec import check_spec

Places = Mapping[Any, Index]  # device of this process → the slices of the logical array that it holds


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Index], Any], dtype: Any = None
) -> Array:
    """The array whose slices `data_callback(index)` gives (`jax.make_array_from_callback`).

    It is called once for each different slice that this process's devices hold; `index` has one `slice` per dim, as in
    `whole[index]`. Where extents do not divide, the last slices are shorter; empty ones are only asked for to learn a
    dtype. `dtype` must be that of the slices; it is needed where this process holds none.

    Raises ValueError for a slice of another shape or dtype than it should have."""
    where = "make_array_from_callback"
    if not callable(data_callback):
        raise TypeError(
            f"{where}: data_callback is no function, but of type {type(data_callback).__name__}\n"
            "  fix: lambda index: whole[index]; an array that is whole in every process is placed by meshjit.device_put"
        )
    shape = tuple(shape)
    if isinstance(dtype, KeyType):
        return _keys_from_callback(shape, sharding, data_callback, dtype)
    places = _places(shape, sharding, where)
    kind = None if dtype is None else canonical(dtype, config.enable_x64)
    blocks: dict[Any, np.ndarray[Any, Any]] = {}
    for index in sorted(places.values(), key=lambda index: 0 in _extents(index, shape)):  # stable: empty ones last
        if _key(index) in blocks:
            continue
        extents = _extents(index, shape)
        if 0 in extents and kind is not None:
            blocks[_key(index)] = np.empty(extents, kind)
            continue
        given = data_callback(index)
        if isinstance(given, PRNGKeyArray):
            return _keys_from_callback(shape, sharding, data_callback, given.dtype)
        block = asarray_host(given)[0]
        kind = _checked_block(block, index, extents, kind, where)
        blocks[_key(index)] = block
    key = _key_of(shape, kind, sharding, where)
    local = sharding.shard_shape(shape)
    shards = {device: padded(blocks[_key(index)], local) for device, index in places.items()}
    return with_shards(key, list(shards.values()), list(shards))


def _keys_from_callback(shape: tuple[int, ...], sharding: Sharding, data_callback: Callable[[Index], Any], dtype: KeyType) -> Any:
    """The same for arrays of keys, whose words lie beside one another."""
    words = (*shape, dtype.words)
    return PRNGKeyArray(
        dtype, make_array_from_callback(words, sharding, lambda index: np.asarray(data_callback(index[:-1]).words), np.uint32)
    )


def make_array_from_process_local_data(
    sharding: Sharding, local_data: Any, global_shape: Sequence[int] | None = None
) -> Array:
    """The array of which this process has `local_data` (`jax.make_array_from_process_local_data`).

    A dim of `local_data` is as long as the global dim: then this process's devices take their slices of it; or as long as
    what they hold together: then it is those slices, one after another. `global_shape` may be left out, or have None
    for a dim: then each process has an equal part of what the sharding cuts.

    Where this process has no device of the sharding, `global_shape` says the shape, and of `local_data` only the dtype counts.

    Raises ValueError where the extents fit neither way."""
    where = "make_array_from_process_local_data"
    data, weak = asarray_host(local_data)
    if not sharding.has_addressable_devices:
        return _without_data(sharding, data, weak, global_shape, where)
    shape = _global_shape(sharding, data.shape, global_shape, where)
    places = _places(shape, sharding, where)
    dims = [_dim_offsets(places, dim, shape[dim], data.shape[dim], where) for dim in range(data.ndim)]

    def part(index: Index) -> np.ndarray[Any, Any]:
        starts = [offsets[s.indices(n)[0]] for offsets, s, n in zip(dims, index, shape, strict=True)]
        sizes = _extents(index, shape)
        return data[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]

    key = _key_of(shape, data.dtype, sharding, where, weak)
    local = sharding.shard_shape(shape)
    shards = {device: padded(part(index), local) for device, index in places.items()}
    return with_shards(key, list(shards.values()), list(shards))


def _without_data(
    sharding: Sharding, data: np.ndarray[Any, Any], weak: bool, shape: Sequence[int | None] | None, where: str
) -> Array:
    if shape is None or None in shape:
        problem = f"{sharding} has no device of this process, so the shape is not known"
        raise ValueError(f"{where}: {problem}\n  fix: give global_shape")
    whole = tuple(int(n) for n in shape if n is not None)
    _places(whole, sharding, where)
    return with_shards(_key_of(whole, data.dtype, sharding, where, weak), (), ())


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """The array whose shards lie on this process's devices already, one Array per device, in any order
    (`jax.make_array_from_single_device_arrays`).

    The memory is shared with `arrays` where extents divide. A shard that is shorter than the others, or empty, is copied.

    Raises ValueError for a device without a shard, or a shard of another shape or dtype than it should have."""
    where = "make_array_from_single_device_arrays"
    shape = tuple(shape)
    places = _places(shape, sharding, where)
    by_device = _by_device(arrays, where)
    if set(by_device) != set(places):
        raise ValueError(
            f"{where}: arrays on devices {_ids(by_device)} were given, {sharding} has devices {_ids(places)} here\n"
            "  fix: give one array for each of sharding.addressable_devices"
        )
    kind = canonical(dtype, config.enable_x64) if dtype is not None else None
    for device, index in places.items():
        kind = _checked_block(by_device[device], index, _extents(index, shape), kind, where)
    key = _key_of(shape, kind, sharding, where, all(a.weak_type for a in arrays) and len(arrays) > 0)
    local = sharding.shard_shape(shape)
    handles = [_full_shard(by_device[device], local, device, sharding.memory_kind) for device in places]
    if not handles:
        return with_shards(key, (), ())
    array = Array(key, _jaxlib.from_single_device_handles(handles, row=key.layout))
    if len(handles) == 1 and next(iter(by_device.values())).shape == local:
        array._shared = next(iter(by_device.values())).memory  # pyright: ignore[reportPrivateUsage]
    return array


def live_arrays(platform: str | None = None) -> list[Array]:
    """The Arrays of this process on devices of a platform that are not deleted (`jax.live_arrays`)."""
    return _jaxlib.live_arrays(client.client(platform))


def _slice_fix(where: str) -> str:
    return "\n  fix: give whole[index] for the index that is asked for" if where == "make_array_from_callback" else ""


def _places(shape: tuple[int, ...], sharding: Sharding, where: str) -> Places:
    if not isinstance(sharding, Sharding):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{where}: expected a sharding, got {sharding!r}\n  fix: NamedSharding(mesh, P(...))")
    if isinstance(sharding, NamedSharding):
        check_spec(sharding.spec, shape, sharding.mesh, where)
    return sharding.addressable_devices_indices_map(shape)


def _extents(index: Index, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(len(range(*s.indices(n))) for s, n in zip(index, shape, strict=True))


def _key(index: Index) -> tuple[Any, ...]:
    return tuple((s.start, s.stop) for s in index)


def _checked_block(
    block: Any, index: Index, extents: tuple[int, ...], dtype: np.dtype[Any] | None, where: str
) -> np.dtype[Any]:
    """The dtype of a slice, which must have these extents and the dtype of the others."""
    what = "[" + ", ".join(f"{'' if s.start is None else s.start}:{'' if s.stop is None else s.stop}" for s in index) + "]"
    if tuple(block.shape) != extents:
        problem = f"the slice {what} has shape {extents}, was given one of shape {tuple(block.shape)}"
        raise ValueError(f"{where}: {problem}{_slice_fix(where)}")
    if dtype is not None and block.dtype != dtype:
        raise ValueError(
            f"{where}: the slice {what} has dtype {block.dtype}, expected {dtype}\n  fix: convert it with .astype({dtype})"
        )
    return block.dtype


def _key_of(shape: tuple[int, ...], dtype: Any, sharding: Sharding, where: str, weak: bool = False) -> LeafKey:
    if dtype is None:
        raise ValueError(f"{where}: the dtype cannot be known without a slice\n  fix: give dtype=")
    return leaf_key(TensorType(shape, dtype), weak, sharding, True)


def _global_shape(
    sharding: Sharding, local: tuple[int, ...], entries: Sequence[int | None] | None, where: str
) -> tuple[int, ...]:
    """`given`, with its Nones filled in."""
    target = [None] * len(local) if entries is None else list(entries)
    if len(target) != len(local):
        raise ValueError(f"{where}: global_shape {tuple(target)} has {len(target)} dims, local_data {local} has {len(local)}")
    if None not in target:
        return tuple(int(n) for n in target if n is not None)
    total, mine = _shard_counts(sharding, len(local))
    shape: list[int] = []
    for dim, (n, extent) in enumerate(zip(local, target, strict=True)):
        if extent is None and total[dim] != mine[dim] and n % mine[dim]:
            raise ValueError(
                f"{where}: dim {dim} of local_data has extent {n}, which its {mine[dim]} shards on this process do not divide\n"
                "  fix: give global_shape"
            )
        shape.append(n * total[dim] // mine[dim] if extent is None else extent)
    return tuple(shape)


def _shard_counts(sharding: Sharding, rank: int) -> tuple[list[int], list[int]]:
    """Per dim the number of its shards, of all and of those on this process."""
    many = (len(sharding.device_set),) * rank  # any extents that every shard has a part of
    everywhere = sharding.devices_indices_map(many).values()
    here = sharding.addressable_devices_indices_map(many).values()
    return [
        [len({_key(index)[dim] for index in indices}) for dim in range(rank)] for indices in (everywhere, here)
    ]  # pyright: ignore[reportReturnType]


def _dim_offsets(places: Places, dim: int, extent: int, local: int, where: str) -> dict[int, int]:
    """Where each of this process's slices of a dim begins in the local data: start in the global dim → start in the local."""
    bounds = sorted({index[dim].indices(extent)[:2] for index in places.values()})
    if local == extent:
        return {start: start for start, _ in bounds}
    if sum(stop - start for start, stop in bounds) != local:
        raise ValueError(
            f"{where}: dim {dim} of local_data has extent {local}; the global extent is {extent}, and this process holds "
            f"{sum(stop - start for start, stop in bounds)} of it\n"
            "  fix: give either the whole dim, or just what this process holds"
        )
    offsets: dict[int, int] = {}
    reached = 0
    for start, stop in bounds:
        offsets.setdefault(start, reached)
        reached += stop - start
    return offsets


def _by_device(arrays: Sequence[Array], where: str) -> dict[Any, Array]:
    by_device: dict[Any, Array] = {}
    for i, array in enumerate(arrays):
        if not isinstance(array, Array) or len(array.devices()) != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            what = f"on {len(array.devices())} devices" if isinstance(array, Array) else f"a {type(array).__name__}"
            fix = "meshjit.device_put(values, device)"
            raise TypeError(f"{where}: arrays[{i}] must be an Array on one device, it is {what}\n  fix: {fix}")
        (device,) = array.devices()
        if device in by_device:
            raise ValueError(f"{where}: two arrays are on device {device.id}: give one for each device")
        by_device[device] = array
    return by_device


def _ids(devices: Any) -> list[int]:
    return sorted(device.id for device in devices)


def _full_shard(array: Array, local: tuple[int, ...], device: Any, memory: str | None) -> Any:
    """The handle of a shard of the local shape, padding included, in this memory of its device."""
    there = SingleDeviceSharding(device, memory_kind=memory)
    if array.shape != local:
        return place(padded(array.numpy(), local), there, committed=True)
    return array if memory_of(array.sharding) == memory_of(there) else move(array, there)
