"""Distributions of whole numbers, at loc 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.scipy import special
from meshjit.scipy.operands import floats, strong
from meshjit.scipy.stats.distribution import Distribution, discrete, within


def _no_probability(p: Any) -> Any:
    return (p < 0) | (p > 1)


def _log_choose(n: Any, k: Any) -> Any:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


bernoulli = Distribution(
    "bernoulli",
    "p",
    {
        "logpmf": lambda k, p: within((k != 0) & (k != 1), lambda k: special.xlogy(k, p) + special.xlog1py(1 - k, -p), k, 0),
        "pmf": lambda k, p: mnp.where(
            (k == 0) | (k == 1), mnp.where(_no_probability(p), np.nan, mnp.where(k == 1, p, 1 - p)), 0
        ),
        "cdf": lambda k, p: mnp.where(k < 0, 0, mnp.where(k < 1, 1 - p, 1)),
        "ppf": lambda q, p: mnp.where((q < 0) | (q > 1) | _no_probability(p), np.nan, mnp.where(q <= 1 - p, 0, 1)),
    },
    discrete=True,
    valid=lambda scale, p: ~_no_probability(p),
    valid_of="cdf",
)
binom = discrete(
    "binom",
    "n p",
    lambda k, n, p: within(
        (k < 0) | (k > n), lambda k: _log_choose(n, k) + special.xlogy(k, p) + special.xlog1py(n - k, -p), k, 0
    ),
)
nbinom = discrete(
    "nbinom",
    "n p",
    lambda k, n, p: within(
        k < 0,
        lambda k: (
            special.gammaln(k + n) - special.gammaln(n) - special.gammaln(k + 1) + special.xlogy(n, p) + special.xlog1py(k, -p)
        ),
        k,
        0,
    ),
)
geom = discrete("geom", "p", lambda k, p: within(k <= 0, lambda k: special.xlog1py(k - 1, -p) + mnp.log(p), k, 1))
poisson = discrete(
    "poisson",
    "mu",
    lambda k, mu: within((k < 0) | (k != mnp.floor(k)), lambda k: special.xlogy(k, mu) - special.gammaln(k + 1) - mu, k, 0),
    cdf=lambda k, mu: mnp.where(k < 0, 0, special.gammaincc(strong(mnp.floor(mnp.maximum(k, 0)) + 1), mu)),
)
_ASKED = 300  # beyond mu + 20 sqrt(mu) of mu = 100 no number has a probability that float32 can tell from 0


def _poisson_entropy(mu: Any, loc: Any = 0) -> Any:
    """`jax.scipy.stats.poisson.entropy`: -Σ p log p, summed up to mu = 100, above by its series in 1 / mu."""
    mu = floats(mu, loc)[0]
    small = mnp.where(mu <= 100, mu, 1)
    log = vars(poisson)["logpmf"](mnp.arange(_ASKED), small[..., None])
    summed = -mnp.sum(mnp.exp(log) * mnp.where(mnp.isfinite(log), log, 0), -1)
    large = mnp.where(mu > 100, mu, 101)
    series = 0.5 * mnp.log(2 * np.pi * np.e * large) - 1 / (12 * large) - 1 / (24 * large**2) - 19 / (360 * large**3)
    return mnp.where(mu < 0, np.nan, mnp.where(mu <= 100, summed, series))


poisson.entropy = _poisson_entropy  # pyright: ignore[reportAttributeAccessIssue]
betabinom = discrete(
    "betabinom",
    "n a b",
    lambda k, n, a, b: within(
        (k < 0) | (k > n), lambda k: _log_choose(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b), k, 0
    ),
)
