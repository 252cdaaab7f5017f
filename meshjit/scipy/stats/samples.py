"""Statistics of samples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.runtime.composed import composed
from meshjit.scipy.operands import floats
from meshjit.trace import line_of, user_source


class ModeResult(NamedTuple):
    mode: Any
    count: Any


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (None: of all), the least of several, and how often it occurs.

    nan, and 0 times, where there are no elements. NotImplementedError for another nan_policy than "propagate"."""
    _require_propagate("mode", nan_policy)
    a = mnp.atleast_1d(a)
    x = mnp.ravel(a) if axis is None else mnp.moveaxis(a, axis, -1)
    value, count = _most_frequent(x) if x.shape[-1] else (mnp.full((*x.shape[:-1], 1), v, float) for v in (np.nan, 0))
    if axis is None:
        shape = (1,) * a.ndim if keepdims else ()
        return ModeResult(value.reshape(shape), count.reshape(shape))
    value, count = (mnp.moveaxis(v, -1, axis) for v in (value, count))
    return ModeResult(value, count) if keepdims else ModeResult(value.squeeze(axis), count.squeeze(axis))


def _most_frequent(x: Any) -> tuple[Any, Any]:
    """Along the last dim, which stays as one element."""
    x = mnp.sort(x)
    first = mnp.concatenate([mnp.ones_like(x[..., :1], bool), x[..., 1:] != x[..., :-1]], -1)
    place = mnp.arange(x.shape[-1])
    start = lax.cummax(mnp.where(first, place, 0), axis=x.ndim - 1)
    best = mnp.argmax(place - start, axis=-1, keepdims=True)
    return mnp.take_along_axis(x, best, -1), mnp.max(place - start, axis=-1, keepdims=True) + 1


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean; nan_policy "omit" leaves nan out."""
    if not isinstance(nan_policy, str) or nan_policy not in ("propagate", "omit"):
        place = f"\n  at {line_of(user_source())}"
        raise ValueError(f"sem: nan_policy={nan_policy!r:.60} is not there{place}\n  fix: 'propagate' or 'omit'")
    (x,) = floats(a)
    if nan_policy == "omit":
        count = (~mnp.isnan(x)).sum(axis, keepdims=keepdims)
        return mnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / mnp.sqrt(count.astype(x.dtype))
    count = x.size if axis is None else x.shape[axis]
    return mnp.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(count)


def _require_propagate(name: str, nan_policy: Any) -> None:
    if not isinstance(nan_policy, str) or nan_policy not in ("propagate", "omit", "raise"):
        place = f"\n  at {line_of(user_source())}"
        raise ValueError(f"{name}: nan_policy={nan_policy!r:.60} is none{place}\n  fix: nan_policy='propagate'")
    if nan_policy != "propagate":
        raise NotImplementedError(f"{name}: nan_policy={nan_policy!r} is not there\n  fix: nan_policy='propagate'")


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Any:
    """`scipy.stats.rankdata`: 1 for the least element along `axis` (None: of all in one vector). Equal ones get the "average",
    "min" or "max" of their ranks, ranks without gaps ("dense"), or ranks in their order ("ordinal"). NaN anywhere makes all ranks
    NaN."""
    _require_propagate("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"rankdata: unknown method {method!r}\n  at {line_of(user_source())}")
    a = mnp.ravel(mnp.asarray(a)) if axis is None else mnp.moveaxis(mnp.asarray(a), axis, -1)
    order = mnp.argsort(a, -1)
    back = mnp.argsort(order, -1)
    if method == "ordinal":
        ranks = back + 1
    else:
        ordered = mnp.take_along_axis(a, order, -1)
        new = mnp.concatenate([mnp.ones((*a.shape[:-1], min(1, a.shape[-1])), bool), ordered[..., 1:] != ordered[..., :-1]], -1)
        ranks = mnp.take_along_axis(_ranks(new, method), back, -1)
    ranks = ranks if ranks.dtype.kind == "f" else ranks.astype(mnp.result_type(float))
    ranks = mnp.where(mnp.any(mnp.isnan(a), -1, keepdims=True), np.nan, ranks) if a.dtype.kind == "f" else ranks
    return ranks if axis is None else mnp.moveaxis(ranks, -1, axis)


def _ranks(new: Any, method: str) -> Any:
    """The ranks of sorted elements, of which each is new or like the one before."""
    if method == "dense":
        return mnp.cumsum(new, -1)
    n = new.shape[-1]
    places = mnp.broadcast_to(mnp.arange(n), new.shape)
    first = lax.cummax(mnp.where(new, places, 0), new.ndim - 1)
    ends = mnp.concatenate([new[..., 1:], mnp.ones((*new.shape[:-1], min(1, n)), bool)], -1)
    last = lax.cummin(mnp.where(ends, places, n), new.ndim - 1, reverse=True)
    return {"min": first + 1, "max": last + 1, "average": (first + last) / 2 + 1}[method]


composed(globals())
