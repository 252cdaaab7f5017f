"""Arrays as sets of their elements: which elements one has that the other has too, or has not.

Results are sorted vectors without repetitions, of the extent `size`; without it the elements must be known. NaN is one element
of an array, and equal to none of the other array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.arguments import count_of
from meshjit.numpy.creation import full, iota, ones, zeros
from meshjit.numpy.distinct import unique
from meshjit.numpy.indexing import getitem, take
from meshjit.numpy.promote import asarray, cast, concrete, dtype_of, exactly, index_dtype, promoted, shape_of, weak_of
from meshjit.numpy.shaping import concatenate, expand_dims, ravel, reshape, slice_in_dim
from meshjit.numpy.sorting import nonzero, searchsorted, sort, sort_together
from meshjit.trace import line_of, user_source

_METHODS = ("auto", "compare_all", "binary_search", "sort")
_COMPARED = 64  # elements that "auto" compares with every element; among more it halves


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"
) -> Any:
    """`numpy.isin`: booleans of element's shape: whether it is one of the test elements (is none, if `invert`).

    Source: jax.numpy.isin. Results are the same for every `method`: "compare_all" compares each with each, "binary_search" and
    "sort" halve the sorted test elements. ValueError for another method. `assume_unique` changes nothing."""
    del assume_unique
    if method not in _METHODS:
        raise ValueError(
            f"isin: method {method!r} is not one of {', '.join(_METHODS)}\n  at {line_of(user_source())}\n  fix: method='auto'"
        )
    (x, table), _ = promoted(element, test_elements)
    table = ravel(table)
    count = shape_of(table)[0]
    if not count or 0 in shape_of(x):
        return (ones if invert else zeros)(shape_of(x), np.bool_)
    is_short = method == "compare_all" or (method == "auto" and count <= _COMPARED)
    if is_short or dtype_of(table).kind in "cb":
        result = reductions.any_(ufuncs.equal(expand_dims(x, -1), table), axis=-1)
    else:
        ordered = sort(table)
        result = ufuncs.equal(take(ordered, searchsorted(ordered, x), axis=0, mode="clip"), x)
    return ufuncs.logical_not(result) if invert else result


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """`numpy.union1d`: [size] what is in one of the arrays or in both; missing ones are fill_value (the smallest element).

    Source: jax.numpy.union1d. ConcretizationTypeError for traced arrays without `size`."""
    return unique(concatenate([ar1, ar2], axis=None), size=_given("union1d", size), fill_value=fill_value)


def setdiff1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """`numpy.setdiff1d`: [size] what is in ar1 and not in ar2, in ar1's dtype; missing ones are fill_value (0).

    Source: jax.numpy.setdiff1d. With `assume_unique` the elements keep the order of ar1. ConcretizationTypeError for
    traced arrays without `size`."""
    x = ravel(ar1)
    ordered, first = (x, ones(shape_of(x), np.bool_)) if assume_unique else _ordered(x)[::2]
    only = ufuncs.logical_and(first, isin(ordered, ar2, invert=True))
    return _picked(ordered, _where("setdiff1d", only, size), 0 if fill_value is None else fill_value, weak_of(ar1))


def setxor1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """`numpy.setxor1d`: [size] what is in just one of the arrays; missing ones are fill_value (the smallest of the result).

    Source: jax.numpy.setxor1d. `assume_unique` changes nothing. ConcretizationTypeError for traced arrays without `size`."""
    del assume_unique
    (x, y), weak = promoted(ar1, ar2)
    (x, _, first), (y, _, first_y) = _ordered(ravel(x)), _ordered(ravel(y))
    only = ufuncs.logical_and(first, isin(x, y, invert=True)), ufuncs.logical_and(first_y, isin(y, x, invert=True))
    absent, values = sort_together([ufuncs.logical_not(concatenate(only)), concatenate([x, y])], 0, num_keys=2)
    places, fill = _where("setxor1d", ufuncs.logical_not(absent), size), None if size is None else fill_value
    return _picked(values, places, fill, weak and size is None)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """`numpy.intersect1d`: [size] what is in both arrays; missing ones are fill_value (the smallest of the result).

    With `return_indices` also where each stands first in ar1 and in ar2, both flat; a missing one has the place behind the last.
    Source: jax.numpy.intersect1d. `assume_unique` changes nothing. ConcretizationTypeError for traced arrays without `size`."""
    del assume_unique
    (x, y), weak = promoted(ar1, ar2)
    (x, places, first), (y, places_y, _) = _ordered(ravel(x)), _ordered(ravel(y))
    spots = _where("intersect1d", ufuncs.logical_and(first, isin(x, y)), size)
    values = _picked(x, spots, fill_value, weak)
    if not return_indices:
        return values
    behind = shape_of(x)[0], shape_of(y)[0]
    if 0 in behind:
        return values, *(full(shape_of(spots), n, index_dtype()) for n in behind)
    there, elements = ufuncs.less(spots, behind[0]), take(x, spots, axis=0, mode="clip")
    indices = take(places, spots, axis=0, mode="clip"), take(places_y, searchsorted(y, elements), axis=0, mode="clip")
    return values, *(ufuncs.where(there, i, n) for i, n in zip(indices, behind, strict=True))


def _ordered(x: Any) -> tuple[Any, Any, Any]:
    """A vector sorted, where its elements stood, and which of them differ from the one before."""
    count = shape_of(x)[0]
    if not count:
        return x, zeros((0,), index_dtype()), zeros((0,), np.bool_)
    ordered, places = sort_together([x, iota(index_dtype(), (count,), 0)], 0)
    later, earlier = slice_in_dim(ordered, 1, count), slice_in_dim(ordered, 0, count - 1)
    both_nan = ufuncs.logical_and(ufuncs.isnan(later), ufuncs.isnan(earlier))
    differs = ufuncs.logical_not(ufuncs.logical_or(ufuncs.equal(later, earlier), both_nan))
    return ordered, places, concatenate([np.ones(1, np.bool_), differs])


def _given(name: str, size: int | None) -> int | None:
    return None if size is None else count_of(size, f"{name}: size")


def _where(name: str, mask: Any, size: int | None) -> Any:
    """[size] places where the mask holds, and its extent where there are no more; as many as there are without `size`."""
    if size is None:
        known = concrete(mask, f"{name} needs the elements to know the result's extent", f"{name}(..., size=...)")
        size = int(np.count_nonzero(known))
    return nonzero(mask, size=_given(name, size), fill_value=shape_of(mask)[0])[0]


def _picked(values: Any, places: Any, fill: Any, weak: bool) -> Any:
    """The values at places; `fill` where the place is behind the last, or the smallest of what is picked (0 of nothing).
    ValueError for a fill value with dims."""
    if fill is not None and shape_of(fill):
        raise ValueError(f"fill_value must be one number, it has shape {shape_of(fill)}\n  at {line_of(user_source())}")
    values = asarray(values)
    count, size = shape_of(values)[0], shape_of(places)[0]
    if not count or not size:
        return full((size,), 0 if fill is None else fill, dtype_of(values))
    there, picked = ufuncs.less(places, count), take(values, places, axis=0, mode="clip")
    if fill is None:
        first = ufuncs.where(getitem(there, 0), getitem(picked, 0), cast(0, dtype_of(values)))
        fill = reductions.min(ufuncs.where(there, picked, first))
    return exactly(reshape(ufuncs.where(there, picked, cast(fill, dtype_of(values))), (size,)), dtype_of(values), weak)
