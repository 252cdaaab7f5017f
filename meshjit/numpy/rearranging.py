"""Elements in another order or more than once: repeat, tile, flip, roll, pad, diagonals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.core.types import is_inexact
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    normal_axes,
    normal_axis,
    ops,
    shape_of,
)
from meshjit.numpy.shaping import (
    concatenate,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    slice_in_dim,
    swapaxes,
)
from meshjit.trace import bind, line_of, user_source


def repeat(x: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Any:
    """Every element `repeats` times: an int, or one number per element of the dim.

    Traced numbers need total_repeat_length, the result's extent: what is longer is cut, what is missing is filled with
    the last element."""
    x = ravel(x) if axis is None else asarray(x)
    shape = shape_of(x)
    dim = normal_axis(axis or 0, len(shape))
    if shape_of(repeats) in ((), (1,)) and total_repeat_length is None and not isinstance(repeats, int | np.integer):
        repeats = int(concrete(repeats, "repeat needs the number", "total_repeat_length=...").reshape(()))
    if not isinstance(repeats, int | np.integer) or total_repeat_length is not None:
        return _repeat_each(x, repeats, dim, total_repeat_length)
    wide = broadcast_to(expand_dims(x, dim + 1), (*shape[: dim + 1], int(repeats), *shape[dim + 1 :]))
    return reshape(wide, (*shape[:dim], shape[dim] * int(repeats), *shape[dim + 1 :]))


def _repeat_each(x: Any, repeats: Any, dim: int, total: int | None) -> Any:
    from meshjit.numpy.indexing import take
    from meshjit.numpy.reductions import cumsum
    from meshjit.numpy.sorting import searchsorted

    repeats = broadcast_to(repeats, (shape_of(x)[dim],))
    if total is None:
        numbers = concrete(repeats, "repeat needs the numbers to know the result's extent", "total_repeat_length=...")
        return take(x, np.repeat(np.arange(len(numbers), dtype=np.int32), numbers), axis=dim)
    places = searchsorted(cumsum(repeats), np.arange(total, dtype=np.int32), side="right")
    return take(x, places, axis=dim, mode="clip")


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


def fliplr(x: Any) -> Any:
    return flip(x, 1)


def flipud(x: Any) -> Any:
    return flip(x, 0)


def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turned by k quarter turns from the first axis towards the second."""
    i, j = normal_axes(axes, len(shape_of(x)))
    k %= 4
    if k == 2:
        return flip(x, (i, j))
    if k == 0:
        return asarray(x)
    return swapaxes(flip(x, j), i, j) if k == 1 else flip(swapaxes(x, i, j), j)


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """`numpy.roll`. A traced shift is one dynamic slice of two copies."""
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), shape_of(x))
    rank = len(shape_of(x))
    given: Any = (axis,) if isinstance(axis, int | np.integer) else axis
    axes = [normal_axis(a, rank) for a in given]
    if isinstance(shift, list | tuple):
        shifts = list(shift)
    else:
        count = math.prod(shape_of(shift))
        flat = reshape(shift, -1)
        shifts = [reshape(slice_in_dim(flat, i, i + 1), ()) for i in range(count)] if shape_of(shift) else [shift]
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes\n  at {line_of(user_source())}")
    count = max(len(axes), len(shifts))
    for amount, dim in zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True):
        x = _rolled(x, amount, dim)
    return asarray(x)


def _rolled(x: Any, amount: Any, dim: int) -> Any:
    extent = shape_of(x)[dim]
    if not extent:
        return x
    if isinstance(asarray(amount), np.ndarray):
        shift = int(asarray(amount)) % extent
        return bind(ops("roll"), asarray(x), shift=shift, dimension=dim) if shift else x
    from meshjit.numpy.ufuncs import negative, remainder

    zero = np.zeros((), np.int32)
    place = cast(remainder(negative(amount), extent), np.int32)
    starts = [place if d == dim else zero for d in range(len(shape_of(x)))]
    return bind(ops("dynamic_slice"), concatenate([x, x], dim), *starts, slice_sizes=shape_of(x))


