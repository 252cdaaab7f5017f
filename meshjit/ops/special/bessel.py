"""Modified Bessel functions of the first kind, `bessel_i0e` and `bessel_i1e`: exp(-|x|) I₀(x) and exp(-|x|) I₁(x).

Chebyshev series, as Cephes has them: in x / 4 - 1 up to 8, of √x times the function in 16 / x - 1 beyond. Their coefficients are
interpolated from SciPy's functions for the first program that needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.families import elementwise, unary_jvp
from meshjit.ops.special.formula import Value, sqrt, where, written

Array = np.ndarray[Any, Any]
_BORDER = 8.0
_DEGREES = {np.dtype(np.float32): (19, 9), np.dtype(np.float64): (34, 32)}  # up to the border, beyond


def _scipy(name: str) -> Callable[[Array], Array]:
    import scipy.special  # takes 0.2 s to load; only emission and evaluation need it

    return getattr(scipy.special, name)


@functools.cache
def _coefficients(name: str, dtype: np.dtype[Any]) -> tuple[list[float], list[float]]:
    function, (near, far) = _scipy(name), _DEGREES[dtype]
    odd = name == "i1e"

    def beyond(t: Array) -> Array:
        x = 2 * _BORDER / np.maximum(t + 1, 1e-12)
        return np.sqrt(x) * function(x)

    def up_to(t: Array) -> Array:
        x = (t + 1) * _BORDER / 2
        return function(x) / (x if odd else 1)

    interpolate: Any = np.polynomial.chebyshev.chebinterpolate
    return list(map(float, interpolate(up_to, near))), list(map(float, interpolate(beyond, far)))


def _series(coefficients: list[float], t: Value) -> Value:
    """Clenshaw's recurrence."""
    first, second = t.like(0), t.like(0)
    for c in reversed(coefficients[1:]):
        first, second = 2 * t * first - second + c, first
    return t * first - second + coefficients[0]


def _bessel(x: Value, name: str) -> Value:
    size, odd = abs(x), name == "i1e"
    near, far = _coefficients(name, x.var.dtype)
    inside = _series(near, where(size > _BORDER, size.like(_BORDER), size) * (2 / _BORDER) - 1)
    large = where(size < _BORDER, size.like(_BORDER), size)
    outside = _series(far, 2 * _BORDER / large - 1) / sqrt(large)
    value = where(size <= _BORDER, inside * size if odd else inside, outside)
    value = where(x != x, np.nan, value)
    return where(x < 0, -value, value) if odd else value


def _i0e(x: Value) -> Value:
    return _bessel(x, "i0e")


def _i1e(x: Value) -> Value:
    return _bessel(x, "i1e")


def _sign(x: Value) -> Value:
    return where(x > 0, 1.0, where(x < 0, x.like(-1.0), x.like(0.0)))


def _i0e_tangent(t: Var, x: Var, y: Var) -> Var:
    """I₁e(x) - sign(x) I₀e(x)."""
    return multiply(t, (Value(bessel_i1e(x)) - _sign(Value(x)) * Value(y)).var)


def _i1e_tangent(t: Var, x: Var, y: Var) -> Var:
    """I₀e(x) - (sign(x) + 1/x) I₁e(x), and 1/2 at 0."""
    place = Value(x)
    some = place != 0
    slope = where(some, Value(bessel_i0e(x)) - Value(y) * (_sign(place) + 1 / where(some, place, 1.0)), 0.5)
    return multiply(t, slope.var)


def _fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.uniform(-12, 12, type.shape)


def _op(name: str, formula: Any, tangent: Any) -> Any:
    def meaning(x: Array) -> Array:
        return _scipy(name.removeprefix("bessel_"))(x)

    emit, dtypes = written(formula)[1], ("f32", "bf16", "f64")
    how = {"arity": 1, "accepts": "float", "emit": emit, "jvp": unary_jvp(tangent), "fill": _fill, "sample_dtypes": dtypes}
    return elementwise(name, meaning, **how)


bessel_i0e = _op("bessel_i0e", _i0e, _i0e_tangent)
bessel_i1e = _op("bessel_i1e", _i1e, _i1e_tangent)
