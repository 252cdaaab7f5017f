"""Gamma-distributed numbers and what is made of them: beta, chi-squared, F, Student's t, Dirichlet, generalized normal, ball."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.core.keys import PRNGKeyArray
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.promote import ops, shape_of
from meshjit.random.floats import common_shape, compiled, float_dtype, normal_floats, options
from meshjit.random.gamma_draws import gamma_of_keys
from meshjit.random.keys import single
from meshjit.random.laws import drawn, exponential_floats, parts, signs, spread_over
from meshjit.random.threefry import Shape, hashed, original_words, positions
from meshjit.trace import bind, line_of, user_source


def gamma_floats(data: Any, a: Any, shape: Shape, dtype: Any, partitionable: bool, log_space: bool) -> Any:
    """Every element draws by a key of its own, which the key is split into.

    The keys are there before the draws begin: where XLA (of jaxlib 0.12, on CPU) fuses the two, it compiles for minutes."""
    if isinstance(data, PRNGKeyArray):
        alphas = mnp.reshape(spread_over(shape, dtype, a)[0], (1, -1))
        draws = gamma_of_keys(data.dtype, partitionable, log_space)
        return mnp.reshape(draws(data.words[None], alphas), shape)
    words = bind(ops("optimization_barrier"), *_element_keys(data, shape, partitionable))
    how = {"log_space": log_space, "partitionable": partitionable}
    return mnp.asarray(bind(ops("random_gamma"), *words, *spread_over(shape, dtype, a), **how))


def two_gammas(data: Any, parameters: Any, shape: Shape, dtype: Any, partitionable: bool) -> list[Any]:
    """Logarithms, of one key and parameter each: drawn as one array, since a loop is what takes long to compile."""
    keys = parts(data, 2, partitionable)
    if isinstance(data, PRNGKeyArray):
        return [gamma_floats(k, a, shape, dtype, partitionable, True) for k, a in zip(keys, parameters, strict=True)]
    pairs = zip(*(_element_keys(k, shape, partitionable) for k in keys), strict=True)
    words = bind(ops("optimization_barrier"), *(mnp.stack(pair) for pair in pairs))
    a = mnp.stack(spread_over(shape, dtype, *parameters))
    both = mnp.asarray(bind(ops("random_gamma"), *words, a, log_space=True, partitionable=partitionable))
    return [both[0], both[1]]


def _element_keys(data: Any, shape: Shape, partitionable: bool) -> tuple[Any, Any]:
    """u32[*shape] twice: the two words of each key."""
    if partitionable:
        return hashed(data, *positions(shape), shape)
    size = math.prod(shape)
    words = mnp.reshape(original_words(data, 2 * size), (size, 2))
    return mnp.reshape(words[:, 0], shape), mnp.reshape(words[:, 1], shape)


@compiled
def _gamma(data: Any, a: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return gamma_floats(data, a, shape, dtype, partitionable, False)


@takes_out_sharding
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Gamma-distributed numbers of shape parameter `a` and scale 1, differentiable by `a`. Source: jax.random.gamma."""
    return drawn(_gamma, "gamma", key, [a], shape, dtype)


