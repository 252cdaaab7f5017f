"""Sorting and searching: sort, argsort, quantiles, searchsorted, counting, and functions whose extent is `size`.

Functions whose result's extent depends on values (`nonzero`, `unique`, `bincount`) take it as `size` or `length`;
without it they need a concrete array.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.core.types import is_inexact
from meshjit.numpy import division, reductions, ufuncs
from meshjit.numpy.creation import iota, linspace, zeros
from meshjit.numpy.filling import beside
from meshjit.numpy.indexing import getitem, take
from meshjit.numpy.places import require_countable
from meshjit.numpy.promote import (
    asarray,
    broadcast_all,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    index_dtype,
    lifted,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.shaping import concatenate, flip, moveaxis, ravel, reshape, slice_in_dim, stack
from meshjit.numpy.updates import IndexUpdater
from meshjit.trace import bind, line_of, user_source


def sort_together(
    operands: Sequence[Any], axis: int, num_keys: int = 1, stable: bool = True, descending: bool = False
) -> list[Any]:
    """Arrays of one shape, sorted along `axis` by the first `num_keys` of them. NaN comes last (first if descending)."""
    turned = {"descending": True} if descending else {}
    results = bind(ops("sort"), *operands, dimension=axis, num_keys=num_keys, is_stable=stable, **turned)
    return list(results) if isinstance(results, tuple) else [results]


def _without_order(name: str, kind: Any, order: Any) -> None:
    """NumPy's kind= and order= of structured arrays."""
    if order is not None:
        raise TypeError(
            f"{name}: order={order!r} is for structured arrays, which there are none of"
            f"\n  at {line_of(user_source())}"
        )
    if kind not in (None, "quicksort", "mergesort", "heapsort", "stable"):
        line = line_of(user_source())
        raise TypeError(f"{name}: kind={kind!r:.60} is no way to sort\n  at {line}\n  fix: leave it out, or stable=True")
    if kind not in (None, "stable"):
        text = f"{name}: kind={kind!r} is of no effect; stable= says whether equal elements keep their order"
        warnings.warn(text, stacklevel=3)


def sort(
    a: Any, axis: int | None = -1, *, kind: str | None = None, order: None = None, stable: bool = True, descending: bool = False
) -> Any:
    """`numpy.sort`: NaN last (first if descending); equal elements, such as the two zeros, keep their order either way."""
    _without_order("sort", kind, order)
    a = ravel(a) if axis is None else asarray(a)
    dim = _sortable_dim("sort", a, axis)
    return sort_together([a], dim, stable=stable, descending=descending)[0]


def argsort(
    a: Any, axis: int | None = -1, *, kind: str | None = None, order: None = None, stable: bool = True, descending: bool = False,
    dtype: Any = None,
) -> Any:  # fmt: skip
    """The places that sort a, in `dtype` (the default integers); equal elements keep their order."""
    _without_order("argsort", kind, order)
    a = ravel(a) if axis is None else asarray(a)
    dim = _sortable_dim("argsort", a, axis)
    places = iota(index_dtype(), shape_of(a), dim)
    sources = sort_together([a, places], dim, stable=stable, descending=descending)[1]
    return sources if dtype is None else cast(sources, dtype)


