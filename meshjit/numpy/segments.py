"""Sums and other reductions of rows by segment: `jax.ops.segment_sum` and its kin.

A segment is a row of the result. Rows that are spread over devices are reduced where they are, and the results, which
have as many rows as there are segments, are put together; the rows do not travel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy.indexing import mode_word
from meshjit.numpy.promote import asarray, broadcast_to, cast, concrete, dtype_of, shape_of
from meshjit.numpy.scattering import scattered
from meshjit.numpy.shaping import expand_dims
from meshjit.ops.base.identity_elements import identity_element
from meshjit.trace import line_of, user_source

_KINDS = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}


def _segment(name: str) -> Any:
    @takes_out_sharding
    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
    ) -> Any:
        if bucket_size is not None and bucket_size < 1:
            raise ValueError(f"segment_{name}: bucket_size is {bucket_size}, it must be positive")
        ids = asarray(segment_ids)
        data = _one_for_each(asarray(data), ids)
        rank = _check_ids(f"segment_{name}", data, ids)
        count = _count(f"segment_{name}", ids, num_segments)
        dtype = dtype_of(data)
        if dtype == np.bool_:
            kind = {"sum": "max", "prod": "min"}.get(name, name)
        else:
            kind = _KINDS[name]
        reduction = {"min": "min", "max": "max"}.get(kind, name)
        rest = shape_of(data)[rank:]
        start = broadcast_to(np.asarray(identity_element(reduction, dtype)), (count, *rest))
        if not count:
            return start
        return scattered(
            start, expand_dims(_signed(ids), rank), data,
            update_window_dims=tuple(range(rank, len(shape_of(data)))), inserted_window_dims=(0,), input_batching_dims=(),
            scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,), kind=kind, mode=mode_word(mode, "fill"),
            indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices),
        )  # fmt: skip

    function.__name__ = function.__qualname__ = f"segment_{name}"
    function.__doc__ = _DOC.format(name=name, empty=_EMPTY[name])
    return function


_EMPTY = {"sum": "0", "prod": "1", "min": "the highest value of the dtype", "max": "the lowest value of the dtype"}
_DOC = """`jax.ops.segment_{name}`: rows of `data` with one segment id reduced to one row.

data [*ids, ...], segment_ids of integers [*ids] (usually one dim), the result [num_segments, ...] in data's dtype. A number,
or one row, is that of every id.
A segment without rows is {empty}. Ids out of range, also negative ones, are left out unless `mode` says otherwise.
num_segments: by default the highest id plus one, for which the ids must be concrete. indices_are_sorted and
unique_indices are promises. bucket_size is accepted; sums need no buckets here.
"""


def _one_for_each(data: Any, ids: Any) -> Any:
    """One entry for all ids, a number or a single row, as many times as there are ids."""
    shape = shape_of(data)
    return broadcast_to(data, (*shape_of(ids), *shape[1:])) if len(shape_of(ids)) == 1 and shape[:1] in ((), (1,)) else data


def _check_ids(name: str, data: Any, ids: Any) -> int:
    """The rank of the ids, whose shape begins that of the data."""
    rank = len(shape_of(ids))
    if dtype_of(ids).kind not in "iu":
        raise TypeError(f"{name}: segment_ids must be integers, got {dtype_of(ids)}\n  at {line_of(user_source())}")
    if not rank or shape_of(data)[:rank] != shape_of(ids):
        raise ValueError(
            f"{name}: data has shape {shape_of(data)}, segment_ids {shape_of(ids)}\n  at {line_of(user_source())}\n"
            "  fix: give one id per row of data: ids[n] for data[n, ...]"
        )
    return rank


def _count(name: str, ids: Any, count: int | None) -> int:
    if count is None:
        numbers = concrete(ids, f"{name} needs the highest id to know the result's extent", f"{name}(..., num_segments=...)")
        return max(int(numbers.max(initial=-1)) + 1, 0)
    if count < 0:
        raise ValueError(f"{name}: num_segments is {count}, it cannot be negative\n  at {line_of(user_source())}")
    return int(count)


def _signed(ids: Any) -> Any:
    return cast(ids, np.int32) if dtype_of(ids).itemsize < 4 else ids


segment_sum, segment_prod, segment_min, segment_max = (_segment(name) for name in ("sum", "prod", "min", "max"))