@compiled
def _loggamma(data: Any, a: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return gamma_floats(data, a, shape, dtype, partitionable, True)


@takes_out_sharding
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Logarithms of gamma-distributed numbers, precise for a small `a`. Source: jax.random.loggamma."""
    return drawn(_loggamma, "loggamma", key, [a], shape, dtype)


@compiled
def _beta(data: Any, a: Any, b: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    logs = two_gammas(data, (a, b), shape, dtype, partitionable)
    largest = mnp.maximum(*logs)
    first, second = (mnp.exp(x - largest) for x in logs)
    return first / (first + second)


@takes_out_sharding
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Beta-distributed numbers in (0, 1). Source: jax.random.beta."""
    return drawn(_beta, "beta", key, [a, b], shape, dtype)


def _chi_squared(data: Any, df: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    (df,) = spread_over(shape, dtype, df)
    return 2 * mnp.exp(gamma_floats(data, df / 2, shape, dtype, partitionable, True))


@compiled
def _chisquare(data: Any, df: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return _chi_squared(data, df, shape, dtype, partitionable)


@takes_out_sharding
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Chi-squared numbers of `df` degrees of freedom. Source: jax.random.chisquare."""
    return drawn(_chisquare, "chisquare", key, [df], shape, dtype)


@compiled
def _f(data: Any, dfnum: Any, dfden: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    dfnum, dfden = spread_over(shape, dtype, dfnum, dfden)
    below, above = two_gammas(data, (dfden / 2, dfnum / 2), shape, dtype, partitionable)
    return (2 * mnp.exp(above) / dfnum) / (2 * mnp.exp(below) / dfden)


@takes_out_sharding
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Any:
    """F-distributed numbers: the ratio of two chi-squared ones, each over its degrees of freedom. Source: jax.random.f."""
    return drawn(_f, "f", key, [dfnum, dfden], shape, dtype)


@compiled
def _t(data: Any, df: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    first, second = parts(data, 2, partitionable)
    half = spread_over(shape, dtype, df)[0] / 2
    normal = normal_floats(first, shape, dtype, partitionable)
    return normal * mnp.sqrt(half / gamma_floats(second, half, shape, dtype, partitionable, False))


@takes_out_sharding
def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Student's t-distributed numbers of `df` degrees of freedom. Source: jax.random.t."""
    return drawn(_t, "t", key, [df], shape, dtype)


@compiled
def _dirichlet(data: Any, alpha: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    logs = gamma_floats(data, alpha, (*shape, alpha.shape[-1]), dtype, partitionable, True)
    sizes = mnp.exp(logs - bind(ops("stop_gradient"), mnp.max(logs, -1, keepdims=True, initial=-np.inf)))
    return sizes / mnp.sum(sizes, -1, keepdims=True)


@takes_out_sharding
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Vectors of positive numbers whose sum is 1, f[*shape, n].

    alpha: f[..., n], whose leading dims broadcast to `shape`. ValueError for a scalar. Source: jax.random.dirichlet."""
    data, dtype, extents = single(key, "dirichlet"), float_dtype(dtype, "dirichlet"), shape_of(alpha)
    if not extents:
        raise ValueError(f"random.dirichlet: alpha must have a dim or more, is a scalar\n  at {line_of(user_source())}")
    return _dirichlet(data, mnp.asarray(alpha, dtype), **options(common_shape(shape, [extents[:-1]], "dirichlet"), dtype))


def _generalized(data: Any, p: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    first, second = parts(data, 2, partitionable)
    (power,) = spread_over(shape, dtype, 1 / mnp.asarray(p))
    size = gamma_floats(first, power, shape, dtype, partitionable, False) ** power
    return signs(second, shape, dtype, partitionable) * size


@compiled
def _generalized_normal(data: Any, p: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return _generalized(data, p, shape, dtype, partitionable)


@takes_out_sharding
def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Numbers of density proportional to exp(-|x|^p); of p = 2, normal ones of variance 1/2.

    Source: jax.random.generalized_normal."""
    data, dtype = single(key, "generalized_normal"), float_dtype(dtype, "generalized_normal")
    return _generalized_normal(data, p, **options(shape_tuple(shape), dtype))


@compiled
def _ball(data: Any, p: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    first, second = parts(data, 2, partitionable)
    directions = _generalized(first, p, shape, dtype, partitionable)
    more = exponential_floats(second, shape[:-1], dtype, partitionable)
    power, root = (mnp.asarray(x).astype(dtype) for x in (p, 1 / mnp.asarray(p)))
    return directions / ((mnp.abs(directions) ** power).sum(-1) + more)[..., None] ** root


@takes_out_sharding
def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Any:
    """Points in the unit ball of the p-norm in d dims, uniformly distributed, f[*shape, d]. Source: jax.random.ball."""
    data, dtype = single(key, "ball"), float_dtype(dtype, "ball")
    return _ball(data, p, **options((*shape_tuple(shape), operator.index(d)), dtype))
