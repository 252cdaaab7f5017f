"""Choosing, inserting and deleting elements at places that are known, and functions applied along a dim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from meshjit.numpy import division, ufuncs
from meshjit.numpy.arguments import count_of, shape_tuple
from meshjit.numpy.creation import iota
from meshjit.numpy.indexing import take
from meshjit.numpy.key_arrays import takes_keys
from meshjit.numpy.places import around, bounded, from_front, iota_dtype
from meshjit.numpy.promote import (
    asarray,
    broadcast_all,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    exactly,
    lifted,
    no_out,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
    weak_of,
)
from meshjit.numpy.rearranging import resize
from meshjit.numpy.shaping import concatenate, expand_dims, moveaxis, ravel, reshape, slice_in_dim
from meshjit.numpy.sorting import argsort, nonzero, searchsorted, sort
from meshjit.numpy.updates import IndexUpdater
from meshjit.trace import Tracer, bind, line_of, user_source


def choose(a: Any, choices: Sequence[Any], out: None = None, mode: str = "raise") -> Any:
    """Elements of choices[i] where places is i. mode wrap or clip; raise (the default) needs concrete places."""
    no_out("choose", out)
    options = broadcast_all(promoted(*choices)[0])
    a = asarray(a)
    if mode == "raise":
        numbers = concrete(a, "choose checks that places are in range", "choose(..., mode='clip')")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(options):
            raise ValueError(f"choose: places go from {numbers.min()} to {numbers.max()}, there are {len(options)} choices")
    elif mode not in ("wrap", "clip"):
        raise ValueError(f"choose: mode is {mode!r}; use 'raise', 'wrap' or 'clip'")
    a = division.remainder(a, len(options)) if mode == "wrap" else ufuncs.clip(a, 0, len(options) - 1)
    result = options[-1]
    for i in reversed(range(len(options) - 1)):
        result = ufuncs.where(ufuncs.equal(a, i), options[i], result)
    result = broadcast_to(result, np.broadcast_shapes(shape_of(result), shape_of(a)))
    return exactly(lifted(result), dtype_of(result), False)


def piecewise(x: Any, condlist: Sequence[Any], funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """functions[i](element, *args), or that number, where conditions[i] holds, the last that does; elsewhere functions[-1] or 0.

    Each function is given one element of x, as a scalar, and gives a scalar, which is converted to x's dtype. No derivative
    passes into a function whose condition does not hold: there it may be infinite."""
    from meshjit.autodiff import vmap  # which stands above numpy

    x = asarray(x)
    if len(funclist) not in (len(condlist), len(condlist) + 1):
        raise ValueError(f"piecewise: {len(funclist)} functions for {len(condlist)} conditions")
    choice: Any = np.zeros((), np.int32)
    for i, condition in enumerate(condlist, 1):
        choice = ufuncs.where(condition, i, choice)
    rest = funclist[-1] if len(funclist) > len(condlist) else 0
    choose: Callable[..., Any] = partial(_piece, [rest, *funclist[: len(condlist)]], args, kw)
    for _ in shape_of(x):
        choose = vmap(choose)
    return choose(x, broadcast_to(choice, shape_of(x)))


def _piece(functions: Sequence[Any], args: Sequence[Any], kw: dict[str, Any], x: Any, choice: Any) -> Any:
    """The function of number `choice`, of a scalar."""
    result = None
    for i, function in enumerate(functions):
        here = ufuncs.equal(choice, i)
        guarded = ufuncs.where(here, x, bind(ops("stop_cotangent"), x))
        own = function(guarded, *args, **kw) if callable(function) else function
        if shape_of(own):
            raise TypeError(f"piecewise: a piece is one number, not {shape_of(own)}\n  at {line_of(user_source())}")
        own = cast(own, dtype_of(x))
        result = own if result is None else ufuncs.where(here, own, result)
    return result


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """x where the condition holds, else y; all three are broadcast. Without x and y: `nonzero(condition)`."""
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None or size is not None or fill_value is not None:
        raise ValueError("where: give condition, x and y; or condition alone (then size= and fill_value= may be given)")
    return ufuncs.where(condition, x, y)


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Any:
    """The slices whose condition holds. With `size` there are as many: more are cut, missing ones are fill_value; without, the
    condition must be concrete."""
    no_out("compress", out)
    if len(shape_of(condition)) != 1:
        raise ValueError(
            f"compress: the condition must be a vector, it has shape {shape_of(condition)}\n  at {line_of(user_source())}"
        )
    a = ravel(a) if axis is None else asarray(a)
    if size is not None:
        size = count_of(size, "compress: size")
        return _compressed(condition, a, normal_axis(0 if axis is None else axis, len(shape_of(a))), size, fill_value)
    keep = concrete(condition, "compress needs the condition to know the result's extent", "compress(..., size=...)")
    dim = normal_axis(0 if axis is None else axis, len(shape_of(a)))
    if np.any(np.ravel(keep)[shape_of(a)[dim] :]):
        raise ValueError(
            f"compress: the condition holds at {np.flatnonzero(keep)[-1]}, dim {dim} of {shape_of(a)} has"
            f" {shape_of(a)[dim]} slices\n"
            f"  at {line_of(user_source())}"
        )
    return lifted(take(a, np.nonzero(keep)[0].astype(np.int32), axis=dim))


def _compressed(condition: Any, a: Any, dim: int, size: int, fill_value: Any) -> Any:
    """[size] slices along a dim: those whose condition holds first, then fill_value."""
    holds = reshape(condition, -1)
    extent = shape_of(a)[dim]
    length = min(shape_of(holds)[0], extent)
    places = nonzero(slice_in_dim(holds, 0, length), size=size, fill_value=extent)[0]
    wide = (1,) * dim + (size,) + (1,) * (len(shape_of(a)) - dim - 1)
    if not extent:
        return broadcast_to(cast(fill_value, dtype_of(a)), (*shape_of(a)[:dim], size, *shape_of(a)[dim + 1 :]))
    slices = take(a, places, axis=dim, mode="clip")
    return ufuncs.where(reshape(ufuncs.less(places, extent), wide), slices, cast(fill_value, dtype_of(a)))


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """`numpy.extract`: the elements where the condition holds; `size` and fill_value as in compress."""
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


def put(a: Any, ind: Any, v: Any, mode: str = "clip", *, inplace: bool = False) -> Any:
    """x with the elements at these places of the flat array replaced; `inplace=False` must be said, as in JAX."""
    if inplace:
        raise ValueError("put: arrays cannot be changed in place; pass inplace=False and use the result")

    flat, ind = ravel(a), ravel(ind)
    count = shape_of(flat)[0]
    high = bounded(count - 1, ind)
    ind = around(ind, count) if mode == "wrap" else ufuncs.clip(ind, -count if high == count - 1 else None, high)
    v = resize(v, shape_of(ind))
    return reshape(IndexUpdater(flat)[ind].set(v), shape_of(a))


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Any:
    """x with this value on its main diagonal; `inplace=False` must be said, as in JAX."""
    if inplace or wrap:
        raise NotImplementedError("fill_diagonal: pass inplace=False and use the result; wrap=True is not supported")
    a = asarray(a)
    shape = shape_of(a)
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ValueError(f"fill_diagonal: needs 2 dims, or more of one extent, got shape {shape}")
    kind = iota_dtype(*shape)
    on = iota(kind, shape, 0)
    same = np.ones((), np.bool_)
    for d in range(1, len(shape)):
        same = ufuncs.logical_and(same, ufuncs.equal(on, iota(kind, shape, d)))
    values = exactly(val, dtype_of(a), weak_of(a))
    if shape_of(values):
        values = expand_dims(resize(values, (shape[0],)), tuple(range(1, len(shape))))
    return ufuncs.where(same, values, a)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """Without the slices at these places: an int, a slice, integers or a mask, all concrete; integers that are traced if
    assume_unique_indices says that they differ."""
    if assume_unique_indices and isinstance(obj, Tracer) and dtype_of(obj).kind in "iu":
        return _delete_traced(arr, obj, axis)
    arr = ravel(arr) if axis is None else asarray(arr)
    dim = normal_axis(0 if axis is None else axis, len(shape_of(arr)))
    if not isinstance(obj, slice | int):
        obj = concrete(obj, "delete needs the places to know the result's extent", "mnp.where with a mask")
        _check_places("delete", obj, "iub")
    gaps = _gaps(obj, shape_of(arr)[dim])
    if gaps is None:
        return take(arr, np.delete(np.arange(shape_of(arr)[dim]), obj).astype(np.int32), axis=dim)
    bounds = [0, *(bound for gap in gaps for bound in gap), shape_of(arr)[dim]]
    kept = [(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=True) if a < b] or [(0, 0)]
    return concatenate([slice_in_dim(arr, a, b, axis=dim) for a, b in kept], dim)


_PIECES = 64  # slices that are put together; more are looked up in a table as long as the dim


def _gaps(places: Any, extent: int) -> list[tuple[int, int]] | None:
    """The runs of places that go, in order; None where they are many, or have steps."""
    if isinstance(places, slice):
        run = range(extent)[places]
        if abs(run.step) != 1 and len(run) > _PIECES:
            return None
        places = [min(run[0], run[-1])] if abs(run.step) == 1 and run else list(run)
        return sorted((p, p + (len(run) if abs(run.step) == 1 else 1)) for p in places)
    if np.asarray(places).dtype == np.bool_ or np.size(places) > _PIECES:
        return None
    gaps = set[int]()
    for place in np.ravel(places).tolist():
        if not -extent <= place < extent:
            raise IndexError(f"delete: place {place} is out of range for an extent of {extent}\n  at {line_of(user_source())}")
        gaps.add(place % extent)
    return [(p, p + 1) for p in sorted(gaps)]


def _check_places(name: str, places: np.ndarray[Any, Any], kinds: str) -> None:
    """ValueError for places that are no integers (or booleans)."""
    if places.size and places.dtype.kind not in kinds:
        raise ValueError(f"{name}: places must be integers, they are {places.dtype}\n  at {line_of(user_source())}")


def _delete_traced(arr: Any, obj: Any, axis: int | None) -> Any:
    """Without the slices at different traced places: what stands behind k of them is k places further."""
    arr = ravel(arr) if axis is None else asarray(arr)
    dim = normal_axis(0 if axis is None else axis, len(shape_of(arr)))
    extent, places = shape_of(arr)[dim], sort(around(ravel(obj), shape_of(arr)[dim]))
    count = shape_of(places)[0]
    kept = iota(np.int32, (max(extent - count, 0),), 0)
    earlier = searchsorted(ufuncs.subtract(places, iota(dtype_of(places), (count,), 0)), kept, "right")
    return take(arr, ufuncs.add(kept, earlier), axis=dim, mode="clip")


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """With values inserted before these places."""
    arr = ravel(arr) if axis is None else asarray(arr)
    dim = normal_axis(0 if axis is None else axis, len(shape_of(arr)))
    extent, rank = shape_of(arr)[dim], len(shape_of(arr))
    if isinstance(obj, slice):
        obj = np.arange(*obj.indices(extent))
    values = atleast(exactly(values, dtype_of(arr), weak_of(arr)), rank)
    if isinstance(obj, Tracer):
        return _insert_traced(arr, obj, values if shape_of(obj) else moveaxis(values, 0, dim), dim)
    obj = concrete(obj, "insert needs the places", "mnp.concatenate of slices")
    _check_places("insert", obj, "iu")
    if obj.ndim > 1:
        raise ValueError(
            f"insert: the places must be a number or a vector, they have shape {obj.shape}\n  at {line_of(user_source())}"
        )
    if np.ndim(obj) == 0:  # one place takes all of the values
        values = moveaxis(values, 0, dim)
        obj = [int(obj)]
    obj = np.ravel(obj)
    if np.size(obj) <= _PIECES:
        return _inserted(arr, obj.tolist(), values, dim)
    source = np.insert(np.arange(extent), obj, -1)
    new = np.where(source < 0)[0]
    source[new] = extent + np.argsort(np.where(obj < 0, obj + extent, obj), stable=True)
    values = broadcast_to(values, tuple(len(new) if d == dim else n for d, n in enumerate(shape_of(arr))))
    return take(concatenate([arr, values], dim), source.astype(np.int32), axis=dim)


def _insert_traced(x: Any, places: Any, values: Any, dim: int) -> Any:
    """Before places that are not known: every slice of the result is looked up in x and the values, one behind the other."""
    extent = shape_of(x)[dim]
    count = shape_of(values)[dim] if not shape_of(places) else math.prod(shape_of(places))
    places = broadcast_to(from_front(ravel(places), extent), (count,))
    values = broadcast_to(values, tuple(count if d == dim else n for d, n in enumerate(shape_of(x))))
    if not count:
        return x
    order = argsort(places)
    new = ufuncs.add(take(places, order), iota(dtype_of(places), (count,), 0))
    own = iota(dtype_of(places), (extent + count,), 0)
    before = searchsorted(new, own, "right")
    last = ufuncs.maximum(ufuncs.subtract(before, 1), 0)
    is_new = ufuncs.equal(take(new, last), own)
    source = ufuncs.where(is_new, ufuncs.add(take(order, last), extent), ufuncs.subtract(own, before))
    return take(concatenate([x, values], dim), source, axis=dim)


def _inserted(x: Any, places: list[int], values: Any, dim: int) -> Any:
    """Slices of x and of the values in turn."""
    extent, pieces, last = shape_of(x)[dim], list[Any](), 0
    count = len(places) if len(places) != 1 else shape_of(values)[dim]
    values = broadcast_to(values, tuple(count if d == dim else n for d, n in enumerate(shape_of(x))))
    for place in places:
        if not -extent <= place <= extent:
            raise IndexError(f"insert: place {place} is out of range for an extent of {extent}\n  at {line_of(user_source())}")
    normal = [p + extent if p < 0 else p for p in places]
    for number in sorted(range(len(places)), key=lambda i: normal[i]):
        one = values if len(places) == 1 else slice_in_dim(values, number, number + 1, axis=dim)
        pieces += [slice_in_dim(x, last, normal[number], axis=dim), one]
        last = normal[number]
    return concatenate([*pieces, slice_in_dim(x, last, extent, axis=dim)], dim)


def atleast(x: Any, rank: int) -> Any:
    """Dims of 1 in front until there are `rank`."""
    return reshape(x, (1,) * (rank - len(shape_of(x))) + shape_of(x))


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """A (concrete) array without zeros at its front ("f") and back ("b"), along `axis` (all dims)."""
    numbers = concrete(filt, "trim_zeros needs the elements to know the result's extent", "slicing with known bounds")
    for dim in normal_axes(axis, numbers.ndim):
        others = tuple(d for d in range(numbers.ndim) if d != dim)
        places = np.nonzero(np.any(numbers != 0, axis=others))[0]
        low = int(places[0]) if len(places) and "f" in trim.lower() else 0
        high = int(places[-1]) + 1 if len(places) and "b" in trim.lower() else numbers.shape[dim]
        filt = slice_in_dim(filt, low, high if len(places) else 0, axis=dim)
    return lifted(filt)


def unravel_index(indices: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Places of the flat array as one array per dim. Negative ones count from the end; those beyond the ends are the ends."""
    places, extents = [], shape_tuple(shape, unknown=True)
    total = math.prod(extents)
    if extents and min(extents) >= 0 and dtype_of(indices).kind in "iu":
        low = None if dtype_of(indices).kind == "u" else -bounded(total, indices)
        indices = ufuncs.clip(indices, low, bounded(max(total - 1, 0), indices))
    for extent in reversed(extents):
        places.append(division.remainder(indices, extent))
        indices = division.floor_divide(indices, extent)
    return tuple(reversed(places))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *, dtype: Any = None
) -> Any:
    """Places per dim as places of the flat array. Those out of range are an error ("raise", for which they must be concrete),
    are clipped, or wrap. order "F": the first dim runs fastest."""
    if mode not in ("raise", "clip", "wrap") or order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: mode is {mode!r}, order {order!r}; use 'raise', 'clip' or 'wrap', and 'C' or 'F'")
    dims, several = shape_tuple(dims), hasattr(multi_index, "__len__")
    if not several or len(multi_index) != len(dims):
        got = f"{len(multi_index)} arrays" if several else f"{type(multi_index).__name__} {multi_index!r:.60}"
        raise (ValueError if several else TypeError)(
            f"ravel_multi_index: places are one array per dim, got {got} for {len(dims)} dims\n  at {line_of(user_source())}"
        )
    if mode == "raise":
        _check_inside(multi_index, dims)
    total: Any = np.zeros((), dtype_of(multi_index[0]) if dims else np.int32)
    pairs = list(zip(multi_index, dims, strict=True))
    for place, extent in pairs if order == "C" else reversed(pairs):
        inside = division.remainder(place, extent) if mode == "wrap" else ufuncs.clip(place, 0, extent - 1)
        total = ufuncs.add(ufuncs.multiply(total, extent), inside)
    return total if dtype is None else cast(total, dtype)