def _sortable_dim(name: str, x: Any, axis: int | None) -> int:
    if not shape_of(x):
        raise ValueError(f"{name}: an array of 0 dims has nothing to sort\n  at {line_of(user_source())}")
    return normal_axis(-1 if axis is None else axis, len(shape_of(x)))


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The places that sort by the last key, then by the one before it, …"""
    keys = list(keys)
    if not keys:
        raise TypeError("lexsort needs at least one key")
    operands = broadcast_all([asarray(k) for k in reversed(keys)])
    if not shape_of(operands[0]):  # each key is one number
        return zeros((), index_dtype())
    dim = _sortable_dim("lexsort", operands[0], axis)
    return sort_together([*operands, iota(index_dtype(), shape_of(operands[0]), dim)], dim, len(operands))[-1]


def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """`numpy.partition`, which a full sort satisfies."""
    normal_axis(kth, shape_of(a)[normal_axis(axis, len(shape_of(a)))])
    return sort(a, axis)


def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    normal_axis(kth, shape_of(a)[normal_axis(axis, len(shape_of(a)))])
    return argsort(a, axis)


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Any]:
    """The k largest elements along `axis`, largest first, and their places (i32), in a list. Source: jax.lax.top_k.

    Of equal elements the first place comes first. Order is IEEE 754's total order: NaN before infinity, 0.0 before -0.0,
    and a NaN with a minus sign last of all. Along a sharded dim only the best k of every shard are sent.
    """
    operand = asarray(operand)
    dim = _sortable_dim("top_k", operand, axis)
    if not 0 <= k <= shape_of(operand)[dim]:
        raise ValueError(f"top_k: k is {k}, the dim has extent {shape_of(operand)[dim]}\n  at {line_of(user_source())}")
    values, places = bind(ops("top_k"), moveaxis(operand, dim, -1), k=int(k))
    return [moveaxis(values, -1, dim), moveaxis(places, -1, dim)]


# -- searching

_SEARCHES = {"default": "default", "scan": "default", "scan_unrolled": "scan", "sort": "scan", "compare_all": "compare_all"}


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Any:
    """Where values belong in a sorted vector: before entries equal to them ("left") or after ("right"). NaN is largest.

    Source: jax.numpy.searchsorted. `method`: "compare_all" compares every value with every entry; "scan_unrolled" and
    "sort" halve, and so do "scan" and "default" unless the vector is short. Results are the same. A vector that is
    sharded stays where it is: the places are sums of counts.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is {side!r}; use 'left' or 'right'")
    if method not in _SEARCHES:
        raise ValueError(f"searchsorted: method {method!r} is not one of {', '.join(_SEARCHES)}")
    (table, v), _ = promoted(a, v)
    if len(shape_of(table)) != 1:
        raise ValueError(f"searchsorted: the sorted array must be a vector, got shape {shape_of(table)}")
    require_countable("searchsorted", shape_of(table)[0])
    table = table if sorter is None else take(table, sorter)
    if dtype_of(table).kind == "c":
        return _searched_complex(table, v, side)
    return bind(ops("searchsorted"), table, v, side=side, batch_dims=0, method=_SEARCHES[method], weak_type=False)


def _searched_complex(table: Any, v: Any, side: str) -> Any:
    """By real, then by imaginary parts: both are sorted together, and a value stands behind so many of its own kind."""
    flat, before = ravel(v), shape_of(table)[0] if side == "right" else 0
    count = shape_of(flat)[0]
    merged = concatenate([table, flat] if before else [flat, table])
    own = argsort(argsort(flat)) if count else zeros((0,), index_dtype())
    among = slice_in_dim(argsort(argsort(merged)), before, before + count)
    return reshape(ufuncs.subtract(among, own), shape_of(v))


def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """`numpy.digitize`: the number of the bin of each value; bins may rise or fall. `method` as searchsorted has it."""
    method = "scan" if method is None else method
    bins = asarray(bins)
    if len(shape_of(bins)) != 1:
        raise ValueError(f"digitize: bins are a vector, got shape {shape_of(bins)}\n  at {line_of(user_source())}")
    count = shape_of(bins)[0]
    side = "left" if right else "right"
    if not count:
        return zeros(shape_of(x), np.int32)
    rising = ufuncs.greater_equal(getitem(bins, -1), getitem(bins, 0))
    return ufuncs.where(
        rising,
        searchsorted(bins, x, side, method=method),
        ufuncs.subtract(count, searchsorted(flip(bins), x, side, method=method)),
    )


