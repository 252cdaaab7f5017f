"""Elements in another order or more than once: repeat, tile, flip, roll, pad, diagonals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.core.types import is_inexact
from meshjit.numpy.arguments import diagonal_number, shape_tuple
from meshjit.numpy.creation import eye, iota
from meshjit.numpy.division import remainder
from meshjit.numpy.indexing import take
from meshjit.numpy.places import bounded, from_front, place_dtype, widened
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    exactly,
    lifted,
    normal_axes,
    normal_axis,
    ops,
    shape_of,
    weak_of,
)
from meshjit.numpy.reductions import any_, cumsum, sum as total
from meshjit.numpy.shaping import (
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    slice_in_dim,
    swapaxes,
)
from meshjit.numpy.sorting import searchsorted
from meshjit.numpy.ufuncs import logical_and, negative, where
from meshjit.trace import bind, line_of, user_source


@takes_out_sharding
def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Any:
    """Every element `repeats` times: an int, or one number per element of the dim.

    Traced numbers need total_repeat_length, the result's extent: what is longer is cut, what is missing is filled with
    the last element."""
    a = asarray(a) if shape_of(a) and axis is not None else ravel(a)
    shape = shape_of(a)
    dim = normal_axis(0 if axis is None else axis, len(shape))
    if shape_of(repeats) in ((), (1,)) and total_repeat_length is None and not isinstance(repeats, int | np.integer):
        repeats = concrete(repeats, "repeat needs the number", "total_repeat_length=...").reshape(())[()]
    if shape_of(repeats) == () and total_repeat_length is None:
        repeats = shape_tuple((repeats,))[0]
    if not isinstance(repeats, int | np.integer) or total_repeat_length is not None:
        return _repeat_each(a, repeats, dim, total_repeat_length)
    wide = broadcast_to(expand_dims(a, dim + 1), (*shape[: dim + 1], int(repeats), *shape[dim + 1 :]))
    return reshape(wide, (*shape[:dim], shape[dim] * int(repeats), *shape[dim + 1 :]))


def _repeat_each(x: Any, repeats: Any, dim: int, total: int | None) -> Any:
    repeats = broadcast_to(repeats, (shape_of(x)[dim],))
    if total is None:
        numbers = concrete(repeats, "repeat needs the numbers to know the result's extent", "total_repeat_length=...")
        return lifted(take(x, np.repeat(np.arange(len(numbers), dtype=np.int32), numbers), axis=dim))
    places = searchsorted(cumsum(repeats), iota(np.int32, (total,), 0), side="right")
    return take(x, places, axis=dim, mode="clip")


def tile(A: Any, reps: Any) -> Any:
    reps, shape = shape_tuple(reps), shape_of(A)
    rank = max(len(reps), len(shape))
    shape, reps = (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(reps)) + reps
    A = reshape(A, shape)
    wide = broadcast_to(reshape(A, sum(((1, n) for n in shape), ())), sum(zip(reps, shape, strict=True), ()))
    return reshape(wide, tuple(r * n for r, n in zip(reps, shape, strict=True)))


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turned by k quarter turns from the first axis towards the second."""
    i, j = normal_axes(axes, len(shape_of(m)))
    k %= 4
    if k == 2:
        return flip(m, (i, j))
    if k == 0:
        return asarray(m)
    return swapaxes(flip(m, j), i, j) if k == 1 else flip(swapaxes(m, i, j), j)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """`numpy.roll`."""
    shift = list(shift) if isinstance(shift, range) else shift
    if not isinstance(shift, int) and len(shape_of(shift)) > 1:
        raise ValueError(f"roll: shifts are a number or a vector, got shape {shape_of(shift)}\n  at {line_of(user_source())}")
    if not isinstance(shift, list | tuple | float | int) and is_inexact(dtype_of(shift)):
        shift = cast(shift, np.int32)
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), shape_of(a))
    rank = len(shape_of(a))
    entries: Any = axis if hasattr(axis, "__iter__") and getattr(axis, "ndim", 1) else (axis,)
    axes = [normal_axis(entry, rank) for entry in entries]
    if isinstance(shift, list | tuple):
        shifts = list(shift)
    elif isinstance(shift, int) or not shape_of(shift):
        shifts = [shift]
    else:
        flat = reshape(shift, -1)
        shifts = [reshape(slice_in_dim(flat, i, i + 1), ()) for i in range(math.prod(shape_of(shift)))]
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes\n  at {line_of(user_source())}")
    if not axes or not shifts:
        return asarray(a)
    count = max(len(axes), len(shifts))
    for amount, dim in zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True):
        a = _rolled(a, amount, dim)
    return asarray(a)


