"""Arrays of one value: where a device or a sharding says, or where another array is."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.api.putting import ShapeDtypeStruct, device_put
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import TensorType, is_inexact
from meshjit.numpy.arguments import as_dtype, shape_tuple
from meshjit.numpy.promote import exactly, ops, shape_of, value
from meshjit.runtime.array import Array
from meshjit.runtime.placing import default_sharding, place as place_array
from meshjit.runtime.resharding import filled
from meshjit.trace import Argument, Tracer, active_trace, bind, line_of, user_source, vary, varying_of
from meshjit.trace.explicit import sharding_in_type
from meshjit.trace.float0 import float0_zeros
from meshjit.trace.meshes import is_without_devices
from meshjit.trace.shaped import axes_of
from sharding.mesh import AbstractMesh, Mesh, named_mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.spec import PartitionSpec, check_spec


def dtype_or_default(dtype: Any, default: Any = np.float32) -> np.dtype[Any]:
    if dtype is None:
        return canonical(np.dtype(np.float64), config.enable_x64) if default is np.float32 else np.dtype(default)
    return canonical(as_dtype(dtype), config.enable_x64)


def placed(x: Any, device: Any) -> Any:
    """An array on a device or under a sharding, or as it is if none is given; inside jit a constraint."""
    return x if device is None else device_put(x, device)


def beside(numbers: np.ndarray[Any, Any], x: Any) -> Any:
    """What was worked out on the host of the elements of x: whole, on all devices that somebody put x on."""
    if not isinstance(x, Array) or not x.committed or active_trace() is not None:
        return bind(ops("copy"), numbers)
    sharding = x.sharding
    return device_put(numbers, sharding.with_spec(PartitionSpec()) if isinstance(sharding, NamedSharding) else sharding)


def filled_with(shape: tuple[int, ...], fill_value: Any, dtype: np.dtype[Any], weak: bool, place: Any) -> Any:
    """Each device of `place` makes its own part; None: where the value is."""
    operand = exactly(fill_value, dtype, weak)
    own_shape = shape_of(operand)
    if len(own_shape) > len(shape) or any(n not in (1, extent) for n, extent in zip(own_shape[::-1], shape[::-1], strict=False)):
        raise ValueError(f"full: a value of shape {own_shape} cannot be broadcast to {shape}\n  at {line_of(user_source())}")
    if place is not None and active_trace() is None and not isinstance(operand, Tracer):
        return filled(_array_of(operand, weak), shape, _sharding(place, shape))
    if own_shape == shape:
        return placed(bind(ops("copy"), operand, weak_type=weak) if isinstance(operand, np.ndarray) else operand, place)
    dims = tuple(range(len(shape) - len(own_shape), len(shape)))
    return placed(bind(ops("broadcast_in_dim"), operand, shape=shape, dimensions=dims, weak_type=weak), place)


def _array_of(operand: Any, weak: bool) -> Array:
    return operand if isinstance(operand, Array) else place_array(operand, default_sharding(), committed=False, weak=weak)


def _sharding(place: Any, shape: tuple[int, ...]) -> Sharding:
    """A sharding that fits the shape; of a device that device's."""
    if isinstance(place, NamedSharding):
        check_spec(place.spec, shape, place.mesh, "the array")
    return place if isinstance(place, Sharding) else SingleDeviceSharding(place)


def zeros_of(a: Argument) -> Any:
    """Zeros as a tangent of such a value: of its type, and where that says that it is; of integers, of dtype float0."""
    if not is_inexact(a.type.dtype):
        return float0_zeros(a.type.shape)
    return vary(filled_with(a.type.shape, np.zeros((), a.type.dtype), a.type.dtype, False, a.sharding), a.varying)


@takes_out_sharding
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """`numpy.full_like`; weak if x is and no dtype is given. x is an array, or a ShapeDtypeStruct.

    `device`: a device or a sharding. Without one it lies where x was put, unless x is sharded and has another shape."""
    type, weak = _kind(a)
    extents = type.shape if shape is None else shape_tuple(shape)
    place = _place_of(a, type.shape, extents) if device is None else device
    axes = axes_of(a.manual_axis_type) if isinstance(a, ShapeDtypeStruct) else varying_of(a)
    weak = weak and dtype is None and not shape_of(fill_value)
    return vary(filled_with(extents, fill_value, dtype_or_default(dtype, type.dtype), weak, place), axes)


def _kind(x: Any) -> tuple[TensorType, bool]:
    """Type and weakness of an array, or of what says its shape and dtype alone."""
    if hasattr(x, "shape") and hasattr(x, "dtype") and not hasattr(x, "__array__"):
        return TensorType(tuple(x.shape), canonical(np.dtype(x.dtype), config.enable_x64)), getattr(x, "weak_type", False)
    _, type, weak = value(x)
    return type, weak


def _place_of(x: Any, shape: tuple[int, ...], target: tuple[int, ...]) -> Sharding | None:
    """Where somebody put x, if an array of the wanted shape can lie there; inside of a trace only where its type says so."""
    if isinstance(x, Tracer):
        return sharding_in_type(x) if shape == target else None
    sharding = getattr(x, "sharding", None)
    if active_trace() is not None or not isinstance(sharding, Sharding) or not getattr(x, "committed", True):
        return None
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        here = named_mesh()
        if not isinstance(here, Mesh) or not is_without_devices(sharding.mesh, here):
            return None
        sharding = NamedSharding(here, sharding.spec)
    if shape == target or not isinstance(sharding, NamedSharding):
        return sharding
    return sharding.with_spec(PartitionSpec()) if sharding.is_fully_replicated else None
