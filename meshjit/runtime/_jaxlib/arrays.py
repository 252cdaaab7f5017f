"""Handles: the shards of one array. Putting, fetching, taking apart and together, waiting, deleting, exchanging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.errors import OutOfMemoryError
from meshjit.runtime._jaxlib import array_class
from meshjit.runtime._jaxlib.array_class import raw_aval
from meshjit.runtime._jaxlib.base import ShardType, XlaError
from meshjit.runtime._jaxlib.clients import is_absent
from meshjit.runtime._jaxlib.layouts import Aval, Layout, device_list, shared_layout
from meshjit.runtime._jaxlib.without_jax import NO_JAX

_COPY_AT_ONCE = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_ALIAS = _jax.HostBufferSemantics.ZERO_COPY
_ALWAYS_COPY = _jax.ArrayCopySemantics.ALWAYS_COPY


def put(
    shards: Sequence[Any], devices: Sequence[Any], row: Sequence[Any] | Layout | None = None, alias: bool = False
) -> Any:
    """Place one shard on each device; all shards have one shape and dtype.

    `shards` are NumPy arrays (or one-shard handles, which are copied across devices: by way of the host from those of
    another platform); `devices` are this process's, in the row's order; `row` is the whole row where it spans processes,
    or the layout that the handle shall have. With `alias` the device may read the NumPy memory for as long as the handle
    lives: only for arrays that nobody will write to."""
    layout = _checked_layout(shards, devices, row)
    aval = Aval(shards[0].shape, shards[0].dtype.newbyteorder("=")) if _is_host(shards[0]) else raw_aval(shards[0])
    sources = [_native(s) if _is_host(s) else _within_reach(s, d) for s, d in zip(shards, devices, strict=True)]
    _check_present(devices[0])
    if not alias and _share_memory(sources):
        one_each = zip(sources, devices, strict=True)
        return _assemble(aval, layout, [_put_one(aval, *pair, layout.memory_kind) for pair in one_each])
    return _put_all(aval, layout, sources, devices, _ALIAS if alias else _COPY_AT_ONCE)


def put_whole(array: np.ndarray, layout: Layout, alias: bool = False) -> Any:
    """The same of an array that lies whole on the one device of a layout, which is this process's."""
    _check_present(layout.row[0])
    source = _native(array)
    return _put_all(Aval(source.shape, source.dtype), layout, [source], layout.row, _ALIAS if alias else _COPY_AT_ONCE)


def _check_present(device: Any) -> None:
    if is_absent(device):
        raise RuntimeError(
            f"{device.device_kind} {device.id} is a device of a topology: programs are compiled for it, none runs on it"
        )


def _put_all(aval: Aval, layout: Layout, sources: Sequence[Any], devices: Sequence[Any], semantics: Any) -> Any:
    with NO_JAX:
        return _jax.batched_device_put(
            aval, layout, sources, list(devices), True, host_buffer_semantics=semantics, enable_x64=True
        )


def _put_one(aval: Aval, source: Any, device: Any, memory: str | None) -> Any:
    return _single(_put_all(aval, shared_layout((device,), memory), [source], [device], _COPY_AT_ONCE))


def _share_memory(sources: Sequence[Any]) -> bool:
    """Whether two shards start at one address: jaxlib then fails (bad_function_call) unless it may alias."""
    starts = [source.__array_interface__["data"][0] for source in sources if _is_host(source)]
    return len(set(starts)) < len(starts)


def _is_host(shard: Any) -> bool:
    return isinstance(shard, np.ndarray)


def _checked_layout(shards: Sequence[Any], devices: Sequence[Any], row: Sequence[Any] | Layout | None) -> Layout:
    """The layout of the row, for which the shards must fit; jaxlib itself would crash on some that do not."""
    if len(shards) != len(devices) or not shards:
        raise ValueError(f"{len(shards)} shards for {len(devices)} devices: need one per device of this process")
    layout = row if isinstance(row, Layout) else shared_layout(tuple(devices if row is None else row))
    if tuple(devices) != layout.local:
        ids = [[device.id for device in group] for group in (devices, layout.local)]
        raise ValueError(f"shards for devices {ids[0]}, but this process has devices {ids[1]} of the row")
    types = {(s.shape, s.dtype) if _is_host(s) else shard_type(s) for s in shards}
    if len(types) > 1:
        raise ValueError(f"shards differ in shape or dtype: {sorted(map(str, types))}")
    return layout


def _native(array: np.ndarray) -> np.ndarray:
    """In C order and the machine's byte order, which is all that jaxlib reads rightly."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def shard_type(handle: Any) -> ShardType:
    """Shape and dtype of each shard."""
    aval = raw_aval(handle)
    return aval.shape, aval.dtype


def handle_devices(handle: Any) -> tuple[Any, ...]:
    """This process's devices of the handle, in the order of `fetch` and `shard`."""
    return handle._sharding.local


def _singles(handle: Any) -> list[Any]:
    """jaxlib's single-device arrays of this process, in row order. Its list is cached in the handle."""
    if handle.is_deleted():
        raise RuntimeError("the array was deleted or donated to a computation; its shards are gone")
    with NO_JAX:
        return handle._arrays


def _single(handle: Any) -> Any:
    singles = _singles(handle)
    if len(singles) != 1:
        raise ValueError(f"a handle of one shard is needed, this one has {len(singles)}")
    return singles[0]


def _within_reach(handle: Any, device: Any) -> Any:
    """What jaxlib can copy to the device: the one shard, or its elements where it lies on another platform's device."""
    single = _single(handle)
    return single if handle_devices(handle)[0].client is device.client else fetch(handle)[0][1]


