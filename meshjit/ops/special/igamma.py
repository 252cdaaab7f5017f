"""Incomplete gamma functions: `igamma` P(a, x), `igammac` Q(a, x) = 1 - P, and what their derivatives by `a` need.

By the series of P where x is at most 1 or at most a, elsewhere by the continued fraction of Q (Cephes, igam.c; DLMF 8.11.4 and
8.9.2). Derivatives by a are those of the same recurrences, term by term. `random_gamma_grad` is dx/da at P(a, x) fixed:
-(dP/da)/(dP/dx), the derivative of a gamma-distributed number by its shape (Figurnov, Mohamed, Mnih 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.op import Absent
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import add_tangents, multiply, negate
from meshjit.ops.base.families import elementwise
from meshjit.ops.special.formula import Value, digamma, exp, infos, iterate, lgamma, log, where, written

Array = np.ndarray[Any, Any]
_MOST_FRACTIONS = 2000  # as Cephes: partial fractions, after which what is there counts


def _series(a: Value, x: Value, active: Value, by_a: bool) -> tuple[Value, Value]:
    """(s, ds/da) of s = Σ xⁿ / ((a + 1) … (a + n)), so that P = x^a e^-x s / Γ(a + 1)."""
    one, zero, small = x.like(1), x.like(0), float(infos(x).eps)

    def step(x: Value, r: Value, term: Value, total: Value, d_term: Value, d_total: Value) -> tuple[Value, list[Value]]:
        r = r + 1
        d_term = d_term * (x / r) - term * x / (r * r)
        d_total = d_total + d_term
        term = term * (x / r)
        total = total + term
        going = abs(d_term / d_total) > small if by_a else term > total * small
        return going, [r, term, total, d_term, d_total]

    _, _, total, _, d_total = iterate(step, active, [a, one, one, zero, zero], [x])
    return total, d_total


def _fraction(a: Value, x: Value, active: Value, by_a: bool) -> tuple[Value, Value]:
    """(f, df/da) of the continued fraction with Q = x^a e^-x f / Γ(a): numerators p and denominators q of two steps."""
    small = float(infos(x).eps)

    def step(*state: Value) -> tuple[Value, list[Value]]:
        c, y, z, p, q, p_before, q_before, f, _, dp, dq, dp_before, dq_before, df = state
        c, y, z = c + 1, y + 1, z + 2
        yc = y * c
        p, p_before, dp, dp_before = (
            p * z - p_before * yc, p, dp * z - p - dp_before * yc + p_before * c, dp,
        )  # fmt: skip
        q, q_before, dq, dq_before = (
            q * z - q_before * yc, q, dq * z - q - dq_before * yc + q_before * c, dq,
        )  # fmt: skip
        some = q != 0
        ratio = p / q
        change = where(some, abs((f - ratio) / ratio), 1.0)
        f = where(some, ratio, f)
        d_new = where(some, (dp - f * dq) / q, df)
        if by_a:
            change = where(some, abs(d_new - df), 1.0)
        scale = where(abs(p) > 1 / small, p.like(small), 1.0)
        p, q, p_before, q_before, dp, dq, dp_before, dq_before = (
            v * scale for v in (p, q, p_before, q_before, dp, dq, dp_before, dq_before)
        )
        going = (change > small) & (c < _MOST_FRACTIONS)
        return going, [c, y, z, p, q, p_before, q_before, f, change, dp, dq, dp_before, dq_before, d_new]

    zero, one = x.like(0), x.like(1)
    y = 1 - a
    z = x + y + 1
    p, q = x + 1, z * x
    f, dq = p / q, -x
    df = -(f * dq) / q
    state = [zero, y, z, p, q, one, x, f, one, zero, dq, zero, zero, df]
    results = iterate(step, active, state)
    return results[7], results[13]


def _parts(a: Value, x: Value) -> tuple[Value, Value, Value]:
    """(x^a e^-x / Γ(a), which elements have a number to compute, which have none)."""
    wrong = (x < 0) | (a < 0) | (a != a) | (x != x) | ((a == 0) & (x == 0))
    power = a * log(x) - x - lgamma(a)
    underflows = power < -float(np.log(infos(x).max))
    edge = (x == 0) | (x == np.inf) | (a == 0) | (a == np.inf)
    return exp(power), ~(wrong | edge | underflows), wrong


def _igamma(a: Value, x: Value) -> Value:
    upper = (x > 1) & (x > a)
    power, active, wrong = _parts(a, x)
    below = _series(a, x, active & ~upper, False)[0] * power / a
    value = where(upper, 1 - _fraction(a, x, active & upper, False)[0] * power, below)
    value = where(a == np.inf, 0.0, where(a == 0, 1.0, value))
    value = where(x == 0, 0.0, where(x == np.inf, 1.0, value))
    return where(wrong | ((a == np.inf) & (x == np.inf)), np.nan, value)


def _igammac(a: Value, x: Value) -> Value:
    lower = (x < 1) | (x < a)
    power, active, wrong = _parts(a, x)
    above = _fraction(a, x, active & ~lower, False)[0] * power
    value = where(lower, 1 - _series(a, x, active & lower, False)[0] * power / a, above)
    value = where(a == np.inf, 1.0, where(a == 0, 0.0, value))
    value = where(x == 0, 1.0, where(x == np.inf, 0.0, value))
    return where(wrong | ((a == np.inf) & (x == np.inf)), np.nan, value)


def _by_a(a: Value, x: Value, of_sample: bool) -> Value:
    """dP/da, or -(dP/da)/(dP/dx)."""
    upper = (x > 1) & (x > a)
    power, active, wrong = _parts(a, x)
    s, ds = _series(a, x, active & ~upper, True)
    f, df = _fraction(a, x, active & upper, True)
    below = ds + s * (log(x) - digamma(a + 1))
    above = df + f * (log(x) - digamma(a))
    value = where(upper, above * x, below * x / -a) if of_sample else where(upper, -(above * power), below * power / a)
    value = where((x == 0) | (x == np.inf), 0.0, value)
    return where(wrong | (a == 0), np.nan, value)


def _igamma_grad_a(a: Value, x: Value) -> Value:
    return _by_a(a, x, False)


def _random_gamma_grad(a: Value, x: Value) -> Value:
    return _by_a(a, x, True)


def _fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.uniform(0.2, 4, type.shape)


def _scipy(name: str) -> Any:
    def run(a: Array, x: Array) -> Array:
        import scipy.special  # takes 0.2 s to load; only evaluation needs it

        return np.where((a >= 0) & (x >= 0), getattr(scipy.special, name)(a, x), np.nan)

    return run


def _op(name: str, formula: Any, meaning: Any = None, jvp: Any = None) -> Any:
    run, emit = written(formula)
    jvp = jvp or Absent("no derivative of it is known", name, "jvp")
    dtypes = ("f32", "bf16", "f64")
    return elementwise(
        name, meaning or run, arity=2, accepts="float", emit=emit, jvp=jvp, fill=_fill, sample_dtypes=dtypes, widen=False
    )


igamma_grad_a = _op("igamma_grad_a", _igamma_grad_a)
random_gamma_grad = _op("random_gamma_grad", _random_gamma_grad)


def _density(a: Var, x: Var) -> Var:
    """dP/dx = x^(a - 1) e^-x / Γ(a)."""
    shape, place = Value(a), Value(x)
    return exp((shape - 1) * log(place) - place - lgamma(shape)).var


def _jvp(sign: Any) -> Any:
    def jvp(primals: Any, tangents: Any, outs: Any, params: Any) -> Any:
        (a, x), (da, dx) = primals, tangents
        by_a = None if da is None else multiply(sign(da), igamma_grad_a(a, x))
        by_x = None if dx is None else multiply(sign(dx), _density(a, x))
        return [add_tangents(by_a, by_x)]

    return jvp


igamma = _op("igamma", _igamma, _scipy("gammainc"), _jvp(lambda tangent: tangent))
igammac = _op("igammac", _igammac, _scipy("gammaincc"), _jvp(negate))
