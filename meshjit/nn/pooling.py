"""Pooling as in `flax.linen`: arrays [*batch, *spatial, features], windows over the spatial dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from meshjit import lax, numpy as mnp
from meshjit.numpy.promote import asarray, dtype_of, shape_of
from meshjit.trace import line_of, user_source

Padding = str | Sequence[tuple[int, int]]


def pool(
    inputs: Any,
    init: Any,
    reduce_fn: Callable[..., Any],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Padding,
) -> Any:
    """Windows of `window_shape` over the spatial dims of `inputs` [*batch, *spatial, features] (any number of batch dims)
    combined by `reduce_fn` from `init` on.

    `strides` are 1 unless given. `padding` is "SAME", "VALID" or a pair (low, high) per spatial dim, and holds `init`.
    ValueError where window, strides or padding do not fit one another or the inputs. Source: flax.linen.pooling."""
    x = asarray(inputs)
    count, batch = len(window_shape), len(shape_of(x)) - len(window_shape) - 1
    steps = (1,) * count if strides is None else tuple(strides)
    if batch < 0:
        raise _error(f"a window of {count} dims needs an input of {count + 1} dims or more, got shape {shape_of(x)}")
    if len(steps) != count:
        raise _error(f"strides {steps} and window_shape {tuple(window_shape)} must name the same dims")
    if not isinstance(padding, str):
        if len(padding) != count or any(len(pair) != 2 for pair in padding):
            raise _error(f"padding {padding} must be a pair (low, high) for each of {count} dims")
        padding = [(0, 0)] * batch + [(low, high) for low, high in padding] + [(0, 0)]
    window, steps = ((*(1,) * batch, *entries, 1) for entries in (window_shape, steps))
    return lax.reduce_window(x, init, reduce_fn, window, steps, padding)


def _error(message: str) -> ValueError:
    return ValueError(f"pool: {message}\n  at {line_of(user_source())}")


def max_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID"
) -> Any:
    """The largest element of every window; padding is -inf. See `pool`."""
    return pool(inputs, -math.inf, lax.max, window_shape, strides, padding)


def min_pool(
    inputs: Any, window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "VALID"
) -> Any:
    """The smallest element of every window; padding is inf. See `pool`."""
    return pool(inputs, math.inf, lax.min, window_shape, strides, padding)


def avg_pool(
    inputs: Any,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
) -> Any:
    """The mean of every window; without `count_include_pad` that of its elements which are not padding. See `pool`."""
    total = pool(inputs, 0.0, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return mnp.divide(total, math.prod(window_shape))
    batch = len(shape_of(inputs)) - len(window_shape) - 1
    ones = mnp.ones((*(1,) * batch, *shape_of(inputs)[batch:-1], 1), dtype_of(asarray(inputs)))
    return mnp.divide(total, pool(ones, 0.0, lax.add, window_shape, strides, padding))
