"""Continuous distributions, each at standard position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.scipy import special
from meshjit.scipy.stats.distribution import Distribution, continuous, quantile, with_density, within

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

norm = continuous(
    "norm",
    "",
    lambda x: -x * x / 2 - HALF_LOG_2PI,
    cdf=special.ndtr,
    sf=lambda x: special.ndtr(-x),
    logcdf=special.log_ndtr,
    logsf=lambda x: special.log_ndtr(-x),
    ppf=special.ndtri,
    isf=lambda q: -special.ndtri(q),
    even=True,
    complex="logpdf",
    default_float="ppf isf",
)
cauchy = continuous(
    "cauchy",
    "",
    lambda x: -mnp.log1p(x * x) - math.log(math.pi),
    cdf=lambda x: 0.5 + mnp.arctan(x) / math.pi,
    sf=lambda x: 0.5 - mnp.arctan(x) / math.pi,
    ppf=lambda q: quantile(q, lambda q: mnp.tan(math.pi * (q - 0.5))),
    isf=lambda q: quantile(q, lambda q: mnp.tan(math.pi * (0.5 - q))),
    complex="logpdf cdf sf logcdf logsf",
)
expon = continuous(
    "expon",
    "",
    mnp.negative,
    cdf=lambda x: -mnp.expm1(-x),
    sf=lambda x: mnp.exp(-x),
    logsf=mnp.negative,
    logcdf=lambda x: mnp.log1p(-mnp.exp(-x)),
    ppf=lambda q: quantile(q, lambda q: -mnp.log1p(-q)),
    support=(0, None, 1),
    bounded="logpdf cdf sf logcdf logsf",
    weak="*",
)


def _laplace_cdf(x: Any) -> Any:
    below = x <= 0
    tail = mnp.exp(mnp.where(below, x, -x)) / 2
    return mnp.where(below, tail, 1 - tail)


laplace = continuous("laplace", "", lambda x: -mnp.abs(x) - math.log(2), cdf=_laplace_cdf, sf=lambda x: _laplace_cdf(-x))
logistic = continuous(
    "logistic",
    "",
    lambda x: -2 * mnp.logaddexp(x / 2, -x / 2),
    cdf=special.expit,
    sf=lambda x: special.expit(-x),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
    complex="*",
    weak="cdf sf ppf isf",
)


def _scaled_up(scale: Any, *shapes: Any) -> Any:
    return scale > 0



gumbel_r = continuous(
    "gumbel_r",
    "",
    lambda x: -x - mnp.exp(-x),
    cdf=lambda x: mnp.exp(-mnp.exp(-x)),
    logcdf=lambda x: -mnp.exp(-x),
    sf=lambda x: -mnp.expm1(-mnp.exp(-x)),
    ppf=lambda q: -mnp.log(-mnp.log(q)),
    valid=_scaled_up,
    weak="*",
)
gumbel_l = continuous(
    "gumbel_l",
    "",
    lambda x: x - mnp.exp(x),
    cdf=lambda x: -mnp.expm1(-mnp.exp(x)),
    sf=lambda x: mnp.exp(-mnp.exp(x)),
    logsf=lambda x: -mnp.exp(x),
    ppf=lambda q: mnp.log(-mnp.log1p(-q)),
    valid=_scaled_up,
    weak="*",
)
uniform = continuous(
    "uniform",
    "",
    lambda x: 0 * x,
    cdf=lambda x: x,
    ppf=lambda q: quantile(q, lambda q: q),
    support=(0, 1, 0.5),
    bounded="logpdf cdf sf logcdf logsf",
    weak="logpdf ppf",
)
pareto = continuous(
    "pareto",
    "b",
    lambda x, b: mnp.log(b) - (b + 1) * mnp.log(x),
    cdf=lambda x, b: -mnp.expm1(-b * mnp.log(x)),
    sf=lambda x, b: x**-b,
    logcdf=lambda x, b: mnp.log1p(-(x**-b)),
    logsf=lambda x, b: -b * mnp.log(x),
    ppf=lambda q, b: quantile(q, lambda q: mnp.exp(-mnp.log1p(-q) / b)),
    support=(1, None, 2),
    bounded="logpdf cdf sf logcdf logsf",
)
gamma = continuous(
    "gamma",
    "a",
    lambda x, a: special.xlogy(a - 1, x) - x - special.gammaln(a),
    cdf=lambda x, a: special.gammainc(a, mnp.maximum(x, 0)),
    sf=lambda x, a: special.gammaincc(a, mnp.maximum(x, 0)),
    support=(0, None, 1),
)
chi2 = continuous(
    "chi2",
    "df",
    lambda x, df: special.xlogy(df / 2 - 1, x) - x / 2 - df / 2 * math.log(2) - special.gammaln(df / 2),
    cdf=lambda x, df: special.gammainc(df / 2, mnp.maximum(x, 0) / 2),
    sf=lambda x, df: special.gammaincc(df / 2, mnp.maximum(x, 0) / 2),
    support=(0, None, 1),
)
beta = continuous(
    "beta",
    "a b",
    lambda x, a, b: special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b),
    cdf=lambda x, a, b: special.betainc(a, b, mnp.clip(x, 0, 1)),
    sf=lambda x, a, b: special.betainc(b, a, 1 - mnp.clip(x, 0, 1)),
    support=(0, 1, 0.5),
    valid=lambda scale, a, b: (a > 0) & (b > 0) & (scale > 0),
    valid_of="logpdf",
    complex="cdf sf logcdf logsf",  # betainc refuses them, with an error of its own
    weak="sf logsf",
)
t = continuous(
    "t",
    "df",
    lambda x, df: (
        special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - (mnp.log(df * math.pi) + (df + 1) * mnp.log1p(x * x / df)) / 2
    ),
    even=True,
)
gennorm = with_density(
    Distribution(
        "gennorm",
        "beta",
        {
            "logpdf": lambda x, beta: mnp.log(beta / 2) - special.gammaln(1 / beta) - mnp.abs(x) ** beta,
            "cdf": lambda x, beta: 0.5 + mnp.sign(x) * special.gammainc(1 / beta, mnp.abs(x) ** beta) / 2,
        },
        moves=False,
        weak="*",
    ),
    "logpdf",
    "pdf",
)
vonmises = continuous(
    "vonmises",
    "kappa",
    lambda x, kappa: mnp.where(
        kappa > 0, kappa * (mnp.cos(x) - 1) - math.log(2 * math.pi) - mnp.log(special.i0e(mnp.maximum(kappa, 0))), np.nan
    ),
    moves=False,
    weak="*",
)
wrapcauchy = continuous(
    "wrapcauchy",
    "c",
    lambda x, c: mnp.where(
        (c > 0) & (c < 1),
        within(
            (x < 0) | (x > 2 * math.pi),
            lambda x: mnp.log((1 - c * c) / (2 * math.pi)) - mnp.log1p(c * c - 2 * c * mnp.cos(x)),
            x,
            0,
        ),
        np.nan,
    ),
    moves=False,
    weak="*",
)


def _log_difference(x: Any, y: Any) -> Any:
    """log(exp(x) - exp(y)) of x > y."""
    return x + mnp.log1p(-mnp.exp(y - x))


def _log_mass(a: Any, b: Any) -> Any:
    """The log of the probability between a and b, on the side of 0 where it is precise."""
    left = _log_difference(special.log_ndtr(mnp.where(b <= 0, b, 1)), special.log_ndtr(mnp.where(b <= 0, a, 0)))
    right = _log_difference(special.log_ndtr(mnp.where(a > 0, -a, 1)), special.log_ndtr(mnp.where(a > 0, -b, 0)))
    spans = (b > 0) & (a <= 0)
    both = mnp.log1p(-special.ndtr(mnp.where(spans, a, -1)) - special.ndtr(mnp.where(spans, -b, -1)))
    return mnp.where(b <= 0, left, mnp.where(a > 0, right, both))


def _truncated_logcdf(x: Any, a: Any, b: Any) -> Any:
    inside = (x > a) & (x < b)
    value = _log_mass(a, mnp.where(inside, x, b)) - _log_mass(a, b)
    return mnp.where((a >= b) | mnp.isnan(x), np.nan, mnp.where(x <= a, -np.inf, mnp.where(x >= b, 0, value)))


def _truncated_logsf(x: Any, a: Any, b: Any) -> Any:
    return _truncated_logcdf(-x, -b, -a)


truncnorm = continuous(
    "truncnorm",
    "a b",
    lambda x, a, b: mnp.where(
        a >= b, np.nan, within((x < a) | (x > b), lambda x: -x * x / 2 - HALF_LOG_2PI - _log_mass(a, b), x, 0)
    ),
    logcdf=_truncated_logcdf,
    logsf=_truncated_logsf,
    cdf=lambda *xs: mnp.exp(_truncated_logcdf(*xs)),
    sf=lambda *xs: mnp.exp(_truncated_logsf(*xs)),
    even=True,
)
