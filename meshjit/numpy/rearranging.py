"""Elements in another order or more than once: repeat, tile, flip, roll, pad, diagonals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.core.types import is_inexact
from meshjit.numpy import elementwise, reductions
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import eye, iota
from meshjit.numpy.indexing import take
from meshjit.numpy.places import bounded, from_front, known_places, place_dtype, widened
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
)
from meshjit.numpy.reductions import any_, cumsum, sum as total
from meshjit.numpy.shaping import (
    concatenate,
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    slice_in_dim,
    swapaxes,
)
from meshjit.numpy.sorting import searchsorted
from meshjit.numpy.ufuncs import logical_and, negative, remainder, where
from meshjit.trace import bind, line_of, user_source


@takes_out_sharding
def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Any:
    """Every element `repeats` times: an int, or one number per element of the dim.

    Traced numbers need total_repeat_length, the result's extent: what is longer is cut, what is missing is filled with
    the last element."""
    a = ravel(a) if axis is None else asarray(a)
    shape = shape_of(a)
    dim = normal_axis(axis or 0, len(shape))
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
        return take(x, np.repeat(np.arange(len(numbers), dtype=np.int32), numbers), axis=dim)
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
    """`numpy.roll`. A traced shift is one dynamic slice of two copies."""
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), shape_of(a))
    rank = len(shape_of(a))
    entries: Any = (axis,) if isinstance(axis, int | np.integer) else axis
    axes = [normal_axis(entry, rank) for entry in entries]
    if isinstance(shift, list | tuple):
        shifts = list(shift)
    else:
        count = math.prod(shape_of(shift))
        flat = reshape(shift, -1)
        shifts = [reshape(slice_in_dim(flat, i, i + 1), ()) for i in range(count)] if shape_of(shift) else [shift]
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
    if isinstance(asarray(amount), np.ndarray):
        shift = int(asarray(amount)) % extent
        return bind(ops("roll"), asarray(x), shift=shift, dimension=dim) if shift else x

    fits, dtype = bounded(extent, amount) == extent, place_dtype(*(2 * n for n in shape_of(x)))
    place = cast(remainder(negative(amount), extent), np.int32) if fits else from_front(negative(amount), extent)
    starts = [widened(place, dtype) if d == dim else known_places(0, dtype) for d in range(len(shape_of(x)))]
    return bind(ops("dynamic_slice"), concatenate([x, x], dim), *starts, slice_sizes=shape_of(x))


def resize(a: Any, new_shape: Any) -> Any:
    """`numpy.resize`: the elements over and over until the new shape is full."""
    shape = shape_tuple(new_shape)
    a, count = ravel(a), math.prod(shape)
    if not shape_of(a)[0]:
        return broadcast_to(np.zeros((), dtype_of(a)), shape)
    return reshape(slice_in_dim(tile(a, -(-count // shape_of(a)[0])), 0, count), shape)


_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "empty", "maximum", "minimum", "mean")


def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """`numpy.pad` with mode constant, edge, reflect, symmetric, wrap, empty (zeros), maximum, minimum or mean."""
    rank = len(shape_of(array))
    array = asarray(array) if rank else lifted(array)
    if isinstance(pad_width, dict):
        by_dim = {normal_axis(d, rank): w for d, w in pad_width.items()}
        pad_width = [(w, w) if isinstance(w, int) else w for w in (by_dim.get(d, 0) for d in range(rank))]
    widths = np.broadcast_to(np.asarray(pad_width), (rank, 2)).tolist()
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError(f"pad: widths must not be negative, got {pad_width}\n  at {line_of(user_source())}")
    if mode not in _PAD_MODES:
        raise ValueError(f"pad: mode {mode!r} is not one of {', '.join(_PAD_MODES)}\n  at {line_of(user_source())}")
    if not rank:
        return array
    if mode in ("constant", "empty"):
        return _pad_constant(array, widths, constant_values if mode == "constant" else 0)
    for dim, (before, after) in enumerate(widths):
        array = _pad_dim(array, dim, int(before), int(after), mode)
    return array


def _pad_constant(x: Any, widths: list[list[int]], values: Any) -> Any:
    """One value everywhere, or one per end of every dim: then dim after dim, so that later dims fill the corners."""
    zeros = (0,) * len(widths)
    values = exactly(values, dtype_of(x))
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
    edge = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean}[mode](x, dim, keepdims=True)
    edge = cast(edge if is_inexact(dtype_of(x)) else elementwise.round(edge), dtype_of(x))
    return concatenate([repeat(edge, before, dim), x, repeat(edge, after, dim)], dim)


def _pad_dim(x: Any, dim: int, before: int, after: int, mode: str) -> Any:
    extent = shape_of(x)[dim]
    if not before and not after:
        return x
    if not extent:
        raise ValueError(f"pad: dim {dim} of {shape_of(x)} is empty, so mode {mode!r} has nothing to copy")
    if mode in ("maximum", "minimum", "mean"):
        return _pad_statistic(x, dim, before, after, mode)
    first, last = (
        [_run(x, dim, run) for run in _runs(mode, extent, *ends)] for ends in ((-before, 0), (extent, extent + after))
    )
    return concatenate([*first, x, *last], dim)


Run = tuple[int, int, int]  # the first place in x, the step from one to the next (1, -1 or 0), and how many there are


def _runs(mode: str, extent: int, start: int, stop: int) -> list[Run]:
    """What stands at the places from `start` on, beyond the ends of x: runs forwards, backwards or of one element."""
    if start == stop:
        return []
    if mode == "edge" or extent == 1:
        return [(0 if start < 0 else extent - 1, 0, stop - start)]
    shared = mode == "reflect"  # the element that it turns at is not repeated
    period, runs, place = (extent if mode == "wrap" else 2 * (extent - shared)), list[Run](), start
    while place < stop:
        phase = place % period
        forwards = phase < extent - shared
        count = min(stop - place, (extent - shared if forwards else period) - phase)
        runs.append((phase, 1, count) if forwards else (period - phase - (not shared), -1, count))
        place += count
    return runs


def _run(x: Any, dim: int, run: Run) -> Any:
    """Short runs are single elements put together, which planning understands as parts of x."""
    first, step, count = run
    if count <= 4 and step < 1:
        return concatenate([slice_in_dim(x, p, p + 1, axis=dim) for p in (first + i * step for i in range(count))], dim)
    low = min(first, first + (count - 1) * step)
    part = slice_in_dim(x, low, low + (1 if not step else count), axis=dim)
    if not step:
        return repeat(part, count, dim)
    return flip(part, dim) if step < 0 else part


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two dims, as the last dim."""
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = shape_of(a)[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    start = (min(max(-offset, 0), rows), min(max(offset, 0), columns))
    rank = len(shape_of(a))
    a = slice_in_dim(slice_in_dim(a, start[0], start[0] + count, axis=rank - 2), start[1], start[1] + count, axis=rank - 1)

    on = eye(count, dtype=np.bool_)
    if dtype_of(a) == np.bool_:
        return any_(logical_and(on, a), axis=-1)
    return total(where(on, a, 0), axis=-1, dtype=dtype_of(a))


def diag(v: Any, k: int = 0) -> Any:
    """A vector as a diagonal matrix, or a matrix's diagonal."""
    if len(shape_of(v)) == 2:
        return diagonal(v, k)
    n = shape_of(v)[0]
    widths = (max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))
    wide = broadcast_to(pad(v, widths[1]), (n + abs(k), n + abs(k)))
    return where(eye(n + abs(k), k=k, dtype=np.bool_), wide, cast(0, dtype_of(v)))


def diagflat(v: Any, k: int = 0) -> Any:
    return diag(ravel(v), k)
