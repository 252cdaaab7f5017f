"""Values along a dim brought to one scale: softmax and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import is_inexact
from meshjit.numpy.promote import apply, asarray, cast, dtype_of, ops
from meshjit.numpy.reductions import selection
from meshjit.runtime.composed import composed
from meshjit.trace import bind, line_of, user_source


def floated(x: Any) -> Any:
    x = asarray(x)
    return x if is_inexact(dtype_of(x)) else cast(x, np.float32)


def softmax(x: Any, axis: Any = -1, where: Any = None, initial: Any = -np.inf) -> Any:
    """exp(x) / sum(exp(x)) along `axis`; the shift by the maximum has no derivative. Elements that `where` leaves out
    get 0. A row of -inf gives NaN, as in JAX."""
    x = floated(x)
    masked = x if where is None else mnp.where(selection(where), x, -mnp.inf)
    high = bind(ops("stop_gradient"), mnp.max(masked, axis=axis, keepdims=True, initial=initial))
    terms = mnp.exp(masked - high)
    result = terms / mnp.sum(terms, axis=axis, keepdims=True)
    return result if where is None else mnp.where(where, result, 0)


def log_softmax(x: Any, axis: Any = -1, where: Any = None, initial: Any = -np.inf) -> Any:
    """log(softmax(x)): of a sharded dim only maxima and sums are reduced."""
    x = floated(x)
    masked = x if where is None else mnp.where(selection(where), x, -mnp.inf)
    shifted = masked - bind(ops("stop_gradient"), mnp.max(masked, axis=axis, keepdims=True, initial=initial))
    result = shifted - mnp.log(mnp.sum(mnp.exp(shifted), axis=axis, keepdims=True))
    return result if where is None else mnp.where(where, result, -mnp.inf)


def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) along `axis`.

    algorithm: what the variance is of a mean that is given, "stable" the mean of (x - mean)², "fast" the mean of x² less the
    square of the mean, at least 0. Without a mean it is the former in both, where JAX's "fast" cancels. ValueError for others."""
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm {algorithm!r} is neither 'fast' nor 'stable'\n  at {line_of(user_source())}")
    x = floated(x)
    if variance is None and mean is None:
        variance = mnp.var(x, axis=axis, keepdims=True, where=where)
    elif variance is None:
        squares = mnp.square(x - mean) if algorithm == "stable" else mnp.square(x)
        variance = mnp.mean(squares, axis=axis, keepdims=True, where=where)
        variance = variance if algorithm == "stable" else mnp.maximum(variance - mnp.square(mean), 0)
    mean = mnp.mean(x, axis=axis, keepdims=True, where=where) if mean is None else mean
    return (x - mean) * apply("rsqrt", variance + epsilon)


composed(globals())
