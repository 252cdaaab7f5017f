"""`jax.lax.reduce_window`: pooling, with any associative function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import TensorType
from meshjit.lax import elementwise
from meshjit.lax.combining import combined
from meshjit.numpy.convolution import padding_of
from meshjit.numpy.promote import asarray, cast, dtype_of, ops, shape_of
from meshjit.numpy.quick.names import usual
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.window.params import places_in, slides_of
from meshjit.ops.window.sliding import Slide, dilated
from meshjit.trace import Tracer, bind, line_of, user_source
from meshjit.trees import WORDS as tree

_LARGEST = 1024  # places of a window of a function that is no op's: the program grows with them
_NAMES = {
    "sum": ("add",),
    "prod": ("mul", "multiply"),
    "max": ("max", "maximum"),
    "min": ("min", "minimum"),
    "and": ("bitwise_and",),
    "or": ("bitwise_or",),
}


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """`jax.lax.reduce_window`: every window of the operand combined by `computation`, started from `init_value`; padding
    and holes are left out. Trees of arrays of one shape are reduced together.

    add, mul, max, min, bitwise_and and bitwise_or of this package are one op; for any other function the program grows
    with the window (ValueError for more than 1024 places). TypeError for params that do not fit the operand's dims."""
    leaves, structure = tree.flatten(operand)
    xs, starts = [asarray(x) for x in leaves], tree.leaves(init_value)
    if not xs or len(xs) != len(starts):
        raise _error(TypeError, f"{len(xs)} operands and {len(starts)} init values; they must be as many, one or more")
    shape = shape_of(xs[0])
    if any(shape_of(x) != shape for x in xs):
        raise _error(TypeError, f"the operands have different shapes: {', '.join(str(shape_of(x)) for x in xs)}")
    windows = _windows(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    starts = [cast(s, dtype_of(x)) for s, x in zip(starts, xs, strict=True)]
    kind = _kind(computation, dtype_of(xs[0])) if len(xs) == 1 else None
    if kind is not None:
        return tree.unflatten(structure, [_reduced(xs[0], starts[0], kind, computation, windows)])
    return tree.unflatten(structure, _unrolled(xs, starts, structure, computation, windows))


def _error(kind: type[Exception], message: str) -> Exception:
    return kind(f"reduce_window: {message}\n  at {line_of(user_source())}")


def _windows(
    shape: tuple[int, ...], window: Sequence[int], strides: Any, padding: Any, base_dilation: Any, window_dilation: Any
) -> dict[str, Any]:
    """The params of the op, checked, with padding in numbers."""
    ones = (1,) * len(shape)
    steps = {"window": window, "strides": strides, "base_dilation": base_dilation, "window_dilation": window_dilation}
    params = {name: ones if value is None else tuple(map(int, value)) for name, value in steps.items()}
    for name, value in params.items():
        if len(value) != len(shape) or any(n < 1 for n in value):
            raise _error(TypeError, f"{name} is {value}; an operand of shape {shape} needs {len(shape)} positive entries")
    if isinstance(padding, str):
        reach = [(n - 1) * d + 1 for n, d in zip(params["window"], params["window_dilation"], strict=True)]
        padding = padding_of(padding, shape, reach, params["strides"])
    pads = tuple((int(low), int(high)) for low, high in padding)
    if len(pads) != len(shape):
        raise _error(TypeError, f"padding is {pads}; an operand of shape {shape} needs {len(shape)} pairs")
    return params | {"padding": pads}


def _kind(computation: Any, dtype: np.dtype[Any]) -> str | None:
    """The kind of the op that `computation` is, if it is one for this dtype."""
    for kind, names in _NAMES.items():
        functions = [getattr(room, name, None) for room in (elementwise, mnp) for name in names]
        functions = [f for f in functions if f is not None and f not in (mnp.max, mnp.min)]
        fits = {"and": dtype.kind in "biu", "or": dtype.kind in "biu", "max": dtype.kind != "c", "min": dtype.kind != "c"}
        if any(usual(computation) is usual(f) for f in functions):
            return kind if fits.get(kind, dtype != np.bool_) else None
    return None


def _reduced(x: Any, start: Any, kind: str, computation: Callable[..., Any], windows: dict[str, Any]) -> Any:
    """One op, and a start that is not the identity combined with its result."""
    result = bind(ops("reduce_window"), x, kind=kind, **windows)
    return result if _is_identity(start, kind) else computation(start, result)


def _is_identity(start: Any, kind: str) -> bool:
    if isinstance(start, Tracer):
        return False
    value = np.asarray(start)
    return bool(value == identity_element(kind, value.dtype))


def _unrolled(
    xs: list[Any], starts: list[Any], structure: Any, computation: Callable[..., Any], windows: dict[str, Any]
) -> list[Any]:
    """A strided slice for each place in the window, combined one after another where it is neither padding nor hole."""
    size = math.prod(windows["window"])
    if size > _LARGEST:
        raise _error(ValueError, f"a window of {size} places is too large for a function that is no op (at most {_LARGEST})")
    slides = slides_of(TensorType(shape_of(xs[0]), dtype_of(xs[0])), windows)
    low, high = zip(*windows["padding"], strict=True) if slides else ((), ())
    pads = {"low": low, "high": high, "interior": tuple(n - 1 for n in windows["base_dilation"])}
    xs = [bind(ops("pad"), x, start, **pads) for x, start in zip(xs, starts, strict=True)]
    counts = tuple(slide.out for slide in slides)
    results = [mnp.broadcast_to(start, counts) for start in starts]
    for place in places_in(windows["window"]) if 0 not in counts else ():
        first = tuple(p * s.window_dilation for p, s in zip(place, slides, strict=True))
        limit = tuple(f + (s.out - 1) * s.stride + 1 for f, s in zip(first, slides, strict=True))
        parts = [bind(ops("slice"), x, start=first, limit=limit, strides=windows["strides"]) for x in xs]
        values = combined(computation, structure, results, parts)
        results = [_where_real(m, r, place, slides) for m, r in zip(values, results, strict=True)]
    return results


def _where_real(value: Any, before: Any, place: Sequence[int], slides: Sequence[Slide]) -> Any:
    """`made` where this place of a window is an element of the operand, else `before`."""
    for dim, (p, s) in enumerate(zip(place, slides, strict=True)):
        seen = np.arange(s.out) * s.stride + p * s.window_dilation - s.low
        real = (seen >= 0) & (seen % s.base_dilation == 0) & (seen < dilated(s.extent, s.base_dilation))
        if not real.all():
            value = mnp.where(real.reshape([-1 if d == dim else 1 for d in range(len(slides))]), value, before)
    return value


__all__ = ["reduce_window"]


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of reduce_window."""
    rank = len(operand_shape)
    holes = zip(base_dilation or (1,) * rank, window_dilation or (1,) * rank, strict=True)
    dims = zip(operand_shape, window_dimensions, window_strides, padding, holes, strict=True)
    return tuple(max(0, (_spread(n, b) + sum(pad) - _spread(w, d)) // s + 1) for n, w, s, pad, (b, d) in dims)


def _spread(extent: int, dilation: int) -> int:
    return (extent - 1) * dilation + 1 if extent else 0
