"""Counts: geometric, Poisson, binomial and multinomial numbers. The last three draw in loops until all elements accept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.api import jit
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.lax.carries import as_varying_as
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.promote import promoted, shape_of
from meshjit.random.floats import common_shape, compiled, float_dtype
from meshjit.random.keys import single
from meshjit.random.laws import drawn, parts, spread_over, unit
from meshjit.random.threefry import Shape, split_data

_MOST_TRIES = np.iinfo(np.int32).max


@compiled
def _geometric(data: Any, p: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    (p,) = spread_over(shape, _float_of(p), p)
    u = unit(data, shape, p.dtype, partitionable)
    return (mnp.floor(mnp.log(mnp.where(u == 0, 1, u)) / mnp.log1p(-p)) + 1).astype(dtype)


def _float_of(x: Any) -> np.dtype[Any]:
    return mnp.promote_types(mnp.asarray(x).dtype, mnp.float16) if _is_float(x) else float_dtype(None, "geometric")


def _is_float(x: Any) -> bool:
    return mnp.issubdtype(mnp.asarray(x).dtype, mnp.floating)


@takes_out_sharding
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many tries, each a success with probability `p`, the first success takes, itself included.

    dtype: an integer dtype, int32 by default (int64 under enable_x64). Source: jax.random.geometric."""
    return drawn(_geometric, "geometric", key, [p], shape, dtype, integer=True)


# -- Poisson


