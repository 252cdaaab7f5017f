"""Shapes: reshape, transpose, broadcast, concatenate, stack, split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    concrete,
    lifted,
    no_out,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.trace import bind, line_of, user_source


@takes_out_sharding
def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """`numpy.reshape`; one extent may be -1. TypeError, with both sizes and the user's line, if sizes differ. `copy`
    means nothing: nobody can change an array, and so see whether it is a view."""
    del copy
    if order == "F":
        return transpose(reshape(transpose(a), _one_shape(shape)[::-1]))
    if order != "C":
        raise _other_order("reshape", order, ("A",))
    operand, type, weak = value(a)
    target = _one_shape(shape)
    product = math.prod(n for n in target if n != -1)
    full = tuple(type.size // product if n == -1 and product else n for n in target)
    if math.prod(full) != type.size or target.count(-1) > 1 or any(n < 0 for n in full):
        raise TypeError(
            f"cannot reshape {type.shape} ({type.size} elements) to {target}{_elements(target, full)}\n"
            f"  at {line_of(user_source())}\n  fix: {_reshape_fix(target, type.shape)}"
        )
    return operand if full == type.shape else bind(ops("reshape"), operand, shape=full, weak_type=weak)


def _other_order(name: str, order: Any, of_memory: tuple[str, ...]) -> Exception:
    """NotImplementedError for what NumPy reads off how elements lie in memory, else ValueError."""
    error = NotImplementedError if isinstance(order, str) and order in of_memory else ValueError
    return error(f"{name}: order must be 'C' or 'F', got {order!r:.60}\n  at {line_of(user_source())}")


def _one_shape(shape: Any) -> tuple[int, ...]:
    """A traced extent is an error that says so."""
    return shape_tuple(shape, unknown=True)


def _elements(target: tuple[int, ...], full: tuple[int, ...]) -> str:
    return "" if any(n < 0 for n in target) else f" ({math.prod(full)})"


def _reshape_fix(target: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if target.count(-1) > 1:
        return "at most one extent may be -1"
    if any(n < -1 for n in target):
        return "extents are 0 or more, and one may be -1: what is left"
    return f"the products must be equal; -1 stands for what is left: x.reshape(-1, {shape[-1] if shape else 1})"


@takes_out_sharding
def ravel(a: Any, order: str = "C") -> Any:
    """`numpy.ravel`; NotImplementedError for order "A" and "K"."""
    if isinstance(order, str) and order == "K":
        raise _other_order("ravel", order, ("K",))
    return reshape(a, -1, order=order)


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    operand, type, weak = value(a)
    order = tuple(reversed(range(type.rank))) if axes is None else tuple(normal_axis(axis, type.rank) for axis in axes)
    return operand if order == tuple(range(type.rank)) else bind(ops("transpose"), operand, permutation=order, weak_type=weak)


def permute_dims(a: Any, /, axes: Sequence[int]) -> Any:
    """`numpy.permute_dims`: the dims in this order. TypeError for axes that are no sequence."""
    if axes is None:
        raise TypeError(f"permute_dims: axes are a sequence of all dims, got None\n  at {line_of(user_source())}\n  fix: x.T")
    return transpose(a, axes)


def matrix_transpose(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    rank = len(shape_of(a))
    order = list(range(rank))
    i, j = normal_axis(axis1, rank), normal_axis(axis2, rank)
    order[i], order[j] = order[j], order[i]
    return transpose(a, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    rank = len(shape_of(a))
    for name, axis in (("source", source), ("destination", destination)):
        if axis is None:
            raise TypeError(f"moveaxis: {name} is an int or a sequence of ints, got None\n  at {line_of(user_source())}")
    froms, tos = normal_axes(source, rank), normal_axes(destination, rank)
    order = [d for d in range(rank) if d not in froms]
    for to, start in sorted(zip(tos, froms, strict=True)):
        order.insert(to, start)
    return transpose(a, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """`numpy.rollaxis`: dim `axis` before dim `start`, which is counted from the back if negative."""
    rank = len(shape_of(a))
    axis = normal_axis(axis, rank)
    place = start + rank if start < 0 else start
    if not 0 <= place <= rank:
        raise ValueError(
            f"rollaxis: start is {start}, beyond the {rank} dims of shape {shape_of(a)}\n  at {line_of(user_source())}"
        )
    return moveaxis(a, axis, place - 1 if axis < place else place)


def expand_dims(a: Any, axis: Any) -> Any:
    shape = shape_of(a)
    axes = tuple(axis) if hasattr(axis, "__iter__") and getattr(axis, "ndim", 1) else (axis,)
    new = normal_axes(axes, len(shape) + len(axes))
    rest = iter(shape)
    return reshape(a, tuple(1 if d in new else next(rest) for d in range(len(shape) + len(axes))))


def squeeze(a: Any, axis: Any = None) -> Any:
    shape = shape_of(a)
    gone = tuple(d for d, n in enumerate(shape) if n == 1) if axis is None else normal_axes(axis, len(shape))
    for d in gone:
        if shape[d] != 1:
            raise ValueError(f"squeeze: dim {d} of shape {shape} has extent {shape[d]}, not 1\n  at {line_of(user_source())}")
    return reshape(a, tuple(n for d, n in enumerate(shape) if d not in gone))


def broadcast_arrays(*xs: Any) -> list[Any]:
    shape = broadcast_shapes(*(shape_of(x) for x in xs))
    return [broadcast_to(x, shape) for x in xs]


def atleast_1d(*xs: Any) -> Any:
    arrays = [reshape(x, 1) if not shape_of(x) else asarray(x) for x in xs]
    return arrays[0] if len(arrays) == 1 else arrays


def atleast_2d(*xs: Any) -> Any:
    arrays = [reshape(x, (1,) * (2 - len(shape_of(x))) + shape_of(x)) if len(shape_of(x)) < 2 else asarray(x) for x in xs]
    return arrays[0] if len(arrays) == 1 else arrays


def atleast_3d(*xs: Any) -> Any:
    arrays = [_three_dims(x) for x in xs]
    return arrays[0] if len(arrays) == 1 else arrays


def _three_dims(x: Any) -> Any:
    shape = shape_of(x)
    if len(shape) >= 3:
        return asarray(x)
    return reshape(x, (1, *(shape or (1,)), 1) if len(shape) < 2 else (*shape, 1))


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """`numpy.concatenate`; axis None flattens first."""
    arrays = [ravel(x) for x in arrays] if axis is None else list(arrays)
    if not arrays:
        raise ValueError(f"concatenate: needs at least one array\n  at {line_of(user_source())}")
    operands, weak = promoted(*arrays)
    operands, weak = ([cast(x, dtype) for x in operands], False) if dtype is not None else (operands, weak)
    if not shape_of(operands[0]):
        raise ValueError(f"concatenate: arrays of 0 dims have no dim to join; use stack\n  at {line_of(user_source())}")
    dim = normal_axis(0 if axis is None else axis, len(shape_of(operands[0])))
    return lifted(operands[0]) if len(operands) == 1 else bind(ops("concatenate"), *operands, dimension=dim, weak_type=weak)


concat = concatenate


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Any:
    """`numpy.stack`: arrays of one shape along a new dim."""
    no_out("stack", out)
    arrays = list(arrays)
    if not arrays:
        raise ValueError(f"stack: needs at least one array\n  at {line_of(user_source())}")
    for i, x in enumerate(arrays):
        if shape_of(x) != shape_of(arrays[0]):
            raise ValueError(
                f"stack: array {i} has shape {shape_of(x)}, the first {shape_of(arrays[0])}\n  at {line_of(user_source())}"
            )
    dim = normal_axis(axis, len(shape_of(arrays[0])) + 1)
    return concatenate([expand_dims(x, dim) for x in arrays], dim, dtype)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along a dim."""
    dim = normal_axis(axis, len(shape_of(x)))
    return tuple(squeeze(slice_in_dim(x, i, i + 1, axis=dim), dim) for i in range(shape_of(x)[dim]))


