"""`x.at[index].set(y)` and its kin: a block at a known place is a slice update, everything else one scatter."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import promote, refuse_conversion
from meshjit.numpy import division, powers, ufuncs
from meshjit.numpy.creation import iota
from meshjit.numpy.indexing import (
    Index,
    check_mask,
    check_masks,
    getitem,
    index_vectors,
    indexed_shape,
    is_mask,
    is_scalar_mask,
    mode_word,
    parse_index,
    sliced,
    split_scalar_masks,
)
from meshjit.numpy.places import counted, iota_dtype, known_places, place_dtype
from meshjit.numpy.promote import (
    broadcast_shapes,
    broadcast_to,
    dtype_of,
    exactly,
    normal_axis,
    ops,
    shape_of,
    value,
    weak_of,
)
from meshjit.numpy.quick.indexing import quick_update
from meshjit.numpy.scattering import scattered
from meshjit.numpy.shaping import flip, moveaxis, reshape
from meshjit.ops.slicing.update_slice import is_most
from meshjit.trace import Tracer, bind, line_of, user_source


class IndexUpdater:
    """`x.at`: `x.at[index].set(y)` is x with those elements replaced; likewise add, multiply, min, max, and get."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __repr__(self) -> str:
        return f"{self.x!r}.at"

    def __getitem__(self, index: Any) -> IndexUpdate:
        return IndexUpdate(self.x, index)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"x.at has no {name!r}; it takes an index first: x.at[index].{_method_like(name)}(...)")


