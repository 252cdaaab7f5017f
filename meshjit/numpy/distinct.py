"""The distinct elements of an array, or its distinct slices along a dim: where each stands, and how often each occurs."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.creation import iota, zeros
from meshjit.numpy.indexing import getitem, take
from meshjit.numpy.places import require_countable
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    exactly,
    index_dtype,
    shape_of,
    weak_of,
)
from meshjit.numpy.shaping import concatenate, ravel, reshape, slice_in_dim
from meshjit.numpy.sorting import bincount, nonzero, sort_together
from meshjit.numpy.unique_slices import unique_slices
from meshjit.numpy.updates import IndexUpdater
from meshjit.trace import line_of, user_source


def _distinct(elements: np.ndarray[Any, Any]) -> int:
    """How many different ones there are, all NaN being one; NumPy takes those of bfloat16 for different."""
    numbers = elements[elements == elements]
    return len(np.unique(numbers)) + (numbers.size < elements.size)


def _unique_of_nothing(x: Any, size: int, fill_value: Any, index: bool, inverse: bool, counts: bool) -> Any:
    """`size` times fill_value; no element stands anywhere. ValueError without fill_value."""
    if size and fill_value is None:
        line = line_of(user_source())
        raise ValueError(f"unique: an empty array has no elements to fill size={size} with\n  at {line}\n  fix: fill_value=...")
    values = broadcast_to(cast(0 if fill_value is None else fill_value, dtype_of(x)), (size,))
    others = [zeros(shape, index_dtype()) for asked, shape in ((index, (0,)), (inverse, shape_of(x)), (counts, (0,))) if asked]
    return (values, *others) if others else values


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = None,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002
) -> Any:
    """The sorted distinct elements. With `size` there are as many: more are cut, missing ones are fill_value (the
    smallest element). Then also where each stands first, which one each element is, and how often each occurs. With
    `axis` these are the slices along it, ordered by their first elements, then by their second, and so on.
    Every NaN is one of its own unless equal_nan. Without `sorted` they are sorted, too."""
    del sorted
    ar = asarray(ar)
    if dtype_of(ar).kind == "c":  # numbers of which one part is NaN are one NaN
        ar = ufuncs.where(ufuncs.isnan(ar), np.nan, ar)
    asked = return_index, return_inverse, return_counts
    if axis is not None:
        return unique_slices(ar, axis, asked, size, fill_value, equal_nan)
    flat, weak = ravel(ar), weak_of(ar)
    if size is None:
        known = concrete(ar, "unique needs the elements to know the result's extent", "unique(x, size=...)")
        size = _distinct(known) + (0 if equal_nan else max(int(np.sum(known != known)) - 1, 0))
    total = shape_of(flat)[0]
    if not total:
        return _unique_of_nothing(ar, size, fill_value, return_index, return_inverse, return_counts)
    require_countable("unique", total)
    ordered, places = sort_together([flat, iota(index_dtype(), (total,), 0)], 0)
    later, earlier = slice_in_dim(ordered, 1, total), slice_in_dim(ordered, 0, total - 1)
    same = ufuncs.equal(later, earlier)
    if equal_nan:
        same = ufuncs.logical_or(same, ufuncs.logical_and(ufuncs.isnan(later), ufuncs.isnan(earlier)))
    first = concatenate([np.ones(1, np.bool_), ufuncs.logical_not(same)])
    starts = nonzero(first, size=size, fill_value=total)[0]
    there = ufuncs.less(starts, total)
    values = take(ordered, starts, axis=0, mode="clip")
    values = ufuncs.where(there, values, getitem(ordered, 0) if fill_value is None else cast(fill_value, dtype_of(ar)))
    return _with_places(exactly(values, dtype_of(ar), weak), places, first, starts, shape_of(ar), size, asked)


def _with_places(
    values: Any, places: Any, first: Any, starts: Any, shape: tuple[int, ...], size: int, asked: tuple[bool, bool, bool]
) -> Any:
    """The distinct ones and, as asked, where each stands first, which one each is, and how often each occurs. `places` says
    where what is sorted stood, `first` which of it differs from the one before, `starts` where these are."""
    total = shape_of(places)[0]
    results = [values]
    if asked[0]:
        results.append(ufuncs.where(ufuncs.less(starts, total), take(places, starts, axis=0, mode="clip"), take(places, 0)))
    group = ufuncs.subtract(reductions.cumsum(cast(first, np.int32)), 1)
    if asked[1]:
        inverse = IndexUpdater(zeros((total,), np.int32))[places].add(group)  # places differ: as good as set, and a sum
        results.append(cast(reshape(inverse, shape), index_dtype()))
    if asked[2]:
        results.append(bincount(group, length=size))
    return results[0] if len(results) == 1 else tuple(results)
