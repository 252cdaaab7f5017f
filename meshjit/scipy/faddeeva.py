"""Faddeeva's function and its kin: `wofz`, `erfcx`, `dawsn`, `fresnel` of `jax.scipy.special`.

w(z) = exp(-z²) erfc(-iz) by Weideman's rational approximation (SIAM J. Numer. Anal. 31, 1994, 1497-1518), near 0 by series.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.custom_derivatives import custom_jvp
from meshjit.lax import elementwise as lax
from meshjit.scipy.operands import floats, reals, strong

_SQRT_PI = math.sqrt(math.pi)


def widened(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function with floats of 16 bits computed in 32."""

    @functools.wraps(compute)
    def function(*operands: Any) -> Any:
        dtype = operands[0].dtype
        if dtype.itemsize > 2:
            return compute(*operands)
        results = compute(*(x.astype(np.float32) for x in operands))
        return tuple(y.astype(dtype) for y in results) if isinstance(results, tuple) else results.astype(dtype)

    return function


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with these coefficients, the highest first."""
    total = mnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + float(c)
    return total


@functools.cache
def _weideman(terms: int) -> tuple[float, list[float]]:
    """The scale L and the polynomial's coefficients, the highest first."""
    scale = math.sqrt(terms / math.sqrt(2))
    t = scale * np.tan(np.arange(1 - 2 * terms, 2 * terms) * math.pi / (4 * terms))
    samples = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    series = np.fft.fft(np.fft.fftshift(samples)).real / (4 * terms)
    return scale, [float(a) for a in series[terms:0:-1]]


def _rational(toward: Any, away: Any, wide: bool) -> Any:
    """w where toward = L + iz and away = L - iz, in that part of the plane where Im z is at least 0."""
    scale, coefficients = _weideman(40 if wide else 24)
    inverse = 1 / (scale + away)
    return 2 * horner(coefficients, (scale + toward) * inverse) * inverse * inverse + inverse / _SQRT_PI


def _upper(z: Any) -> Any:
    """w(z) where Im z is at least 0; far from 0 by the first term of its asymptotic series."""
    wide = z.dtype == np.complex128
    far = mnp.maximum(mnp.abs(z.real), mnp.abs(z.imag)) > (1e8 if wide else 1e5)
    near = mnp.where(far, 0, z)
    return mnp.where(far, 1j / _SQRT_PI / mnp.where(far, z, 1), _rational(1j * near, -1j * near, wide))


@custom_jvp
def wofz(z: Any) -> Any:
    """Faddeeva's function exp(-z²) erfc(-iz), complex; real z become complex numbers of as many bits in each part."""
    (z,) = floats(z)
    z = mnp.asarray(z)
    z = z if z.dtype.kind == "c" else z.astype(np.complex128 if z.dtype == np.float64 else np.complex64)
    below = z.imag < 0
    value = _upper(mnp.where(below, -z, z))
    return mnp.where(below, 2 * mnp.exp(-(mnp.where(below, z, 0) ** 2)) - value, value)


wofz.defjvps(lambda t, w, z: t * (2j / _SQRT_PI - 2 * z * w))


def real_operand(x: Any, error: type[Exception] = ValueError) -> Any:
    """The operand in a float dtype, not weak. TypeError for lists, `error` for complex numbers."""
    return strong(reals("this special function", x, error=error)[0])


@widened
def _erfcx(x: Any) -> Any:
    wide = x.dtype == np.float64
    size, far = mnp.abs(x), mnp.abs(x) > (1e8 if wide else 1e5)
    near = mnp.where(far, 1, size)
    value = mnp.where(far, 1 / (_SQRT_PI * mnp.where(far, size, 1)), _rational(-near, near, wide))
    return mnp.where(x < 0, 2 * mnp.exp(x * x) - value, value)


@custom_jvp
def erfcx(x: Any) -> Any:
    """exp(x²) erfc(x), which does not underflow where x is large; x may be complex."""
    return wofz(1j * x) if mnp.iscomplexobj(x) else _erfcx(real_operand(x))


erfcx.defjvps(lambda t, y, x: t * (2 * x * y - 2 / _SQRT_PI))

_DAWSON = [(-2.0) ** k / math.prod(range(1, 2 * k + 2, 2)) for k in range(24, -1, -1)]


@widened
def _dawsn(x: Any) -> Any:
    small = mnp.abs(x) < 1
    inner, outer = mnp.where(small, x, 0), mnp.where(small, 1, x)
    complexes = np.complex128 if x.dtype == np.float64 else np.complex64
    return mnp.where(small, inner * horner(_DAWSON, inner * inner), _upper(outer.astype(complexes)).imag * (_SQRT_PI / 2))


@custom_jvp
def dawsn(x: Any) -> Any:
    """Dawson's integral exp(-x²) ∫ exp(t²) dt from 0 to x."""
    return _dawsn(real_operand(x))


dawsn.defjvps(lambda t, y, x: t * (1 - 2 * x * y))


def _alternating(first: int) -> list[float]:
    """Of Σ (-1)^k u^(2k + first) / ((2k + first)! (4k + 2 first + 1)), which is u^first times a polynomial in u²."""
    terms = range(first, first + 32, 2)
    return [(-1) ** (n // 2) / (math.factorial(n) * (2 * n + 1)) for n in reversed(terms)]


@widened
def _fresnel(x: Any) -> Any:
    size = mnp.abs(x)
    small, far = size < 1.6, size > (1e15 if x.dtype == np.float64 else 1e7)
    inner, outer = mnp.where(small, x, 0), mnp.where(small | far, 2, size)
    u = inner * inner * (math.pi / 2)
    series = [inner * u * horner(_alternating(1), u * u), inner * horner(_alternating(0), u * u)]
    rest = mnp.square(outer) * (math.pi / 2)
    turned = _upper(lax.complex(outer, outer) * (_SQRT_PI / 2)) * lax.complex(mnp.cos(rest), mnp.sin(rest))
    value = (0.5 + 0.5j) * (1 - turned)
    parts = [mnp.copysign(mnp.where(far, 0.5, part), x) for part in (value.imag, value.real)]
    return tuple(mnp.where(mnp.isnan(x), np.nan, mnp.where(small, a, b)) for a, b in zip(series, parts, strict=True))


@custom_jvp
def fresnel(x: Any) -> tuple[Any, Any]:
    """Fresnel's integrals S and C: those of sin(π t² / 2) and cos(π t² / 2) from 0 to x."""
    return _fresnel(real_operand(x, NotImplementedError))


@fresnel.defjvp
def _fresnel_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    angle = mnp.square(x) * (math.pi / 2)
    return fresnel(x), (t * mnp.sin(angle), t * mnp.cos(angle))
