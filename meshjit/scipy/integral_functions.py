"""Functions of `jax.scipy.special` that are integrals: exponential, sine and cosine integrals, the dilogarithm, Owen's T."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.custom_derivatives import custom_jvp
from meshjit.runtime.composed import as_one, composed
from meshjit.scipy.faddeeva import horner, real_operand, widened
from meshjit.scipy.operands import floats
from meshjit.scipy.special import digamma, gammaln, ndtr

_FRACTION = 90  # terms of the continued fraction: to 1e-16 where |z| is 1, and 2 on the imaginary axis
_SERIES = 24  # terms of the series below 2: 2^24 / 24! is 3e-17


def _fraction(order: Any, z: Any) -> Any:
    """exp(z) E_n(z) by its continued fraction (DLMF 8.19.17, contracted), where |z| is at least 1."""

    def up(i: Any, rest: Any) -> Any:
        k = (_FRACTION - i).astype(z.real.dtype)
        return z + order + 2 * (k - 1) - k * (order + k - 1) / rest

    return 1 / lax.fori_loop(0, _FRACTION, up, z + order + 2 * _FRACTION)


def _expn_series(n: Any, x: Any) -> Any:
    """E_n(x) for whole n from 1 on and x up to 1 (DLMF 8.19.8)."""
    log = mnp.exp((n - 1) * mnp.log(x) - gammaln(n)) * mnp.where(n % 2 == 1, 1, -1)
    total = mnp.where(n == 1, 1, log) * (digamma(n) - mnp.log(x))

    def add(m: Any, state: Any) -> Any:
        total, term = state
        m = m.astype(x.dtype)
        return total - mnp.where(m == n - 1, 0, term / mnp.where(m == n - 1, 1, m - n + 1)), term * -x / (m + 1)

    return lax.fori_loop(0, _SERIES, add, (total, mnp.ones_like(x)))[0]


@widened
def _expn(n: Any, x: Any) -> Any:
    small = x <= 1
    inner, outer = mnp.where(small & (x > 0), x, 0.5), mnp.where(small, 2, x)
    orders = mnp.maximum(n, 1)
    value = mnp.where(small, _expn_series(orders, inner), mnp.exp(-outer) * _fraction(orders, outer))
    value = mnp.where(n == 0, mnp.exp(-x) / x, value)
    value = mnp.where(x == 0, mnp.where(n > 1, 1 / mnp.where(n > 1, n - 1, 1), np.inf), value)
    value = mnp.where(x == np.inf, 0, value)
    fraction = small & (n != mnp.floor(n))  # which the series is not for
    return mnp.where((x < 0) | (n < 0) | mnp.isnan(x) | fraction, np.nan, value)


@custom_jvp
@as_one
def expn(n: Any, x: Any) -> Any:
    """The exponential integral E_n(x) = ∫ exp(-x t) / t^n dt from 1 on, n a whole number from 0 on; differentiable by x."""
    return _expn(*floats(n, real_operand(x)))


def _order_below(y: Any, n: Any, x: Any) -> Any:
    """E_(n-1), which the recurrence gives for n below 1, where y is E_n."""
    n = mnp.asarray(n)
    elementary = (mnp.exp(-x) - (n - 1) * y) / x
    return mnp.where(n >= 1, expn(mnp.maximum(n - 1, 0), x), elementary)


expn.defjvps(None, lambda t, y, n, x: -t * _order_below(y, n, x))


def exp1(x: Any) -> Any:
    """The exponential integral E₁(x) = ∫ exp(-t) / t dt from x on; nan where x is negative."""
    return expn(1, x)


_EXPI_BORDER = 40  # beyond, the least term of the asymptotic series is below 1e-16


@widened
def _expi(x: Any) -> Any:
    inner = mnp.where((x > 0) & (x <= _EXPI_BORDER), x, 1)
    outer = mnp.where(x > _EXPI_BORDER, x, 50)

    def add(k: Any, state: Any) -> Any:
        total, term = state
        term = term * inner / (k + 1).astype(x.dtype)
        return total + term / (k + 1).astype(x.dtype), term

    zero = mnp.zeros_like(inner)
    series = np.euler_gamma + mnp.log(inner) + lax.fori_loop(0, 150, add, (zero, zero + 1))[0]
    far = horner([float(math.factorial(k)) for k in range(30 if x.dtype == np.float64 else 15, -1, -1)], 1 / outer)
    half = mnp.exp(outer / 2)
    value = mnp.where(x > _EXPI_BORDER, half * (far / outer) * half, series)
    negative = -exp1(mnp.where(x < 0, -x, 1))
    value = mnp.where(x < 0, negative, mnp.where(x == 0, -np.inf, value))
    return mnp.where(mnp.isnan(x), np.nan, mnp.where(x == np.inf, np.inf, value))


@custom_jvp
@as_one
def expi(x: Any) -> Any:
    """The exponential integral Ei(x): that of exp(t) / t from -inf to x, the principal value across 0."""
    return _expi(real_operand(x))


expi.defjvps(lambda t, y, x: t * mnp.exp(x) / x)

_SINE = [(-1.0) ** k / ((2 * k + 1) * math.factorial(2 * k + 1)) for k in range(15, -1, -1)]
_COSINE = [*((-1.0) ** k / (2 * k * math.factorial(2 * k)) for k in range(15, 0, -1)), 0.0]


@widened
def _sici(x: Any) -> Any:
    size = mnp.abs(x)
    small, far = size < 2, size > 1e9
    inner, outer = mnp.where(small, size, 1), mnp.where(small | far, 3, size)
    squared = inner * inner
    ix = 1j * outer
    rest = _fraction(1, ix) * (mnp.cos(outer) - 1j * mnp.sin(outer))
    sine = mnp.where(small, inner * horner(_SINE, squared), mnp.where(far, 0, rest.imag) + math.pi / 2)
    cosine = np.euler_gamma + mnp.log(inner) + horner(_COSINE, squared)
    cosine = mnp.where(small, cosine, mnp.where(far, mnp.sin(size) / size, -rest.real))
    cosine = mnp.where(size == np.inf, 0, cosine)
    cosine = mnp.where(x == -np.inf, np.nan, cosine)
    return tuple(mnp.where(mnp.isnan(x), np.nan, v) for v in (mnp.copysign(sine, x), cosine))


@custom_jvp
@as_one
def sici(x: Any) -> tuple[Any, Any]:
    """The sine integral Si(x) and the cosine integral Ci(x), for negative x that of -x."""
    return _sici(real_operand(x))


@sici.defjvp
def _sici_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return sici(x), (t * mnp.sinc(x / math.pi), t * mnp.cos(x) / x)


# B_2k / (2k + 1)! for k = 9, 8, ... 1: the dilogarithm's series in u = -log(1 - z)
_DILOGARITHM = (
    4.518980029619918e-16, -1.9939295860721074e-14, 8.921691020456453e-13, -4.0647616451442256e-11, 1.8978869988971e-09,
    -9.185773074661964e-08, 4.72411186696901e-06, -0.0002777777777777778, 1 / 36,
)  # fmt: skip


@widened
def _spence(x: Any) -> Any:
    large = x > 2
    y = mnp.where(large, 1 / mnp.where(large, x, 1), x)
    small = y < 0.5
    near = mnp.where(small, 1 - y, y)  # from 1/2 to 2
    u = 0 - mnp.log(mnp.where(near > 0, near, 1))
    series = u - u * u / 4 + u * u * u * horner(_DILOGARITHM, u * u)
    product = mnp.log(mnp.where(y > 0, y, 1)) * mnp.log1p(-mnp.where(small, y, 0))
    value = mnp.where(small, math.pi**2 / 6 - product - series, series)
    log = mnp.log(mnp.where(large, x, 1))
    value = mnp.where(large, -log * log / 2 - value, value)
    return mnp.where((x >= 0) & (x < np.inf), value, np.nan)


@custom_jvp
@as_one
def spence(x: Any) -> Any:
    """The dilogarithm of 1 - x: ∫ log t / (1 - t) dt from 1 to x; nan where x is negative or inf."""
    return _spence(real_operand(x))


spence.defjvps(lambda t, y, x: t * mnp.where(x == 1, -1, mnp.log(x) / mnp.where(x == 1, 1, 1 - x)))

_NODES = np.polynomial.legendre.leggauss(24)


@widened
def _owens_t(h: Any, a: Any) -> Any:
    h, slope = mnp.abs(h), mnp.abs(a)
    steep = slope > 1
    across = mnp.where(h == 0, 0, h * mnp.where(slope == np.inf, 1, slope))
    across = mnp.where((slope == np.inf) & (h > 0), np.inf, across)
    inner = _owens_integral(mnp.where(steep, across, h), mnp.where(steep, 1 / mnp.where(steep, slope, 1), slope))
    below, beyond = ndtr(-h), ndtr(-across)
    value = mnp.where(steep, (below + beyond) / 2 - below * beyond - inner, inner)
    value = mnp.where((h == 0), mnp.arctan(slope) / (2 * math.pi), value)
    return mnp.where(mnp.isnan(h) | mnp.isnan(a), np.nan, mnp.copysign(value, a))


def _owens_integral(h: Any, a: Any) -> Any:
    """T(h, a) for a up to 1 by quadrature. Beyond 9 standard deviations there is nothing to add."""
    h = mnp.minimum(h, 1e4)
    width = mnp.minimum(a, 9 / mnp.maximum(h, 1e-3))
    total = mnp.zeros_like(h)
    for node, weight in zip(*_NODES, strict=True):
        t = width * ((float(node) + 1) / 2)
        total = total + float(weight) * mnp.exp(-0.5 * h * h * (1 + t * t)) / (1 + t * t)
    return total * width / (4 * math.pi)


@custom_jvp
@as_one
def owens_t(h: Any, a: Any) -> Any:
    """Owen's T: the probability that X > h and 0 < Y < a X, for two independent standard normal numbers."""
    return _owens_t(*(real_operand(x) for x in floats(h, a)))


def _by_height(h: Any, a: Any) -> Any:
    h, a = floats(h, a)
    return -mnp.exp(-h * h / 2) * (ndtr(a * h) - 0.5) / math.sqrt(2 * math.pi)


def _by_slope(h: Any, a: Any) -> Any:
    return mnp.exp(-0.5 * h * h * (1 + a * a)) / ((1 + a * a) * (2 * math.pi))


owens_t.defjvps(lambda t, y, h, a: t * _by_height(h, a), lambda t, y, h, a: t * _by_slope(h, a))


composed(globals())
