"""`jax.scipy.stats`: densities and distribution functions, `norm.logpdf(x, loc, scale)`, elementwise on floats of one dtype.

A distribution is its log density and what else has a formula, at standard position (loc 0, scale 1); `_Distribution` derives the
rest. Not there yet: distribution functions that need incomplete gamma and beta functions, `vonmises`, `gaussian_kde`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from meshjit import numpy as mnp
from meshjit.lax import cummax
from meshjit.missing import explain as _explain
from meshjit.numpy import linalg
from meshjit.numpy.promote import broadcast_all, promoted
from meshjit.scipy import special
from meshjit.scipy.linalg import solve_triangular

Function = Callable[..., Any]


def _floats(*xs: Any) -> list[Any]:
    return [mnp.asarray(x) for x in broadcast_all(promoted(*xs, inexact=True)[0])]


def _within(outside: Any, log: Function, x: Any, inner: float) -> Any:
    """log(x), and -inf outside, where it is computed at `inner` instead, so that derivatives there are 0. nan is not outside."""
    return mnp.where(outside, -np.inf, log(mnp.where(outside, inner, x)))


def _quantile(q: Any, inverse: Function) -> Any:
    """nan for q that is no probability."""
    return mnp.where((q < 0) | (q > 1), np.nan, inverse(q))


class _Distribution:
    """The functions of a distribution as attributes, each with JAX's parameters: x (k of a discrete one, q of ppf and isf), the
    shape parameters, loc, and scale of a continuous one."""

    def __init__(
        self, name: str, parameters: str, functions: dict[str, Function], discrete: bool = False, moves: bool = True
    ) -> None:
        names = parameters.split()
        for key, function in functions.items():
            first = "q" if key in ("ppf", "isf") else "k" if discrete else "x"
            settings = (["loc"] if discrete else ["loc", "scale"]) if moves else []
            setattr(self, key, _function(f"{name}.{key}", key, [first, *names], settings, function))
        self.__name__ = name


def _function(name: str, key: str, required: Sequence[str], settings: Sequence[str], function: Function) -> Function:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {"loc": 0, "scale": 1}
    parameters = [inspect.Parameter(n, kind) for n in required] + [
        inspect.Parameter(n, kind, default=defaults[n]) for n in settings
    ]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        x, *rest = _floats(*bound.arguments.values())
        shapes, position = rest[: len(required) - 1], rest[len(required) - 1 :]
        loc, scale = (*position, *(mnp.zeros_like(x), mnp.ones_like(x))[len(position) :])
        if key in ("ppf", "isf"):
            return loc + scale * function(x, *shapes)
        value = function((x - loc) / scale if "scale" in settings else x - loc, *shapes)
        if "scale" not in settings:
            return value
        return value - mnp.log(scale) if key == "logpdf" else value / scale if key == "pdf" else value

    call.__name__, call.__qualname__ = key, name
    call.__doc__ = f"`jax.scipy.stats.{name}`."
    vars(call)["__signature__"] = signature
    return call


def _continuous(name: str, parameters: str, logpdf: Function, moves: bool = True, **functions: Function) -> _Distribution:
    """With pdf from logpdf, and of cdf, sf, logcdf and logsf what the others give."""
    known = {"logpdf": logpdf, "pdf": lambda *a: mnp.exp(logpdf(*a)), **functions}
    if "cdf" in known:
        cdf = known["cdf"]
        known.setdefault("sf", lambda *a: 1 - cdf(*a))
        sf = known["sf"]
        known.setdefault("logcdf", lambda *a: mnp.log(cdf(*a)))
        known.setdefault("logsf", lambda *a: mnp.log(sf(*a)))
    return _Distribution(name, parameters, known, moves=moves)


def _discrete(name: str, parameters: str, logpmf: Function, moves: bool = True, **functions: Function) -> _Distribution:
    known = {"logpmf": logpmf, "pmf": lambda *a: mnp.exp(logpmf(*a)), **functions}
    return _Distribution(name, parameters, known, discrete=True, moves=moves)


# -- continuous, at standard position


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

norm = _continuous(
    "norm",
    "",
    lambda x: -x * x / 2 - _HALF_LOG_2PI,
    cdf=special.ndtr,
    sf=lambda x: special.ndtr(-x),
    logcdf=special.log_ndtr,
    logsf=lambda x: special.log_ndtr(-x),
    ppf=special.ndtri,
    isf=lambda q: -special.ndtri(q),
)
cauchy = _continuous(
    "cauchy",
    "",
    lambda x: -mnp.log1p(x * x) - math.log(math.pi),
    cdf=lambda x: 0.5 + mnp.arctan(x) / math.pi,
    sf=lambda x: 0.5 - mnp.arctan(x) / math.pi,
    ppf=lambda q: _quantile(q, lambda q: mnp.tan(math.pi * (q - 0.5))),
    isf=lambda q: _quantile(q, lambda q: mnp.tan(math.pi * (0.5 - q))),
)
expon = _continuous(
    "expon",
    "",
    lambda x: _within(x < 0, mnp.negative, x, 0),
    cdf=lambda x: mnp.where(x < 0, 0, -mnp.expm1(-x)),
    sf=lambda x: mnp.where(x < 0, 1, mnp.exp(-x)),
    logsf=lambda x: mnp.where(x < 0, 0, -x),
    logcdf=lambda x: _within(x < 0, lambda x: mnp.log1p(-mnp.exp(-x)), x, 1),
    ppf=lambda q: _quantile(q, lambda q: -mnp.log1p(-q)),
)


def _laplace_cdf(x: Any) -> Any:
    tail = mnp.exp(-mnp.abs(x)) / 2
    return mnp.where(x <= 0, tail, 1 - tail)


laplace = _continuous("laplace", "", lambda x: -mnp.abs(x) - math.log(2), cdf=_laplace_cdf, sf=lambda x: _laplace_cdf(-x))
logistic = _continuous(
    "logistic",
    "",
    lambda x: -x - 2 * mnp.logaddexp(0, -x),
    cdf=special.expit,
    sf=lambda x: special.expit(-x),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
)
gumbel_r = _continuous(
    "gumbel_r",
    "",
    lambda x: -x - mnp.exp(-x),
    cdf=lambda x: mnp.exp(-mnp.exp(-x)),
    logcdf=lambda x: -mnp.exp(-x),
    sf=lambda x: -mnp.expm1(-mnp.exp(-x)),
    ppf=lambda q: -mnp.log(-mnp.log(q)),
)
gumbel_l = _continuous(
    "gumbel_l",
    "",
    lambda x: x - mnp.exp(x),
    cdf=lambda x: -mnp.expm1(-mnp.exp(x)),
    sf=lambda x: mnp.exp(-mnp.exp(x)),
    logsf=lambda x: -mnp.exp(x),
    ppf=lambda q: mnp.log(-mnp.log1p(-q)),
)
uniform = _continuous(
    "uniform",
    "",
    lambda x: _within((x < 0) | (x > 1), lambda x: 0 * x, x, 0),
    cdf=lambda x: mnp.clip(x, 0, 1),
    ppf=lambda q: _quantile(q, lambda q: q),
)
pareto = _continuous(
    "pareto",
    "b",
    lambda x, b: _within(x < 1, lambda x: mnp.log(b) - (b + 1) * mnp.log(x), x, 1),
    cdf=lambda x, b: -mnp.expm1(-b * mnp.log(mnp.maximum(x, 1))),
    sf=lambda x, b: mnp.maximum(x, 1) ** -b,
    logsf=lambda x, b: -b * mnp.log(mnp.maximum(x, 1)),
    ppf=lambda q, b: _quantile(q, lambda q: mnp.exp(-mnp.log1p(-q) / b)),
)
gamma = _continuous("gamma", "a", lambda x, a: _within(x < 0, lambda x: special.xlogy(a - 1, x) - x - special.gammaln(a), x, 1))
chi2 = _continuous(
    "chi2",
    "df",
    lambda x, df: _within(
        x < 0, lambda x: special.xlogy(df / 2 - 1, x) - x / 2 - df / 2 * math.log(2) - special.gammaln(df / 2), x, 1
    ),
)
beta = _continuous(
    "beta",
    "a b",
    lambda x, a, b: _within(
        (x < 0) | (x > 1), lambda x: special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b), x, 0.5
    ),
)
t = _continuous(
    "t",
    "df",
    lambda x, df: (
        special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - (mnp.log(df * math.pi) + (df + 1) * mnp.log1p(x * x / df)) / 2
    ),
)
gennorm = _Distribution(
    "gennorm",
    "beta",
    {
        "logpdf": lambda x, beta: mnp.log(beta / 2) - special.gammaln(1 / beta) - mnp.abs(x) ** beta,
        "pdf": lambda x, beta: mnp.exp(mnp.log(beta / 2) - special.gammaln(1 / beta) - mnp.abs(x) ** beta),
    },
    moves=False,
)
wrapcauchy = _continuous(
    "wrapcauchy",
    "c",
    lambda x, c: mnp.where(
        (c > 0) & (c < 1),
        _within(
            (x < 0) | (x > 2 * math.pi),
            lambda x: mnp.log((1 - c * c) / (2 * math.pi)) - mnp.log1p(c * c - 2 * c * mnp.cos(x)),
            x,
            0,
        ),
        np.nan,
    ),
    moves=False,
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


truncnorm = _continuous(
    "truncnorm",
    "a b",
    lambda x, a, b: mnp.where(
        a >= b, np.nan, _within((x < a) | (x > b), lambda x: -x * x / 2 - _HALF_LOG_2PI - _log_mass(a, b), x, 0)
    ),
    logcdf=_truncated_logcdf,
    logsf=_truncated_logsf,
    cdf=lambda *xs: mnp.exp(_truncated_logcdf(*xs)),
    sf=lambda *xs: mnp.exp(_truncated_logsf(*xs)),
)

# -- discrete


def _log_choose(n: Any, k: Any) -> Any:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)


bernoulli = _Distribution(
    "bernoulli",
    "p",
    {
        "logpmf": lambda k, p: _within((k != 0) & (k != 1), lambda k: special.xlogy(k, p) + special.xlog1py(1 - k, -p), k, 0),
        "pmf": lambda k, p: mnp.where((k == 0) | (k == 1), mnp.where(k == 1, p, 1 - p), 0),
        "cdf": lambda k, p: mnp.where((p < 0) | (p > 1), np.nan, mnp.where(k < 0, 0, mnp.where(k < 1, 1 - p, 1))),
        "ppf": lambda q, p: mnp.where((q < 0) | (q > 1) | (p < 0) | (p > 1), np.nan, mnp.where(q <= 1 - p, 0, 1)),
    },
    discrete=True,
)
binom = _discrete(
    "binom",
    "n p",
    lambda k, n, p: _within(
        (k < 0) | (k > n), lambda k: _log_choose(n, k) + special.xlogy(k, p) + special.xlog1py(n - k, -p), k, 0
    ),
)
nbinom = _discrete(
    "nbinom",
    "n p",
    lambda k, n, p: _within(
        k < 0,
        lambda k: (
            special.gammaln(k + n) - special.gammaln(n) - special.gammaln(k + 1) + special.xlogy(n, p) + special.xlog1py(k, -p)
        ),
        k,
        0,
    ),
)
geom = _discrete("geom", "p", lambda k, p: _within(k <= 0, lambda k: special.xlog1py(k - 1, -p) + mnp.log(p), k, 1))
poisson = _discrete(
    "poisson",
    "mu",
    lambda k, mu: _within((k < 0) | (k != mnp.floor(k)), lambda k: special.xlogy(k, mu) - special.gammaln(k + 1) - mu, k, 0),
)
betabinom = _discrete(
    "betabinom",
    "n a b",
    lambda k, n, a, b: _within(
        (k < 0) | (k > n), lambda k: _log_choose(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b), k, 0
    ),
)

# -- of vectors


class multivariate_normal:  # noqa: N801 - JAX's name of a module
    """`jax.scipy.stats.multivariate_normal`."""

    @staticmethod
    def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Any:
        """Of x (..., n), mean (..., n) and cov (..., n, n); a scalar cov is a variance.

        NotImplementedError for allow_singular."""
        if allow_singular is not None:
            raise NotImplementedError(
                "multivariate_normal.logpdf: allow_singular is not there, in JAX neither\n  fix: leave it out"
            )
        x, mean, cov = (mnp.asarray(a) for a in promoted(x, mean, cov, inexact=True)[0])
        if not mean.shape:
            return -((x - mean) ** 2) / cov / 2 - _HALF_LOG_2PI - mnp.log(cov) / 2
        n = mean.shape[-1]
        if not cov.shape:
            y = x - mean
            return -mnp.einsum("...i,...i->...", y, y) / cov / 2 - n * (_HALF_LOG_2PI + mnp.log(cov) / 2)
        factor = linalg.cholesky(cov)
        batch = mnp.broadcast_shapes(x.shape[:-1], mean.shape[:-1], cov.shape[:-2])
        y = mnp.broadcast_to(x - mean, (*batch, n))[..., None]
        y = solve_triangular(mnp.broadcast_to(factor, (*batch, n, n)), y, lower=True)[..., 0]
        return (
            -mnp.einsum("...i,...i->...", y, y) / 2
            - n * _HALF_LOG_2PI
            - mnp.log(mnp.diagonal(factor, axis1=-1, axis2=-2)).sum(-1)
        )

    @staticmethod
    def pdf(x: Any, mean: Any, cov: Any) -> Any:
        return mnp.exp(multivariate_normal.logpdf(x, mean, cov))


class dirichlet:  # noqa: N801
    """`jax.scipy.stats.dirichlet`."""

    @staticmethod
    def logpdf(x: Any, alpha: Any) -> Any:
        """Of x (n, ...) on the simplex, or (n - 1, ...) without its last part, and alpha (n,)."""
        x, alpha = (mnp.asarray(a) for a in promoted(x, alpha, inexact=True)[0])
        if alpha.ndim != 1:
            raise ValueError(f"dirichlet.logpdf: alpha has shape {alpha.shape}, not one dim")
        if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
            raise ValueError(f"dirichlet.logpdf: x has {x.shape[0]} parts, alpha has {alpha.shape[0]}")
        if x.shape[0] == alpha.shape[0] - 1:
            x = mnp.concatenate([x, 1 - x.sum(0, keepdims=True)])
        powers = alpha.reshape(-1, *[1] * (x.ndim - 1))
        norm = special.gammaln(alpha).sum() - special.gammaln(alpha.sum())
        inside = (x > 0).all(0) & (mnp.abs(x.sum(0) - 1) < 1e-6)
        return mnp.where(inside, special.xlogy(powers - 1, x).sum(0) - norm, -np.inf)

    @staticmethod
    def pdf(x: Any, alpha: Any) -> Any:
        return mnp.exp(dirichlet.logpdf(x, alpha))


class multinomial:  # noqa: N801
    """`jax.scipy.stats.multinomial`."""

    @staticmethod
    def logpmf(x: Any, n: Any, p: Any) -> Any:
        """Of counts x (..., k) that sum to n, and probabilities p (..., k)."""
        x, n, p = (mnp.asarray(a) for a in promoted(x, n, p, inexact=True)[0])
        log = special.gammaln(n + 1) + (special.xlogy(x, p) - special.gammaln(x + 1)).sum(-1)
        return mnp.where(x.sum(-1) == n, log, -np.inf)

    @staticmethod
    def pmf(x: Any, n: Any, p: Any) -> Any:
        return mnp.exp(multinomial.logpmf(x, n, p))


# -- of samples


class ModeResult(NamedTuple):
    mode: Any
    count: Any


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (None: of all), the least of several, and how often it occurs.

    NotImplementedError for another nan_policy than "propagate"."""
    _require_propagate("mode", nan_policy)
    x = mnp.ravel(a) if axis is None else mnp.moveaxis(mnp.asarray(a), axis, -1)
    x = mnp.sort(x)
    first = mnp.concatenate([mnp.ones_like(x[..., :1], bool), x[..., 1:] != x[..., :-1]], -1)
    place = mnp.arange(x.shape[-1])
    start = cummax(mnp.where(first, place, 0), axis=x.ndim - 1)
    best = mnp.argmax(place - start, axis=-1, keepdims=True)
    value, count = mnp.take_along_axis(x, best, -1), mnp.max(place - start, axis=-1, keepdims=True) + 1
    if axis is None:
        shape = (1,) * mnp.ndim(a) if keepdims else ()
        return ModeResult(value.reshape(shape), count.reshape(shape))
    value, count = (mnp.moveaxis(v, -1, axis) for v in (value, count))
    return ModeResult(value, count) if keepdims else ModeResult(value.squeeze(axis), count.squeeze(axis))


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Any:
    """The standard error of the mean; nan_policy "omit" leaves nan out."""
    if nan_policy not in ("propagate", "omit"):
        raise NotImplementedError(f"sem: nan_policy={nan_policy!r}\n  fix: 'propagate' or 'omit'")
    (x,) = _floats(a)
    if nan_policy == "omit":
        count = (~mnp.isnan(x)).sum(axis, keepdims=keepdims)
        return mnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / mnp.sqrt(count.astype(x.dtype))
    count = x.size if axis is None else x.shape[axis]
    return mnp.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(count)


def _require_propagate(name: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise NotImplementedError(f"{name}: nan_policy={nan_policy!r} is not there\n  fix: nan_policy='propagate'")


_explain(__name__)
