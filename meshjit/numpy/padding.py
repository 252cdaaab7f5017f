"""`numpy.pad`: what stands beyond the ends of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.types import is_inexact
from meshjit.numpy import elementwise, reductions, ufuncs
from meshjit.numpy.creation import linspace
from meshjit.numpy.promote import asarray, broadcast_to, cast, dtype_of, exactly, lifted, normal_axis, ops, shape_of, weak_of
from meshjit.numpy.quantiles import median
from meshjit.numpy.rearranging import repeat
from meshjit.numpy.selection import apply_along_axis
from meshjit.numpy.shaping import concatenate, flip, reshape, slice_in_dim
from meshjit.trace import bind, line_of, user_source

# mode → the keywords that it takes
_OPTIONS = {
    "constant": ("constant_values",), "edge": (), "reflect": ("reflect_type",), "symmetric": ("reflect_type",), "wrap": (),
    "empty": (), "maximum": ("stat_length",), "minimum": ("stat_length",), "mean": ("stat_length",),
    "median": ("stat_length",), "linear_ramp": ("end_values",),
}  # fmt: skip
_STATISTICS = {"maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean, "median": median}


def pad(array: Any, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any) -> Any:
    """`numpy.pad`. mode: constant (constant_values), edge, reflect or symmetric (reflect_type "even" or "odd"), wrap, empty
    (zeros), maximum, minimum, mean or median (stat_length: of so many elements next to the border), linear_ramp (end_values), or
    a function (row, (before, after), axis, keywords) -> row of the rows that zeros were added to.

    A width or value is one number, a pair for every dim, or a pair per dim; widths also {dim: width}. NotImplementedError for
    another mode, ValueError for a keyword that the mode does not have, TypeError for widths that are no integers."""
    rank = len(shape_of(array))
    array = asarray(array) if rank else lifted(array)
    widths = _widths(pad_width, rank)
    if callable(mode):
        return _pad_by_function(array, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"pad: mode {mode!r} is not one of {', '.join(_OPTIONS)}\n  at {line_of(user_source())}")
    if set(kwargs) - set(_OPTIONS[mode]):
        wrong = sorted(set(kwargs) - set(_OPTIONS[mode]))
        raise ValueError(f"pad: mode {mode!r} takes no {', '.join(wrong)}\n  at {line_of(user_source())}")
    if not rank:
        return array
    if mode in ("constant", "empty"):
        return _pad_constant(array, widths, kwargs.get("constant_values", 0))
    for dim, (before, after) in enumerate(widths):
        array = _pad_dim(array, dim, int(before), int(after), mode, kwargs)
    return array


def _widths(pad_width: Any, rank: int) -> list[list[int]]:
    if isinstance(pad_width, dict):
        by_dim = {normal_axis(d, rank): w for d, w in pad_width.items()}
        pad_width = [(w, w) if isinstance(w, int) else w for w in (by_dim.get(d, 0) for d in range(rank))]
    known = np.asarray(pad_width)
    if known.size and known.dtype.kind not in "iu":
        raise TypeError(f"pad: widths must be integers, got {known.dtype} {pad_width!r:.60}\n  at {line_of(user_source())}")
    widths = np.broadcast_to(known, (rank, 2)).tolist()
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError(f"pad: widths must not be negative, got {pad_width}\n  at {line_of(user_source())}")
    return widths


def _pad_by_function(x: Any, widths: list[list[int]], function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    x = _pad_constant(x, widths, 0) if widths else x
    for dim, pair in enumerate(widths):
        x = apply_along_axis(function, dim, x, tuple(pair), dim, kwargs)
    return x


def _pad_constant(x: Any, widths: list[list[int]], values: Any) -> Any:
    """One value everywhere, or one per end of every dim: then dim after dim, so that later dims fill the corners."""
    zeros = (0,) * len(widths)
    values = exactly(values, dtype_of(x))
    if not shape_of(values):
        low, high = (tuple(int(w[i]) for w in widths) for i in (0, 1))
        return bind(ops("pad"), x, values, low=low, high=high, interior=zeros, weak_type=weak_of(x))
    values = broadcast_to(values, (len(widths), 2))
    for dim, ends in enumerate(widths):
        for end, width in enumerate(ends):
            amounts = [0] * len(widths)
            amounts[dim] = int(width)
            pair = (tuple(amounts), zeros) if end == 0 else (zeros, tuple(amounts))
            edge = slice_scalar(values, dim, end)
            x = bind(ops("pad"), x, edge, low=pair[0], high=pair[1], interior=zeros, weak_type=weak_of(x))
    return x


def slice_scalar(x: Any, row: int, column: int) -> Any:
    return reshape(slice_in_dim(slice_in_dim(x, row, row + 1), column, column + 1, axis=1), ())


def _pad_statistic(x: Any, dim: int, before: int, after: int, mode: str, lengths: Any) -> Any:
    extent = shape_of(x)[dim]
    counts = [extent] * 2 if lengths is None else np.broadcast_to(np.asarray(lengths), (len(shape_of(x)), 2))[dim].tolist()
    if any(n < 1 for n in counts):
        raise ValueError(f"pad: stat_length must be positive, got {lengths}\n  at {line_of(user_source())}")
    ends = []
    for end, width in enumerate((before, after)):
        n = min(counts[end], extent)
        part = slice_in_dim(x, 0, n, axis=dim) if end == 0 else slice_in_dim(x, extent - n, extent, axis=dim)
        edge = _STATISTICS[mode](part, dim, keepdims=True)
        edge = cast(edge if is_inexact(dtype_of(x)) else elementwise.round(edge), dtype_of(x))
        ends.append(repeat(edge, width, dim))
    return concatenate([ends[0], x, ends[1]], dim)


def _pad_ramp(x: Any, dim: int, before: int, after: int, values: Any) -> Any:
    """Straight lines from end_values to the elements at the border."""
    rank, extent = len(shape_of(x)), shape_of(x)[dim]
    ends = broadcast_to(exactly(values, dtype_of(x)), (rank, 2))
    low, high = slice_in_dim(x, 0, 1, axis=dim), slice_in_dim(x, extent - 1, extent, axis=dim)

    def line(end: int, edge: Any, width: int) -> Any:
        edge = reshape(edge, (*shape_of(edge)[:dim], *shape_of(edge)[dim + 1 :]))
        return linspace(slice_scalar(ends, dim, end), edge, width, False, dtype=dtype_of(x), axis=dim)

    return concatenate([line(0, low, before), x, flip(line(1, high, after), dim)], dim)


def _pad_odd(x: Any, dim: int, before: int, after: int, shared: int) -> Any:
    """Reflections through the point at the border: 2 edge - x. Each is as wide as x was at first."""
    period = max(shape_of(x)[dim] - shared, 1)
    while before or after:
        extent = shape_of(x)[dim]
        low, high = (min(n, period) for n in (before, after))
        start = min(shared, extent - 1)
        first, last = slice_in_dim(x, 0, 1, axis=dim), slice_in_dim(x, extent - 1, extent, axis=dim)
        left = flip(slice_in_dim(x, start, start + low, axis=dim), dim)
        right = flip(slice_in_dim(x, extent - start - high, extent - start, axis=dim), dim)
        left, right = (ufuncs.subtract(ufuncs.multiply(edge, 2), part) for edge, part in ((first, left), (last, right)))
        x = concatenate([left, x, right], dim)
        before, after = before - low, after - high
    return x


def _pad_dim(x: Any, dim: int, before: int, after: int, mode: str, options: dict[str, Any]) -> Any:
    extent = shape_of(x)[dim]
    if not before and not after:
        return x
    if not extent:
        raise ValueError(f"pad: dim {dim} of {shape_of(x)} is empty, so mode {mode!r} has nothing to copy")
    if mode in _STATISTICS:
        return _pad_statistic(x, dim, before, after, mode, options.get("stat_length"))
    if mode == "linear_ramp":
        return _pad_ramp(x, dim, before, after, options.get("end_values", 0))
    if options.get("reflect_type", "even") == "odd":
        return _pad_odd(x, dim, before, after, int(mode == "reflect"))
    if options.get("reflect_type", "even") != "even":
        raise ValueError(
            f"pad: reflect_type is {options['reflect_type']!r}; write 'even' or 'odd'"
            f"\n  at {line_of(user_source())}"
        )
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
    """An element a few times over is put together of itself, which planning understands as parts of x."""
    first, step, count = run
    if count <= 4 and not step:
        return concatenate([slice_in_dim(x, first, first + 1, axis=dim)] * count, dim)
    low = min(first, first + (count - 1) * step)
    part = slice_in_dim(x, low, low + (1 if not step else count), axis=dim)
    if not step:
        return repeat(part, count, dim)
    return flip(part, dim) if step < 0 and count > 1 else part
