"""`jax.scipy.special`: special functions, elementwise on floats of one dtype; integers become floats.

Those that programs seldom need come from files of their own, which are imported when one is asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core import types
from meshjit.custom_derivatives import custom_jvp
from meshjit.lax import elementwise as lax
from meshjit.missing import explain as _explain
from meshjit.nn import log_softmax as _log_softmax, logsumexp as logsumexp, softmax as _softmax
from meshjit.numpy.promote import apply, dtype_of
from meshjit.runtime.composed import as_one as _as_one, composed as _composed
from meshjit.scipy import operands
from meshjit.trace import line_of, user_source


def _unary(name: str, op: str, doc: str) -> Any:
    def function(x: Any) -> Any:
        operands.refuse_lists(x)
        return apply(op, x, inexact=True)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along `axis`, by default of all elements (`meshjit.nn.softmax`: of the last dim)."""
    return _softmax(x, axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """log(softmax(x)), by default of all elements."""
    return _log_softmax(x, axis)


erf = _unary("erf", "erf", "The error function.")
erfc = _unary("erfc", "erfc", "1 - erf(x), precise where x is large.")
erfinv = _unary("erfinv", "erf_inv", "The inverse of erf on (-1, 1).")
digamma = _unary("digamma", "digamma", "The derivative of gammaln.")
gammaln = _unary("gammaln", "lgamma", "log |Γ(x)|.")
expit = _unary("expit", "logistic", "1 / (1 + exp(-x)).")


@custom_jvp
@_as_one
def logit(x: Any) -> Any:
    """log(p / (1 - p)), the inverse of expit."""
    (x,) = operands.floats(x)
    return mnp.log(x / (1 - x))


logit.defjvps(lambda t, y, x: t / (x * (1 - x)))


# -- gamma and its kin


def gammasgn(x: Any) -> Any:
    """The sign of Γ(x): nan at negative whole numbers and -inf; at -0, -1."""
    (x,) = operands.reals("gammasgn", x)
    floor = mnp.floor(x)
    below = mnp.where(mnp.mod(floor, 2) == 0, 1.0, -1.0)
    below = mnp.where(mnp.isnan(x) | (x == floor), np.nan, below)
    return mnp.where((x > 0) | ((x == 0) & ~mnp.signbit(x)), 1.0, mnp.where(x == 0, -1.0, below)).astype(x.dtype)


def gamma(x: Any) -> Any:
    """Γ(x); x may be complex."""
    (x,) = operands.floats(x)
    return mnp.exp(_complex_loggamma(x)) if x.dtype.kind == "c" else gammasgn(x) * mnp.exp(gammaln(x))


def loggamma(x: Any) -> Any:
    """log Γ(x), the branch that is continuous but for the negative numbers; of these, and of 0, nan where x is real."""
    (x,) = operands.floats(x)
    return _complex_loggamma(x) if x.dtype.kind == "c" else mnp.where(x > 0, gammaln(x), np.nan)


_SHIFT = 7  # Stirling's series is precise from here on
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730), 1))


def _complex_loggamma(z: Any) -> Any:
    """By Stirling's series on the right (DLMF 5.11.1), by reflection (DLMF 5.5.3) on the left; nan at the poles."""
    left = z.real < 0.5
    right = _stirling(mnp.where(left, 1 - z, z))
    upper = mnp.where(mnp.signbit(z.imag), mnp.conj(z), z)
    turned = mnp.where(left, upper, 0.5)
    sine = 1j * math.pi * (0.5 - turned) - math.log(2) + mnp.log1p(-mnp.exp(2j * math.pi * turned))
    sine = mnp.where(mnp.signbit(z.imag), mnp.conj(sine), sine)
    pole = (z.imag == 0) & (z.real <= 0) & (z.real == mnp.floor(z.real))
    return mnp.where(pole, np.nan, mnp.where(left, math.log(math.pi) - sine - right, right)).astype(z.dtype)