@takes_out_sharding
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often every number from 0 on occurs, or the sum of its weights. `length` is needed for traced x."""
    x = asarray(x)
    if len(shape_of(x)) != 1:
        raise ValueError(f"bincount takes a vector, got shape {shape_of(x)}\n  at {line_of(user_source())}\n  fix: x.ravel()")
    if dtype_of(x).kind not in "iub":
        raise TypeError(f"bincount takes integers, got {dtype_of(x)}\n  at {line_of(user_source())}")
    if length is None:
        numbers = concrete(x, "bincount needs the largest number to know the result's extent", "bincount(x, length=...)")
        length = max(int(numbers.max(initial=0)) + 1 if numbers.size else 0, minlength)
    weights = np.ones((), index_dtype()) if weights is None else asarray(weights)
    x = ufuncs.maximum(x, 0) if dtype_of(x) != np.bool_ else cast(x, np.int32)
    return IndexUpdater(zeros((length,), dtype_of(weights)))[x].add(broadcast_to(weights, shape_of(x)), mode="drop")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """`bins` equal bins between the extremes of x (or `range`); given edges stay."""
    del weights
    if shape_of(bins):
        return lifted(cast(bins, np.float32) if not is_inexact(dtype_of(bins)) else bins)
    (a,), _ = promoted(a, inexact=True)
    low, high = (reductions.min(a), reductions.max(a)) if range is None else (cast(r, dtype_of(a)) for r in range)
    flat = ufuncs.equal(low, high)
    low, high = ufuncs.where(flat, ufuncs.subtract(low, 0.5), low), ufuncs.where(flat, ufuncs.add(high, 0.5), high)
    return linspace(low, high, int(bins) + 1, dtype=dtype_of(a))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None  # noqa: A002
) -> tuple[Any, Any]:
    """(counts or weights per bin, edges); the last bin holds its right edge. Counts are floats, of the dtype that the array and
    the weights promote to, as in JAX."""
    if weights is not None and dtype_of(weights).kind != "c":
        (a, weights), _ = promoted(a, weights, inexact=True)
    edges = histogram_bin_edges(a, bins, range)
    (a,), _ = promoted(a, inexact=True)  # of any rank: the order of its elements does not matter
    (a, edges), _ = promoted(a, edges)
    weights = np.ones((), dtype_of(a)) if weights is None else asarray(weights)
    last = shape_of(edges)[0] - 1
    place = searchsorted(edges, a, "right")
    place = ufuncs.where(ufuncs.equal(a, getitem(edges, -1)), last, place)
    totals = IndexUpdater(zeros((last + 1,), dtype_of(weights)))[place].add(broadcast_to(weights, shape_of(a)), mode="drop")
    counts = getitem(totals, slice(1, None))
    if density:
        widths = ufuncs.subtract(getitem(edges, slice(1, None)), getitem(edges, slice(None, -1)))
        counts = ufuncs.true_divide(ufuncs.true_divide(counts, widths), reductions.sum(counts))
    return counts, edges


# -- functions of a given size


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """The places of elements that are not 0, one array per dim. With `size` there are as many: more are cut, missing
    ones are fill_value (0; or one per dim)."""
    a = asarray(a)
    shape = shape_of(a)
    if not shape:
        raise ValueError("nonzero: an array of 0 dims has no places; use atleast_1d")
    fills = _fills(fill_value, len(shape), size)
    if size is None:
        places = np.nonzero(concrete(a, "nonzero needs the elements to know the result's extent", "nonzero(x, size=...)"))
        return tuple(beside(p.astype(index_dtype()), a) for p in places)
    require_countable("nonzero", math.prod(shape))
    running = reductions.cumsum(cast(ufuncs.truth(ravel(a)), np.int32))
    order = ufuncs.add(iota(np.int32, (size,), 0), 1)
    flat = searchsorted(running, order)
    there = ufuncs.less_equal(order, getitem(running, -1)) if math.prod(shape) else zeros((size,), np.bool_)
    indices = []
    for dim, (extent, fill) in enumerate(zip(shape, fills, strict=True)):
        place = division.remainder(division.floor_divide(flat, max(math.prod(shape[dim + 1 :]), 1)), max(extent, 1))
        indices.append(ufuncs.where(there, cast(place, index_dtype()), 0 if fill is None else fill))
    return tuple(indices)


def _fills(fill_value: Any, rank: int, size: int | None) -> Sequence[Any]:
    """One number per dim; ValueError for what is neither one for all nor a tuple of them. Nothing is filled where size is 0."""
    if size == 0 or fill_value is None:
        return (fill_value if fill_value is None else 0,) * rank
    several = isinstance(fill_value, tuple | list)
    fills = fill_value if several else (fill_value,) * rank
    if len(fills) != rank or any(shape_of(fill) for fill in fills):
        what = f"{len(fills)} of them" if several else f"an array of shape {shape_of(fill_value)}"
        raise ValueError(
            f"nonzero: fill_value must be one number, or a tuple with one for each of {rank} dims, got {what}"
            f"\n  at {line_of(user_source())}"
        )
    return fills


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The places of elements that are not 0 in the flat array; `size` and fill_value as in nonzero."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The places of elements that are not 0 as rows; of an array of 0 dims that is not 0 one row without places."""
    if not shape_of(a):
        return slice_in_dim(argwhere(reshape(a, (1,)), size=size, fill_value=0), 0, 0, axis=1)
    return stack(nonzero(a, size=size, fill_value=fill_value), axis=1)