def resize(x: Any, new_shape: Any) -> Any:
    """`numpy.resize`: the elements over and over until the new shape is full."""
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    x, count = ravel(x), math.prod(shape)
    if not shape_of(x)[0]:
        return broadcast_to(np.zeros((), dtype_of(x)), shape)
    return reshape(slice_in_dim(tile(x, -(-count // shape_of(x)[0])), 0, count), shape)


_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "empty", "maximum", "minimum", "mean")


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """`numpy.pad` with mode constant, edge, reflect, symmetric, wrap, empty (zeros), maximum, minimum or mean."""
    x = asarray(x)
    rank = len(shape_of(x))
    if isinstance(pad_width, dict):
        given = {normal_axis(d, rank): w for d, w in pad_width.items()}
        pad_width = [(w, w) if isinstance(w, int) else w for w in (given.get(d, 0) for d in range(rank))]
    widths = np.broadcast_to(np.asarray(pad_width), (rank, 2)).tolist()
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError(f"pad: widths must not be negative, got {pad_width}\n  at {line_of(user_source())}")
    if mode not in _PAD_MODES:
        raise ValueError(f"pad: mode {mode!r} is not one of {', '.join(_PAD_MODES)}\n  at {line_of(user_source())}")
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, constant_values if mode == "constant" else 0)
    for dim, (before, after) in enumerate(widths):
        x = _pad_dim(x, dim, int(before), int(after), mode)
    return x


def _pad_constant(x: Any, widths: list[list[int]], values: Any) -> Any:
    """One value everywhere, or one per end of every dim: then dim after dim, so that later dims fill the corners."""
    zeros = (0,) * len(widths)
    values = cast(values, dtype_of(x))
    if not shape_of(values):
        low, high = (tuple(int(w[i]) for w in widths) for i in (0, 1))
        return bind(ops("pad"), x, values, low=low, high=high, interior=zeros)
    values = broadcast_to(values, (len(widths), 2))
    for dim, ends in enumerate(widths):
        for end, width in enumerate(ends):
            amounts = [0] * len(widths)
            amounts[dim] = int(width)
            pair = (tuple(amounts), zeros) if end == 0 else (zeros, tuple(amounts))
            x = bind(ops("pad"), x, slice_scalar(values, dim, end), low=pair[0], high=pair[1], interior=zeros)
    return x


def slice_scalar(x: Any, row: int, column: int) -> Any:
    return reshape(slice_in_dim(slice_in_dim(x, row, row + 1), column, column + 1, axis=1), ())


def _pad_statistic(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    from meshjit.numpy import elementwise, reductions

    found = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean}[mode](x, dim, keepdims=True)
    found = cast(found if is_inexact(dtype_of(x)) else elementwise.round(found), dtype_of(x))
    return concatenate([repeat(found, before, dim), x, repeat(found, after, dim)], dim)


def _pad_dim(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    extent = shape_of(x)[dim]
    if not before and not after:
        return x
    if not extent:
        raise ValueError(f"pad: dim {dim} of {shape_of(x)} is empty, so mode {mode!r} has nothing to copy")
    if mode in ("maximum", "minimum", "mean"):
        return _pad_statistic(x, dim, before, after, mode)
    places = np.pad(np.arange(extent), (before, after), mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]
    ends = [places[:before], places[before + extent :]]
    first, last = ([_run(x, dim, run) for run in _runs(end)] for end in ends)
    return concatenate([*first, x, *last], dim)


def _runs(places: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Neighbouring places that are one slice, forwards, backwards or of one element again and again."""
    if not len(places):
        return []
    steps = np.diff(places)
    limits = [i + 1 for i, step in enumerate(steps) if abs(step) > 1 or (i and step != steps[i - 1])]
    return np.split(places, limits)


def _run(x: Any, dim: int, places: Any) -> Any:
    """Short runs are single elements put together, which planning understands as parts of x."""
    low, high = int(min(places)), int(max(places))
    if len(places) <= 4 and (low == high or places[0] > places[-1]):
        return concatenate([slice_in_dim(x, int(p), int(p) + 1, axis=dim) for p in places], dim)
    part = slice_in_dim(x, low, high + 1, axis=dim)
    if low == high:
        return repeat(part, len(places), dim)
    return flip(part, dim) if places[0] > places[-1] else part


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two dims, as the last dim."""
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = shape_of(x)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = (min(max(-offset, 0), rows), min(max(offset, 0), columns))
    rank = len(shape_of(x))
    x = slice_in_dim(slice_in_dim(x, start[0], start[0] + count, axis=rank - 2), start[1], start[1] + count, axis=rank - 1)
    from meshjit.numpy.creation import eye
    from meshjit.numpy.reductions import any_, sum as total
    from meshjit.numpy.ufuncs import logical_and, where

    on = eye(count, dtype=np.bool_)
    if dtype_of(x) == np.bool_:
        return any_(logical_and(on, x), axis=-1)
    return total(where(on, x, 0), axis=-1, dtype=dtype_of(x))


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


def diagflat(x: Any, k: int = 0) -> Any:
    return diag(ravel(x), k)
