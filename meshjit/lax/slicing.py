"""Parts of arrays at known and at traced places, under jax.lax's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.numpy.places import as_int32, from_front, known_places, place_dtype, widened
from meshjit.numpy.promote import asarray, normal_axis, ops, promoted, shape_of, weak_of
from meshjit.numpy.shaping import expand_dims, slice_in_dim as _slice_in_dim, squeeze
from meshjit.trace import bind, line_of, user_source


def slice(x: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Any = None) -> Any:  # noqa: A001
    strides = (1,) * len(start_indices) if strides is None else tuple(strides)
    return bind(ops("slice"), asarray(x), start=tuple(start_indices), limit=tuple(limit_indices), strides=strides)


def slice_in_dim(x: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    start, limit, step = np.s_[start_index:limit_index:stride].indices(shape_of(x)[axis])
    return _slice_in_dim(x, start, limit, step, axis)


def _starts(x: Any, start_indices: Any) -> list[Any]:
    """One scalar per dim, of one dtype that holds all places; negative ones counted from the end."""
    starts = start_indices if isinstance(start_indices, list | tuple) else [start_indices[i] for i in range(len(shape_of(x)))]
    dtype, operands = place_dtype(*shape_of(x)), []
    for start, extent in zip(starts, shape_of(x), strict=True):
        if isinstance(start, int | np.integer):
            operands.append(known_places(start + extent if start < 0 else start, dtype))
        else:
            start = as_int32(start) if place_dtype(extent) == np.int32 else start
            operands.append(widened(from_front(start, extent), dtype))
    return operands


def dynamic_slice(x: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Any:
    """A block of fixed sizes at a traced place; starts are clamped so that it fits."""
    sizes = tuple(int(n) for n in slice_sizes)
    return bind(ops("dynamic_slice"), asarray(x), *_starts(x, start_indices), slice_sizes=sizes, weak_type=weak_of(x))


def dynamic_update_slice(x: Any, update: Any, start_indices: Any) -> Any:
    """x with a block replaced; starts are clamped so that it fits."""
    (x, update), _ = promoted(x, update)
    return bind(ops("dynamic_update_slice"), x, update, *_starts(x, start_indices))


def dynamic_slice_in_dim(x: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    sizes = [slice_size if d == axis else n for d, n in enumerate(shape_of(x))]
    return dynamic_slice(x, [start_index if d == axis else 0 for d in range(len(sizes))], sizes)


def dynamic_update_slice_in_dim(x: Any, update: Any, start_index: Any, axis: int) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    return dynamic_update_slice(x, update, [start_index if d == axis else 0 for d in range(len(shape_of(x)))])


def dynamic_index_in_dim(x: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    result = dynamic_slice_in_dim(x, index, 1, axis)
    return result if keepdims else squeeze(result, axis)


def dynamic_update_index_in_dim(x: Any, update: Any, index: Any, axis: int) -> Any:
    if len(shape_of(update)) < len(shape_of(x)):
        update = expand_dims(update, axis)
    return dynamic_update_slice_in_dim(x, update, index, axis)


def index_in_dim(x: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """The slice at a known place, negative ones counted from the end; IndexError where there is none."""
    extent = shape_of(x)[normal_axis(axis, len(shape_of(x)))]
    if not -extent <= index < extent:
        where = f"dim {axis} of extent {extent}\n  at {line_of(user_source())}"
        raise IndexError(f"index_in_dim: index {index} is out of bounds for {where}")
    result = slice_in_dim(x, index, index + 1 or None, axis=axis)
    return result if keepdims else squeeze(result, axis)
