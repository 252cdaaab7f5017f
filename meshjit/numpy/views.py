"""What arrays say about themselves, and functions that may give their operand back: of NumPy values as arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from meshjit.numpy import elementwise, promote, rearranging, shaping, ufuncs
from meshjit.numpy.promote import cast, lifted, normal_axes, shape_of


def ndim(x: Any) -> int:
    """Number of dims."""
    return len(shape_of(x))


def shape(x: Any) -> tuple[int, ...]:
    """Extents."""
    return shape_of(x)


def size(x: Any, axis: Any = None) -> int:
    """Number of elements, or the extent of `axis`."""
    extents = shape_of(x)
    return math.prod(extents[d] for d in normal_axes(axis, len(extents)))


def iterable(x: Any) -> bool:
    """Whether x has elements to go through."""
    return hasattr(x, "__iter__") and getattr(x, "shape", None) != ()


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """`x` in another dtype."""
    del copy, device
    return lifted(cast(x, dtype))


def copy(x: Any, order: str | None = None) -> Any:
    """An array of the same elements; arrays never change, so it may share their memory."""
    del order
    return lifted(x)


def ascontiguousarray(x: Any, dtype: Any = None) -> Any:
    return lifted(x if dtype is None else cast(x, dtype))


def _array_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; where it would give a NumPy operand back it gives an array."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return type(found)(lifted(x) for x in found) if isinstance(found, list | tuple) else lifted(found)

    return wrapped


real, conj, conjugate, positive, absolute, clip = map(
    _array_out, (ufuncs.real, ufuncs.conj, ufuncs.conjugate, ufuncs.positive, ufuncs.absolute, ufuncs.clip)
)
abs = absolute  # noqa: A001
floor, ceil, trunc, fix = map(_array_out, (ufuncs.floor, ufuncs.ceil, ufuncs.trunc, ufuncs.fix))
round, around, nan_to_num = map(_array_out, (elementwise.round, elementwise.around, elementwise.nan_to_num))  # noqa: A001
broadcast_to = _array_out(promote.broadcast_to)
reshape, ravel, transpose, permute_dims, swapaxes, moveaxis, rollaxis, matrix_transpose, expand_dims, squeeze = map(
    _array_out,
    (
        shaping.reshape, shaping.ravel, shaping.transpose, shaping.permute_dims, shaping.swapaxes, shaping.moveaxis,
        shaping.rollaxis, shaping.matrix_transpose, shaping.expand_dims, shaping.squeeze,
    ),
)  # fmt: skip
broadcast_arrays, atleast_1d, atleast_2d, atleast_3d, concatenate, concat, split, array_split = map(
    _array_out,
    (
        shaping.broadcast_arrays, shaping.atleast_1d, shaping.atleast_2d, shaping.atleast_3d, shaping.concatenate,
        shaping.concat, shaping.split, shaping.array_split,
    ),
)  # fmt: skip
roll, flip, rot90 = map(_array_out, (rearranging.roll, rearranging.flip, rearranging.rot90))

__all__ = [
    "abs", "absolute", "around", "array_split", "ascontiguousarray", "astype", "atleast_1d", "atleast_2d", "atleast_3d",
    "broadcast_arrays", "broadcast_to", "ceil", "clip", "concat", "concatenate", "conj", "conjugate", "copy", "expand_dims",
    "fix", "flip", "floor", "iterable", "matrix_transpose", "moveaxis", "nan_to_num", "ndim", "permute_dims", "positive",
    "ravel", "real", "reshape", "roll", "rollaxis", "rot90", "round", "shape", "size", "split", "squeeze", "swapaxes",
    "transpose", "trunc",
]  # fmt: skip