def flip(m: Any, axis: Any = None) -> Any:
    dims = normal_axes(axis, len(shape_of(m)))
    return bind(ops("reverse"), asarray(m), dimensions=dims) if dims else asarray(m)


def fliplr(m: Any) -> Any:
    return flip(m, 1)


def flipud(m: Any) -> Any:
    return flip(m, 0)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return concatenate([arr, values], axis)


def dstack(tup: Sequence[Any], dtype: Any = None) -> Any:
    return concatenate([_three_dims(x) for x in tup], 2, dtype)


def hstack(tup: Sequence[Any], dtype: Any = None) -> Any:
    tup = [atleast_1d(x) for x in tup]
    return concatenate(tup, 0 if len(shape_of(tup[0])) == 1 else 1, dtype)


def vstack(tup: Sequence[Any], dtype: Any = None) -> Any:
    return concatenate([atleast_2d(x) for x in tup], 0, dtype)


def column_stack(tup: Sequence[Any]) -> Any:
    return concatenate([reshape(x, (-1, 1)) if len(shape_of(x)) <= 1 else asarray(x) for x in tup], 1)


def slice_in_dim(x: Any, start: int, limit: int, stride: int = 1, axis: int = 0) -> Any:
    """Elements start, start + stride, … below limit of one dim."""
    operand, type, weak = value(x)
    starts, limits, strides = [0] * type.rank, list(type.shape), [1] * type.rank
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    params = {"start": tuple(starts), "limit": tuple(limits), "strides": tuple(strides)}
    return lifted(operand) if limits == list(type.shape) and not any(starts) and stride == 1 else bind(
        ops("slice"), operand, **params, weak_type=weak)  # fmt: skip


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`numpy.split`: into equal parts, or before the given indices."""
    shape = shape_of(ary)
    axis = normal_axis(axis, len(shape))
    extent = shape[axis]
    if not shape_of(indices_or_sections):
        indices_or_sections = _parts(indices_or_sections)
        if indices_or_sections <= 0:
            raise ValueError(
                f"split: the number of parts must be positive, got {indices_or_sections}\n  at {line_of(user_source())}"
            )
        if extent % indices_or_sections:
            raise ValueError(
                f"split: {extent} cannot be divided into {indices_or_sections} equal parts; use array_split\n"
                f"  at {line_of(user_source())}"
            )
        return array_split(ary, indices_or_sections, axis)
    bounds = [0, *(min(max(int(i) + (extent if i < 0 else 0), 0), extent) for i in indices_or_sections), extent]
    return [slice_in_dim(ary, a, max(a, b), axis=axis) for a, b in zip(bounds, bounds[1:], strict=False)]


def _parts(count: Any) -> int:
    """How many parts; TypeError for what is no integer, or traced."""
    if not isinstance(count, int | np.integer):
        count = concrete(count, "the number of parts is that of the results", "an int")[()]
    return shape_tuple((count,), unknown=True)[0]


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    return split(ary, indices_or_sections, 0 if len(shape_of(ary)) == 1 else 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    return split(ary, indices_or_sections, 2)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`numpy.array_split`: like split, with parts that differ by one where the extent does not divide."""
    if shape_of(indices_or_sections):
        return split(ary, indices_or_sections, axis)
    sections = _parts(indices_or_sections)
    axis = normal_axis(axis, len(shape_of(ary)))
    extent = shape_of(ary)[axis]
    each, more = divmod(extent, sections)
    sizes = [each + (i < more) for i in range(sections)]
    bounds = np.cumsum([0, *sizes]).tolist()
    return [slice_in_dim(ary, a, b, axis=axis) for a, b in zip(bounds, bounds[1:], strict=False)]