def _stirling(z: Any) -> Any:
    """log Γ(z) of a real part of 0.5 and more: that of z + _SHIFT less log z + log(z + 1) + …"""
    below = sum((mnp.log(z + k) for k in range(1, _SHIFT)), mnp.log(z))
    z = z + _SHIFT
    series = sum((c / z ** (2 * k + 1) for k, c in enumerate(_STIRLING)), 0)
    return (z - 0.5) * mnp.log(z) - z + 0.5 * math.log(2 * math.pi) + series - below


def factorial(n: Any, exact: bool = False) -> Any:
    """Γ(n + 1), and 0 for negative n. NotImplementedError for exact=True."""
    if exact:
        raise NotImplementedError("factorial: exact=True is not there\n  fix: math.factorial of a Python integer")
    (n,) = operands.floats(n)
    return mnp.where(n < 0, 0, mnp.exp(gammaln(n + 1)))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:  # noqa: N803 - SciPy's name
    """The number of ways to choose k of N, with repetition those of N + k - 1; 0 where there are none."""
    n, k = operands.floats(N, k)
    if repetition:
        n = n + k - 1
    none = (k < 0) | (k > n) | (n < 0)
    n, k = mnp.where(none, 1, n), mnp.where(none, 0, k)  # where the formula may have no derivative
    return mnp.where(none, 0, mnp.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)))


def betaln(a: Any, b: Any) -> Any:
    """log |B(a, b)|."""
    a, b = operands.floats(a, b)
    return gammaln(a) + (gammaln(b) - gammaln(a + b))