@compiled
def _poisson(data: Any, lam: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    (lam,) = spread_over(shape, np.float32, lam)
    small = mnp.isnan(lam) | (lam < 10)
    few = _by_products(data, mnp.where(small, lam, 0), dtype, partitionable)
    many = _by_rejection(data, mnp.where(small, 1e5, lam), dtype, partitionable)
    return mnp.where(lam == 0, 0, mnp.where(small, few, many))


def _by_products(data: Any, lam: Any, dtype: Any, partitionable: bool) -> Any:
    """How many uniform numbers have a product above exp(-lam) (Knuth)."""
    most = min(np.iinfo(dtype).max, _MOST_TRIES)

    def going(state: Any) -> Any:
        tries, _, _, product = state
        return (product > -lam).any() & (tries < most)

    def step(state: Any) -> Any:
        tries, count, data, product = state
        data, key = parts(data, 2, partitionable)
        count = mnp.where(product > -lam, count + 1, count)
        return tries + 1, count, data, product + mnp.log(unit(key, lam.shape, lam.dtype, partitionable))

    start = (mnp.int32(0), mnp.zeros(lam.shape, dtype), data, mnp.zeros_like(lam))
    return lax.while_loop(going, step, as_varying_as(start))[1] - 1


def _until_accepted(draw: Callable[..., tuple[Any, Any]], data: Any, like: Any, most: int, partitionable: bool) -> Any:
    """Of `draw(u, v) -> (numbers, which are accepted)`, u in [-1/2, 1/2), v in [0, 1), the first accepted number per element."""

    def going(state: Any) -> Any:
        tries, _, done, _ = state
        return ~done.all() & (tries < most)

    def step(state: Any) -> Any:
        tries, result, done, data = state
        data, first, second = parts(data, 3, partitionable)
        u, v = (unit(key, like.shape, like.dtype, partitionable) for key in (first, second))
        numbers, accepted = draw(u - 0.5, v)
        return tries + 1, mnp.where(accepted, numbers, result), done | accepted, data

    start = (mnp.int32(0), mnp.full_like(like, -1), mnp.zeros(like.shape, bool), data)
    return lax.while_loop(going, step, as_varying_as(start))[1]


def _by_rejection(data: Any, lam: Any, dtype: Any, partitionable: bool) -> Any:
    """Transformed rejection (Hörmann 1993, PTRS)."""
    b = 0.931 + 2.53 * mnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha, border = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def draw(u: Any, v: Any) -> tuple[Any, Any]:
        side = 0.5 - mnp.abs(u)
        k = mnp.floor((2 * a / side + b) * u + lam + 0.43)
        size = mnp.log(v * inverse_alpha / (a / (side * side) + b))
        fits = size <= -lam + k * mnp.log(lam) - lax.lgamma(k + 1)
        outside = (k < 0) | ((side < 0.013) & (v > side))
        return k, ((side >= 0.07) & (v <= border)) | (~outside & fits)

    most = min(np.iinfo(dtype).max, _MOST_TRIES)
    return _until_accepted(draw, data, lam, most, partitionable).astype(dtype)


@takes_out_sharding
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Poisson-distributed counts of mean `lam`; -1 where lam is negative or nan.

    dtype: an integer dtype, int32 by default (int64 under enable_x64). Source: jax.random.poisson."""
    return drawn(_poisson, "poisson", key, [lam], shape, dtype, integer=True)


# -- binomial

# log k! less Stirling's formula for it, for k = 0 … 9.
_STIRLING = [math.lgamma(k + 1) - (0.5 * math.log(2 * math.pi) + (k + 0.5) * math.log(k + 1) - (k + 1)) for k in range(10)]


def _stirling_tail(k: Any) -> Any:
    """What Stirling's formula lacks; for k above 9 what its series says of 9, as in JAX."""
    small, k = k <= 9, mnp.clip(k, 0, 9)
    square = (k + 1) * (k + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    exact = mnp.take(mnp.asarray(_STIRLING, k.dtype), mnp.floor(k).astype(mnp.int32), mode="clip")
    return mnp.where(small, exact, series)


def _by_gaps(data: Any, count: Any, p: Any, partitionable: bool) -> Any:
    """How many gaps between successes, geometric numbers, fit into `count` tries."""

    def going(state: Any) -> Any:
        return (state[1] <= count).any()

    def step(state: Any) -> Any:
        number, total, data = state
        key, data = parts(data, 2, partitionable)
        number = mnp.where(total <= count, number + 1, number)
        u = unit(key, count.shape, count.dtype, partitionable)
        return number, total + mnp.ceil(mnp.log(u) / mnp.log1p(-p)), data

    start = as_varying_as((mnp.zeros_like(count), mnp.zeros_like(count), data), p)
    return lax.while_loop(going, step, start)[0] - 1


def _by_transformed_rejection(data: Any, n: Any, p: Any, partitionable: bool) -> Any:
    """BTRS (Hörmann 1993)."""
    deviation = mnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a, c, border = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5, 0.92 - 4.2 / b
    odds, alpha, mode = p / (1 - p), (2.83 + 5.1 / b) * deviation, mnp.floor((n + 1) * p)

    def draw(u: Any, v: Any) -> tuple[Any, Any]:
        side = 0.5 - mnp.abs(u)
        k = mnp.floor((2 * a / side + b) * u + c)
        size = mnp.log(v * alpha / (a / (side * side) + b))
        fits = size <= _likelihood(n, odds, mode, k)
        return k, ((side >= 0.07) & (v <= border)) | (~((k < 0) | (k > n)) & fits)

    return _until_accepted(draw, data, n, _MOST_TRIES, partitionable)


def _likelihood(n: Any, odds: Any, mode: Any, k: Any) -> Any:
    """log of the probability of k over that of the mode."""
    terms = (mode + 0.5) * mnp.log((mode + 1) / (odds * (n - mode + 1)))
    terms = terms + (n + 1) * mnp.log((n - mode + 1) / (n - k + 1))
    terms = terms + (k + 0.5) * mnp.log(odds * (n - k + 1) / (k + 1))
    return terms + _stirling_tail(mode) + _stirling_tail(n - mode) - _stirling_tail(k) - _stirling_tail(n - k)


def binomial_floats(data: Any, n: Any, p: Any, partitionable: bool) -> Any:
    """Of `n` tries the successes; failures are counted where they are fewer."""
    rare = p < 0.5
    q = mnp.where(rare, p, 1 - p)
    no_count, no_chance = mnp.isnan(n) | (n < 0), mnp.isnan(q) | (q < 0)
    q = mnp.where(no_chance, 0.01, q)
    count, few = mnp.floor(n), no_count | (n * q <= 10)
    gaps = _by_gaps(data, mnp.where(few, count, 0), q, partitionable)
    rejection = _by_transformed_rejection(data, mnp.where(few, 1e4, count), mnp.where(few, 0.5, q), partitionable)
    result = mnp.where(no_count | no_chance, mnp.nan, mnp.where(few, gaps, rejection))
    result = mnp.where(mnp.isinf(n) & ~(no_count | no_chance), mnp.inf, result)
    return mnp.where(rare | no_count | no_chance | mnp.isinf(n), result, count - result)


@compiled
def _binomial(data: Any, n: Any, p: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    """In the dtype of n and p; only the result is of `dtype`."""
    n, p = spread_over(shape, None, *promoted(n, p, inexact=True)[0])
    return binomial_floats(data, n, p, partitionable).astype(dtype)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of `n` tries succeed, each with probability `p`, as floats; nan for a nan or a negative n.

    Source: jax.random.binomial."""
    return drawn(_binomial, "binomial", key, [n, p], shape, dtype)


@jit(static_argnames=("dtype", "partitionable", "unroll"))
def _multinomial(data: Any, n: Any, p: Any, *, dtype: Any, partitionable: bool, unroll: Any) -> Any:
    """Category after category, of what is left."""
    rest = mnp.flip(mnp.cumsum(mnp.flip(p, -1), -1), -1)
    chances = mnp.moveaxis(p / mnp.where(rest == 0, 1, rest), -1, 0)

    def step(left: Any, given: Any) -> Any:
        chance, key = given
        count = binomial_floats(key, left, mnp.clip(chance, 0, 1), partitionable)
        return left - count, count

    keys = split_data(data, (chances.shape[0],), partitionable)
    counts = lax.scan(step, as_varying_as(n, chances, keys), (chances, keys), unroll=unroll)[1]
    return mnp.moveaxis(counts, 0, -1).astype(dtype)


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1) -> Any:
    """How many of `n` tries fall into each of k categories, f[*shape] with k last.

    p: f[..., k], the categories' probabilities; n broadcasts to what is before them. Source: jax.random.multinomial."""
    data, dtype = single(key, "multinomial"), float_dtype(dtype, "multinomial")
    extents = shape_of(p)
    whole = common_shape(None if shape is None else shape_tuple(shape), [extents, (*shape_of(n), 1)], "multinomial")
    n, p = promoted(n, p, inexact=True)[0]
    n, p = spread_over(whole[:-1], None, n)[0], spread_over(whole, None, p)[0]
    return _multinomial(data, n, p, dtype=dtype, partitionable=config.threefry_partitionable, unroll=unroll)
