"""`jax.nn` for meshjit: activations, softmax and its kin, one_hot, pooling, initializers."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import is_inexact
from meshjit.missing import explain as _explain
from meshjit.nn import initializers as initializers, normalizing
from meshjit.nn.attention import dot_product_attention as dot_product_attention
from meshjit.nn.normalizing import log_softmax as log_softmax, softmax as softmax, standardize as standardize
from meshjit.nn.pooling import avg_pool as avg_pool, max_pool as max_pool, min_pool as min_pool, pool as pool
from meshjit.nn.scaling import (
    get_scaled_dot_general_config as get_scaled_dot_general_config,
    scaled_dot_general as scaled_dot_general,
    scaled_matmul as scaled_matmul,
)
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.promote import (
    apply,
    asarray,
    cast,
    dtype_of,
    exactly,
    float_of,
    lifted,
    normal_axis,
    ops,
    promoted,
    shape_of,
    weak_of,
)
from meshjit.numpy.quick.names import install as _quicken
from meshjit.numpy.reductions import logsumexp as logsumexp, selection
from meshjit.numpy.ufuncs import tanh as tanh
from meshjit.runtime.composed import composed as _composed
from meshjit.trace import bind


def identity(x: Any) -> Any:
    return lifted(x)


def relu(x: Any) -> Any:
    """max(x, 0), with derivative 0 at 0; NaN stays. Booleans give integers."""
    return mnp.maximum(x, 0) if dtype_of(x) == np.bool_ else apply("relu", x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6), with derivative 0 at both ends; integers give floats."""
    return mnp.where(mnp.greater_equal(x, 6), 6.0, relu(x))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    return mnp.where(mnp.greater_equal(x, 0), x, mnp.multiply(negative_slope, x))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x, below 0 alpha * (exp(x) - 1)."""
    positive = mnp.greater(x, 0)
    return mnp.where(positive, x, mnp.multiply(alpha, mnp.expm1(mnp.where(positive, 0.0, x))))


def selu(x: Any) -> Any:
    """Self-normalising elu (arXiv 1706.02515)."""
    return mnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x, below 0 alpha * (exp(x / alpha) - 1) (arXiv 1704.07483)."""
    positive = mnp.greater(x, 0)
    below = mnp.true_divide(mnp.where(positive, 0.0, x), alpha)
    return mnp.where(positive, x, mnp.multiply(alpha, mnp.expm1(below)))


def sigmoid(x: Any) -> Any:
    return apply("logistic", x, inexact=True)


def silu(x: Any) -> Any:
    return mnp.multiply(x, sigmoid(x))


swish = silu


def mish(x: Any) -> Any:
    return mnp.multiply(x, mnp.tanh(softplus(x)))


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return mnp.logaddexp(x, 0.0 if weak_of(x) or dtype_of(x) == np.bool_ else np.zeros((), float_of(dtype_of(x))))


def log_sigmoid(x: Any) -> Any:
    return mnp.negative(softplus(mnp.negative(x)))


def soft_sign(x: Any) -> Any:
    return mnp.true_divide(x, mnp.add(mnp.abs(x), 1))


def hard_tanh(x: Any) -> Any:
    return mnp.where(mnp.greater(x, 1), 1, mnp.where(mnp.less(x, -1), -1, x))


def hard_sigmoid(x: Any) -> Any:
    return mnp.true_divide(relu6(mnp.add(x, 3.0)), 6.0)


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return mnp.multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


def squareplus(x: Any, b: Any = 4) -> Any:
    """(x + sqrt(x*x + b)) / 2."""
    return mnp.multiply(mnp.add(x, mnp.sqrt(mnp.add(mnp.square(x), b))), 0.5)


def sparse_plus(x: Any) -> Any:
    """0 up to -1, x from 1 on, (x + 1)**2 / 4 between."""
    return mnp.where(x <= -1.0, 0.0, mnp.where(x >= 1.0, x, mnp.square(x + 1.0) / 4))


def sparse_sigmoid(x: Any) -> Any:
    """0 up to -1, 1 from 1 on, (x + 1) / 2 between."""
    return 0.5 * mnp.clip(x + 1.0, 0.0, 2.0)


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)) of positive x, exact near 0 and far from it."""
    (x,), _ = promoted(x, inexact=True)
    small = mnp.less(x, float(np.log(2.0)))
    near = mnp.log(mnp.negative(mnp.expm1(mnp.negative(mnp.where(small, x, 1.0)))))
    return mnp.where(small, near, mnp.log1p(mnp.negative(mnp.exp(mnp.negative(mnp.where(small, 1.0, x))))))


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function of x; `approximate` by tanh (arXiv 1606.08415)."""
    x = normalizing.floated(x)
    if approximate:
        inner = np.sqrt(2 / np.pi).item() * (x + 0.044715 * (x**3))
        return exactly(x * (0.5 * (1.0 + mnp.tanh(inner))), dtype_of(x), False)
    return exactly(x * apply("erfc", -x * np.sqrt(0.5).item()) / 2, dtype_of(x), False)


def glu(x: Any, axis: int = -1) -> Any:
    """The first half of a dim, gated by the second."""
    left, right = mnp.split(x, 2, axis)
    return left * sigmoid(right)


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """log(mean(exp(x))) without overflow."""
    ones = np.ones((), np.bool_) if where is None else where
    count = mnp.sum(mnp.broadcast_to(ones, shape_of(x)), axis=axis, keepdims=keepdims)
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    return total - cast(mnp.log(count), dtype_of(total))


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Any:
    """1 where the class number is x, 0 elsewhere; numbers out of range give zeros."""
    x = asarray(x)
    rank = len(shape_of(x)) + 1
    axis = normal_axis(axis, rank)
    (count,) = shape_tuple((num_classes,))
    classes = bind(
        ops("iota"), dtype=np.dtype(np.int32), shape=tuple(count if d == axis else 1 for d in range(rank)), dimension=axis
    )
    return cast(mnp.equal(mnp.expand_dims(x, axis), classes), np.float64 if dtype is None else dtype)


_composed(globals(), "mish softplus log_sigmoid log1mexp logmeanexp")
_quicken(__name__)
_explain(__name__)