def fetch(handle: Any) -> list[tuple[Any, np.ndarray]]:
    """(device, read-only array) for each shard of this process; waits; without a copy on CPU."""
    singles = _singles(handle)
    block(handle)  # not under the lock below
    with NO_JAX:
        arrays = [single._single_device_array_to_np_array_did_copy()[0] for single in singles]
    return list(zip(handle_devices(handle), arrays, strict=True))


def shard(handle: Any, index: int) -> Any:
    """A handle of the `index`-th shard of this process alone. It shares the memory, and is deleted with it."""
    device, single = handle_devices(handle)[index], _singles(handle)[index]
    return _assemble(raw_aval(handle), shared_layout((device,), handle._sharding.memory_kind), [single])


def from_single_device_handles(handles: Sequence[Any], row: Sequence[Any] | Layout | None = None) -> Any:
    """One handle of several one-shard handles, in the row's order; the inverse of `shard`."""
    devices = [handle_devices(handle)[0] for handle in handles]
    layout = _checked_layout(handles, devices, row)
    return _assemble(raw_aval(handles[0]), layout, [_single(handle) for handle in handles])


def _assemble(aval: Aval, layout: Layout, singles: list[Any]) -> Any:
    return _jax.ArrayImpl(aval, layout, singles, committed=True, _skip_checks=True)


def without_shards(shape: Sequence[int], dtype: Any, layout: Layout) -> Any:
    """A handle of a row in which no device is this process's."""
    return _assemble(Aval(shape, dtype), layout, [])


def in_layout(handle: Any, layout: Layout) -> Any:
    """The handle itself if it has this layout, else another over the same memory, which is deleted with it."""
    return handle if handle._sharding is layout else handle._rewrap_with_aval_and_sharding(raw_aval(handle), layout)


def copy_to_devices(handle: Any, devices: Sequence[Any]) -> Any:
    """The i-th shard of this process copied to `devices[i]`; a shard already there is shared, not copied."""
    return put([shard(handle, i) for i in range(len(devices))], devices)


def copy_to_layout(handle: Any, layout: Layout) -> Any:
    """All shards of this process copied into another memory of the same devices."""
    if not layout.local:
        return without_shards(*shard_type(handle), layout)
    rows = [shared_layout((device,), layout.memory_kind) for device in layout.local]
    devices, copy = [device_list(row.row) for row in rows], [_ALWAYS_COPY] * len(rows)
    with NO_JAX:  # one by one: jaxlib refuses arrays of several processes
        copied = _jax.batched_copy_array_to_devices_with_sharding(_singles(handle), devices, rows, copy)
    return _assemble(raw_aval(handle), layout, copied)


def block(handle: Any) -> None:
    """Wait until every local shard is computed; raises what its computation raised."""
    try:
        array_class.raw_block(handle)
    except XlaError as error:
        raise _failed(handle, error) from None


def _failed(handle: Any, error: RuntimeError) -> RuntimeError:
    """What a program raised while it ran, behind the call that started it."""
    shape, dtype = shard_type(handle)
    reason, what = str(error).strip(), f"the program that computes {dtype}{list(shape)} on each device"
    if "RESOURCE_EXHAUSTED" not in reason:
        return type(error)(f"{what} failed while it ran: {reason}")
    return OutOfMemoryError(
        f"{what} ran out of memory while it ran: {reason}\n"
        "  fix: f.lower(...).compile().memory_analysis() says what a function needs; shard what is large over more devices,\n"
        "  donate arguments, checkpoint what a derivative keeps, or compute in parts"
    )


def is_ready(handle: Any) -> bool:
    return array_class.raw_is_ready(handle)


def delete(handle: Any) -> None:
    """Give the memory back now. Reading the handle afterwards raises RuntimeError."""
    array_class.raw_delete(handle)


def is_deleted(handle: Any) -> bool:
    return handle.is_deleted()


def copy_to_host_async(handle: Any) -> None:
    """Start the copy that `fetch` will wait for."""
    singles = _singles(handle)
    with NO_JAX:
        for single in singles:
            single._copy_single_device_array_to_host_async()


def to_dlpack(handle: Any, stream: int | None = None) -> Any:
    """A DLPack capsule of a one-shard handle; shares the memory."""
    single = _single(handle)
    with NO_JAX:
        return _jax.buffer_to_dlpack_managed_tensor(single, stream=stream)


def stream_for_others(device: Any) -> int | None:
    """DLPack's `stream` of a GPU, None of a CPU: another library lets it wait until its own writes are over."""
    return None if device.platform == "cpu" else device.get_stream_for_external_ready_events()


def from_dlpack(capsule: Any, device: Any, stream: int | None = None, type: ShardType | None = None) -> Any:
    """A one-shard handle of a DLPack capsule on `device`, whose elements are in C order. It shares the memory if that is aligned.
    Without `type` the elements are copied to the host, since only that says what they are."""
    with NO_JAX:
        single = _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream)
        if type is None:
            value = single._single_device_array_to_np_array_did_copy()[0]  # it has no aval
            type = value.shape, value.dtype
    return _assemble(Aval(*type), shared_layout((device,)), [single])


def buffer_address(handle: Any) -> int:
    """Where the memory of a one-shard handle begins, on its device."""
    block(handle)
    return array_class.raw_address(_single(handle))


def size_on_devices(handle: Any) -> int:
    """Bytes of all shards of this process, padding included."""
    return sum(array_class.raw_size_on_devices(single) for single in _singles(handle))


def live_arrays(client: Any) -> list[Any]:
    """The Arrays that are alive on a client's devices."""
    arrays = client.live_arrays()
    return [array for array in arrays if array_class.is_ours(array._sharding) and not array.is_deleted()]
