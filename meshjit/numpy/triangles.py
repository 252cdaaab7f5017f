"""Places of triangles, and Vandermonde's matrix: arrays from nothing that take sums and lookups to make."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import count_of, diagonal_number, shape_tuple
from meshjit.numpy.creation import array, iota
from meshjit.numpy.indexing import take
from meshjit.numpy.powers import power
from meshjit.numpy.promote import cast, index_dtype, shape_of
from meshjit.numpy.reductions import cumsum
from meshjit.numpy.shaping import expand_dims, flip
from meshjit.numpy.sorting import searchsorted
from meshjit.trace import line_of, user_source

_TABLE = 1 << 13  # places that are written into the program; more are computed on the devices


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, the highest first. ValueError for another array, and for negative N."""
    if len(shape_of(x)) != 1:
        raise ValueError(f"vander takes a vector, got shape {shape_of(x)}\n  at {line_of(user_source())}\n  fix: x.ravel()")
    count = shape_of(x)[0] if N is None else count_of(N, "vander: N")
    columns = power(expand_dims(x, 1), iota(np.int32, (count,), 0))
    return columns if increasing else flip(columns, 1)


def _triangle(n: int, m: int, k: int, is_lower: bool) -> tuple[Any, Any]:
    """Rows and columns of what lies before column row + k (is_lower), or from it on; row by row."""
    k = min(max(k, -n), m)
    before = _clipped_sum(n, k, m)
    total, kind = before if is_lower else n * m - before, index_dtype()
    if total <= _TABLE and n * m <= 2 * _TABLE:
        mask = np.tri(n, m, k - 1, np.bool_)
        return tuple(array(places.astype(kind)) for places in np.nonzero(mask if is_lower else ~mask))
    if total > np.iinfo(kind).max:
        raise OverflowError(f"the triangle of {n}x{m} has {total} places, more than {kind} counts\n  fix: use tri as a mask")
    split = ufuncs.clip(ufuncs.add(iota(kind, (n,), 0), k), 0, m)
    counts = split if is_lower else ufuncs.subtract(m, split)
    ends, numbers = cumsum(counts), iota(kind, (total,), 0)
    rows = cast(searchsorted(ends, numbers, "right"), kind)
    columns = ufuncs.subtract(counts if is_lower else m, ends)  # of the first place of all, if the row began there
    return rows, ufuncs.add(numbers, take(columns, rows, mode="clip"))


def _clipped_sum(n: int, k: int, m: int) -> int:
    """The sum of min(max(row + k, 0), m) over the rows 0 … n - 1."""
    first, full = min(max(-k, 0), n), min(max(m - k, 0), n)  # the rows from which it is more than 0, and m
    return (full - first) * (first + k + full - 1 + k) // 2 + m * (n - full)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the lower triangle of [n, m]; TypeError for extents that are no integers, or negative."""
    rows, columns = shape_tuple((n, n if m is None else m))
    return _triangle(rows, columns, diagonal_number(k) + 1, True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the upper triangle of [n, m]; TypeError for extents that are no integers, or negative."""
    rows, columns = shape_tuple((n, n if m is None else m))
    return _triangle(rows, columns, diagonal_number(k), False)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    n, m = _matrix("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    n, m = _matrix("triu_indices_from", arr)
    return triu_indices(n, k, m)


def _matrix(name: str, x: Any) -> tuple[int, int]:
    if len(shape_of(x)) != 2:
        raise ValueError(f"{name} takes an array of 2 dims, got shape {shape_of(x)}\n  at {line_of(user_source())}")
    n, m = shape_of(x)
    return n, m
