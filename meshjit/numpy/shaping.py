"""Functions that move elements without computing on them: reshape, transpose, concatenate, pad, roll, …"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.trace import bind, line_of, user_source


def reshape(x: Any, *shape: Any, order: str = "C") -> Any:
    """`numpy.reshape`; one extent may be -1. ValueError, with both sizes and the user's line, if sizes differ."""
    if order != "C":
        raise ValueError(f"reshape: only order='C' is supported, got {order!r}; transpose before and after instead")
    operand, type, weak = value(x)
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    wanted = tuple(int(n) for n in wanted)
    known = math.prod(n for n in wanted if n != -1)
    full = tuple(type.size // known if n == -1 and known else n for n in wanted)
    if math.prod(full) != type.size or wanted.count(-1) > 1 or any(n < 0 for n in full):
        raise ValueError(
            f"cannot reshape {type.shape} ({type.size} elements) to {wanted}\n  at {line_of(user_source())}"
        )
    return operand if full == type.shape else bind(ops("reshape"), operand, shape=full, weak_type=weak)


def ravel(x: Any) -> Any:
    return reshape(x, -1)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    operand, type, weak = value(x)
    order = tuple(reversed(range(type.rank))) if axes is None else tuple(normal_axis(a, type.rank) for a in axes)
    return operand if order == tuple(range(type.rank)) else bind(ops("transpose"), operand, permutation=order, weak_type=weak)


permute_dims = transpose


def matrix_transpose(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    rank = len(shape_of(x))
    order = list(range(rank))
    i, j = normal_axis(axis1, rank), normal_axis(axis2, rank)
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    rank = len(shape_of(x))
    froms, tos = normal_axes(source, rank), normal_axes(destination, rank)
    order = [d for d in range(rank) if d not in froms]
    for to, start in sorted(zip(tos, froms, strict=True)):
        order.insert(to, start)
    return transpose(x, order)


def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    return moveaxis(x, axis, start - 1 if axis < start else start)


def expand_dims(x: Any, axis: Any) -> Any:
    shape = shape_of(x)
    count = 1 if isinstance(axis, int) else len(axis)
    new = normal_axes(axis, len(shape) + count)
    rest = iter(shape)
    return reshape(x, tuple(1 if d in new else next(rest) for d in range(len(shape) + count)))


def squeeze(x: Any, axis: Any = None) -> Any:
    shape = shape_of(x)
    gone = tuple(d for d, n in enumerate(shape) if n == 1) if axis is None else normal_axes(axis, len(shape))
    for d in gone:
        if shape[d] != 1:
            raise ValueError(f"squeeze: dim {d} of shape {shape} has extent {shape[d]}, not 1\n  at {line_of(user_source())}")
    return reshape(x, tuple(n for d, n in enumerate(shape) if d not in gone))


def broadcast_arrays(*xs: Any) -> list[Any]:
    shape = broadcast_shapes(*(shape_of(x) for x in xs))
    return [broadcast_to(x, shape) for x in xs]


def atleast_1d(*xs: Any) -> Any:
    found = [reshape(x, 1) if not shape_of(x) else asarray(x) for x in xs]
    return found[0] if len(found) == 1 else found


def atleast_2d(*xs: Any) -> Any:
    found = [reshape(x, (1,) * (2 - len(shape_of(x))) + shape_of(x)) if len(shape_of(x)) < 2 else asarray(x) for x in xs]
    return found[0] if len(found) == 1 else found


def concatenate(xs: Sequence[Any], axis: int | None = 0, dtype: Any = None) -> Any:
    """`numpy.concatenate`; axis None flattens first."""
    xs = [ravel(x) for x in xs] if axis is None else list(xs)
    if not xs:
        raise ValueError("concatenate: needs at least one array")
    operands, weak = promoted(*xs)
    operands = [cast(x, dtype) for x in operands] if dtype is not None else operands
    dim = normal_axis(axis or 0, len(shape_of(operands[0])))
    return operands[0] if len(operands) == 1 else bind(ops("concatenate"), *operands, dimension=dim, weak_type=weak)


concat = concatenate


def stack(xs: Sequence[Any], axis: int = 0) -> Any:
    xs = list(xs)
    if not xs:
        raise ValueError("stack: needs at least one array")
    dim = normal_axis(axis, len(shape_of(xs[0])) + 1)
    return concatenate([expand_dims(x, dim) for x in xs], dim)


def hstack(xs: Sequence[Any]) -> Any:
    xs = [atleast_1d(x) for x in xs]
    return concatenate(xs, 0 if len(shape_of(xs[0])) == 1 else 1)


def vstack(xs: Sequence[Any]) -> Any:
    return concatenate([atleast_2d(x) for x in xs], 0)


def column_stack(xs: Sequence[Any]) -> Any:
    return concatenate([reshape(x, (-1, 1)) if len(shape_of(x)) == 1 else asarray(x) for x in xs], 1)


def slice_in_dim(x: Any, start: int, limit: int, stride: int = 1, axis: int = 0) -> Any:
    """Elements start, start + stride, … below limit of one dim."""
    operand, type, weak = value(x)
    starts, limits, strides = [0] * type.rank, list(type.shape), [1] * type.rank
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    params = {"start": tuple(starts), "limit": tuple(limits), "strides": tuple(strides)}
    return operand if limits == list(type.shape) and not any(starts) and stride == 1 else bind(
        ops("slice"), operand, **params, weak_type=weak)  # fmt: skip


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`numpy.split`: into equal parts, or before the given indices."""
    shape = shape_of(x)
    axis = normal_axis(axis, len(shape))
    extent = shape[axis]
    if isinstance(indices_or_sections, int | np.integer):
        if extent % indices_or_sections:
            raise ValueError(f"split: {extent} cannot be divided into {indices_or_sections} equal parts; use array_split")
        return array_split(x, indices_or_sections, axis)
    bounds = [0, *(min(max(int(i) + (extent if i < 0 else 0), 0), extent) for i in indices_or_sections), extent]
    return [slice_in_dim(x, a, max(a, b), axis=axis) for a, b in zip(bounds, bounds[1:], strict=False)]


def array_split(x: Any, sections: int, axis: int = 0) -> list[Any]:
    extent = shape_of(x)[axis]
    each, more = divmod(extent, int(sections))
    sizes = [each + (i < more) for i in range(int(sections))]
    bounds = np.cumsum([0, *sizes]).tolist()
    axis = normal_axis(axis, len(shape_of(x)))
    return [slice_in_dim(x, a, b, axis=axis) for a, b in zip(bounds, bounds[1:], strict=False)]


def repeat(x: Any, repeats: int, axis: int | None = None) -> Any:
    """Every element `repeats` times (an int)."""
    x = ravel(x) if axis is None else asarray(x)
    shape = shape_of(x)
    dim = normal_axis(axis or 0, len(shape))
    wide = broadcast_to(expand_dims(x, dim + 1), (*shape[: dim + 1], int(repeats), *shape[dim + 1 :]))
    return reshape(wide, (*shape[:dim], shape[dim] * int(repeats), *shape[dim + 1 :]))


def tile(x: Any, reps: Any) -> Any:
    reps = (reps,) if isinstance(reps, int) else tuple(reps)
    shape = shape_of(x)
    rank = max(len(reps), len(shape))
    shape, reps = (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(reps)) + reps
    x = reshape(x, shape)
    wide = broadcast_to(reshape(x, sum(((1, n) for n in shape), ())), sum(zip(reps, shape, strict=True), ()))
    return reshape(wide, tuple(r * n for r, n in zip(reps, shape, strict=True)))


def flip(x: Any, axis: Any = None) -> Any:
    dims = normal_axes(axis, len(shape_of(x)))
    return bind(ops("reverse"), asarray(x), dimensions=dims) if dims else asarray(x)


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """`numpy.roll` by Python ints: two slices put together."""
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), shape_of(x))
    axes = normal_axes(axis, len(shape_of(x)))
    shifts = (shift,) * len(axes) if isinstance(shift, int | np.integer) else tuple(shift)
    for amount, dim in zip(shifts, axes, strict=True):
        extent = shape_of(x)[dim]
        cut = (-int(amount)) % extent if extent else 0
        if cut:
            x = concatenate([slice_in_dim(x, cut, extent, axis=dim), slice_in_dim(x, 0, cut, axis=dim)], dim)
    return asarray(x)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """`numpy.pad` with mode constant, edge, reflect, symmetric or wrap."""
    x = asarray(x)
    widths = np.broadcast_to(np.asarray(pad_width), (len(shape_of(x)), 2)).tolist()
    if mode == "constant":
        fill = cast(constant_values, dtype_of(x))
        low, high = (tuple(int(w[i]) for w in widths) for i in (0, 1))
        return bind(ops("pad"), x, fill, low=low, high=high, interior=(0,) * len(widths))
    for dim, (before, after) in enumerate(widths):
        x = _pad_dim(x, dim, int(before), int(after), mode)
    return x


def _pad_dim(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    extent = shape_of(x)[dim]
    if not before and not after:
        return x
    places = np.pad(np.arange(extent), (before, after), mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]
    runs, start = [], 0
    for i in range(1, len(places) + 1):  # neighbouring places become one slice, forwards or backwards
        if i == len(places) or (i - start > 1 and places[i] - places[i - 1] != places[start + 1] - places[start]) or (
            i - start == 1 and abs(places[i] - places[i - 1]) > 1
        ):
            runs.append(places[start:i])
            start = i
    return concatenate([_run(x, dim, run) for run in runs], dim)


def _run(x: Any, dim: int, places: Any) -> Any:
    low, high = int(min(places)), int(max(places))
    part = slice_in_dim(x, low, high + 1, axis=dim)
    if low == high:
        return repeat(part, len(places), dim)
    return flip(part, dim) if places[0] > places[-1] else part


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two dims, as the last dim."""
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = shape_of(x)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = (max(-offset, 0), max(offset, 0))
    rank = len(shape_of(x))
    x = slice_in_dim(slice_in_dim(x, start[0], start[0] + count, axis=rank - 2), start[1], start[1] + count, axis=rank - 1)
    from meshjit.numpy.creation import eye
    from meshjit.numpy.reductions import sum as total
    from meshjit.numpy.ufuncs import where

    return total(where(eye(count, dtype=np.bool_), x, 0), axis=-1, dtype=dtype_of(x))


def diag(x: Any, k: int = 0) -> Any:
    """A vector as a diagonal matrix, or a matrix's diagonal."""
    from meshjit.numpy.creation import eye
    from meshjit.numpy.ufuncs import where

    if len(shape_of(x)) == 2:
        return diagonal(x, k)
    n = shape_of(x)[0]
    widths = (max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))
    wide = broadcast_to(pad(x, widths[1]), (n + abs(k), n + abs(k)))
    return where(eye(n + abs(k), k=k, dtype=np.bool_), wide, cast(0, dtype_of(x)))
