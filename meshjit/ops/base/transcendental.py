"""Roots, exponentials, logarithms, trigonometry and special functions, elementwise. Derivatives as in JAX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.core.op import Absent, NoDerivative, Params, Types
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import add, add_tangents, divide, multiply, negate, scale, subtract
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.families import elementwise, unary_jvp

Array = np.ndarray[Any, Any]


def _shift(var: Var, number: float) -> Var:
    """`var` plus a number."""
    return add(var, full_like(var, number))


def _one_minus_square(var: Var) -> Var:
    """(1 - x)(1 + x), which near 1 keeps the digits that 1 - x² loses."""
    return multiply(subtract(full_like(var, 1), var), _shift(var, 1))


def _function(name: str, evaluate: Any, derivative: Any, fill: Any = "unit", accepts: str = "inexact", **more: Any) -> Any:
    """An op of one operand; `derivative(tangent, operand, result)` gives the result's tangent.

    Params of those that StableHLO has itself: accuracy, "HIGHEST" or "atol rtol ulps" in numbers, which the compiler is told."""
    jvp = unary_jvp(derivative)
    if "stablehlo" in more:
        return elementwise(name, evaluate, arity=1, accepts=accepts, jvp=jvp, fill=fill, **more)

    def run(a: Array, accuracy: str = "") -> Any:
        return evaluate(a)

    return elementwise(name, run, arity=1, accepts=accepts, jvp=jvp, fill=fill, attributes=_accuracy, **more)


def _accuracy(ins: Types, params: Params) -> str:
    accuracy = params.get("accuracy")
    if accuracy is None:
        return ""
    mode, fields = ("TOLERANCE", accuracy.split()) if " " in accuracy else (accuracy, [])
    tolerances = [f"{name} = {value}, " for name, value in zip(("atol", "rtol", "ulps"), fields, strict=bool(fields))]
    return f"result_accuracy = #stablehlo.result_accuracy<{''.join(tolerances)}mode = #stablehlo.result_accuracy_mode<{mode}>>"


# -- roots

sqrt = _function("sqrt", np.sqrt, lambda t, x, y: divide(t, scale(y, 2)))
rsqrt = _function("rsqrt", lambda a: 1 / np.sqrt(a), lambda t, x, y: multiply(t, divide(scale(y, -0.5), x)))
cbrt = _function("cbrt", np.cbrt, lambda t, x, y: divide(t, scale(multiply(y, y), 3)), accepts="float")

# -- exponentials and logarithms

exponential = _function("exponential", np.exp, lambda t, x, y: multiply(t, y), "small")
exponential_minus_one = _function("exponential_minus_one", np.expm1, lambda t, x, y: multiply(t, _shift(y, 1)), "small")
log = _function("log", np.log, lambda t, x, y: divide(t, x))
log_plus_one = _function("log_plus_one", np.log1p, lambda t, x, y: divide(t, _shift(x, 1)))


def _logistic(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def _logistic_tangent(t: Var, x: Var, y: Var) -> Var:
    return multiply(t, multiply(y, subtract(full_like(y, 1), y)))


logistic = _function("logistic", _logistic, _logistic_tangent, "small")

# -- trigonometry

sine = _function("sine", np.sin, lambda t, x, y: multiply(t, cosine(x)), "small")
cosine = _function("cosine", np.cos, lambda t, x, y: negate(multiply(t, sine(x))), "small")
tan = _function("tan", np.tan, lambda t, x, y: multiply(t, _shift(multiply(y, y), 1)))
asin = _function("asin", np.arcsin, lambda t, x, y: multiply(t, rsqrt(_one_minus_square(x))), stablehlo="chlo.asin")
acos = _function("acos", np.arccos, lambda t, x, y: negate(multiply(t, rsqrt(_one_minus_square(x)))), stablehlo="chlo.acos")
atan = _function("atan", np.arctan, lambda t, x, y: divide(t, _shift(multiply(x, x), 1)), stablehlo="chlo.atan")


def _atan2_jvp(primals, tangents, outs, params):
    y, x = primals
    square = add(multiply(x, x), multiply(y, y))
    dy = None if tangents[0] is None else multiply(tangents[0], divide(x, square))
    dx = None if tangents[1] is None else negate(multiply(tangents[1], divide(y, square)))
    return [add_tangents(dy, dx)]


atan2 = elementwise("atan2", np.arctan2, arity=2, accepts="float", jvp=_atan2_jvp, fill="unit")

# -- hyperbolic functions

sinh = _function("sinh", np.sinh, lambda t, x, y: multiply(t, cosh(x)), stablehlo="chlo.sinh")
cosh = _function("cosh", np.cosh, lambda t, x, y: multiply(t, sinh(x)), stablehlo="chlo.cosh")
tanh = _function("tanh", np.tanh, lambda t, x, y: multiply(t, _one_minus_square(y)), "small")
asinh = _function("asinh", np.arcsinh, lambda t, x, y: multiply(t, rsqrt(_shift(multiply(x, x), 1))), stablehlo="chlo.asinh")
atanh = _function("atanh", np.arctanh, lambda t, x, y: divide(t, _one_minus_square(x)), stablehlo="chlo.atanh")


def _acosh_tangent(t: Var, x: Var, y: Var) -> Var:
    """Complex x: two roots, not one of the product, which would have other branch cuts than acosh."""
    if x.dtype.kind == "c":
        return multiply(t, multiply(rsqrt(_shift(x, -1)), rsqrt(_shift(x, 1))))
    return multiply(t, rsqrt(multiply(_shift(x, -1), _shift(x, 1))))


def _acosh_fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.uniform(1.2, 4, type.shape)


acosh = _function("acosh", np.arccosh, _acosh_tangent, _acosh_fill, stablehlo="chlo.acosh")

# -- special functions of reals. SciPy, which jaxlib needs too, has their meaning.


def _special(name: str, derivative: Any, function: str, fill: Any = "unit") -> Any:
    def evaluate(a: Array) -> Array:
        import scipy.special  # takes 0.2 s to load; only evaluation needs it

        return getattr(scipy.special, function)(a)

    jvp = unary_jvp(derivative)
    return elementwise(name, evaluate, arity=1, accepts="float", stablehlo=f"chlo.{name}", jvp=jvp, fill=fill)


def _gauss(x: Var, sign: int, height: float) -> Var:
    """height * exp(sign x²)."""
    return scale(exponential(scale(multiply(x, x), sign)), height)


_SLOPE = 2 / math.sqrt(math.pi)  # of erf at 0

erf = _special("erf", lambda t, x, y: multiply(t, _gauss(x, -1, _SLOPE)), "erf", "small")
erfc = _special("erfc", lambda t, x, y: negate(multiply(t, _gauss(x, -1, _SLOPE))), "erfc", "small")
erf_inv = _special("erf_inv", lambda t, x, y: multiply(t, _gauss(y, 1, 1 / _SLOPE)), "erfinv")
lgamma = _special("lgamma", lambda t, x, y: multiply(t, digamma(x)), "gammaln")
digamma = _special("digamma", lambda t, x, y: multiply(t, polygamma(full_like(x, 1), x)), "digamma")


def _polygamma(n: Array, x: Array) -> Array:
    """(-1)^(n+1) n! zeta(n+1, x), and digamma for n = 0 (DLMF 5.15.2). nan for n that is no whole number ≥ 0."""
    import scipy.special  # see `_special`

    size = scipy.special.gamma(n + 1) * scipy.special.zeta(n + 1, x)
    values = np.where(n == 0, scipy.special.digamma(x), np.where(n % 2 == 0, -size, size))
    return np.where((n >= 0) & (n == np.floor(n)), values, np.nan)


def _polygamma_jvp(primals, tangents, outs, params):
    (n, x), (dn, dx) = primals, tangents
    if dn is not None:
        return Absent("polygamma: no derivative by the order is known", "polygamma", "jvp", NoDerivative)()
    return [None if dx is None else multiply(dx, polygamma(_shift(n, 1), x))]


def _polygamma_fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.integers(0, 4, type.shape) if index == 0 else generator.uniform(0.5, 3, type.shape)


polygamma = elementwise(
    "polygamma",
    _polygamma,
    arity=2,
    accepts="float",
    stablehlo="chlo.polygamma",
    jvp=_polygamma_jvp,
    fill=_polygamma_fill,
)


# -- zeta(x, q) = Σ 1 / (q + n)^x, Hurwitz's


def _zeta(x: Array, q: Array) -> Array:
    import scipy.special  # see `_special`

    return scipy.special.zeta(x, q)


def _zeta_jvp(primals, tangents, outs, params):
    (x, q), (dx, dq) = primals, tangents
    if dx is not None:
        return Absent("no derivative by the exponent is known", "zeta", "jvp")()
    return [None if dq is None else multiply(dq, negate(multiply(x, zeta(_shift(x, 1), q))))]


def _zeta_fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.uniform(1.5, 4, type.shape) if index == 0 else generator.uniform(0.5, 3, type.shape)


zeta = elementwise("zeta", _zeta, arity=2, accepts="float", stablehlo="chlo.zeta", jvp=_zeta_jvp, fill=_zeta_fill)
