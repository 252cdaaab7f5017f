"""gather and scatter with jax.lax's dimension numbers."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshjit.lax.operands import require_alike
from meshjit.numpy import division, ufuncs
from meshjit.numpy.indexing import mode_word
from meshjit.numpy.promote import asarray, ops, shape_of, weak_of
from meshjit.numpy.scattering import scattered
from meshjit.numpy.shaping import moveaxis
from meshjit.trace import bind


class GatherScatterMode(enum.Enum):
    """What an index out of range means: moved inside, or filled (gather) and dropped (scatter)."""

    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3


class GatherDimensionNumbers(NamedTuple):
    """See jax.lax.gather; the index vector is the last dim of the indices."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """See jax.lax.scatter; the index vector is the last dim of the indices."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


def _dims(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Any:
    """`jax.lax.gather`; out of range windows are moved inside, or filled, as mode says."""
    del unique_indices
    numbers = dimension_numbers
    shape, batch = shape_of(operand), numbers.operand_batching_dims
    slice_sizes = [min(n, shape[d]) if d in batch else n for d, n in enumerate(slice_sizes)]  # an empty batch has none of 1
    return bind(
        ops("gather"), asarray(operand), asarray(start_indices),
        offset_dims=_dims(numbers.offset_dims), collapsed_slice_dims=_dims(numbers.collapsed_slice_dims),
        operand_batching_dims=_dims(numbers.operand_batching_dims),
        start_indices_batching_dims=_dims(numbers.start_indices_batching_dims),
        start_index_map=_dims(numbers.start_index_map), slice_sizes=_dims(slice_sizes),
        mode=mode_word(mode, "promise_in_bounds"), fill_value=fill_value, indices_are_sorted=bool(indices_are_sorted),
        weak_type=weak_of(operand),
    )  # fmt: skip


def _scatter(name: str, kind: str) -> Any:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Any:
        require_alike(name, operand, updates)
        numbers = dimension_numbers
        return scattered(
            asarray(operand), asarray(scatter_indices), asarray(updates),
            update_window_dims=_dims(numbers.update_window_dims),
            inserted_window_dims=_dims(numbers.inserted_window_dims),
            input_batching_dims=_dims(numbers.operand_batching_dims),
            scatter_indices_batching_dims=_dims(numbers.scatter_indices_batching_dims),
            scatter_dims_to_operand_dims=_dims(numbers.scatter_dims_to_operand_dims), kind=kind,
            mode=mode_word(mode, "fill"), indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices),
            weak_type=weak_of(operand),
        )  # fmt: skip

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`jax.lax.{name}`; out of range windows are dropped unless mode says otherwise."
    return function


scatter, scatter_add, scatter_mul = _scatter("scatter", "set"), _scatter("scatter_add", "add"), _scatter("scatter_mul", "mul")
scatter_min, scatter_max = _scatter("scatter_min", "min"), _scatter("scatter_max", "max")


def scatter_sub(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """`jax.lax.scatter_sub`: scatter_add of the negated updates."""
    how = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    return scatter_add(operand, scatter_indices, ufuncs.negative(updates), dimension_numbers, **how)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """The slices of src at these places of `axes`, one after another: idxs has a vector per axis; negative ones count from the
    end, and places beyond it from the start again."""
    shape = shape_of(src)
    places = [division.remainder(asarray(i), shape[d]) for i, d in zip(idxs, axes, strict=True)]
    front = moveaxis(src, tuple(axes), tuple(range(len(axes))))
    return asarray(front)[tuple(places)]