def beta(a: Any, b: Any) -> Any:
    """B(a, b) = Γ(a) Γ(b) / Γ(a + b)."""
    a, b = operands.reals("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * mnp.exp(betaln(a, b))


def poch(z: Any, m: Any) -> Any:
    """The rising factorial Γ(z + m) / Γ(z); 1 for m = 0."""
    z, m = operands.reals("poch", z, m)
    ratio = gammasgn(z + m) * gammasgn(z) * mnp.exp(gammaln(z + m) - gammaln(z))
    return mnp.where((m == 0) & mnp.isnan(ratio), 1, ratio)


def multigammaln(a: Any, d: Any) -> Any:
    """log Γ_d(a), the gamma function of d × d matrices; d is a Python integer."""
    (a,) = operands.floats(a)
    size = int(d)
    half = mnp.arange(size, dtype=a.dtype) / 2
    return gammaln(a[..., None] - half).sum(-1) + size * (size - 1) / 4 * math.log(math.pi)


def polygamma(n: Any, x: Any) -> Any:
    """The derivative of order n of digamma."""
    if not types.is_integer(dtype_of(n)):
        at = f"\n  at {line_of(user_source())}"
        raise ValueError(f"polygamma: n is of {dtype_of(n)}, not of integers{at}\n  fix: n.astype(int)")
    return lax.polygamma(*operands.reals("polygamma", n, x))


def gammainc(a: Any, x: Any) -> Any:
    """The regularized lower incomplete gamma function P(a, x); differentiable by both."""
    return lax.igamma(*operands.floats(a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), precise where it is small."""
    return lax.igammac(*operands.floats(a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function I_x(a, b); differentiable by x."""
    return lax.betainc(*operands.reals("betainc", a, b, x))


def zeta(x: Any, q: Any = None) -> Any:
    """Hurwitz's zeta function Σ 1 / (q + n)^x from n = 0 on. NotImplementedError without q, as in JAX."""
    if q is None:
        raise NotImplementedError("zeta: Riemann's function is not there\n  fix: zeta(x, 1)")
    return _zeta(*operands.floats(x, q))


@custom_jvp
@_as_one
def _zeta(x: Any, q: Any) -> Any:
    return lax.zeta(x, q)


_zeta.defjvps(lambda t, y, x, q: t * _zeta_by_exponent(x, q), lambda t, y, x, q: -t * x * lax.zeta(x + 1, q))

_ZETA_TERMS = 9
_ZETA_TAIL = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)  # Bernoulli's numbers by factorials: B₂ / 2!, B₄ / 4!, …


def _zeta_by_exponent(x: Any, q: Any) -> Any:
    """-Σ log(q + n) / (q + n)^x, the first terms one by one, the others by the formula of Euler and Maclaurin."""
    terms = mnp.expand_dims(q, -1) + mnp.arange(_ZETA_TERMS, dtype=q.dtype)
    first = -mnp.sum(mnp.log(terms) * terms ** -mnp.expand_dims(x, -1), -1)
    a = q + _ZETA_TERMS
    log, power = mnp.log(a), a**-x
    total = first - power * (a * (log / (x - 1) + 1 / (x - 1) ** 2) + log / 2)
    rising, slope = x, 1 / x
    for k, factor in enumerate(_ZETA_TAIL):
        total += factor * rising * power / a ** (2 * k + 1) * (slope - log)
        for j in (2 * k + 1, 2 * k + 2):
            rising, slope = rising * (x + j), slope + 1 / (x + j)
    return total


# -- modified Bessel functions of the first kind

i0e = _unary("i0e", "bessel_i0e", "exp(-|x|) I₀(x).")
i1e = _unary("i1e", "bessel_i1e", "exp(-|x|) I₁(x).")


@custom_jvp
@_as_one
def i0(x: Any) -> Any:
    """I₀(x)."""
    (x,) = operands.floats(x)
    return mnp.exp(mnp.abs(x)) * i0e(x)


@custom_jvp
@_as_one
def i1(x: Any) -> Any:
    """I₁(x)."""
    (x,) = operands.floats(x)
    return mnp.exp(mnp.abs(x)) * i1e(x)


i0.defjvps(lambda t, y, x: t * i1(x))
i1.defjvps(lambda t, y, x: t * (i0(x) - mnp.where(x == 0, 0.5, y / mnp.where(x == 0, 1, x))))


# -- entropies


@custom_jvp
@_as_one
def xlogy(x: Any, y: Any) -> Any:
    """x log y, and 0 where x is 0 and y is a number."""
    x, y = operands.floats(x, y)
    return mnp.where((x == 0) & ~mnp.isnan(y), 0, x * mnp.log(y))


xlogy.defjvps(lambda t, z, x, y: t * mnp.log(y), lambda t, z, x, y: t * x / y)


@custom_jvp
@_as_one
def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), and 0 where x is 0 and y is a number."""
    x, y = operands.floats(x, y)
    return mnp.where((x == 0) & ~mnp.isnan(y), 0, x * mnp.log1p(y))


xlog1py.defjvps(lambda t, z, x, y: t * mnp.log1p(y), lambda t, z, x, y: t * x / (1 + y))


@custom_jvp
@_as_one
def entr(x: Any) -> Any:
    """-x log x, 0 at 0 and -inf below."""
    (x,) = operands.reals("entr", x)
    return mnp.where(x < 0, -np.inf, -xlogy(x, x))


entr.defjvps(lambda t, y, x: -t * (mnp.log(x) + 1))


def _safe(holds: Any, value: Any, fallback: float) -> Any:
    """value where it holds, else fallback: so that neither a value nor a derivative elsewhere is infinite."""
    return mnp.where(holds, value, fallback)


def rel_entr(p: Any, q: Any) -> Any:
    """p log(p / q), 0 where p is 0 and q at least 0, inf elsewhere outside of p, q > 0."""
    p, q = operands.reals("rel_entr", p, q)
    inside, zero = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    value = _safe(inside, p, 1) * (mnp.log(_safe(inside, p, 1)) - mnp.log(_safe(inside, q, 1)))
    value = mnp.where(inside, value, mnp.where(zero, 0, np.inf))
    return mnp.where(mnp.isnan(p) | mnp.isnan(q), np.nan, value)


def kl_div(p: Any, q: Any) -> Any:
    """rel_entr(p, q) - p + q."""
    p, q = operands.reals("kl_div", p, q)
    return rel_entr(p, q) - p + q


def boxcox(x: Any, lmbda: Any) -> Any:
    """(x^λ - 1) / λ, and log x for λ = 0."""
    x, power = operands.floats(x, lmbda)
    return _power_law(mnp.log(x), power)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """boxcox(1 + x, λ), precise where x is small."""
    x, power = operands.floats(x, lmbda)
    return _power_law(mnp.log1p(x), power)


def _power_law(log: Any, power: Any) -> Any:
    zero = power == 0
    power = mnp.where(zero, 1, power)
    return mnp.where(zero, log, mnp.expm1(power * log) / power)


# -- the normal distribution


def ndtr(x: Any) -> Any:
    """The probability of a standard normal number below x."""
    (x,) = operands.reals("ndtr", mnp.asarray(x), error=TypeError)
    return operands.strong(erfc(-x * math.sqrt(0.5)) / 2)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """log ndtr(x). Far below 0 by its asymptotic series of series_order terms (Abramowitz and Stegun 26.2.12)."""
    if not isinstance(series_order, int):
        raise TypeError(f"log_ndtr: series_order must be a Python integer, got {type(series_order).__name__}")
    if not 0 <= series_order <= 30:
        raise ValueError(f"log_ndtr: series_order is {series_order}, not 0 to 30")
    (x,) = (operands.strong(v) for v in operands.reals("log_ndtr", mnp.asarray(x), error=TypeError))
    low, high = (-20, 8) if x.dtype == np.float64 else (-10, 5)
    middle = mnp.log(ndtr(mnp.clip(x, low, high)))
    above = -ndtr(-mnp.maximum(x, high))
    return mnp.where(x > high, above, mnp.where(x > low, middle, _log_ndtr_tail(mnp.minimum(x, low), series_order)))


def _log_ndtr_tail(x: Any, order: int) -> Any:
    term, total = mnp.ones_like(x), mnp.ones_like(x)
    for k in range(1, order + 1):
        term = term * (1 - 2 * k) / (x * x)
        total = total + term
    return -x * x / 2 - mnp.log(-x) - 0.5 * math.log(2 * math.pi) + mnp.log(total)


# Wichura's rational approximations (Applied Statistics 37, 1988, algorithm AS 241, PPND16): numerators, denominators.
_CENTER = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
     1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
     687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_TAIL = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258, 3.64784832476320460504,
     5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459, 0.68976733498510000455,
     1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123,  1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525,  0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def _ratio(coefficients: Any, x: Any) -> Any:
    top, bottom = (mnp.polyval(np.array(c, x.dtype), x) for c in coefficients)
    return top / bottom


def ndtri(p: Any) -> Any:
    """The x with ndtr(x) = p; ±inf at 1 and 0, nan outside, and so is the derivative there."""
    (p,) = (operands.strong(v) for v in operands.reals("ndtri", p, error=TypeError))
    q = p - 0.5
    finite = (p != 0) & (p != 1)
    central = q * _ratio(_CENTER, 0.180625 - q * q)
    r = mnp.sqrt(-mnp.log(_safe(finite, mnp.minimum(p, 1 - p), 0.5)))
    tail = mnp.copysign(mnp.where(r <= 5, _ratio(_TAIL, r - 1.6), _ratio(_FAR_TAIL, r - 5)), q)
    x = mnp.where(mnp.abs(q) <= 0.425, central, tail)
    return mnp.where(finite, x, mnp.where(p == 0, -np.inf, np.inf))


_LATER = {
    "faddeeva": "dawsn erfcx fresnel wofz",
    "integral_functions": "exp1 expi expn owens_t sici spence",
    "legendre": "lpmn lpmn_values sph_harm_y",
    "recurrences": "bernoulli bessel_jn hyp1f1 hyp2f1",
}

_composed(globals())
_explain(__name__, {name: f"meshjit.scipy.{module}" for module, names in _LATER.items() for name in names.split()})
