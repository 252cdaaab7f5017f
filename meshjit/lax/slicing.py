"""Parts of arrays at known and at traced places, and arrays side by side, under jax.lax's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.lax.operands import require_alike
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.places import as_int32, from_front, known_places, place_dtype, widened
from meshjit.numpy.promote import asarray, dtype_of, lifted, normal_axis, ops, shape_of, weak_of
from meshjit.numpy.rearranging import tile as _tile
from meshjit.numpy.shaping import expand_dims, slice_in_dim as _slice_in_dim, squeeze, stack as _stack, unstack as _unstack
from meshjit.trace import bind, line_of, user_source


def slice(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Any = None) -> Any:  # noqa: A001
    start, limit = shape_tuple(start_indices), shape_tuple(limit_indices)
    strides = (1,) * len(start) if strides is None else shape_tuple(strides)
    return bind(ops("slice"), asarray(operand), start=start, limit=limit, strides=strides)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    """Elements start_index, start_index + stride, … below limit_index of one dim; negative places count from the end.

    TypeError for places that the dim does not have: nothing is clamped."""
    axis = normal_axis(axis, len(shape_of(operand)))
    extent = shape_of(operand)[axis]
    start, limit = 0 if start_index is None else int(start_index), extent if limit_index is None else int(limit_index)
    start, limit = start + extent if start < 0 else start, limit + extent if limit < 0 else limit
    if not 0 <= start <= limit <= extent or stride < 1:
        raise TypeError(
            f"slice_in_dim: from {start_index} to {limit_index} in steps of {stride} is no part of dim {axis} of"
            f" {shape_of(operand)}\n  at {line_of(user_source())}\n"
            f"  fix: 0 <= start <= limit <= {extent} and stride >= 1, or x[...], which clamps"
        )
    return _slice_in_dim(operand, start, limit, int(stride), axis)


def _starts(x: Any, start_indices: Any, from_end: Any = True) -> list[Any]:
    """One scalar per dim, of one dtype that holds all places; negative ones counted from the end, where `from_end` (one, or per
    dim) says so, else clamped as they are."""
    wraps = list(from_end) if isinstance(from_end, list | tuple) else [bool(from_end)] * len(shape_of(x))
    count = len(start_indices) if isinstance(start_indices, list | tuple) else (*shape_of(start_indices), 0)[0]
    if count != len(shape_of(x)):
        raise ValueError(
            f"there are {count} starts for the {len(shape_of(x))} dims of shape {shape_of(x)}\n  at {line_of(user_source())}\n"
            "  fix: one start per dim"
        )
    starts = start_indices if isinstance(start_indices, list | tuple) else [start_indices[i] for i in range(count)]
    dtype, operands = place_dtype(*shape_of(x)), []
    for start, extent, wrap in zip(starts, shape_of(x), wraps, strict=True):
        if dtype_of(start).kind not in "iu":
            raise TypeError(f"a start of a slice is an integer, got {dtype_of(start)}\n  at {line_of(user_source())}")
        if isinstance(start, int | np.integer):
            if start < 0 and not wrap:
                raise ValueError(
                    f"start {start} is before the first of {extent} places, and allow_negative_indices is False"
                    f"\n  at {line_of(user_source())}"
                )
            operands.append(known_places(start + extent if start < 0 else start, dtype))
        else:
            start = as_int32(start) if place_dtype(extent) == np.int32 else start
            operands.append(widened(from_front(start, extent) if wrap else start, dtype))
    return operands


def dynamic_slice(
    operand: Any, start_indices: Any, slice_sizes: Sequence[int], *, allow_negative_indices: Any = True
) -> Any:
    """A block of fixed sizes at a traced place; starts are clamped so that it fits."""
    sizes = tuple(int(n) for n in slice_sizes)
    starts = _starts(operand, start_indices, allow_negative_indices)
    return bind(ops("dynamic_slice"), asarray(operand), *starts, slice_sizes=sizes, weak_type=weak_of(operand))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: Any = True) -> Any:
    """x with a block replaced; starts are clamped so that it fits."""
    operand, update = asarray(operand), asarray(update)
    starts = _starts(operand, start_indices, allow_negative_indices)
    require_alike("dynamic_update_slice", operand, update)
    return bind(ops("dynamic_update_slice"), operand, update, *starts)


def _first_if_before(start: Any, from_end: Any) -> Any:
    """A known negative start, where these are not counted from the end, is the first place; `dynamic_slice` refuses it."""
    return 0 if isinstance(start, int | np.integer) and start < 0 and not from_end else start


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *, allow_negative_indices: Any = True
) -> Any:
    axis = normal_axis(axis, len(shape_of(operand)))
    sizes = [slice_size if d == axis else n for d, n in enumerate(shape_of(operand))]
    starts = [_first_if_before(start_index, allow_negative_indices) if d == axis else 0 for d in range(len(sizes))]
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: Any = True
) -> Any:
    axis = normal_axis(axis, len(shape_of(operand)))
    start = _first_if_before(start_index, allow_negative_indices)
    starts = [start if d == axis else 0 for d in range(len(shape_of(operand)))]
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: Any = True
) -> Any:
    result = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return result if keepdims else squeeze(result, axis)


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: Any = True
) -> Any:
    if len(shape_of(update)) < len(shape_of(operand)):
        update = expand_dims(update, axis)
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """The slice at a known place, negative ones counted from the end; IndexError where there is none."""
    extent = shape_of(operand)[normal_axis(axis, len(shape_of(operand)))]
    if not -extent <= index < extent:
        where = f"dim {axis} of extent {extent}\n  at {line_of(user_source())}"
        raise IndexError(f"index_in_dim: index {index} is out of bounds for {where}")
    result = slice_in_dim(operand, index, index + 1 or None, axis=axis)
    return result if keepdims else squeeze(result, axis)


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Neighbouring parts of these extents along a dim. ValueError where they are not the whole dim, or one is negative."""
    operand, sizes = asarray(operand), shape_tuple(sizes, unknown=True)
    dim = normal_axis(axis, len(shape_of(operand)))
    if min(sizes, default=0) < 0 or sum(sizes) != shape_of(operand)[dim]:
        raise ValueError(
            f"lax.split: sizes {sizes} have the sum {sum(sizes)}, dim {dim} of {shape_of(operand)} has extent"
            f" {shape_of(operand)[dim]}\n  at {line_of(user_source())}\n  fix: sizes of 0 or more whose sum is the extent"
        )
    stops = np.cumsum(sizes).tolist()
    return [_slice_in_dim(operand, stop - n, stop, axis=dim) for n, stop in zip(sizes, stops, strict=True)]


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of one shape and dtype along a new dim. TypeError where their dtypes differ, ValueError where their shapes do."""
    dtypes = [dtype_of(x) for x in operands]
    for i, dtype in enumerate(dtypes):
        if dtype != dtypes[0]:
            raise TypeError(
                f"lax.stack: array {i} is {dtype}, the first {dtypes[0]}\n  at {line_of(user_source())}\n  fix: jnp.stack"
            )
    return _stack(operands, axis)


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """The array over and over: reps[i] times along dim i. TypeError where there is not one number per dim."""
    reps, rank = shape_tuple(reps), len(shape_of(operand))
    if len(reps) != rank:
        raise TypeError(
            f"lax.tile: {len(reps)} numbers for {rank} dims\n  at {line_of(user_source())}\n  fix: one per dim, or jnp.tile"
        )
    return lifted(_tile(operand, reps))


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices along a dim."""
    return _unstack(x, axis=axis)
