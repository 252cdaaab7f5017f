"""`betainc`: the regularized incomplete beta function I_x(a, b).

By its continued fraction (DLMF 8.17.22) in the way of Lentz, Thompson and Barnett, which converges fast for
x < (a + 1) / (a + b + 2); beyond, I_x(a, b) = 1 - I_{1-x}(b, a).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, NoDerivative, Params
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.families import elementwise
from meshjit.ops.special.formula import Value, exp, infos, iterate, lgamma, log, log1p, where, written

Array = np.ndarray[Any, Any]


def _fraction(a: Value, b: Value, x: Value, active: Value, most: int) -> Value:
    """1 / (1 + n₁ / (1 + n₂ / (1 + …))), two numerators a step."""
    small, least = float(infos(x).eps) / 2, float(infos(x).tiny)

    def nonzero(v: Value) -> Value:
        return where(abs(v) < least, v.like(least), v)

    def turn(numerator: Value, c: Value, d: Value, f: Value) -> tuple[Value, Value, Value]:
        d = 1 / nonzero(1 + numerator * d)
        c = nonzero(1 + numerator / c)
        return c, d, f * c * d

    def step(a: Value, b: Value, x: Value, m: Value, c: Value, d: Value, f: Value) -> tuple[Value, list[Value]]:
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        c, d, f = turn(odd, c, d, f)
        m = m + 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        c, d, f = turn(even, c, d, f)
        return (abs(c * d - 1) > small) & (m < most), [m, c, d, f]

    one = x.like(1)
    return iterate(step, active, [x.like(0), x.like(np.inf), one, one], [a, b, x])[3]  # the first fraction has nothing above it


def _formula(a: Value, b: Value, x: Value) -> Value:
    wrong = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (a != a) | (b != b) | (x != x)
    low, high = (a == 0) | (b == np.inf), (b == 0) | (a == np.inf)  # all probability is at 0, at 1
    wrong = wrong | (low & high)
    swapped = x > (a + 1) / (a + b + 2)
    p, q, y = where(swapped, b, a), where(swapped, a, b), where(swapped, 1 - x, x)
    edge = (x == 0) | (x == 1) | low | high
    f = _fraction(p, q, y, ~(wrong | edge), 200 if x.var.dtype == np.float32 else 600)
    scale = exp(q * log1p(-y) + p * log(y) - (lgamma(p) + lgamma(q) - lgamma(p + q))) / p
    value = where(swapped, 1 - scale * f, scale * f)
    value = where(low, 1.0, where(high, 0.0, value))
    value = where(x == 0, 0.0, where(x == 1, 1.0, value))
    return where(wrong, np.nan, value)


def _meaning(a: Array, b: Array, x: Array) -> Array:
    import scipy.special  # takes 0.2 s to load; only evaluation needs it

    return scipy.special.betainc(a, b, x)


def _jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> list[Var | None]:
    """x^(a - 1) (1 - x)^(b - 1) / B(a, b)."""
    if tangents[0] is not None or tangents[1] is not None:
        return Absent("betainc: no derivative by a and b is known", "betainc", "jvp", NoDerivative)()
    if tangents[2] is None:
        return [None]
    a, b, x = map(Value, primals)
    slope = exp((b - 1) * log1p(-x) + (a - 1) * log(x) - (lgamma(a) + lgamma(b) - lgamma(a + b)))
    return [multiply(tangents[2], slope.var)]


def _fill(generator: np.random.Generator, index: int, type: Any) -> Array:
    return generator.uniform(0.2, 4, type.shape) if index < 2 else generator.uniform(0.05, 0.95, type.shape)


_, _emit = written(_formula)
betainc = elementwise(
    "betainc", _meaning, arity=3, accepts="float", emit=_emit, jvp=_jvp, fill=_fill, sample_dtypes=("f32", "bf16", "f64")
)
