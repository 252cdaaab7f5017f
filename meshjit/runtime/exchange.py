"""Sharing memory with other libraries by DLPack, in both directions (https://dmlc.github.io/dlpack/latest/python_spec.html).

What is exchanged is one device's whole array. Nothing is copied where both sides can read the memory as it lies: out of
meshjit always; into it where it is compact, in C order and aligned to 64 bytes. Who imports memory and changes it
later changes our array, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import DTYPES, TensorType
from meshjit.runtime import _jaxlib, capsules, client
from meshjit.runtime.array import Array, leaf_key
from meshjit.runtime.placing import move, place
from sharding.named import Sharding, SingleDeviceSharding

CPU, CUDA = 1, 2  # DLDeviceType


def dlpack_device(array: Array) -> tuple[int, int]:
    """(DLDeviceType, id) of the only device; BufferError for an array on several, or where DLPack has no word for it."""
    device = _only_device(array)
    if device.platform == "cpu":
        return CPU, 0
    if device.platform in ("cuda", "gpu"):
        return CUDA, device.local_hardware_id
    raise BufferError(f"DLPack has no name for memory of {device}\n  fix: hand over numpy.asarray(x)")


def to_capsule(
    array: Array,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule of the array's memory, of the protocol's first form, which every version of readers takes.

    Raises BufferError for what cannot be handed over: several devices, another device than the array's, a dtype unknown to
    DLPack. Raises RuntimeError for a deleted array."""
    del max_version
    here = dlpack_device(array)
    if dl_device is not None and tuple(dl_device) != here:
        raise BufferError(
            f"Array {array.type} lies on DLPack's device {here}, it was asked for on {tuple(dl_device)}\n"
            "  fix: meshjit.device_put(x, device) first"
        )
    array._require_live()  # pyright: ignore[reportPrivateUsage]
    try:
        return _jaxlib.to_dlpack(array.copy() if copy else array, stream)
    except _jaxlib.XlaError as error:
        raise BufferError(f"Array {array.type} cannot be handed over by DLPack: {error}") from None


def _only_device(array: Array) -> Any:
    devices = array.devices()
    if len(devices) > 1:
        raise BufferError(
            f"Array {array.type} lies on {len(devices)} devices, DLPack knows arrays on one\n"
            "  fix: numpy.asarray(x), x.addressable_shards[i].data, or meshjit.device_put(x, device) first"
        )
    return next(iter(devices))


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of what any library's array holds (`jax.dlpack.from_dlpack`).

    `device` (a device, or a sharding of one) is where it shall be; None: where it is. `copy` None copies only what cannot
    be shared, True always, False never: then BufferError where a copy is needed. Without x64 64-bit types become their
    32-bit kin, which takes a copy."""
    if not (hasattr(external_array, "__dlpack__") and hasattr(external_array, "__dlpack_device__")):
        raise TypeError(
            f"from_dlpack takes an array with __dlpack__ and __dlpack_device__, not {type(external_array).__name__}\n"
            "  fix: pass the other library's array itself; a capsule does not say where its memory is"
        )
    here = _device_of(external_array.__dlpack_device__())
    array = _imported(external_array, here, copy)
    target = device if isinstance(device, Sharding | None) else SingleDeviceSharding(device)
    if target is None or target.device_set == {here}:
        return array
    if copy is False:
        raise BufferError(f"from_dlpack: a copy is needed to bring {array.type} from {here} to {device}")
    return move(array, target)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype can be handed over (`jax.dlpack.is_supported_dtype`). TypeError for what is no dtype."""
    dtype = np.dtype(dtype)
    return dtype == DTYPES["bf16"] or (dtype.kind in "biufc" and dtype in DTYPES.values())


def _device_of(dlpack: tuple[int, int]) -> Any:
    kind, number = int(dlpack[0]), int(dlpack[1])
    platform = {CPU: "cpu", CUDA: "cuda"}.get(kind)
    if platform is None:
        raise BufferError(f"from_dlpack: memory of DLPack's device type {kind} cannot be read; CPU is 1, CUDA is 2")
    devices = client.local_devices(backend=platform)
    if platform == "cpu":
        return devices[0]
    device = next((d for d in devices if d.local_hardware_id == number), None)
    if device is None:
        raise BufferError(f"from_dlpack: this process does not use CUDA device {number}; it uses {devices}")
    return device


def _imported(external: Any, device: Any, copy: bool | None) -> Array:
    if copy is True and device.platform != "cpu":
        return _shared(external, device, must_share=False).copy()
    if copy is not True:
        try:
            return _shared(external, device, must_share=copy is False)
        except (BufferError, _jaxlib.XlaError) as error:
            if copy is False or device.platform != "cpu":
                raise BufferError(f"from_dlpack: this array cannot be shared: {error}") from None
    # What DLPack cannot say (read-only memory, foreign byte order, steps) NumPy may still be able to read.
    value = np.array(external) if hasattr(external, "__array__") else np.array(np.from_dlpack(external))
    return place(np.asarray(value, canonical(value.dtype, config.enable_x64)), SingleDeviceSharding(device), committed=True)


def _shared(external: Any, device: Any, must_share: bool) -> Array:
    """The array over the same memory, if XLA can read it as it lies; else over a copy that jaxlib made, or that a transpose makes
    on the device."""
    stream = _jaxlib.stream_for_others(device)
    capsule = external.__dlpack__() if stream is None else external.__dlpack__(stream=stream)
    held = capsules.read(capsule)
    order = _readable_order(held, device, must_share)
    with capsules.in_order(capsule, held, order) as shape:
        handle = _jaxlib.from_dlpack(capsule, device, stream, None if held.dtype is None else (shape, held.dtype))
    shape, dtype = _jaxlib.shard_type(handle)
    own_dtype = canonical(dtype, config.enable_x64)
    if must_share and (own_dtype != dtype or (held.address != _jaxlib.buffer_address(handle) and np.prod(shape))):
        raise BufferError(f"a copy of {dtype}{list(shape)} is needed, for its alignment or dtype")
    if dtype not in DTYPES.values():
        raise TypeError(f"from_dlpack: dtype {dtype} has no meaning on a device; supported are {', '.join(DTYPES)}")
    array: Any = Array(leaf_key(TensorType(shape, dtype), False, SingleDeviceSharding(device), True), handle)
    if own_dtype == dtype and _is_in_c_order(order):
        return array
    copied = array if own_dtype == dtype else array.astype(own_dtype)
    copied = copied if _is_in_c_order(order) else copied.transpose(np.argsort(order).tolist())
    return copied.block_until_ready()  # who owns the memory may write to it as soon as this returns


def _readable_order(held: capsules.Held, device: Any, must_share: bool) -> tuple[int, ...]:
    """The order in which the dims lie. BufferError where XLA cannot read them so, or would have to copy what must be shared. What
    lies on the host in another order than C's is refused, too: NumPy copies it."""
    order = held.order()
    if order is None:
        text = f"it has gaps: strides {held.strides} of elements {list(held.shape)}"
    elif not _is_in_c_order(order) and (must_share or device.platform == "cpu"):
        text = f"its elements are not in C order: strides {held.strides} of elements {list(held.shape)}"
    else:
        return order
    raise BufferError(f"{text}\n  fix: pass x.contiguous() of PyTorch, cupy.ascontiguousarray(x), numpy.ascontiguousarray(x)")


def _is_in_c_order(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