class IndexUpdate:
    """`x.at[index]`: no array, but a place whose methods give a changed copy of x."""

    def __init__(self, x: Any, index: Any) -> None:
        self.x, self.index = x, index

    def __repr__(self) -> str:
        return f"{self.x!r}.at[{self.index!r}]"

    def __getattr__(self, name: str) -> NoReturn:
        methods = ", ".join(_METHODS)
        raise AttributeError(f"x.at[...] has no method {name!r}; did you mean {_method_like(name)}? There are {methods}")

    @takes_out_sharding
    def get(self, *, mode: str | None = None, fill_value: Any = None, **hints: Any) -> Any:
        _check_hints("get", hints)
        return getitem(self.x, self.index, mode, fill_value, hints.get("wrap_negative_indices", True))

    @takes_out_sharding
    def set(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        return _updated(self.x, self.index, values, "set", mode, hints)

    @takes_out_sharding
    def add(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        return _updated(self.x, self.index, values, "add", mode, hints)

    @takes_out_sharding
    def subtract(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        negative = ufuncs.negative(exactly(values, _common_dtype(self.x, values)))
        return _updated(self.x, self.index, negative, "add", mode, hints)

    @takes_out_sharding
    def multiply(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        return _updated(self.x, self.index, values, "mul", mode, hints)

    mul = multiply

    @takes_out_sharding
    def divide(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        ones = broadcast_to(exactly(1, dtype_of(self.x), weak_of(self.x)), shape_of(self.x))
        return ufuncs.true_divide(self.x, _updated(ones, self.index, values, "mul", mode, hints))

    @takes_out_sharding
    def power(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        ones = broadcast_to(exactly(1, dtype_of(self.x), weak_of(self.x)), shape_of(self.x))
        return powers.power(self.x, _updated(ones, self.index, values, "mul", mode, hints))

    @takes_out_sharding
    def min(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        return _updated(self.x, self.index, values, "min", mode, hints)

    @takes_out_sharding
    def max(self, values: Any, *, mode: str | None = None, **hints: Any) -> Any:
        return _updated(self.x, self.index, values, "max", mode, hints)


_METHODS = ("set", "add", "subtract", "multiply", "divide", "power", "min", "max", "apply", "get")
_LIKE = {
    "plus": "add", "sub": "subtract", "minus": "subtract", "div": "divide", "pow": "power", "maximum": "max", "minimum": "min",
}  # fmt: skip
_OPERATORS = {
    "add": ("+", "add"), "sub": ("-", "subtract"), "mul": ("*", "multiply"), "truediv": ("/", "divide"), "pow": ("**", "power"),
}  # fmt: skip


def _method_like(name: str) -> str:
    close = difflib.get_close_matches(name, _METHODS, 1)
    return _LIKE.get(name) or (close[0] if close else "set")


def _refuse(operator: str, method: str) -> Any:
    def refuse(self: IndexUpdate, other: Any) -> NoReturn:
        raise TypeError(
            f"x.at[...] is no array: it was used with {operator}\n  at {line_of(user_source())}\n"
            f"  fix: x.at[index].{method}(y) is x with these elements changed; x[index] are the elements"
        )

    return refuse


for _name, _pair in _OPERATORS.items():
    setattr(IndexUpdate, f"__{_name}__", _refuse(*_pair))
    setattr(IndexUpdate, f"__r{_name}__", _refuse(*_pair))

_HINTS = ("indices_are_sorted", "unique_indices", "wrap_negative_indices")


def _check_hints(method: str, hints: dict[str, Any]) -> None:
    """TypeError for words that JAX has none of."""
    for name in hints:
        if name not in _HINTS:
            names = ", ".join(("mode", *_HINTS, "out_sharding"))
            raise TypeError(f".at[...].{method}: there is no argument {name!r}, only {names}\n  at {line_of(user_source())}")


def _common_dtype(x: Any, values: Any) -> Any:
    """In which elements are combined: the sum of an i32 and 2.7 is cut off, not 2.7. Under numpy_dtype_promotion="strict" values
    have to be of x's dtype."""
    infos = [(type.dtype, weak) for _, type, weak in (value(x), value(values, "values"))]
    if config.numpy_dtype_promotion == "strict":
        refuse_conversion(infos[1:], infos[0][0])
        return infos[0][0]
    return promote(infos)[0]


def _new_elements(values: Any, x: Any) -> Any:
    """The values in x's dtype, which under numpy_dtype_promotion="strict" they have to be of."""
    if config.numpy_dtype_promotion == "strict":
        _, type, weak = value(values, "values")
        refuse_conversion([(type.dtype, weak)], dtype_of(x))
    return exactly(values, dtype_of(x), weak_of(x))


def _updated_in_ops(x: Any, index: Any, values: Any, kind: str, mode: str | None, hints: dict[str, Any]) -> Any:
    _check_hints({"mul": "multiply"}.get(kind, kind), hints)
    mode_word(mode, "fill")
    x, type, weak = value(x)
    common = type.dtype if kind == "set" else _common_dtype(x, values)
    if common != type.dtype:
        return exactly(_updated_in_ops(exactly(x, common), index, values, kind, mode, hints), type.dtype, weak)
    parts = index if isinstance(index, tuple) else (index,)
    values = _new_elements(values, x)
    if len(parts) == 1 and isinstance(parts[0], Tracer) and is_mask(parts[0]) and not shape_of(values):
        return _masked_update(x, parts[0], values, kind)
    if any(is_scalar_mask(p) for p in parts):
        expanded, parts = split_scalar_masks(x, parts)
        return reshape(_updated_in_ops(expanded, parts, values, kind, mode, hints), shape_of(x))
    check_masks(x, parts)
    parsed = parse_index(x, parts, wrap=hints.get("wrap_negative_indices", True))
    shape = indexed_shape(parsed)
    full = _with_new_axes(shape, parsed)
    values = reshape(broadcast_to(_without_leading_ones(values, len(full)), full), shape)
    if 0 in (*shape_of(x), *shape):
        return x
    if not parsed.arrays and _is_dense(parsed):
        return _dense_update(x, parsed, values, kind)
    if not parsed.arrays:
        return _strided_update(x, parsed, values, kind)
    return _scattered(x, parsed, values, kind, mode, bool(hints.get("unique_indices", False)))


_updated = quick_update(_updated_in_ops)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Any:
    """`jax.numpy.put_along_axis`: arr with the elements replaced that `take_along_axis` would take. Only `inplace=False`."""
    if inplace:
        raise ValueError(
            f"put_along_axis: arrays cannot be changed in place\n  at {line_of(user_source())}\n"
            "  fix: x = put_along_axis(x, ..., inplace=False)"
        )
    if axis is None:
        flat = put_along_axis(reshape(arr, -1), reshape(indices, -1), values, 0, False, mode=mode)
        return reshape(flat, shape_of(arr))
    shape = shape_of(arr)
    if len(shape_of(indices)) != len(shape):
        raise ValueError(
            f"put_along_axis: indices have {len(shape_of(indices))} dims, the array {len(shape)}\n  at {line_of(user_source())}"
        )
    axis = normal_axis(axis, len(shape))
    places = [counted([n if e == d else 1 for e in range(len(shape))], d, place_dtype(n)) for d, n in enumerate(shape)]
    places[axis] = indices
    return _updated(arr, tuple(places), values, "set", mode, {})


def _with_new_axes(shape: tuple[int, ...], parsed: Index) -> tuple[int, ...]:
    full = list(shape)
    for position in parsed.new_axes:
        full.insert(position, 1)
    return tuple(full)


def _without_leading_ones(values: Any, rank: int) -> Any:
    """`x[1] = [[…]]` is legal in NumPy: extents of 1 in front may be too many."""
    shape = shape_of(values)
    extra = len(shape) - rank
    return reshape(values, shape[extra:]) if extra > 0 and shape[:extra] == (1,) * extra else values


_COMBINE = {"add": ufuncs.add, "mul": ufuncs.multiply, "min": ufuncs.minimum, "max": ufuncs.maximum}
_OF_BOOLEANS = {"add": "max", "mul": "min"}  # or, and


def _masked_update(x: Any, mask: Any, value: Any, kind: str) -> Any:
    """One value wherever a traced mask holds: its shape is known, so no indices are needed."""
    rank = len(shape_of(mask))
    check_mask(shape_of(mask), shape_of(x)[:rank])
    if 0 in shape_of(mask):
        return x
    mask = reshape(mask, shape_of(mask) + (1,) * (len(shape_of(x)) - rank))
    return ufuncs.where(mask, value if kind == "set" else _COMBINE[kind](x, value), x)


def _is_dense(parsed: Index) -> bool:
    return all(step == 1 for _, _, step in parsed.slices)


def _dense_update(x: Any, parsed: Index, values: Any, kind: str) -> Any:
    """A contiguous block at a fixed place."""
    block = tuple(len(range(*s)) for s in parsed.slices)
    values = reshape(values, block)
    if block == shape_of(x) and kind == "set":
        return values
    if kind != "set":
        old = sliced(x, parsed.slices)
        values = _COMBINE[kind](old, values)
    if parsed.slices and is_most(shape_of(x), block):
        return bind(ops("update_slice"), x, values, start=tuple(int(s[0]) for s in parsed.slices))
    starts = [known_places(s[0], place_dtype(*shape_of(x))) for s in parsed.slices]
    return bind(ops("dynamic_update_slice"), x, values, *starts, weak_type=weak_of(x)) if starts else values


def _strided_update(x: Any, parsed: Index, values: Any, kind: str) -> Any:
    """A block with gaps at a fixed place, spread out to the shape of x and combined where it is. Nothing is looked up, and
    of a sharded dim nothing moves but what lies on another device."""
    shape = shape_of(x)
    values = reshape(values, tuple(len(range(*s)) for s in parsed.slices))
    values = flip(values, tuple(d for d, (_, _, step) in enumerate(parsed.slices) if step < 0))
    low, high, interior = [], [], []
    mask: Any = None
    for d, (a, b, step) in enumerate(parsed.slices):
        end = a + (len(range(a, b, step)) - 1) * step
        first, last, step = min(a, end), max(a, end), abs(step)
        low.append(first)
        high.append(shape[d] - 1 - last)
        interior.append(step - 1)
        if (first, last, step) == (0, shape[d] - 1, 1):
            continue
        counting = iota_dtype(shape[d])
        place = ufuncs.subtract(iota(counting, shape, d), np.asarray(first, counting))
        within = ufuncs.less_equal(place, np.asarray(last - first, counting))
        inside = ufuncs.logical_and(ufuncs.greater_equal(place, 0), within)
        if step > 1:
            inside = ufuncs.logical_and(inside, ufuncs.equal(division.remainder(place, np.asarray(step, counting)), 0))
        mask = inside if mask is None else ufuncs.logical_and(mask, inside)
    spread = bind(
        ops("pad"), values, np.zeros((), dtype_of(x)), low=tuple(low), high=tuple(high), interior=tuple(interior),
        weak_type=weak_of(x),
    )
    updated = spread if kind == "set" else _COMBINE[kind](x, spread)
    return updated if mask is None else ufuncs.where(mask, updated, x)


def _scattered(x: Any, parsed: Index, values: Any, kind: str, mode: str | None, unique: bool) -> Any:
    """Integer arrays, with slices beside them: one scatter. Slices of a part of a dim become index arrays, too."""
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
        numbers = counted([len(range(a, b, step))], 0, place_dtype(shape_of(x)[d]), a, step)
        spot = lead.index(places[d]) if d in places else None
        shape = tuple(-1 if i == spot else 1 for i in range(len(lead)))
        vectors[d] = reshape(numbers, tuple(len(range(a, b, step)) if n < 0 else n for n in shape))
    vectors = {d: broadcast_to(v, lead_shape) for d, v in vectors.items()}
    indices, dims, _ = index_vectors(vectors)
    unique = unique or all(n == 1 for a in arrays.values() for n in shape_of(a))
    if dtype_of(x) == np.bool_:
        kind = _OF_BOOLEANS.get(kind, kind)
    updates = moveaxis(values, tuple(lead), tuple(range(len(lead)))) if lead else values
    return scattered(
        x, indices, updates,
        update_window_dims=tuple(range(len(lead), rank)), inserted_window_dims=dims, input_batching_dims=(),
        scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=dims, kind=kind,
        mode=mode_word(mode, "fill"), indices_are_sorted=False, unique_indices=unique,
        weak_type=weak_of(x),
    )  # fmt: skip
