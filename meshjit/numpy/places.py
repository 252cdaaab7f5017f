"""Places in dims: integers in a dtype that holds all places of the dim.

int32 holds those of nearly every dim, and int64 those of the others, whether enable_x64 is on or not: a gather or a slice may
begin at such a place, and results never have this dtype. NumPy functions would make int32 of int64 again, so ops are bound here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.splat import splat
from meshjit.numpy import division, ufuncs
from meshjit.numpy.promote import asarray, broadcast_all, cast, dtype_of, ops, promoted, shape_of
from meshjit.trace import bind, line_of, user_source

_I32, _I64 = np.dtype(np.int32), np.dtype(np.int64)
_MOST = 2**31  # places of a dim that int32 counts


def place_dtype(*extents: int) -> np.dtype[Any]:
    """int32, or int64 where a dim of these extents has more places than int32 holds."""
    return _I32 if max(extents, default=0) < _MOST else _I64


def iota_dtype(*extents: int) -> np.dtype[Any]:
    """What masks count the places of dims in: int32, or uint32 for extents up to 2**32."""
    return _I32 if max(extents, default=0) < _MOST else np.dtype(np.uint32)


def counted(shape: Sequence[int], dim: int, dtype: np.dtype[Any], start: int = 0, step: int = 1) -> Any:
    """start, start + step, … along `dim`, in just this dtype."""
    places = bind(ops("iota"), dtype=dtype, shape=tuple(shape), dimension=dim)
    for name, number, neutral in (("multiply", step, 1), ("add", start, 0)):
        if number != neutral:
            places = bind(ops(name), places, bind(ops("constant"), value=splat(dtype.type(number), shape)))
    return places


def known_places(places: Any, dtype: np.dtype[Any]) -> Any:
    """Places that are known, in just this dtype."""
    array = np.asarray(places).astype(dtype)
    return array if dtype == _I32 else bind(ops("constant"), value=array)


def widened(places: Any, dtype: np.dtype[Any]) -> Any:
    """Traced or concrete places in this dtype."""
    if dtype == _I32 or dtype_of(places) == dtype:
        return places
    return bind(ops("convert"), asarray(places), dtype=dtype)


def from_front(places: Any, extent: int) -> Any:
    """Places of which negative ones are counted from the end."""
    if place_dtype(extent) == _I32:
        return ufuncs.where(ufuncs.less(places, 0), ufuncs.add(places, extent), places)
    wide = widened(places, _I64)
    zero, count = (bind(ops("constant"), value=splat(np.int64(n), shape_of(wide))) for n in (0, extent))
    is_negative = bind(ops("compare"), wide, zero, direction="LT")
    return bind(ops("select"), is_negative, bind(ops("add"), wide, count), wide)


def bounded(number: int, places: Any) -> int:
    """A bound for places that is as good in their own dtype: they cannot be beyond what it holds."""
    return min(number, int(np.iinfo(dtype_of(places)).max))


def around(places: Any, extent: int) -> Any:
    """Places counted round and round."""
    fits = bounded(extent, places) == extent
    return division.remainder(places, extent) if fits else from_front(places, extent)  # else once round is enough


def in_one_dtype(places: Sequence[Any]) -> list[Any]:
    """Places of several dims, broadcast and in one dtype: int64 if one of them is."""
    if any(dtype_of(p) == _I64 for p in places):
        return broadcast_all([widened(p, _I64) for p in places])
    return broadcast_all(promoted(*places)[0])


def as_int32(places: Any) -> Any:
    """Before an extent is added that the dtype of the places may not hold; what int32 does not hold is past any end."""
    if dtype_of(places).kind == "u" and dtype_of(places).itemsize >= 4:
        places = ufuncs.minimum(places, np.asarray(np.iinfo(np.int32).max, dtype_of(places)))
    return cast(places, np.int32)


def require_countable(name: str, extent: int) -> None:
    """OverflowError where results are places in int32 that it does not hold."""
    if place_dtype(extent) != _I32:
        raise OverflowError(
            f"{name}: {extent} elements have places that int32 does not hold\n  at {line_of(user_source())}\n"
            "  fix: split the array into parts of fewer elements"
        )
