"""Indexing: `x[...]`, `take`, `take_along_axis`, and updates `x.at[...].set(...)`, on slices, gather and scatter.

An index is brought to one form: per dim of x either a slice or an integer array. Slices are done first, as slices;
integer arrays (broadcast together) become one gather. Negative indices count from the end. Out-of-bounds indices give
what JAX gives: reads are clamped (`mode="fill"` gives NaN or the extreme integer), updates are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.stored import wide_of
from meshjit.core.types import SMALL_INTEGERS
from meshjit.errors import NonConcreteBooleanIndexError
from meshjit.numpy import ufuncs
from meshjit.numpy.places import around, bounded, from_front, in_one_dtype, known_places, place_dtype, widened
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    no_out,
    normal_axis,
    ops,
    shape_of,
    value,
    weak_of,
)
from meshjit.numpy.shaping import expand_dims, flip, reshape, squeeze
from meshjit.trace import Tracer, bind, line_of, user_source
from meshjit.trace.tracer import is_known, origin


@dataclass(frozen=True)
class Index:
    """A parsed index: slices (start, stop, step) per dim of x, arrays by dim, and how the result's dims are arranged."""

    slices: tuple[tuple[int, int, int], ...]
    arrays: dict[int, Any]
    scalars: tuple[int, ...]  # dims indexed by a Python int when there are no arrays: sliced, then dropped
    new_axes: tuple[int, ...]  # positions in the result
    first: int | None  # where the arrays' dims go in the result; None: in front


def parse_index(x: Any, index: Any, wrap: bool = True) -> Index:
    """`index` for x. A Python int that is out of range is an array as others are: scatters and gathers say what is done, and
    checkify sees them. Without `wrap` negative indices are out of range, not counted from the end; the bounds of slices always
    are."""
    shape = shape_of(x)
    parts = _expanded(index if isinstance(index, tuple) else (index,), len(shape))
    slices = [(0, n, 1) for n in shape]
    arrays: dict[int, Any] = {}
    scalars: list[int] = []
    places: dict[int, int] = {}  # of scalars
    new_axes: list[int] = []
    layout: list[str] = []  # result dims and arrays in order: "dim", "new", "array", "gap"
    is_only = sum(1 for p in parts if p is not None and p is not Ellipsis and not isinstance(p, slice)) == 1
    dim = 0
    for part in parts:
        if part is Ellipsis:
            layout.append("gap")
            continue
        run = _progression(part, shape[dim]) if is_only and isinstance(part, np.ndarray) and wrap else None
        if part is None:
            layout.append("new")
        elif run is not None:
            slices[dim] = run
            layout.append("dim")
            dim += 1
        elif isinstance(part, slice):
            slices[dim] = _bounds(part, shape[dim])
            layout.append("dim")
            dim += 1
        elif (place := _static_place(part, dim, shape, wrap)) is not None and 0 <= place < shape[dim]:
            places[dim], slices[dim] = place, (place, place + 1, 1)
            scalars.append(dim)
            layout.append("array")
            dim += 1
        else:
            arrays[dim] = _integers(part, shape[dim], wrap)
            layout.append("array")
            dim += 1
    if arrays:  # static ints take part in the arrays' arrangement
        for d in scalars:
            arrays[d] = known_places(places[d], place_dtype(shape[d]))
            slices[d] = (0, shape[d], 1)
        scalars = []
    place = _arrays_place(layout) if arrays else None
    position = 0
    rank = len(broadcast_shapes(*(shape_of(a) for a in arrays.values()))) if arrays else 0
    placed = False
    position = rank if arrays and place is None else 0
    for kind in layout:
        if kind == "new":
            new_axes.append(position)
            position += 1
        elif kind == "dim":
            position += 1
        elif kind == "array" and arrays and place is not None and not placed:
            position += rank
            placed = True
    return Index(tuple(slices), arrays, tuple(scalars), tuple(new_axes), place)


def _progression(part: np.ndarray[Any, Any], extent: int) -> tuple[int, int, int] | None:
    """A known index array of equal steps, all in range, as the slice that it is: nothing needs to be looked up."""
    if part.ndim != 1 or not part.size or part.dtype.kind not in "iu":
        return None
    places = part.astype(np.int64)
    places = np.where(places < 0, places + extent, places)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if not step or not all(0 <= int(p) < extent for p in (places[0], places[-1])) or (np.diff(places) != step).any():
        return None
    return int(places[0]), int(places[0]) + places.size * step, step


def _arrays_place(layout: list[str]) -> int | None:
    """Where NumPy puts the dims of integer arrays: in their place if they stand together, else in front."""
    spots = [i for i, kind in enumerate(layout) if kind == "array"]
    if spots[-1] - spots[0] + 1 != len(spots):
        return None
    return sum(1 for kind in layout[: spots[0]] if kind == "dim")


