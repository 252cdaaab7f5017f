"""Indexing: `x[...]`, `take`, `take_along_axis`, and updates `x.at[...].set(...)`, on slices, gather and scatter.

An index is brought to one form: per dim of x either a slice or an integer array. Slices are done first, as slices;
integer arrays (broadcast together) become one gather. Negative indices count from the end. Out-of-bounds indices give
what JAX gives: reads are clamped (`mode="fill"` gives NaN or the extreme integer), updates are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.numpy import ufuncs
from meshjit.numpy.creation import iota
from meshjit.numpy.promote import (
    asarray,
    broadcast_all,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    normal_axis,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.numpy.shaping import concatenate, expand_dims, flip, moveaxis, reshape, squeeze
from meshjit.trace import bind, line_of, user_source


@dataclass(frozen=True)
class _Index:
    """A parsed index: slices (start, stop, step) per dim of x, arrays by dim, and how the result's dims are arranged."""

    slices: tuple[tuple[int, int, int], ...]
    arrays: dict[int, Any]
    scalars: tuple[int, ...]  # dims indexed by a Python int when there are no arrays: sliced, then dropped
    new_axes: tuple[int, ...]  # positions in the result
    first: int | None  # where the arrays' dims go in the result; None: in front


def _parse(x: Any, index: Any) -> _Index:
    shape = shape_of(x)
    parts = _expanded(index if isinstance(index, tuple) else (index,), len(shape))
    slices = [(0, n, 1) for n in shape]
    arrays: dict[int, Any] = {}
    scalars: list[int] = []
    new_axes: list[int] = []
    layout: list[str] = []  # result dims and arrays in order: "dim", "new", "array"
    dim = 0
    for part in parts:
        if part is None:
            layout.append("new")
        elif isinstance(part, slice):
            slices[dim] = _bounds(part, shape[dim])
            layout.append("dim")
            dim += 1
        elif _static_int(part) is not None:
            i = _in_range(_static_int(part), shape[dim], dim, shape)
            slices[dim] = (i, i + 1, 1)
            scalars.append(dim)
            layout.append("array")
            dim += 1
        else:
            arrays[dim] = _integers(part, shape[dim])
            layout.append("array")
            dim += 1
    if arrays:  # static ints take part in the arrays' arrangement
        for d in scalars:
            arrays[d] = np.asarray(slices[d][0], np.int32)
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
        elif arrays and place is not None and not placed:
            position += rank
            placed = True
    return _Index(tuple(slices), arrays, tuple(scalars), tuple(new_axes), place)


def _arrays_place(layout: list[str]) -> int | None:
    """Where NumPy puts the dims of integer arrays: in their place if they stand together, else in front."""
    spots = [i for i, kind in enumerate(layout) if kind == "array"]
    if spots[-1] - spots[0] + 1 != len(spots):
        return None
    return sum(1 for kind in layout[: spots[0]] if kind == "dim")


