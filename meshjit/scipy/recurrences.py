"""Functions of `jax.scipy.special` that recurrences give: Bessel functions, spherical harmonics, hypergeometric functions,
Bernoulli numbers."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.autodiff import jvp
from meshjit.custom_derivatives import custom_jvp
from meshjit.runtime.composed import as_one, composed
from meshjit.scipy.faddeeva import real_operand, widened
from meshjit.scipy.operands import floats
from meshjit.scipy.special import gamma
from meshjit.trace import line_of, user_source


def bernoulli(n: int) -> Any:
    """The Bernoulli numbers B₀ to B_n, of which B₁ is -1/2: [n + 1] of the default float dtype. ValueError for n below 0."""
    count = operator.index(n)
    if count < 0:
        raise ValueError(f"bernoulli: n is {count}, it must be at least 0\n  at {line_of(user_source())}")
    numbers = mnp.zeros(count + 1).at[:2].set(mnp.array([1, -0.5])[: count + 1])
    if count < 2:
        return numbers
    even = mnp.arange(2, count + 1, 2).astype(numbers.dtype)
    factors = even * (even - 1) / (-4 * math.pi**2)  # B_m = -2 m! ζ(m) / (2πi)^m
    return numbers.at[2::2].set(-2 * mnp.cumprod(factors) * lax.zeta(even, mnp.ones_like(even)))


# -- Bessel functions of the first kind


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """J₀(z) to J_v(z), [v + 1, *z's shape]: Miller's recurrence downward from order n_iter, which is to be well above |z|.

    ValueError for complex z."""
    return _bessel(real_operand(z), operator.index(v), operator.index(n_iter))


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _bessel(z: Any, v: int, n_iter: int) -> Any:
    wide = z.astype(np.float32) if z.dtype.itemsize == 2 else z
    zero = wide == 0
    inverse = 2 / mnp.where(zero, 1, wide)

    def down(i: Any, state: Any) -> Any:
        return _lower(mnp.asarray(top - i).astype(wide.dtype), inverse, *state)

    top = max(n_iter, v + 1)
    state = (mnp.zeros_like(wide), mnp.ones_like(wide), mnp.full_like(wide, 1.0 if top % 2 == 0 else 0.0))
    state = lax.fori_loop(0, top - v, down, state)
    kept = [state[1]]
    for order in range(v, 0, -1):
        scale = mnp.maximum(mnp.abs(order * inverse * state[1] - state[0]), 1)
        state = _lower(float(order), inverse, *state)
        kept = [state[1], *(value / scale for value in kept)]
    total = 2 * state[2] - state[1]  # J₀ + 2 J₂ + 2 J₄ + … = 1
    limits = mnp.arange(v + 1).reshape(-1, *(1,) * wide.ndim) == 0
    return mnp.where(zero, limits.astype(wide.dtype), mnp.stack(kept) / total).astype(z.dtype)


def _lower(order: Any, inverse: Any, above: Any, here: Any, total: Any) -> Any:
    """From orders k + 1 and k to k and k - 1, scaled so that none exceeds 1; the sum of even orders."""
    below = order * inverse * here - above
    scale = mnp.maximum(mnp.abs(below), 1)
    here, below, total = here / scale, below / scale, total / scale
    return here, below, total + mnp.where(mnp.asarray(order) % 2 == 1, below, 0)


@_bessel.defjvp
def _bessel_jvp(v: int, n_iter: int, primals: Any, tangents: Any) -> Any:
    (z,), (t,) = primals, tangents
    values = _bessel(z, v + 1, n_iter)
    before = mnp.concatenate([-values[1:2], values[:v]])
    slopes = (before - values[1:]) / 2
    return values[: v + 1], t * slopes.at[0].set(-values[1])


# -- hypergeometric functions


def _by_parameter(function: Callable[..., Any], index: int) -> Callable[..., Any]:
    """The derivative by one parameter, of the recurrence itself."""

    def slope(t: Any, y: Any, *operands: Any) -> Any:
        operands = tuple(floats(*operands))

        def along(x: Any) -> Any:
            return function(*operands[:index], x, *operands[index + 1 :])

        return t * jvp(along, (operands[index],), (mnp.ones_like(operands[index]),))[1]

    return slope


@widened
def _hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Kummer's series, after his transformation where x is negative. Where b is 0, -1, ... it is a polynomial for
    a = b, ..., -1, 0, whose coefficients end before they are divided by 0, and infinite for other a."""
    at_pole = (b <= 0) & (b == mnp.floor(b))
    ends = at_pole & (b <= a) & (a <= 0) & (a == mnp.floor(a))
    negative = (x < 0) & ~at_pole
    a, z = mnp.where(negative, b - a, a), mnp.where(negative, -x, x)
    precise = float(np.finfo(z.dtype).eps) / 64

    def goes_on(state: Any) -> Any:
        k, total, _, size = state
        return (k < 3000) & mnp.any((size > precise * mnp.abs(total)) & (mnp.abs(total) < np.inf))

    def add(state: Any) -> Any:
        """`size` is the term's, and where a + k = 0 ends the series that of its derivative by a, which goes on."""
        k, total, term, size = state
        real = k.astype(z.dtype)
        step, last = (z / (real + 1)) / (b + real), a + real == 0
        size = mnp.where(ends & (last | (size == 0)), 0, size * mnp.abs(mnp.where(last, 1, a + real) * step))
        term = mnp.where(ends & (size == 0), 0, term * (a + real) * step)
        return k + 1, total + term, term, lax.stop_gradient(size)

    ones = mnp.ones_like(z)
    total = lax.while_loop(goes_on, add, (mnp.int32(0), ones, ones, ones))[1]
    value = mnp.where(negative, mnp.exp(-mnp.where(negative, z, 0)) * total, total)
    value = mnp.where(at_pole & ~ends, np.inf, value)
    return mnp.where(mnp.isnan(a) | mnp.isnan(b) | mnp.isnan(x), np.nan, value)


@custom_jvp
@as_one
def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Kummer's confluent hypergeometric function ₁F₁(a; b; x) of real numbers; differentiable by all three."""
    return _hyp1f1(*floats(a, b, x))


hyp1f1.defjvps(
    _by_parameter(_hyp1f1, 0), _by_parameter(_hyp1f1, 1),
    lambda t, y, a, b, x: t * mnp.divide(a, b) * hyp1f1(mnp.add(a, 1), mnp.add(b, 1), x),
)  # fmt: skip


def _at_place(a: Any, b: Any, c: Any, place: Any, step: Any, value: Any, slope: Any) -> Any:
    """A solution of the hypergeometric equation and its slope at place + step, by its Taylor series at place; step is not 0."""
    ratio, tilt = step / (place * (1 - place)), 1 - 2 * place

    def add(i: Any, state: Any) -> Any:
        before, here, total, rate = state  # the terms k and k + 1
        k = mnp.asarray(i).astype(step.dtype)
        pull = (k + 1) * (k * tilt + c - (a + b + 1) * place) * here - (k + a) * (k + b) * step * before
        after = -pull * ratio / ((k + 1) * (k + 2))
        return here, after, total + after, rate + (k + 2) * after

    first = slope * step
    _, _, total, rate = lax.fori_loop(0, _TERMS[step.dtype.itemsize], add, (value, first, value + first, first))
    return total, rate / step


_TERMS = {4: 30, 8: 60}  # of a series whose terms halve, by the dtype's bytes
_HALVES = {4: 24, 8: 53}  # how often what is left to 1 can halve


@widened
def _hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """The series up to 1/2, and of polynomials; from there on Taylor series, each halving what is left to 1."""
    whole = _is_degree(a) | _is_degree(b)
    negative, steep = (x < 0) & ~whole, (x >= 0) & (c - a - b < 0) & ~whole
    power = mnp.where(negative, -a, mnp.where(steep, c - a - b, 0))  # Pfaff's and Euler's transformations
    first, second = mnp.where(steep, c - a, a), mnp.where(negative | steep, c - b, b)
    z = mnp.where(negative, x / (x - 1), x)
    inside = mnp.where((z < 1) & ~mnp.isnan(z) & ~whole, z, 0)
    start = mnp.minimum(inside, 0.5)
    value, slope = _series(first, second, c, mnp.where(whole, x, start))

    def further(i: Any, state: Any) -> Any:
        place, value, slope = state
        step = mnp.clip(inside - place, 0, (1 - place) / 2)
        moves = step > 0
        new = _at_place(first, second, c, mnp.where(moves, place, 0.5), mnp.where(moves, step, 0.1), value, slope)
        return place + step, *(mnp.where(moves, n, o) for n, o in zip(new, (value, slope), strict=True))

    value = lax.fori_loop(0, _HALVES[inside.dtype.itemsize], further, (start, value, slope))[1]
    return mnp.exp(power * mnp.log1p(-mnp.where((x < 1) & ~whole, x, 0))) * value


def _is_degree(a: Any) -> Any:
    """Whether the series with this parameter ends, and does so among the terms that are added."""
    return (a <= 0) & (a == mnp.round(a)) & (a > -2 * _TERMS[max(a.dtype.itemsize, 4)])


def _series(a: Any, b: Any, c: Any, x: Any) -> Any:
    """The value and the slope at x, up to 1/2 in size, by the series at 0."""

    def add(i: Any, state: Any) -> Any:
        total, rate, term = state
        k = mnp.asarray(i).astype(x.dtype)
        factor = term * ((a + k) / (c + k)) * ((b + k) / (k + 1))
        return total + factor * x, rate + (k + 1) * factor, factor * x

    ones = mnp.ones_like(x)
    return lax.fori_loop(0, 2 * _TERMS[x.dtype.itemsize], add, (ones, mnp.zeros_like(x), ones))[:2]


def _at_one(a: Any, b: Any, c: Any) -> Any:
    """Gauss's formula."""
    return gamma(c) * gamma(c - a - b) / (gamma(c - a) * gamma(c - b))


@custom_jvp
@as_one
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Gauss's hypergeometric function ₂F₁(a, b; c; x) of real numbers, inf beyond x = 1 unless it is a polynomial.

    Differentiable by all four."""
    a, b, c, x = floats(a, b, c, x)
    value, ends = _hyp2f1(a, b, c, x), _is_degree(a) | _is_degree(b)
    outside = mnp.where((x == 1) & (c - a - b > 0), _at_one(a, b, c), np.inf)
    return mnp.where(mnp.isnan(x), np.nan, mnp.where((x >= 1) & ~ends, outside, value))


hyp2f1.defjvps(
    _by_parameter(_hyp2f1, 0), _by_parameter(_hyp2f1, 1), _by_parameter(_hyp2f1, 2),
    lambda t, y, a, b, c, x: t * mnp.divide(mnp.multiply(a, b), c) * hyp2f1(mnp.add(a, 1), mnp.add(b, 1), mnp.add(c, 1), x),
)  # fmt: skip


composed(globals())
