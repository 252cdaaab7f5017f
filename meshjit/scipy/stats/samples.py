"""Statistics of samples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from meshjit import numpy as mnp
from meshjit.lax import cummax
from meshjit.scipy.stats.distribution import floats


class ModeResult(NamedTuple):
    mode: Any
    count: Any


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (None: of all), the least of several, and how often it occurs.

    NotImplementedError for another nan_policy than "propagate"."""
    _require_propagate("mode", nan_policy)
    x = mnp.ravel(a) if axis is None else mnp.moveaxis(mnp.asarray(a), axis, -1)
    x = mnp.sort(x)
    first = mnp.concatenate([mnp.ones_like(x[..., :1], bool), x[..., 1:] != x[..., :-1]], -1)
    place = mnp.arange(x.shape[-1])
    start = cummax(mnp.where(first, place, 0), axis=x.ndim - 1)
    best = mnp.argmax(place - start, axis=-1, keepdims=True)
    value, count = mnp.take_along_axis(x, best, -1), mnp.max(place - start, axis=-1, keepdims=True) + 1
    if axis is None:
        shape = (1,) * mnp.ndim(a) if keepdims else ()
        return ModeResult(value.reshape(shape), count.reshape(shape))
    value, count = (mnp.moveaxis(v, -1, axis) for v in (value, count))
    return ModeResult(value, count) if keepdims else ModeResult(value.squeeze(axis), count.squeeze(axis))


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean; nan_policy "omit" leaves nan out."""
    if nan_policy not in ("propagate", "omit"):
        raise NotImplementedError(f"sem: nan_policy={nan_policy!r}\n  fix: 'propagate' or 'omit'")
    (x,) = floats(a)
    if nan_policy == "omit":
        count = (~mnp.isnan(x)).sum(axis, keepdims=keepdims)
        return mnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / mnp.sqrt(count.astype(x.dtype))
    count = x.size if axis is None else x.shape[axis]
    return mnp.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(count)


def _require_propagate(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise NotImplementedError(f"{name}: nan_policy={nan_policy!r} is not there\n  fix: nan_policy='propagate'")