def _expanded(parts: tuple[Any, ...], rank: int) -> list[Any]:
    """`...` spelt out, boolean masks as integer arrays."""
    flat: list[Any] = []
    for part in parts:
        if isinstance(part, list | tuple):
            part = np.asarray(part) if not any(hasattr(e, "trace") for e in part) else asarray(part)
        if _is_mask(part):
            flat.extend(np.nonzero(np.asarray(_known(part))))
        else:
            flat.append(part)
    used = sum(1 for p in flat if p is not None and p is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices: {used} for an array of {rank} dims\n  at {line_of(user_source())}")
    whole = [slice(None)] * (rank - used)
    if sum(1 for p in flat if p is Ellipsis) > 1:
        raise IndexError(f"an index can hold one ellipsis only\n  at {line_of(user_source())}")
    spot = next((i for i, p in enumerate(flat) if p is Ellipsis), None)
    return [*flat, *whole] if spot is None else [*flat[:spot], *whole, *flat[spot + 1 :]]


def _is_mask(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (hasattr(part, "dtype") and part.dtype == np.bool_)


def _known(mask: Any) -> Any:
    if hasattr(mask, "trace"):
        raise IndexError(
            "a traced boolean mask gives a result whose shape depends on values\n"
            f"  at {line_of(user_source())}\n  fix: use mnp.where(mask, x, other), or x.at[...] with integer indices"
        )
    return mask


def _static_int(part: Any) -> int | None:
    if isinstance(part, bool | np.bool_):
        return None
    if isinstance(part, int | np.integer):
        return int(part)
    return int(part) if isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu" else None


def _in_range(i: int | None, extent: int, dim: int, shape: tuple[int, ...]) -> int:
    assert i is not None
    if not -extent <= i < extent:
        raise IndexError(
            f"index {i} is out of range for dim {dim} of extent {extent} (shape {shape})\n  at {line_of(user_source())}"
        )
    return i % extent


def _bounds(part: slice, extent: int) -> tuple[int, int, int]:
    try:
        return part.indices(extent)
    except TypeError:
        raise TypeError(
            f"slice bounds must be Python ints: {part}\n  at {line_of(user_source())}\n"
            "  fix: lax.dynamic_slice_in_dim(x, start, size) takes a traced start and a fixed size"
        ) from None


def _integers(part: Any, extent: int) -> Any:
    """An integer array with negative indices counted from the end."""
    operand, type, _ = value(part)
    if type.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers or booleans, got {type}\n  at {line_of(user_source())}")
    if isinstance(operand, np.ndarray):
        return np.where(operand < 0, operand + extent, operand).astype(np.int32)
    operand = cast(operand, np.int32) if type.dtype.itemsize < 8 else operand
    if type.dtype.kind == "u":
        return operand
    return ufuncs.where(ufuncs.less(operand, 0), ufuncs.add(operand, extent), operand)


def getitem(x: Any, index: Any, mode: str | None = None, fill_value: Any = None) -> Any:
    """`x[index]`."""
    parsed = _parse(x, index)
    x = _sliced(asarray(x), parsed.slices)
    if parsed.arrays:
        x = _gathered(x, parsed, mode, fill_value)
    elif parsed.scalars:
        x = squeeze(x, parsed.scalars)
    for position in parsed.new_axes:
        x = expand_dims(x, position)
    return x


def _sliced(x: Any, slices: tuple[tuple[int, int, int], ...]) -> Any:
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


def _index_vectors(arrays: dict[int, Any]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Index arrays stacked along a new last dim; the dims they index; their common shape."""
    dims = tuple(sorted(arrays))
    operands, _ = promoted(*(arrays[d] for d in dims))
    operands = broadcast_all(operands)
    shape = shape_of(operands[0])
    vectors = concatenate([reshape(a, (*shape, 1)) for a in operands], len(shape))
    return vectors, dims, shape


def _gathered(x: Any, parsed: _Index, mode: str | None, fill_value: Any) -> Any:
    vectors, dims, shape = _index_vectors(parsed.arrays)
    extents = shape_of(x)
    kept = [d for d in range(len(extents)) if d not in dims]
    first = parsed.first if parsed.first is not None else 0
    result_rank = len(kept) + len(shape)
    offset = tuple(d for d in range(result_rank) if not first <= d < first + len(shape))
    return gather(x, vectors, offset, dims, dims, tuple(1 if d in dims else n for d, n in enumerate(extents)), mode=mode,
                  fill_value=fill_value)  # fmt: skip


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
        mode={None: "clip", "wrap": "clip", "drop": "fill"}.get(mode, mode), fill_value=fill_value,
        indices_are_sorted=False,
    )  # fmt: skip


def take(x: Any, indices: Any, axis: int | None = None, mode: str | None = "fill", fill_value: Any = None) -> Any:
    """`jax.numpy.take`: out-of-bounds indices give the fill value by default, or are clipped, or wrap."""
    x = reshape(x, -1) if axis is None else asarray(x)
    axis = normal_axis(axis or 0, len(shape_of(x)))
    if mode == "wrap":
        indices = ufuncs.remainder(indices, shape_of(x)[axis])
    if mode == "clip":
        indices = ufuncs.clip(indices, 0, shape_of(x)[axis] - 1)
    whole = (slice(None),) * axis
    return getitem(x, (*whole, asarray(indices)), mode=mode, fill_value=fill_value)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1, mode: str | None = "fill", fill_value: Any = None) -> Any:
    """`numpy.take_along_axis`: the other dims are batch dims of one gather, so they never communicate."""
    x, indices = asarray(x), asarray(indices)
    if axis is None:
        return take_along_axis(reshape(x, -1), reshape(indices, -1), 0, mode)
    rank = len(shape_of(x))
    axis = normal_axis(axis, rank)
    if len(shape_of(indices)) != rank:
        raise ValueError(f"take_along_axis: indices have {len(shape_of(indices))} dims, the array {rank}")
    shape = broadcast_shapes(
        shape_of(x)[:axis] + (1,) + shape_of(x)[axis + 1 :], shape_of(indices)[:axis] + (1,) + shape_of(indices)[axis + 1 :]
    )
    lead = tuple(n for d, n in enumerate(shape) if d != axis)
    x = moveaxis(broadcast_to(x, (*shape[:axis], shape_of(x)[axis], *shape[axis + 1 :])), axis, -1)
    indices = moveaxis(
        broadcast_to(indices, (*shape[:axis], shape_of(indices)[axis], *shape[axis + 1 :])), axis, -1
    )
    vectors = expand_dims(_integers(indices, shape_of(x)[-1]), -1)
    batch = tuple(range(len(lead)))
    result = gather(
        x, vectors, (), (rank - 1,), (rank - 1,), tuple(min(1, n) for n in shape_of(x)[:-1]) + (1,),
        operand_batching=batch, indices_batching=batch, mode=mode, fill_value=fill_value,
    )  # fmt: skip
    return moveaxis(result, -1, axis)


# -- updates


class IndexUpdater:
    """`x.at`: `x.at[index].set(y)` is x with those elements replaced; likewise add, multiply, min, max, and get."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __getitem__(self, index: Any) -> _Update:
        return _Update(self.x, index)


class _Update:
    def __init__(self, x: Any, index: Any) -> None:
        self.x, self.index = x, index

    def get(self, *, mode: str | None = None, fill_value: Any = None) -> Any:
        return getitem(self.x, self.index, mode, fill_value)

    def set(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, values, "set", mode, hints)

    def add(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, values, "add", mode, hints)

    def subtract(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, ufuncs.negative(values), "add", mode, hints)

    def multiply(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, values, "mul", mode, hints)

    mul = multiply

    def divide(self, values: Any, **hints: Any) -> Any:
        return ufuncs.true_divide(self.x, _updated(ufuncs.add(ufuncs.multiply(self.x, 0), 1), self.index, values, "mul", None, hints))

    def min(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, values, "min", mode, hints)

    def max(self, values: Any, *, mode: str | None = None, **hints: bool) -> Any:
        return _updated(self.x, self.index, values, "max", mode, hints)

    def apply(self, function: Any) -> Any:
        return self.set(function(self.get()))


def _updated(x: Any, index: Any, values: Any, kind: str, mode: str | None, hints: dict[str, Any]) -> Any:
    x = asarray(x)
    parsed = _parse(x, index)
    values = cast(values, dtype_of(x))
    shape = shape_of(getitem_shape(x, parsed))
    values = broadcast_to(values, _with_new_axes(shape, parsed))
    values = reshape(values, shape)
    if not parsed.arrays and _is_dense(parsed):
        return _dense_update(x, parsed, values, kind)
    return _scattered(x, parsed, values, kind, mode, bool(hints.get("unique_indices", False)))


def _with_new_axes(shape: tuple[int, ...], parsed: _Index) -> tuple[int, ...]:
    full = list(shape)
    for position in parsed.new_axes:
        full.insert(position, 1)
    return tuple(full)


class getitem_shape:  # noqa: N801  a shape holder: what x[index] would look like, new axes left out
    def __init__(self, x: Any, parsed: _Index) -> None:
        extents = [len(range(*s)) for s in parsed.slices]
        kept = [n for d, n in enumerate(extents) if d not in parsed.arrays and d not in parsed.scalars]
        if parsed.arrays:
            shape = broadcast_shapes(*(shape_of(a) for a in parsed.arrays.values()))
            first = parsed.first or 0
            kept[first:first] = shape
        self.shape = tuple(kept)
        self.dtype = dtype_of(x)

    def __array__(self, *args: Any) -> Any:
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


def _is_dense(parsed: _Index) -> bool:
    return all(step == 1 for _, _, step in parsed.slices)


def _dense_update(x: Any, parsed: _Index, values: Any, kind: str) -> Any:
    """A contiguous block at a fixed place."""
    block = tuple(len(range(*s)) for s in parsed.slices)
    values = reshape(values, block)
    if 0 in block:
        return x
    if kind != "set":
        old = _sliced(x, parsed.slices)
        combine = {"add": ufuncs.add, "mul": ufuncs.multiply, "min": ufuncs.minimum, "max": ufuncs.maximum}[kind]
        values = combine(old, values)
    starts = [np.asarray(s[0], np.int32) for s in parsed.slices]
    return bind(ops("dynamic_update_slice"), x, values, *starts) if starts else values


def _scattered(x: Any, parsed: _Index, values: Any, kind: str, mode: str | None, unique: bool) -> Any:
    """Integer arrays, or strides: one scatter. Strided dims become index arrays, too."""
    arrays = dict(parsed.arrays)
    first = parsed.first or 0
    kept = [d for d in range(len(parsed.slices)) if d not in arrays and d not in parsed.scalars]
    count = len(broadcast_shapes(*(shape_of(a) for a in arrays.values()))) if arrays else 0
    # Everything becomes an index array over the whole of `values`: dims of values = kept dims with the arrays' at `first`.
    rank = len(shape_of(values))
    window = [d for d in kept if parsed.slices[d] == (0, shape_of(x)[d], 1)]
    places = {d: (i if i < first else i + count) for i, d in enumerate(kept)}
    vectors: dict[int, Any] = {}
    lead = [p for p in range(rank) if p not in [places[d] for d in window]]
    lead_shape = tuple(shape_of(values)[p] for p in lead)
    for d, a in arrays.items():
        spots = [lead.index(p) for p in range(first, first + count)]
        padded = (1,) * (count - len(shape_of(a))) + shape_of(a)
        vectors[d] = reshape(a, tuple(padded[spots.index(i)] if i in spots else 1 for i in range(len(lead))))
    for d in range(len(parsed.slices)):
        if d in arrays or d in window:
            continue
        a, b, step = parsed.slices[d]
        numbers = ufuncs.add(ufuncs.multiply(iota(np.int32, (len(range(a, b, step)),), 0), step), a)
        spot = lead.index(places[d]) if d in places else None
        shape = tuple(-1 if i == spot else 1 for i in range(len(lead)))
        vectors[d] = reshape(numbers, tuple(len(range(a, b, step)) if n < 0 else n for n in shape))
    vectors = {d: broadcast_to(v, lead_shape) for d, v in vectors.items()}
    indices, dims, _ = _index_vectors(vectors)
    updates = moveaxis(values, tuple(lead), tuple(range(len(lead)))) if lead else values
    return bind(
        ops("scatter"), x, indices, updates,
        update_window_dims=tuple(range(len(lead), rank)), inserted_window_dims=dims, input_batching_dims=(),
        scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=dims, kind=kind,
        mode={None: "fill", "drop": "fill"}.get(mode, mode), indices_are_sorted=False, unique_indices=unique,
    )  # fmt: skip
