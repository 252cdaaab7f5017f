"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.types import is_inexact
from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.promote import asarray, cast, dtype_of
from meshjit.numpy.quantiles import nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile
from meshjit.runtime.composed import composed


def _without(x: Any, fill: Any) -> Any:
    x = asarray(x)
    return ufuncs.where(ufuncs.isnan(x), cast(fill, dtype_of(x)), x) if is_inexact(dtype_of(x)) else x


def _keep(x: Any, where: Any) -> Any:
    """The elements that count: numbers, and among them those that `where` selects."""
    numbers = ufuncs.equal(x, x)
    return numbers if where is None else ufuncs.logical_and(numbers, reductions.selection(where))


def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    return reductions.sum(_without(a, 0), axis, dtype, out, keepdims=keepdims, initial=initial, where=where)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    return reductions.prod(_without(a, 1), axis, dtype, out, keepdims=keepdims, initial=initial, where=where)


def _nan_extreme(name: str, plain: Any, worst: float) -> Any:
    def function(
        a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Any:
        if not is_inexact(dtype_of(a)):
            return plain(a, axis, out, keepdims=keepdims, initial=initial, where=where)
        result = plain(_without(a, worst), axis, out, keepdims=keepdims, initial=initial, where=where)
        if initial is not None:
            return result
        return ufuncs.where(reductions.all(ufuncs.isnan(a), axis, keepdims=keepdims), np.nan, result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}`: NaN only where every element is."
    return function


nanmax, nanmin = (
    _nan_extreme("nanmax", reductions.max, -np.inf),
    _nan_extreme("nanmin", reductions.min, np.inf),
)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Any:
    return reductions.mean(a, axis, dtype, out, keepdims=keepdims, where=_keep(a, where))


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, where: Any = None,
    mean: Any = None,
) -> Any:  # fmt: skip
    return reductions.var(a, axis, dtype, out, ddof=ddof, keepdims=keepdims, where=_keep(a, where), mean=mean)


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0, keepdims: bool = False, where: Any = None,
    mean: Any = None,
) -> Any:  # fmt: skip
    return ufuncs.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


def _nan_arg(name: str, plain: Any, worst: float) -> Any:
    def function(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        if not is_inexact(dtype_of(a)):
            return plain(a, axis, out, keepdims=keepdims)
        result = plain(_without(a, worst), axis, out, keepdims=keepdims)
        return ufuncs.where(reductions.all(ufuncs.isnan(a), axis, keepdims=keepdims), -1, result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}`; -1 where every element is NaN, as in JAX."
    return function


nanargmax, nanargmin = (
    _nan_arg("nanargmax", reductions.argmax, -np.inf),
    _nan_arg("nanargmin", reductions.argmin, np.inf),
)


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    return reductions.cumsum(_without(a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    return reductions.cumprod(_without(a, 1), axis, dtype, out)


composed(globals())
