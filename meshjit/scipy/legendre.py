"""Associated Legendre functions and spherical harmonics: `lpmn`, `lpmn_values`, `sph_harm_y` of `jax.scipy.special`."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.numpy.promote import asarray, dtype_of, shape_of
from meshjit.runtime.composed import composed
from meshjit.scipy.operands import floats
from meshjit.trace import line_of, user_source


def lpmn(m: int, n: int, z: Any) -> tuple[Any, Any]:
    """The functions P(order, degree, point) of all orders and degrees from 0 to n at points z in [-1, 1], and their derivatives.

    z: f32[points] or f64[points]; both results are [n + 1, n + 1, points] of its dtype, 0 where the order exceeds the degree.
    NotImplementedError where m, the greatest order, is not n. Source: jax.scipy.special.lpmn, which JAX has deprecated.
    """
    top, z = _checked("lpmn", m, n, z)
    return _table(top, z, False)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Any:
    """The functions alone; with `is_normalized` multiplied by what makes spherical harmonics orthonormal."""
    top, z = _checked("lpmn_values", m, n, z)
    return _table(top, z, is_normalized)[0]


def _checked(name: str, m: Any, n: Any, z: Any) -> tuple[int, Any]:
    top, z = operator.index(n), asarray(z)
    at = f"\n  at {line_of(user_source())}"
    if operator.index(m) != top:
        raise NotImplementedError(f"{name}: the greatest order {m} is not the greatest degree {n}{at}\n  fix: m=n, and a slice")
    if dtype_of(z) not in (np.float32, np.float64):
        raise TypeError(f"{name}: z is {dtype_of(z)}; it is float32 or float64{at}\n  fix: z.astype(float)")
    if len(shape_of(z)) != 1:
        raise ValueError(f"{name}: z has {len(shape_of(z))} dims; points have one{at}\n  fix: z.ravel()")
    return top, z


def _table(top: int, z: Any, normalized: bool) -> tuple[Any, Any]:
    """[order, degree, point], and the derivatives, degree after degree (DLMF 14.10.3)."""
    order = np.arange(top + 1)[:, None].astype(dtype_of(z))
    first, slope = _first(order, z, normalized)
    zero = mnp.zeros_like(first)

    def rise(state: Any, degree: Any) -> Any:
        before, here, slope_before, slope_here = state
        a, b = _factors(degree, order, normalized)
        new = a * z * here - b * before
        new_slope = a * (here + z * slope_here) - b * slope_before
        is_first, is_below = order == degree, order < degree
        value = mnp.where(is_first, first, mnp.where(is_below, new, 0))
        steep = mnp.where(is_first, slope, mnp.where(is_below, new_slope, 0))
        return (here, value, slope_here, steep), (value, steep)

    degrees = mnp.arange(top + 1, dtype=z.dtype)
    _, (values, slopes) = lax.scan(rise, (zero, zero, zero, zero), degrees)
    sign = mnp.where((z < 0) & (degrees[:, None, None] % 2 == 1), -np.inf, np.inf)
    vertical = (order == 1) & (degrees[:, None, None] >= 1) & (mnp.abs(z) == 1)
    slopes = mnp.where(vertical, sign, slopes)
    return mnp.swapaxes(values, 0, 1), mnp.swapaxes(slopes, 0, 1)


def _first(order: Any, z: Any, normalized: bool) -> tuple[Any, Any]:
    """Of each order the function whose degree is the order, and its derivative."""
    steps = np.maximum(order[:, 0].astype(float), 0.5)
    grow = np.sqrt((2 * steps + 1) / (2 * steps)) if normalized else 2 * steps - 1
    grow[0] = math.sqrt(0.25 / math.pi) if normalized else 1
    with np.errstate(over="ignore"):  # of many orders, where it is not normalized
        factor = mnp.asarray(((-1.0) ** order) * np.cumprod(grow)[:, None], z.dtype)
    sine = mnp.sqrt((1 - z) * (1 + z))
    power = mnp.where(order == 1, 1 / sine, sine ** np.maximum(order - 2, 0))
    return factor * sine**order, -factor * order * z * power


def _factors(degree: Any, order: Any, normalized: bool) -> tuple[Any, Any]:
    """Those of z times the function one degree below, and of the one two degrees below."""
    below = order < degree
    if not normalized:
        span = mnp.where(below, degree - order, 1)
        return (2 * degree - 1) / span, (degree + order - 1) / span
    a = mnp.sqrt(mnp.maximum(4 * degree**2 - 1, 0) / mnp.where(below, degree**2 - order**2, 1))
    rest = mnp.where(order < degree - 1, (degree - 1) ** 2 - order**2, 0)
    return a, a * mnp.sqrt(rest / mnp.where(degree > 1, 4 * (degree - 1) ** 2 - 1, 1))


# -- spherical harmonics


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Any:
    """The spherical harmonic of degree n and order m at the polar angle theta and the azimuth phi, complex.

    n_max: the greatest degree, a Python integer, which jit needs to be told; greater degrees count as n_max.
    NotImplementedError for diff_n, as in JAX."""
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y: diff_n is not there\n  fix: jvp by theta and phi")
    top = int(mnp.max(n)) if n_max is None else operator.index(n_max)
    theta, phi = floats(mnp.atleast_1d(theta), phi)
    degree, order = mnp.minimum(mnp.asarray(n), top), mnp.asarray(m)
    degree, size = (mnp.broadcast_to(x, np.broadcast_shapes(x.shape, theta.shape)) for x in (degree, mnp.abs(order)))
    value = _legendre(degree, size, mnp.cos(theta), mnp.sin(theta), top)
    angle = size * phi
    harmonic = lax.complex(value * mnp.cos(angle), value * mnp.sin(angle))
    return mnp.where(order < 0, mnp.where(size % 2 == 0, 1, -1) * mnp.conj(harmonic), harmonic)


def _legendre(degree: Any, order: Any, cosine: Any, sine: Any, top: int) -> Any:
    """Associated Legendre functions of order ≥ 0, with the factor that makes spherical harmonics orthonormal."""
    dtype = cosine.dtype
    m = order.astype(dtype)

    def diagonal(i: Any, value: Any) -> Any:
        l = mnp.asarray(i + 1).astype(dtype)  # noqa: E741 - a degree
        return mnp.where(l <= m, -mnp.sqrt((2 * l + 1) / (2 * l)) * sine * value, value)

    def rise(i: Any, state: Any) -> Any:
        before, here = state
        l = mnp.asarray(i + 1).astype(dtype)  # noqa: E741 - a degree
        above = l > m
        a = mnp.sqrt((4 * l * l - 1) / mnp.where(above, l * l - m * m, 1))
        b = mnp.sqrt(mnp.where(above & (l - 1 > m), (l - 1) ** 2 - m * m, 1) / mnp.where(l > 1, 4 * (l - 1) ** 2 - 1, 1))
        new = a * (cosine * here - mnp.where(l - 1 > m, b, 0) * before)
        go = above & (l <= degree)
        return mnp.where(go, here, before), mnp.where(go, new, here)

    first = mnp.full(np.broadcast_shapes(m.shape, cosine.shape), math.sqrt(0.25 / math.pi), dtype)
    start = lax.fori_loop(0, top, diagonal, first)
    return lax.fori_loop(0, top, rise, (mnp.zeros_like(start), start))[1]


composed(globals())
