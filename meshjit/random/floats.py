"""Floating-point distributions. Each is one compiled computation of the key; bits are JAX's, floats to the last ulp."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from meshjit import numpy as mnp
from meshjit.api import jit
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import is_float, is_inexact
from meshjit.numpy.arguments import as_dtype, shape_tuple
from meshjit.numpy.promote import broadcast_shapes, broadcast_to, cast, dtype_of, ops, shape_of, value
from meshjit.random.keys import single
from meshjit.random.threefry import Shape, random_bits, split_data
from meshjit.trace import bind, line_of, user_source

compiled = functools.partial(jit, static_argnames=("shape", "dtype", "partitionable"))
compiled_with_mode = functools.partial(jit, static_argnames=("shape", "dtype", "partitionable", "mode"))


def float_dtype(dtype: Any, function: str, complexes: bool = False) -> np.dtype[Any]:
    """The canonical dtype of a `dtype` argument; None is the default float. ValueError for what is no float."""
    kind = canonical(as_dtype(np.float64 if dtype is None else dtype), config.enable_x64)
    if not (is_inexact(kind) if complexes else is_float(kind)):
        expected = "a float or complex" if complexes else "a float"
        raise ValueError(f"random.{function}: dtype must be {expected} dtype, got {kind}\n  at {line_of(user_source())}")
    return kind


def common_shape(shape: Any, shapes: list[Shape], function: str) -> Shape:
    """The result's shape: `shape`, which must hold the parameters', or that which they broadcast to."""
    together = broadcast_shapes(*shapes)
    if shape is None:
        return together
    shape = shape_tuple(shape)
    if broadcast_shapes(shape, together) != shape:
        raise ValueError(
            f"random.{function}: shape {shape} does not hold parameters of shape {together}\n  at {line_of(user_source())}"
        )
    return shape


def options(shape: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The static arguments of every compiled distribution."""
    return {"shape": shape_tuple(shape), "dtype": dtype, "partitionable": config.threefry_partitionable}


# -- uniform, from which all others are made


def unit_floats(data: Any, shape: Shape, dtype: np.dtype[Any], partitionable: bool) -> Any:
    """Floats in [0, 1): random mantissas under the exponent of 1, less 1. Floats of few bits are made of 8."""
    info = ml_dtypes.finfo(dtype)
    width = info.bits if info.nmant >= 8 else 8
    holder = np.dtype(f"uint{info.bits}")
    words = cast(random_bits(data, width, shape, partitionable), holder)
    mantissa = bind(ops("shift_right_logical"), words, broadcast_to(np.asarray(width - info.nmant, holder), shape))
    one = np.ones((), dtype)
    floats = bind(ops("bitcast_convert"), mnp.bitwise_or(mantissa, one.view(holder)), dtype=dtype)
    return mnp.subtract(floats, one)


