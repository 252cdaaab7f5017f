"""What arrays say about themselves, and functions that may give their operand back: of NumPy values as arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy import elementwise, promote, rearranging, shaping, ufuncs
from meshjit.numpy.creation import check_order
from meshjit.numpy.filling import placed
from meshjit.numpy.promote import cast, described, fresh, lifted, normal_axes, shape_of


def ndim(a: Any) -> int:
    """Number of dims."""
    return len(shape(a))


def shape(a: Any) -> tuple[int, ...]:
    """Extents. None counts as a number, since JAX still takes it (with a warning)."""
    return a.shape if described(a) else () if a is None else shape_of(a)


def size(a: Any, axis: Any = None) -> int:
    """Number of elements, or the extent of `axis`."""
    extents = shape(a)
    return math.prod(extents[d] for d in normal_axes(axis, len(extents)))


def iterable(y: Any) -> bool:
    """Whether x has elements to go through."""
    return hasattr(y, "__iter__") and getattr(y, "shape", None) != ()


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """`x` in another dtype, on a device or under a sharding if one is given; `x` itself if it has that dtype, unless `copy`."""
    array = lifted(cast(x, dtype))
    return placed(fresh(array) if copy and array is x else array, device)


def copy(a: Any, order: str | None = None) -> Any:
    """An array of the same elements in memory of its own, placed alike."""
    check_order("copy", order)
    return fresh(a)


def ascontiguousarray(x: Any, dtype: Any = None) -> Any:
    return lifted(x if dtype is None else cast(x, dtype))


def _array_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; where it would give a NumPy operand back it gives an array."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return type(result)(lifted(x) for x in result) if isinstance(result, list | tuple) else lifted(result)

    return wrapped


def _new_array_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; where it would give an operand back it gives a copy, which outlives a donation of the operand."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        operands = {*map(id, args), *map(id, kwargs.values())}

        def own(x: Any) -> Any:
            return fresh(x) if id(x) in operands else lifted(x)

        return type(result)(map(own, result)) if isinstance(result, list | tuple) else own(result)

    return wrapped


# As in JAX, reshape, transpose, broadcast_to and concatenate give back an operand with which there is nothing to do; what stands
# with _new_array_out gives a copy.
real, conj, conjugate, positive, absolute, clip = map(
    _new_array_out, (ufuncs.real, ufuncs.conj, ufuncs.conjugate, ufuncs.positive, ufuncs.absolute, ufuncs.clip)
)
abs = absolute  # noqa: A001
floor, ceil, trunc, fix = map(_new_array_out, (ufuncs.floor, ufuncs.ceil, ufuncs.trunc, ufuncs.fix))
round, around, nan_to_num = map(  # noqa: A001
    _new_array_out, (elementwise.round, elementwise.around, elementwise.nan_to_num)
)
broadcast_to, reshape, transpose, permute_dims, concatenate, concat = map(
    _array_out,
    (
        takes_out_sharding(promote.broadcast_to),
        shaping.reshape, shaping.transpose, shaping.permute_dims, shaping.concatenate, shaping.concat,
    ),
)  # fmt: skip
ravel, swapaxes, moveaxis, rollaxis, matrix_transpose, expand_dims, squeeze = map(
    _new_array_out,
    (
        shaping.ravel, shaping.swapaxes, shaping.moveaxis, shaping.rollaxis, shaping.matrix_transpose, shaping.expand_dims,
        shaping.squeeze,
    ),
)  # fmt: skip
broadcast_arrays, atleast_1d, atleast_2d, atleast_3d = map(
    _new_array_out, (shaping.broadcast_arrays, shaping.atleast_1d, shaping.atleast_2d, shaping.atleast_3d)
)
split, array_split, hsplit, vsplit, dsplit = map(
    _new_array_out, (shaping.split, shaping.array_split, shaping.hsplit, shaping.vsplit, shaping.dsplit)
)
roll, flip, rot90, tile = map(
    _new_array_out, (rearranging.roll, shaping.flip, rearranging.rot90, rearranging.tile)
)

__all__ = [
    "abs", "absolute", "around", "array_split", "ascontiguousarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d",
    "broadcast_arrays", "broadcast_to", "ceil", "clip", "concat", "concatenate", "conj", "conjugate", "copy", "dsplit",
    "expand_dims", "fix", "flip", "floor", "hsplit", "iterable", "matrix_transpose", "moveaxis", "nan_to_num", "ndim",
    "permute_dims", "positive", "ravel", "real", "reshape", "roll", "rollaxis", "rot90", "round", "shape", "size", "split",
    "squeeze", "swapaxes", "tile", "transpose", "trunc", "vsplit",
]  # fmt: skip
