"""The distinct slices of an array along a dim, in the order of their elements: `unique` with an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.creation import iota, zeros
from meshjit.numpy.indexing import getitem, take
from meshjit.numpy.places import require_countable
from meshjit.numpy.promote import broadcast_to, cast, concrete, dtype_of, index_dtype, normal_axis, ops, shape_of
from meshjit.numpy.shaping import concatenate, moveaxis, reshape, slice_in_dim
from meshjit.numpy.updates import IndexUpdater
from meshjit.trace import bind, line_of, user_source


def unique_slices(
    x: Any, axis: int, returned: tuple[bool, bool, bool], size: int | None, fill_value: Any, equal_nan: bool
) -> Any:
    """As `unique`; `returned` says which of first places, inverse and counts come with the slices."""
    axis = normal_axis(axis, len(shape_of(x)))
    count = shape_of(x)[axis]
    require_countable("unique", count)
    rows = reshape(moveaxis(x, axis, 0), (count, math.prod(shape_of(x)) // count if count else 0))
    ranks = _ranks_of_rows(rows, equal_nan)
    if size is None:
        known = concrete(ranks, "unique needs the elements to know the result's extent", "unique(x, axis, size=...)")
        size = int(known.max()) + 1 if count else 0
    if size and fill_value is None and not count:
        line = line_of(user_source())
        raise ValueError(f"unique: an empty array has no slices to fill size={size} with\n  at {line}\n  fix: fill_value=...")
    starts = _first_places(ranks, size)
    there = ufuncs.less(starts, count)
    places = ufuncs.where(there, starts, getitem(starts, 0)) if count and size else starts
    others = tuple(n for d, n in enumerate(shape_of(x)) if d != axis)
    slices = moveaxis(take(x, places, axis=axis, mode="clip"), axis, 0) if count else zeros((size, *others), dtype_of(x))
    if fill_value is not None:
        filled = broadcast_to(cast(fill_value, dtype_of(x)), others)
        slices = ufuncs.where(reshape(there, (-1,) + (1,) * (len(shape_of(x)) - 1)), slices, filled)
    counts = IndexUpdater(zeros((size,), index_dtype()))[ranks].add(1, mode="drop")
    results = [moveaxis(slices, 0, axis), *(r for r, asked in zip((places, ranks, counts), returned, strict=True) if asked)]
    return results[0] if len(results) == 1 else tuple(results)


def _first_places(ranks: Any, size: int) -> Any:
    """[size]: the first place of every rank; the number of ranks for one that none has."""
    count = shape_of(ranks)[0]
    own = iota(index_dtype(), (count,), 0)
    beyond = broadcast_to(np.asarray(count, index_dtype()), (size,))
    return IndexUpdater(beyond)[ranks].min(own, mode="drop")


def _ranks_of_rows(rows: Any, equal_nan: bool) -> Any:
    """[count]: how many different rows come before each, compared from the first column on.

    First the columns are ranked, each by itself, then pairs of neighbours by their ranks, until one column is left: the length
    of the program is logarithmic in the number of columns."""
    count, columns = shape_of(rows)
    if not count or not columns:
        return zeros((count,), index_dtype())
    ranks = _ranked([rows], equal_nan)
    while (columns := shape_of(ranks)[1]) > 1:
        if columns % 2:
            ranks = concatenate([ranks, zeros((count, 1), index_dtype())], 1)
        pairs = reshape(ranks, (count, -1, 2))
        ranks = _ranked([pairs[..., 0], pairs[..., 1]], True)
    return reshape(ranks, (count,))


def _ranked(keys: list[Any], equal_nan: bool) -> Any:
    """The ranks of the elements of every column, by the first key and then by the second; equal ones have one rank."""
    count, columns = shape_of(keys[0])
    places = iota(index_dtype(), (count, columns), 0)
    *ordered, order = bind(ops("sort"), *keys, places, dimension=0, num_keys=len(keys), is_stable=True)
    new: Any = False
    for key in ordered:
        later, earlier = slice_in_dim(key, 1, count, axis=0), slice_in_dim(key, 0, count - 1, axis=0)
        differs = ufuncs.not_equal(later, earlier)
        if equal_nan:
            nans = ufuncs.logical_and(ufuncs.isnan(later), ufuncs.isnan(earlier))
            differs = ufuncs.logical_and(differs, ufuncs.logical_not(nans))
        new = ufuncs.logical_or(new, differs)
    ranks = concatenate([zeros((1, columns), np.int32), reductions.cumsum(cast(new, np.int32), axis=0)], 0)
    return bind(ops("sort"), order, cast(ranks, index_dtype()), dimension=0, num_keys=1, is_stable=True)[1]
