"""Distributions that are a formula of uniform, normal or exponential numbers."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy.arguments import shape_tuple
from meshjit.random.floats import compiled, float_dtype, normal_floats, options
from meshjit.random.keys import single
from meshjit.random.laws import drawn, exponential_floats, parts, signs, spread_over, unit
from meshjit.random.threefry import Shape


@compiled
def _pareto(data: Any, b: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return mnp.exp(exponential_floats(data, shape, dtype, partitionable) / spread_over(shape, dtype, b)[0])


@takes_out_sharding
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Pareto numbers, at least 1, of density b / x^(b + 1). Source: jax.random.pareto."""
    return drawn(_pareto, "pareto", key, [b], shape, dtype)


@compiled
def _rayleigh(data: Any, scale: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    (scale,) = spread_over(shape, dtype, scale)
    return scale * mnp.sqrt(mnp.log(unit(data, shape, dtype, partitionable)) * -2)


@takes_out_sharding
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Lengths of vectors of two normal numbers of deviation `scale`. Source: jax.random.rayleigh."""
    return drawn(_rayleigh, "rayleigh", key, [scale], shape, dtype)


@compiled
def _wald(data: Any, mean: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    """Of the two roots of a quadratic equation in a squared normal number, by chance (Michael, Schucany and Haas 1976)."""
    first, second = parts(data, 2, partitionable)
    (mean,) = spread_over(shape, dtype, mean)
    square = mnp.square(mnp.asarray(normal_floats(first, shape, dtype, partitionable)))
    chance = unit(second, shape, dtype, partitionable)
    root = mnp.sqrt(4 * mean * square + mean**2 * mnp.square(square))
    small = mean + mean**2 * square / 2 - mean / 2 * root
    return mnp.where(chance <= mean / (mean + small), small, mean**2 / small)


@takes_out_sharding
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Wald (inverse Gaussian) numbers of this mean and scale 1. Source: jax.random.wald."""
    return drawn(_wald, "wald", key, [mean], shape, dtype)


@compiled
def _weibull_min(data: Any, scale: Any, concentration: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    scale, concentration = spread_over(shape, dtype, scale, concentration)
    return exponential_floats(data, shape, dtype, partitionable) ** (1 / concentration) * scale


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Weibull numbers: exponential ones to the power 1 / concentration, times scale. Source: jax.random.weibull_min."""
    return drawn(_weibull_min, "weibull_min", key, [scale, concentration], shape, dtype)


def _maxwell_floats(data: Any, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    normal = mnp.asarray(normal_floats(data, (*shape, 3), dtype, partitionable))
    return mnp.sqrt((normal * normal).sum(-1))


@compiled
def _maxwell(data: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return _maxwell_floats(data, shape, dtype, partitionable)


@takes_out_sharding
def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Lengths of vectors of three standard normal numbers. Source: jax.random.maxwell."""
    return _maxwell(single(key, "maxwell"), **options(shape_tuple(shape), float_dtype(dtype, "maxwell")))


@compiled
def _double_sided(data: Any, loc: Any, scale: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    first, second = parts(data, 2, partitionable)
    loc, scale = spread_over(shape, dtype, loc, scale)
    sides = signs(second, shape, dtype, partitionable)
    return sides * _maxwell_floats(first, shape, dtype, partitionable) * scale + loc


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Maxwell numbers with a random sign, times scale, plus loc. Source: jax.random.double_sided_maxwell."""
    return drawn(_double_sided, "double_sided_maxwell", key, [loc, scale], shape, dtype)


@compiled
def _triangular(data: Any, left: Any, mode: Any, right: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    left, mode, right = spread_over(shape, dtype, left, mode, right)
    u = unit(data, shape, dtype, partitionable)
    rising = left + mnp.sqrt(u * (right - left) * (mode - left))
    falling = right - mnp.sqrt((1 - u) * (right - left) * (right - mode))
    return mnp.where(u < (mode - left) / (right - left), rising, falling)


@takes_out_sharding
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Numbers in [left, right] whose density is a triangle with its top at `mode`. Source: jax.random.triangular."""
    return drawn(_triangular, "triangular", key, [left, mode, right], shape, dtype)


@compiled
def _lognormal(data: Any, sigma: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    return mnp.exp(normal_floats(data, shape, dtype, partitionable) * spread_over(shape, dtype, sigma)[0])


@takes_out_sharding
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Any:
    """exp of normal numbers of deviation `sigma`. Source: jax.random.lognormal."""
    return drawn(_lognormal, "lognormal", key, [sigma], shape, dtype)
