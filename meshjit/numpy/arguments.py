"""Shapes, dims and dtypes as users give them: what is none is an error with its place, both numbers and a fix."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from meshjit.errors import TracerIntegerConversionError
from meshjit.trace import Tracer, line_of, user_source
from meshjit.trace.tracer import value_of


def shape_tuple(shape: Any, unknown: bool = False) -> tuple[int, ...]:
    """A shape given as an int or a sequence of ints; `unknown`: an extent may be -1.

    TypeError for what is no integer, is negative, or is traced: shapes are known when a program is compiled."""
    if isinstance(shape, int | np.integer):
        shape = (shape,)
    elif getattr(shape, "shape", None) == ():  # a traced number, or an Array of no dims
        shape = (shape,)
    elif shape is None or isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise _error(f"a shape is an int or a sequence of ints, got {_shown(shape)}", _fix_of(shape))
    entries = tuple(shape)
    return tuple([_extent(n, i, entries, unknown) for i, n in enumerate(entries)])


def _extent(n: Any, place: int, shape: tuple[Any, ...], unknown: bool) -> int:
    if isinstance(n, Tracer):
        fix = (
            "static_argnames=... for an argument that sets a size, x.shape[i] for the size of an array,"
            " or the largest size and a mask"
        )
        n = value_of(n, TracerIntegerConversionError, "a shape was made of it", fix)
    try:
        extent = operator.index(n)
    except TypeError:
        where = f"the shape is {_shown(n)}" if len(shape) == 1 else f"entry {place} of the shape {_listed(shape)} is {_shown(n)}"
        raise _error(f"shapes hold integers: {where}", _fix_of(n)) from None
    if extent < 0 and not unknown:
        fix = "the extent that is meant; only reshape takes -1, for what is left" if extent == -1 else "an extent of 0 or more"
        raise _error(f"shapes hold no negative extents: entry {place} of {_listed(shape)} is {extent}", fix)
    return extent


def count_of(n: Any, name: str) -> int:
    """How many, for the parameter `name`; TypeError for what is no integer, ValueError for what is negative."""
    if not isinstance(n, Tracer) and isinstance(n, int | np.integer) and n < 0:
        raise ValueError(f"{name} must not be negative, it is {n}\n  at {line_of(user_source())}\n  fix: 0 or more")
    return shape_tuple((n,))[0]


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype; TypeError for what is none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        shape = isinstance(dtype, int | tuple)
        fix = "a shape of several dims is one tuple, such as (3, 4)" if shape else "for example jnp.float32"
        raise _error(f"{_shown(dtype)} is no data type", fix) from None


def axis_number(axis: Any) -> int:
    """A dim as an int; TypeError for what is none."""
    if isinstance(axis, Tracer):
        fix = "static_argnames=... for an argument that names a dim; which one it is decides shapes"
        axis = value_of(axis, TracerIntegerConversionError, "it was used as an axis", fix)
    try:
        return operator.index(axis)
    except TypeError:
        fix = f"lax.psum(x, {axis!r}) and its kin sum over the named axis of a vmap" if isinstance(axis, str) else _fix_of(axis)
        raise _error(f"an axis is an int, got {_shown(axis)}", fix) from None


def diagonal_number(k: Any) -> int:
    """Which diagonal, as an int; TypeError for what is none."""
    if isinstance(k, Tracer):
        k = value_of(k, TracerIntegerConversionError, "it was used as the number of a diagonal", "static_argnames=... for it")
    try:
        return operator.index(k)
    except TypeError:
        raise _error(f"the number of a diagonal is an int, got {_shown(k)}", _fix_of(k)) from None


def axis_out_of_range(axis: int, rank: int) -> np.exceptions.AxisError:
    """NumPy's error for a dim that there is not; it is a ValueError and an IndexError."""
    last = f"from {-rank} to {rank - 1}" if rank else "none"
    return np.exceptions.AxisError(  # pyright: ignore[reportArgumentType] - a text alone is the message
        f"axis {axis} is out of range for an array of {rank} dims\n  at {line_of(user_source())}\n  there are: {last}"
    )


def check_not_empty(name: str, shape: tuple[int, ...], dim: int) -> None:
    """ValueError where a dim has no elements to choose from."""
    if not shape[dim]:
        raise ValueError(
            f"{name}: dim {dim} of shape {shape} is empty: there is no place to give\n  at {line_of(user_source())}\n"
            "  fix: ask x.size first, or put an element in front by jnp.concatenate"
        )


def _fix_of(x: Any) -> str:
    if isinstance(x, float | np.floating):
        return f"{int(x)}; n // 2 is an integer where n / 2 is none" if x == x and abs(x) < 1e18 else "an integer"
    return "for example (3, 4)"


def _shown(x: Any) -> str:
    return f"{type(x).__name__} {x!r:.60}" if x is not None else "None"


def _listed(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(repr, shape))}{',' if len(shape) == 1 else ''})"


def _error(text: str, fix: str) -> TypeError:
    return TypeError(f"{text}\n  at {line_of(user_source())}\n  fix: {fix}")
