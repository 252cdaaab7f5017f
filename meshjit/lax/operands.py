"""What jax.lax's elementwise functions take: arrays and numbers of one dtype, of the kind that the function is for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from meshjit.core.types import is_float, is_inexact, kind_of
from meshjit.numpy.arguments import axis_number
from meshjit.numpy.promote import dtype_of, shape_of
from meshjit.trace import Tracer, line_of, user_source

_KINDS: dict[str, tuple[str, Callable[[np.dtype[Any]], bool]]] = {
    "any": ("numbers", lambda d: True),
    "number": ("integers, floating and complex numbers", lambda d: d != np.bool_),
    "signed": ("signed integers, floating and complex numbers", lambda d: kind_of(d) not in "ub"),
    "real": ("integers and floating numbers", lambda d: d != np.bool_ and kind_of(d) != "c"),
    "ordered": ("booleans, integers and floating numbers", lambda d: kind_of(d) != "c"),
    "inexact": ("floating and complex numbers", is_inexact),
    "float": ("floating numbers", is_float),
    "part": ("float32 and float64", lambda d: d in (np.float32, np.float64)),
    "complex": ("complex numbers", lambda d: kind_of(d) == "c"),
    "bits": ("booleans and integers", lambda d: kind_of(d) in "iub"),
    "integer": ("integers", lambda d: kind_of(d) in "iu"),
}
"""What functions take: in words, and as a predicate."""


def strict(name: str, accepts: str, function: Callable[..., Any], alike: bool = True) -> Callable[..., Any]:
    """The function on operands of a kind of `_KINDS` whose extents are equal or 1; scalars go with any. `alike`: of one dtype."""
    signature = inspect.signature(function)
    _, accepted = _KINDS[accepts]
    fit: set[np.dtype[Any]] = set()  # that were accepted

    @functools.wraps(function)
    def checked(*xs: Any, **named: Any) -> Any:
        if named:
            bound = signature.bind(*xs, **named)
            xs, named = bound.args, bound.kwargs
        elif xs and type(xs[0]) is Tracer:  # one, or two whose types are one object, as equal types mostly are
            type_ = xs[0].variable.type
            if len(xs) == 1 or (len(xs) == 2 and type(xs[1]) is Tracer and xs[1].variable.type is type_):
                if type_.dtype in fit:  # nothing else to check, and soon done
                    return function(*xs)
        dtypes = [dtype_of(x) for x in xs]
        if dtypes and not accepted(dtypes[0]) or (alike and any(d != dtypes[0] for d in dtypes)) or any(map(_is_list, xs)):
            raise _unfit(name, accepts, xs, dtypes)
        fit.update(dtypes[:1])
        if len(xs) > 1:
            _require_extents(name, xs)
        return function(*xs, **named)

    checked.__name__ = checked.__qualname__ = name
    return checked


def require_alike(name: str, *xs: Any) -> None:
    """TypeError, with the user's line, for operands of several dtypes."""
    dtypes = [dtype_of(x) for x in xs]
    if any(d != dtypes[0] for d in dtypes):
        raise _unfit(name, "any", xs, dtypes)


def dims_from_front(name: str, dims: Sequence[Any], rank: int, error: type[Exception] = ValueError) -> tuple[int, ...]:
    """Dims of jax.lax's functions, which count none from the end: `error`, with the user's line, for one that there is not, or
    that is named twice."""
    numbers = tuple(d if type(d) is int else axis_number(d) for d in dims)
    problem = next((f"dim {d} is out of range" for d in numbers if not 0 <= d < rank), None)
    if problem is None and len(set(numbers)) < len(numbers):
        problem = "a dim is named twice"
    if problem is not None:
        raise error(
            f"lax.{name}: dims {numbers} of an array of {rank}: {problem}\n  at {line_of(user_source())}\n"
            "  fix: jax.lax counts dims from the front; the function of meshjit.numpy also from the end"
        )
    return numbers


def dim_from_front(name: str, dim: Any, rank: int) -> int:
    """One such dim; ValueError where there is none."""
    return dims_from_front(name, (dim,), rank)[0]


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple)


def _unfit(name: str, accepts: str, xs: Sequence[Any], dtypes: Sequence[np.dtype[Any]]) -> TypeError:
    words, accepted = _KINDS[accepts]
    place = f"\n  at {line_of(user_source())}\n  fix: "
    for x, dtype in zip(xs, dtypes, strict=True):
        if _is_list(x):
            return TypeError(f"lax.{name} takes arrays and numbers, got a {type(x).__name__}{place}meshjit.numpy.asarray of it")
        if not accepted(dtype):
            return TypeError(f"lax.{name} takes {words}, got {dtype}{place}x.astype(...), or the function of meshjit.numpy")
    listed = " and ".join(map(str, dtypes))
    fix = "x.astype(...), 1.0 in place of 1, or the function of meshjit.numpy"
    return TypeError(f"lax.{name}: operands have dtypes {listed}; lax functions convert nothing{place}{fix}")


def _require_extents(name: str, xs: Sequence[Any]) -> None:
    shapes = {shape_of(x) for x in xs} - {()}
    if len(shapes) > 1 and not _fit(shapes):
        listed = " and ".join(str(shape_of(x)) for x in xs)
        raise TypeError(
            f"{name}: operands have shapes {listed}; lax functions repeat extents of 1, and add no dims\n"
            f"  at {line_of(user_source())}\n  fix: use the function of meshjit.numpy, or lax.broadcast_in_dim"
        )


def _fit(shapes: Collection[tuple[int, ...]]) -> bool:
    """Whether these are shapes of one rank, with one extent per dim beside 1."""
    return len(set(map(len, shapes))) == 1 and all(len({*extents} - {1}) <= 1 for extents in zip(*shapes, strict=True))
