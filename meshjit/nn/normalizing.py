"""Values along a dim brought to one scale: softmax and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import is_inexact
from meshjit.numpy.promote import apply, asarray, cast, dtype_of, ops
from meshjit.numpy.reductions import selection
from meshjit.trace import bind


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
    x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5, where: Any = None
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) along `axis`."""
    x = floated(x)
    if variance is None and mean is None:
        variance = mnp.var(x, axis=axis, keepdims=True, where=where)
    elif variance is None:
        variance = mnp.mean(mnp.square(x), axis=axis, keepdims=True, where=where) - mnp.square(mean)
    mean = mnp.mean(x, axis=axis, keepdims=True, where=where) if mean is None else mean
    return (x - mean) * apply("rsqrt", variance + epsilon)