def scaled(floats: Any, low: Any, high: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Floats in [0, 1) stretched over [low, high); never below `low`, however the sum is rounded."""
    low, high = cast(low, dtype), cast(high, dtype)
    return mnp.maximum(low, broadcast_to(mnp.add(mnp.multiply(floats, mnp.subtract(high, low)), low), shape))


@compiled
def _uniform(data: Any, low: Any, high: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    low, high = (default if bound is None else bound for bound, default in ((low, 0), (high, 1)))
    return scaled(unit_floats(data, shape, dtype, partitionable), low, high, shape, dtype)


@takes_out_sharding
def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Floats in [minval, maxval), which broadcast to `shape`. Source: jax.random.uniform.

    dtype: a float dtype, float32 by default (float64 under enable_x64); ValueError for others.
    """
    data, dtype = single(key, "uniform"), float_dtype(dtype, "uniform")
    settings = options(shape, dtype)
    if isinstance(minval, float | int) and isinstance(maxval, float | int) and (minval, maxval) == (0, 1):
        return _uniform(data, None, None, **settings)  # known numbers need not be sent to the devices
    common_shape(settings["shape"], [shape_of(minval), shape_of(maxval)], "uniform")
    return _uniform(data, minval, maxval, **settings)


@functools.partial(jit, static_argnames=("width", "shape", "partitionable"))
def _bits(data: Any, *, width: int, shape: Shape, partitionable: bool) -> Any:
    return random_bits(data, width, shape, partitionable)


@takes_out_sharding
def bits(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Random words: uint8, uint16, uint32 (the default) or uint64. Source: jax.random.bits."""
    data = single(key, "bits")
    dtype = canonical(np.dtype(np.uint64 if dtype is None else dtype), config.enable_x64)
    if dtype.kind != "u":
        raise ValueError(
            f"random.bits: dtype must be an unsigned integer dtype, got {dtype}\n  at {line_of(user_source())}"
        )
    form = config.threefry_partitionable
    return _bits(data, width=8 * dtype.itemsize, shape=shape_tuple(shape), partitionable=form)


# -- normal


def _root2(dtype: np.dtype[Any]) -> Any:
    return np.sqrt(2).astype(dtype)


def erf_inv(x: Any) -> Any:
    return bind(ops("erf_inv"), x)


def normal_floats(data: Any, shape: Shape, dtype: np.dtype[Any], partitionable: bool) -> Any:
    """The inverse of the error function at uniform floats in (-1, 1)."""
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    floats = scaled(unit_floats(data, shape, dtype, partitionable), low, np.ones((), dtype), shape, dtype)
    return mnp.multiply(_root2(dtype), erf_inv(floats))


@compiled
def _normal(data: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    if dtype.kind != "c":
        return normal_floats(data, shape, dtype, partitionable)
    part = np.zeros((), dtype).real.dtype
    keys = split_data(data, (2,), partitionable)
    real, imag = (cast(normal_floats(keys[i], shape, part, partitionable), dtype) for i in range(2))
    return mnp.divide(mnp.add(real, mnp.multiply(np.asarray(1j, dtype), imag)), _root2(dtype))


@takes_out_sharding
def normal(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Standard normal numbers; complex ones have variance 1 in all. Source: jax.random.normal."""
    data, dtype = single(key, "normal"), float_dtype(dtype, "normal", complexes=True)
    return _normal(data, **options(shape, dtype))


@compiled
def _truncated(data: Any, lower: Any, upper: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
    lower, upper = cast(lower, dtype), cast(upper, dtype)
    low, high = (bind(ops("erf"), mnp.divide(x, _root2(dtype))) for x in (lower, upper))
    floats = scaled(unit_floats(data, shape, dtype, partitionable), low, high, shape, dtype)
    drawn = mnp.multiply(_root2(dtype), erf_inv(floats))
    lower, upper = (bind(ops("stop_gradient"), x) for x in (lower, upper))
    return mnp.minimum(next_float(upper, down=True), mnp.maximum(next_float(lower, down=False), drawn))


def next_float(x: Any, down: bool) -> Any:
    """The next float below or above; infinities in that direction, and nan, stay."""
    dtype = dtype_of(x)
    whole = np.dtype(f"int{8 * dtype.itemsize}")
    words = bind(ops("bitcast_convert"), x, dtype=whole)
    away = mnp.less(x, np.zeros((), dtype)) if down else mnp.greater_equal(x, np.zeros((), dtype))
    moved = mnp.add(words, mnp.where(away, np.ones((), whole), np.full((), -1, whole)))
    moved = bind(ops("bitcast_convert"), moved, dtype=dtype)
    least = np.nextafter(np.zeros((), dtype), np.asarray(-1 if down else 1, dtype))
    moved = mnp.where(mnp.equal(x, np.zeros((), dtype)), least, moved)
    return mnp.where(mnp.equal(x, np.asarray(-np.inf if down else np.inf, dtype)), x, moved)


@takes_out_sharding
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Standard normal numbers in (lower, upper); shape None: that of the bounds. Source: jax.random.truncated_normal."""
    data, dtype = single(key, "truncated_normal"), float_dtype(dtype, "truncated_normal")
    shape = common_shape(shape, [shape_of(lower), shape_of(upper)], "truncated_normal")
    return _truncated(data, lower, upper, **options(shape, dtype))


# -- made of logarithms


def _simple(name: str, law: Any, doc: str) -> Any:
    """A distribution of (key, shape, dtype): `law(data, shape, dtype, partitionable)`."""

    @compiled
    def run(data: Any, *, shape: Shape, dtype: Any, partitionable: bool) -> Any:
        return law(data, shape, dtype, partitionable)

    @takes_out_sharding
    def distribution(key: Any, shape: Any = (), dtype: Any = None) -> Any:
        return run(single(key, name), **options(shape, float_dtype(dtype, name)))

    distribution.__name__ = distribution.__qualname__ = name
    distribution.__doc__ = f"{doc} Source: jax.random.{name}."
    return distribution


def _between(low: Any) -> Any:
    """Uniform floats in [low(finfo), 1)."""

    def floats(data: Any, shape: Shape, dtype: np.dtype[Any], partitionable: bool) -> Any:
        start = np.asarray(low(ml_dtypes.finfo(dtype)), dtype)
        return scaled(unit_floats(data, shape, dtype, partitionable), start, np.ones((), dtype), shape, dtype)

    return floats


_from_zero = _between(lambda info: 0)
_from_tiny = _between(lambda info: info.tiny)
_from_minus_one = _between(lambda info: -1 + info.epsneg)
_from_epsilon = _between(lambda info: info.eps)


def _laplace(*call: Any) -> Any:
    floats = _from_minus_one(*call)
    return mnp.multiply(mnp.sign(floats), mnp.log1p(mnp.negative(mnp.absolute(floats))))


def _logistic(*call: Any) -> Any:
    floats = _from_tiny(*call)
    return mnp.subtract(mnp.log(floats), mnp.log1p(mnp.negative(floats)))


def _cauchy(*call: Any) -> Any:
    floats = _from_epsilon(*call)
    dtype = dtype_of(floats)
    return mnp.tan(mnp.multiply(np.asarray(np.pi, dtype), mnp.subtract(floats, np.asarray(0.5, dtype))))


exponential = _simple(
    "exponential",
    lambda *call: mnp.negative(mnp.log1p(mnp.negative(_from_zero(*call)))),
    "Exponential numbers of mean 1.",
)
laplace = _simple("laplace", _laplace, "Laplace numbers: exponential ones with a random sign.")
logistic = _simple("logistic", _logistic, "Logistic numbers.")
cauchy = _simple("cauchy", _cauchy, "Cauchy numbers.")


@compiled_with_mode
def gumbel_floats(data: Any, *, shape: Shape, dtype: Any, partitionable: bool, mode: str) -> Any:
    """-mnp.log(-mnp.log(u)). "high" draws twice as many bits, which the largest numbers need."""
    if mode == "low":
        return mnp.negative(mnp.log(mnp.negative(mnp.log(_from_tiny(data, shape, dtype, partitionable)))))
    both = _from_zero(data, (2, *shape), dtype, partitionable)
    info = ml_dtypes.finfo(dtype)
    high, low = both[0], both[1]
    finer = mnp.add(mnp.add(high, mnp.multiply(np.asarray(info.eps, dtype), low)), np.asarray(info.tiny, dtype))
    floats = mnp.where(mnp.greater_equal(high, np.asarray(0.5, dtype)), high, finer)
    return mnp.negative(mnp.log(mnp.negative(mnp.log1p(mnp.negative(floats)))))


def check_mode(mode: str | None, function: str) -> str:
    if mode not in (None, "low", "high"):
        raise ValueError(f'random.{function}: mode must be "low" or "high", got {mode!r}')
    return mode or ("high" if config.high_dynamic_range_gumbel else "low")


@takes_out_sharding
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Any:
    """Gumbel numbers; mode "high" spends twice the bits on large ones. Source: jax.random.gumbel."""
    data, dtype = single(key, "gumbel"), float_dtype(dtype, "gumbel")
    return gumbel_floats(data, **options(shape, dtype), mode=check_mode(mode, "gumbel"))


# -- coins


@compiled_with_mode
def _bernoulli(data: Any, p: Any, *, shape: Shape, dtype: Any, partitionable: bool, mode: str) -> Any:
    p = cast(p, dtype)
    if mode == "low":
        return mnp.less(_from_zero(data, shape, dtype, partitionable), p)
    both = _from_zero(data, (2, *shape), dtype, partitionable)
    return mnp.less(mnp.multiply(both[1], np.asarray(ml_dtypes.finfo(dtype).eps, dtype)), mnp.subtract(p, both[0]))


@takes_out_sharding
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Any:
    """True with probability `p`, which broadcasts to `shape` (None: that of `p`). Source: jax.random.bernoulli.

    mode: "high" compares twice the bits, for very small `p`.
    """
    data, (_, type, weak) = single(key, "bernoulli"), value(p, "p of random.bernoulli")
    dtype = float_dtype(None if weak else type.dtype, "bernoulli")
    shape = common_shape(shape, [type.shape], "bernoulli")
    return _bernoulli(data, p, **options(shape, dtype), mode=check_mode(mode, "bernoulli"))


@takes_out_sharding
def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """1 or -1 with equal probability; dtype int32 by default. Source: jax.random.rademacher."""
    heads = bernoulli(key, 0.5, shape_tuple(shape))
    dtype = canonical(np.dtype(np.int64 if dtype is None else dtype), config.enable_x64)
    if dtype == np.bool_:
        raise TypeError(
            f"rademacher: bool has no -1, so that all would be True\n  at {line_of(user_source())}\n"
            "  fix: bernoulli(key, 0.5, shape)"
        )
    return mnp.subtract(mnp.multiply(np.asarray(2, dtype), cast(heads, dtype)), np.asarray(1, dtype))
