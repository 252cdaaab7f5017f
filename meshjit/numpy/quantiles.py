"""Quantiles of arrays: of sorted columns, between two elements or by weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.core.types import is_float
from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.elementwise import round as rounded
from meshjit.numpy.indexing import take_along_axis
from meshjit.numpy.places import place_dtype
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    dtype_of,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.shaping import moveaxis, reshape
from meshjit.numpy.sorting import sort, sort_together
from meshjit.trace import bind, line_of, user_source

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`numpy.quantile`: dims of q first. NaN anywhere along `axis` gives NaN. `weights` of a's shape or one per element along
    `axis`, with method "inverted_cdf" alone; the result has the dtype that both promote to."""
    _nothing_in_place("quantile", out, overwrite_input)
    return _quantile(a, q, axis, keepdims, method, False, weights)


def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    """`numpy.nanquantile`: of the elements that are not NaN."""
    _nothing_in_place("nanquantile", out, overwrite_input)
    return _quantile(a, q, axis, keepdims, method, True, weights)


@takes_out_sharding
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    return quantile(a, _share(q), axis, out, overwrite_input, method, keepdims, weights=weights)


def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    return nanquantile(a, _share(q), axis, out, overwrite_input, method, keepdims, weights=weights)


def median(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Any:
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def _share(percent: Any) -> Any:
    """Percents of 16 bits are divided in float32: 0.4 is 0.3999 in float16."""
    is_short = is_float(dtype_of(percent)) and dtype_of(percent).itemsize < 4
    return ufuncs.true_divide(cast(percent, np.float32) if is_short else percent, 100)


def _nothing_in_place(name: str, out: Any, overwrite_input: bool) -> None:
    """ValueError, as JAX's quantiles raise; its other functions raise NotImplementedError for out=."""
    for argument, fix in (("out=", f"out = {name}(...)"), ("overwrite_input=True", "leave it out")):
        if overwrite_input if argument != "out=" else out is not None:
            raise ValueError(
                f"{name}: {argument} is not there, since arrays cannot be changed in place\n  at {line_of(user_source())}\n"
                f"  fix: {fix}"
            )


def _quantile(x: Any, q: Any, axis: Any, keepdims: bool, method: str, skip_nan: bool, weights: Any) -> Any:
    if method not in _METHODS:
        raise ValueError(f"quantile: method {method!r} is not one of {', '.join(_METHODS)}")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(
            f"quantile: weights go with method='inverted_cdf', it is {method!r}\n  at {line_of(user_source())}"
        )
    (x, *_), _ = promoted(x, inexact=True) if weights is None else promoted(x, weights, inexact=True)
    dtype = dtype_of(x)
    if dtype.kind == "c":
        raise ValueError(
            f"quantile takes real numbers, got {dtype_of(x)}\n  at {line_of(user_source())}\n  fix: x.real, or abs(x)"
        )
    if dtype_of(q).kind == "c":
        raise TypeError(f"quantile: shares are real numbers, got {dtype_of(q)}\n  at {line_of(user_source())}\n  fix: q.real")
    # Places among the columns: a 16-bit float counts no further than 256, and 0.4 is 0.3984 in it.
    q, rank = cast(q, np.float32 if dtype.itemsize < 4 else dtype), len(shape_of(x))
    columns, kept = _one_dim_last(x, axis)
    extent = shape_of(columns)[-1]
    if not extent:
        raise ValueError(f"quantile of an empty dim of shape {shape_of(x)}\n  at {line_of(user_source())}")
    nan = ufuncs.isnan(columns)
    if method == "inverted_cdf":
        result = _weighted(columns, q, ufuncs.where(nan, 0, _weights(x, weights, axis, dtype_of(q))))
    else:
        result = _interpolated(columns, q, kept, method, nan if skip_nan else None)
    unknown = (reductions.all if skip_nan else reductions.any_)(nan, axis=-1)
    result = ufuncs.where(unknown, np.nan, cast(result, dtype))
    if keepdims:
        ones = (1,) * rank if axis is None else tuple(
            1 if d in normal_axes(axis, rank) else n
            for d, n in enumerate(shape_of(x))
        )
        result = reshape(result, (*shape_of(q), *ones))
    return result


def _weights(x: Any, weights: Any, axis: Any, dtype: Any) -> Any:
    """The weight of every element, in columns as the elements are."""
    if weights is None:
        return np.ones((), dtype)
    weights = cast(weights, dtype)
    if shape_of(weights) != shape_of(x) and len(shape_of(weights)) == 1 and isinstance(axis, int):
        behind = len(shape_of(x)) - 1 - normal_axis(axis, len(shape_of(x)))
        weights = reshape(weights, shape_of(weights) + (1,) * behind)
    return _one_dim_last(broadcast_to(weights, shape_of(x)), axis)[0]


def _weighted(columns: Any, q: Any, weights: Any) -> Any:
    """The least element with at least the share q of all weights up to it."""
    ordered, weights = sort_together([columns, broadcast_to(weights, shape_of(columns))], len(shape_of(columns)) - 1)
    share = reductions.cumsum(weights, axis=-1)
    share = ufuncs.true_divide(share, share[..., -1:])
    least_share = reshape(q, shape_of(q) + (1,) * len(shape_of(columns)))
    place = ufuncs.minimum(reductions.sum(ufuncs.less(share, least_share), axis=-1), shape_of(columns)[-1] - 1)
    lead = len(shape_of(q))
    places = moveaxis(place, tuple(range(lead)), tuple(range(-lead, 0))) if lead else place
    flat = reshape(places, (*shape_of(columns)[:-1], -1))
    values = reshape(take_along_axis(ordered, flat, -1, mode="clip"), shape_of(places))
    return moveaxis(values, tuple(range(-lead, 0)), tuple(range(lead))) if lead else values


def _interpolated(columns: Any, q: Any, kept: Sequence[int], method: str, nan: Any) -> Any:
    """[*q, *kept] the elements at these shares of the way through sorted columns; those that are `nan` do not count."""
    ordered, extent = sort(columns), shape_of(columns)[-1]
    lead = (*shape_of(q), *(1,) * len(kept))
    if nan is not None:
        is_small = place_dtype(extent) == np.int32
        missing = reductions.sum(nan, axis=-1, dtype=None if is_small else np.float32)
        last = ufuncs.subtract(extent - 1 if is_small else float(extent - 1), missing)
        last = cast(ufuncs.maximum(last, 0), dtype_of(q))
        place = ufuncs.multiply(reshape(q, lead), last)
    else:
        last = float(extent - 1)
        place = ufuncs.multiply(broadcast_to(reshape(q, lead), (*shape_of(q), *kept)), last)
    return _between(ordered, ufuncs.clip(place, 0, last), len(kept), method)  # q outside of 0 to 1: the ends


def _one_dim_last(x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """The dims of `axis` merged into one last dim; and the shape of the others."""
    rank = len(shape_of(x))
    axes = normal_axes(axis, rank)
    moved = moveaxis(x, tuple(axes), tuple(range(rank - len(axes), rank)))
    kept = shape_of(moved)[: rank - len(axes)]
    return reshape(moved, (*kept, math.prod(shape_of(moved)[len(kept) :]))), kept


def _between(ordered: Any, place: Any, kept: int, method: str) -> Any:
    """Elements of sorted columns [*kept, n] at fractional places [*q, *kept]; what lies between two is of the places' dtype."""
    low, high = ufuncs.floor(place), ufuncs.ceil(place)
    if method == "nearest":
        low = high = rounded(place)
    if method in ("lower", "higher"):
        low = high = low if method == "lower" else high
    lead = len(shape_of(place)) - kept

    def at(spot: Any) -> Any:
        kind = place_dtype(shape_of(ordered)[-1])
        spots = cast(spot, kind) if kind == np.int32 else bind(ops("convert"), asarray(spot), dtype=kind)
        spots = moveaxis(spots, tuple(range(lead)), tuple(range(kept, kept + lead)))
        flat = reshape(spots, (*shape_of(spots)[:kept], math.prod(shape_of(spots)[kept:])))
        elements = reshape(take_along_axis(ordered, flat, -1, mode="clip"), shape_of(spots))
        return moveaxis(elements, tuple(range(kept, kept + lead)), tuple(range(lead)))

    if low is high:
        return at(low)
    below, above = (cast(at(spot), dtype_of(place)) for spot in (low, high))
    if method == "midpoint":
        return ufuncs.multiply(ufuncs.add(below, above), 0.5)
    share = ufuncs.subtract(place, low)
    mixed = ufuncs.add(ufuncs.multiply(below, ufuncs.subtract(1, share)), ufuncs.multiply(above, share))
    return ufuncs.where(ufuncs.equal(share, 0), below, mixed)  # inf * 0 would be nan