def _rolled(x: Any, amount: Any, dim: int) -> Any:
    extent = shape_of(x)[dim]
    if not extent:
        return x
    known = amount if isinstance(amount, int) else asarray(amount)
    if isinstance(known, int | np.ndarray):
        shift = int(known) % extent
        return bind(ops("roll"), asarray(x), shift=shift, dimension=dim) if shift else x

    fits, dtype = bounded(extent, amount) == extent, place_dtype(*(2 * n for n in shape_of(x)))
    place = cast(remainder(negative(amount), extent), np.int32) if fits else from_front(negative(amount), extent)
    return bind(ops("dynamic_roll"), asarray(x), widened(place, dtype), dimension=dim, weak_type=weak_of(x))


def resize(a: Any, new_shape: Any) -> Any:
    """`numpy.resize`: the elements over and over until the new shape is full."""
    shape = shape_tuple(new_shape)
    a, count = ravel(a), math.prod(shape)
    if not shape_of(a)[0]:
        return broadcast_to(np.zeros((), dtype_of(a)), shape)
    return reshape(slice_in_dim(tile(a, -(-count // shape_of(a)[0])), 0, count), shape)



def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two dims, as the last dim."""
    offset = diagonal_number(offset)
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = shape_of(a)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    rank, starts = len(shape_of(a)), []
    for axis, begin in ((rank - 2, max(-offset, 0)), (rank - 1, max(offset, 0))):
        extent = shape_of(a)[axis]
        begin = min(begin, extent)
        is_long = extent > 2 * count  # what is cut of a sharded dim may have to be sent, and what is masked is read
        a = slice_in_dim(a, begin, begin + count, axis=axis) if is_long else a
        starts.append(0 if is_long else begin)

    rows, columns = shape_of(a)[-2:]
    on = eye(rows, columns, starts[1] - starts[0], dtype=np.bool_)
    summed = rank - 2 if rows > columns else rank - 1
    if dtype_of(a) == np.bool_:
        line = any_(logical_and(on, a), axis=summed)
    else:
        line = total(where(on, a, 0), axis=summed, dtype=dtype_of(a))
    start = starts[rank - 1 - summed]
    return slice_in_dim(line, start, start + count, axis=rank - 2)


def diag(v: Any, k: int = 0) -> Any:
    """A vector as a diagonal matrix, or a matrix's diagonal; ValueError for what is neither."""
    if len(shape_of(v)) == 2:
        return diagonal(v, k)
    if len(shape_of(v)) != 1:
        raise ValueError(
            f"diag: the argument has shape {shape_of(v)}, a vector or a matrix is needed\n  at {line_of(user_source())}\n"
            "  fix: diagonal(x, axis1=..., axis2=...), or diagflat(x)"
        )
    n, k = shape_of(v)[0], diagonal_number(k)
    widths = (max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))
    low, high = ((w,) for w in widths[1])
    zero = exactly(0, dtype_of(v), weak_of(v))
    line = bind(ops("pad"), asarray(v), zero, low=low, high=high, interior=(0,), weak_type=weak_of(v))
    wide = broadcast_to(line, (n + abs(k), n + abs(k)))
    return where(eye(n + abs(k), k=k, dtype=np.bool_), wide, zero)


def diagflat(v: Any, k: int = 0) -> Any:
    return diag(ravel(v), k)