def _expanded(parts: tuple[Any, ...], rank: int) -> list[Any]:
    """`...` spelt out (kept where it is no dim), boolean masks as integer arrays."""
    flat: list[Any] = []
    for part in parts:
        if isinstance(part, list | tuple):
            part = asarray(part) if part else np.zeros(0, np.int32)
        if is_mask(part):
            flat.extend(np.nonzero(_known(part)))
        else:
            flat.append(part)
    used = sum(1 for p in flat if p is not None and p is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices: {used} for an array of {rank} dims\n  at {line_of(user_source())}")
    whole = [slice(None)] * (rank - used) or [Ellipsis]  # one that stands for no dim parts arrays, too
    if sum(1 for p in flat if p is Ellipsis) > 1:
        raise IndexError(f"an index can hold one ellipsis only\n  at {line_of(user_source())}")
    spot = next((i for i, p in enumerate(flat) if p is Ellipsis), None)
    return [*flat, *whole[: rank - used]] if spot is None else [*flat[:spot], *whole, *flat[spot + 1 :]]


def is_mask(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (hasattr(part, "dtype") and part.dtype == np.bool_)


def _known(mask: Any) -> np.ndarray[Any, Any]:
    if not is_known(mask):
        raise NonConcreteBooleanIndexError(
            f"a traced boolean mask ({origin(mask)}) gives a result whose shape depends on values\n"
            f"  at {line_of(user_source())}\n"
            "  fix: use mnp.where(mask, x, other); mnp.nonzero(mask, size=...) gives as many indices as you say"
        )
    return np.asarray(mask)


def is_scalar_mask(part: Any) -> bool:
    return is_mask(part) and not np.ndim(part)


def split_scalar_masks(x: Any, parts: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A scalar True is a new dim of which all is taken, a scalar False one of which nothing is."""
    if not any(is_scalar_mask(p) for p in parts):
        return x, parts
    if any(p is Ellipsis for p in parts[: max(i for i, p in enumerate(parts) if is_scalar_mask(p))]):
        raise IndexError(f"a scalar boolean after an ellipsis is not supported\n  at {line_of(user_source())}")
    dim = 0
    rest: list[Any] = []
    for part in parts:
        if is_scalar_mask(part):
            x = expand_dims(x, dim)
            part = np.arange(1 if _known(part) else 0, dtype=np.int32)
        dim += 0 if part is None else np.ndim(part) if is_mask(part) else 1
        rest.append(part)
    return x, tuple(rest)


def _static_int(part: Any) -> int | None:
    if isinstance(part, bool | np.bool_):
        return None
    if isinstance(part, int | np.integer):
        return int(part)
    return int(part) if isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu" else None


def _static_place(part: Any, dim: int, shape: tuple[int, ...], wrap: bool) -> int | None:
    """A known int as a place counted from the front, which may be out of range; None for other indices. IndexError in an empty
    dim."""
    i = _static_int(part)
    if i is None or (i < 0 and not wrap):
        return None
    if not shape[dim]:
        raise IndexError(f"index {i} into dim {dim}, which is empty (shape {shape})\n  at {line_of(user_source())}")
    return i + shape[dim] if i < 0 else i


def _bounds(part: slice, extent: int) -> tuple[int, int, int]:
    try:
        return part.indices(extent)
    except TypeError:
        traced = any(isinstance(x, Tracer) for x in (part.start, part.stop, part.step))
        raise (IndexError if traced else TypeError)(
            f"slice bounds must be Python ints: {part}\n  at {line_of(user_source())}\n"
            "  fix: lax.dynamic_slice_in_dim(x, start, size) takes a traced start and a fixed size"
        ) from None


def _integers(part: Any, extent: int, wrap: bool = True) -> Any:
    """An integer array, with `wrap` with negative indices counted from the end."""
    operand, type, _ = value(part)
    if type.dtype in SMALL_INTEGERS:
        operand, type, _ = value(cast(operand, wide_of(type.dtype)))
    if type.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers or booleans, got {type}\n  at {line_of(user_source())}")
    if isinstance(operand, np.ndarray):
        operand = operand.astype(np.int64)
        return known_places(np.where((operand < 0) & wrap, operand + extent, operand), place_dtype(extent))
    if place_dtype(extent) == np.int32 and type.dtype.itemsize < 8:
        operand = cast(operand, np.int32)
    if type.dtype.kind == "u" or not wrap:
        return widened(operand, place_dtype(extent))
    return from_front(operand, extent)


def getitem(x: Any, index: Any, mode: str | None = None, fill_value: Any = None, wrap: bool = True) -> Any:
    """`x[index]`. What is out of range is clamped, or as `mode` says; what is taken from there by integer arrays has no
    derivative."""
    if mode is not None:
        mode_word(mode, "clip")
    x, parts = split_scalar_masks(asarray(x), index if isinstance(index, tuple) else (index,))
    check_masks(x, parts)
    parsed = parse_index(x, parts, wrap)
    x = sliced(x, parsed.slices)
    if parsed.arrays:
        x = _gathered(x, parsed, mode, fill_value)
    elif parsed.scalars:
        x = squeeze(x, parsed.scalars)
    for position in parsed.new_axes:
        x = expand_dims(x, position)
    return x


def check_masks(x: Any, parts: tuple[Any, ...]) -> None:
    """Masks must have the extents of the dims they stand for, or 0."""
    widths = [0 if p is None else np.ndim(p) if is_mask(p) else 1 for p in parts]
    dim = 0
    for i, part in enumerate(parts):
        if part is Ellipsis:
            dim = len(shape_of(x)) - sum(widths[i + 1 :])
            continue
        shape = shape_of(x)[max(dim, 0) : dim + widths[i]]
        if is_mask(part):
            check_mask(np.shape(part), shape)
        dim += widths[i]


def check_mask(mask: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """IndexError for the shape of a mask that is not the one of the dims; an extent of 0 selects nothing, as in NumPy."""
    if len(mask) != len(shape) or any(m not in (n, 0) for m, n in zip(mask, shape, strict=True)):
        raise IndexError(
            f"a boolean mask of shape {tuple(mask)} indexes dims of shape {tuple(shape)}\n  at {line_of(user_source())}"
        )


def sliced(x: Any, slices: tuple[tuple[int, int, int], ...]) -> Any:
    """Static slices as one slice op and, for negative steps, a reverse."""
    shape = shape_of(x)
    start, limit, strides, turned = [], [], [], []
    for dim, (a, b, step) in enumerate(slices):
        count = len(range(a, b, step))
        if step < 0:
            turned.append(dim)
            a, step = a + (count - 1) * step if count else 0, -step
        a = a if count else 0
        start.append(a)
        limit.append(a + (count - 1) * step + 1 if count else a)
        strides.append(step)
    if start != [0] * len(shape) or limit != list(shape) or any(s != 1 for s in strides):
        x = bind(ops("slice"), x, start=tuple(start), limit=tuple(limit), strides=tuple(strides))
    return flip(x, tuple(turned)) if turned else x


def index_vectors(arrays: dict[int, Any]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Index arrays stacked along a new last dim; the dims they index; their common shape."""
    dims = tuple(sorted(arrays))
    operands = in_one_dtype([arrays[d] for d in dims])
    shape = shape_of(operands[0])
    columns = [reshape(a, (*shape, 1)) for a in operands]
    return bind(ops("concatenate"), *columns, dimension=len(shape)) if len(columns) > 1 else columns[0], dims, shape


def indexed_shape(parsed: Index) -> tuple[int, ...]:
    """The shape of x[index], new axes left out."""
    extents = [len(range(*s)) for s in parsed.slices]
    kept = [n for d, n in enumerate(extents) if d not in parsed.arrays and d not in parsed.scalars]
    if parsed.arrays:
        first = parsed.first or 0
        kept[first:first] = broadcast_shapes(*(shape_of(a) for a in parsed.arrays.values()))
    return tuple(kept)


def _gathered(x: Any, parsed: Index, mode: str | None, fill_value: Any) -> Any:
    vectors, dims, shape = index_vectors(parsed.arrays)
    extents = shape_of(x)
    if any(extents[d] == 0 for d in dims):
        if 0 not in indexed_shape(parsed):
            raise IndexError(f"an index into an empty dim of shape {extents}\n  at {line_of(user_source())}")
        return broadcast_to(np.zeros((), dtype_of(x)), indexed_shape(parsed))
    kept = [d for d in range(len(extents)) if d not in dims]
    first = parsed.first if parsed.first is not None else 0
    result_rank = len(kept) + len(shape)
    offset = tuple(d for d in range(result_rank) if not first <= d < first + len(shape))
    # Clipped by default, but what an array has out of bounds gets no gradient, as in JAX: the scatter drops it.
    return gather(x, vectors, offset, dims, dims, tuple(1 if d in dims else n for d, n in enumerate(extents)),
                  mode=mode_word(mode, "promise_in_bounds" if shape else "clip"), fill_value=fill_value)  # fmt: skip


def gather(
    x: Any,
    indices: Any,
    offset_dims: tuple[int, ...],
    collapsed: tuple[int, ...],
    index_map: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    operand_batching: tuple[int, ...] = (),
    indices_batching: tuple[int, ...] = (),
    mode: str | None = None,
    fill_value: Any = None,
) -> Any:
    """The gather op; `mode` clip (the default), fill or promise_in_bounds."""
    return bind(
        ops("gather"), asarray(x), asarray(indices),
        offset_dims=offset_dims, collapsed_slice_dims=collapsed, operand_batching_dims=operand_batching,
        start_indices_batching_dims=indices_batching, start_index_map=index_map, slice_sizes=sizes,
        mode=mode_word(mode, "clip"), fill_value=fill_value,
        indices_are_sorted=False, weak_type=weak_of(x),
    )  # fmt: skip


def mode_word(mode: Any, default: str) -> str:
    """JAX's modes, as words or lax.GatherScatterMode, as the ops know them."""
    word = str(getattr(mode, "name", mode)).lower() if mode is not None else default
    words = {"clip": "clip", "fill": "fill", "drop": "fill", "fill_or_drop": "fill"}
    if word not in (*words, "promise_in_bounds"):
        raise ValueError(f"mode {mode!r} is not one of clip, fill, drop, promise_in_bounds\n  at {line_of(user_source())}")
    return words.get(word, word)


def take(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
    unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
) -> Any:  # fmt: skip
    """`jax.numpy.take`: out-of-bounds indices give the fill value by default, or are clipped, or wrap."""
    no_out("take", out)
    del unique_indices, indices_are_sorted  # nothing gets faster by knowing
    if mode == "raise":
        raise NotImplementedError('take: mode="raise" is not there: compiled code cannot raise\n  fix: mode="clip" or "fill"')
    if dtype_of(indices).kind not in "iub":
        raise ValueError(f"take: indices must be integers, they are {dtype_of(indices)}\n  at {line_of(user_source())}")
    indices = cast(indices, np.int32) if dtype_of(indices) == np.bool_ else indices
    a = reshape(a, -1) if axis is None else asarray(a)
    axis = normal_axis(0 if axis is None else axis, len(shape_of(a)))
    if mode == "wrap":
        indices, mode = around(indices, shape_of(a)[axis]), "promise_in_bounds"
    if mode == "clip":
        indices = ufuncs.clip(indices, 0, bounded(shape_of(a)[axis] - 1, indices))
    whole = (slice(None),) * axis
    return getitem(a, (*whole, asarray(indices)), mode="fill" if mode is None else mode, fill_value=fill_value)


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: Any = None, fill_value: Any = None, *,
    wrap_negative_indices: bool | None = None,
) -> Any:  # fmt: skip
    """`numpy.take_along_axis`: the other dims are batch dims of one gather, so they never communicate.

    Other dims of which either has one element broadcast: what all lines take alike, `indices[:, :, None]`, is taken as
    blocks. Out-of-bounds indices give the fill value (NaN, or the extreme integer) by default, or are clipped, or wrap.
    Negative ones count from the end unless wrap_negative_indices is False.
    """
    wraps = wrap_negative_indices is not False
    arr, indices = asarray(arr), asarray(indices)
    if axis is None:
        return take_along_axis(reshape(arr, -1), reshape(indices, -1), 0, mode, fill_value, wrap_negative_indices=wraps)
    rank = len(shape_of(arr))
    axis = normal_axis(axis, rank)
    if len(shape_of(indices)) != rank:
        raise ValueError(f"take_along_axis: indices have {len(shape_of(indices))} dims, the array {rank}")
    sizes, counts = shape_of(arr), shape_of(indices)
    shape = broadcast_shapes(sizes[:axis] + (1,) + sizes[axis + 1 :], counts[:axis] + (1,) + counts[axis + 1 :])
    if 0 in shape or not counts[axis]:  # nothing is taken, which nothing is large enough for
        return broadcast_to(np.zeros((), dtype_of(arr)), (*shape[:axis], counts[axis], *shape[axis + 1 :]))
    if not sizes[axis]:
        raise IndexError(
            f"take_along_axis: dim {axis} of shape {sizes} is empty, nothing can be taken from it\n  at {line_of(user_source())}"
        )
    others = [d for d in range(rank) if d != axis]
    blocks = tuple(d for d in others if counts[d] == 1 != sizes[d])
    batch = tuple(d for d in others if counts[d] == sizes[d])
    kept = [d for d in range(rank) if d not in blocks]
    if mode == "wrap":
        indices, mode = around(indices, sizes[axis]), "promise_in_bounds"
    return gather(
        arr, expand_dims(_integers(reshape(indices, tuple(counts[d] for d in kept)), sizes[axis], wraps), -1),
        blocks, tuple(d for d in range(rank) if d not in (*blocks, *batch)), (axis,),
        tuple(n if d in blocks else 1 if d == axis else min(1, n) for d, n in enumerate(sizes)),
        operand_batching=batch, indices_batching=tuple(kept.index(d) for d in batch),
        mode="fill" if mode is None else mode, fill_value=fill_value,
    )  # fmt: skip