def _check_inside(multi_index: Sequence[Any], dims: Sequence[int]) -> None:
    for place, extent in zip(multi_index, dims, strict=True):
        known = concrete(place, "ravel_multi_index asks whether places are inside", "mode='clip' or mode='wrap'")
        if np.any((known < 0) | (known >= extent)):
            raise ValueError(
                f"ravel_multi_index: a place is not from 0 to {extent - 1}\n  at {line_of(user_source())}\n"
                "  fix: mode='clip' or mode='wrap'"
            )


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """function(vector) for every vector along `axis`; its dims stand in that dim's place."""
    from meshjit.autodiff import vmap  # which stands above numpy

    rank = len(shape_of(arr))
    axis = normal_axis(axis, rank)

    def mapped(vector: Any) -> Any:
        return takes_keys(asarray)(func1d(vector, *args, **kwargs))

    for d in range(1, rank - axis):
        mapped = vmap(mapped, in_axes=d, out_axes=-1)
    for _ in range(axis):
        mapped = vmap(mapped, in_axes=0, out_axes=0)
    return mapped(takes_keys(asarray)(arr))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Sequence[int]) -> Any:
    """function(x, axis) for one axis after the other; dims that go are put back as 1."""
    for axis in axes:
        result = func(a, axis=axis)
        a = result if len(shape_of(result)) == len(shape_of(a)) else expand_dims(result, axis)
    return a


def block(arrays: Any) -> Any:
    """`numpy.block`: nested lists of blocks, the innermost lists along the last dim."""

    def depth(a: Any) -> int:
        return 1 + max((depth(e) for e in a), default=0) if isinstance(a, list) else 0

    def rank(a: Any) -> int:
        return max((rank(e) for e in a), default=0) if isinstance(a, list) else len(shape_of(a))

    levels = depth(arrays)
    total = max(rank(arrays), levels)

    def join(a: Any, level: int) -> Any:
        if not isinstance(a, list):
            return atleast(a, total)
        return concatenate([join(e, level + 1) for e in a], total - levels + level)

    if isinstance(arrays, list) and not arrays:
        raise ValueError(f"block: an empty list has no shape\n  at {line_of(user_source())}")
    return lifted(join(arrays, 0))


__all__ = [
    "apply_along_axis", "apply_over_axes", "block", "choose", "compress", "delete", "extract", "fill_diagonal", "insert",
    "piecewise", "put", "ravel_multi_index", "trim_zeros", "unravel_index",
]  # fmt: skip
