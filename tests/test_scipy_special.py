"""`meshjit.scipy.special` and `meshjit.scipy.stats` against SciPy: values on a grid with limits, dtypes, derivatives."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import meshjit as mj
from meshjit.scipy import special, stats
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

X = np.array([-30, -3.5, -2, -1, -0.5, 0, 0.1, 0.3, 0.5, 1, 2, 2.5, 7, 50, np.inf, -np.inf, np.nan], np.float32)
Y = np.array([0.5, 0, 1, 2, 3, 0, 0.2, 4, 0.5, 0, 5, -1, 2.5, 3, 1, 1, 1], np.float32)
INSIDE = np.array([0.15, 0.4, 0.85, 1.5, 3.2], np.float32)
UNARY = "erf erfc erfinv digamma gammaln expit logit gamma factorial entr ndtr log_ndtr".split()
BINARY = "betaln beta xlogy xlog1py rel_entr kl_div boxcox boxcox1p".split()
ONE_SIDED = {  # elsewhere float32 is too narrow, or SciPy takes no part
    "gamma": [-3.5, -0.5, 0.1, 2, 7],
    "factorial": [-1, 0, 0.5, 3, 12],
    "betaln": [-3.5, 0.1, 2, 7, 50],
    "boxcox": [0.1, 0.5, 1, 2, 7],
    "boxcox1p": [-0.5, 0.1, 1, 2, 7],
    "beta": [0.1, 0.3, 2, 7, 50],
}

# Shape parameters; where the distribution lies.
CONTINUOUS: dict[str, tuple[float, ...]] = {
    "norm": (), "cauchy": (), "expon": (), "laplace": (), "logistic": (), "gumbel_r": (), "gumbel_l": (), "uniform": (),
    "pareto": (2.5,), "gamma": (2.0,), "chi2": (3.0,), "beta": (2.0, 0.5), "t": (4.0,), "gennorm": (1.5,), "wrapcauchy": (0.3,),
    "truncnorm": (-1.0, 2.0),
}  # fmt: skip
DISCRETE: dict[str, tuple[float, ...]] = {
    "bernoulli": (0.3,), "binom": (5, 0.3), "nbinom": (3, 0.4), "geom": (0.3,), "poisson": (2.5,), "betabinom": (5, 1.5, 2.0),
}  # fmt: skip


def close(ours: Any, theirs: Any, tolerance: float = 3e-5) -> None:
    assert host(ours).dtype == np.float32
    np.testing.assert_allclose(host(ours), theirs, rtol=tolerance, atol=3e-6)


def slope(function: Any, x: Any) -> Any:
    """By central differences, in 64 bits."""
    x = np.asarray(x, np.float64)
    return (function(x + 1e-6) - function(x - 1e-6)) / 2e-6


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name: str) -> None:
    points = np.array(ONE_SIDED.get(name, X), np.float32)
    with np.errstate(all="ignore"):
        close(getattr(special, name)(points), getattr(scipy.special, name)(points.astype(np.float64)))
        inside = INSIDE[:3]
        close(mj.vmap(mj.grad(getattr(special, name)))(inside), slope(getattr(scipy.special, name), inside), 1e-3)
    close(getattr(special, name)(np.array([1, 2], np.int32)), getattr(scipy.special, name)(np.array([1.0, 2.0])))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments(name: str) -> None:
    points = np.array(ONE_SIDED.get(name, X), np.float32)
    second = Y[: len(points)] if name not in ("beta", "betaln") else np.linspace(0.5, 3, len(points), dtype=np.float32)
    with np.errstate(all="ignore"):
        close(getattr(special, name)(points, second), getattr(scipy.special, name)(points.astype(np.float64), second))
    for i in range(2):
        args = [INSIDE, INSIDE[::-1].copy()]
        wide = [a.astype(np.float64) for a in args]
        theirs = slope(lambda x, i=i, w=wide: getattr(scipy.special, name)(*(x if i == j else w[j] for j in range(2))), args[i])
        close(mj.vmap(mj.grad(getattr(special, name), i))(*args), theirs, 1e-3)


SHAPES = np.array([0.05, 0.5, 1, 2, 3.5, 10, 50, 0.3, 200, 4], np.float32)
PLACES = np.array([0.1, 0.1, 2, 1, 10, 9, 60, 0, 180, np.inf], np.float32)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    close(ours(SHAPES, PLACES), theirs(SHAPES.astype(np.float64), PLACES), 1e-4)
    assert np.isnan(host(ours(np.array([-1, 1, np.nan], np.float32), np.array([1, -1, 1], np.float32)))).all()
    inside = [SHAPES[:7], PLACES[:7]]
    for i in range(2):
        wide = [a.astype(np.float64) for a in inside]
        slopes = slope(lambda x, i=i, w=wide: theirs(*(x if i == j else w[j] for j in range(2))), inside[i])
        close(mj.vmap(mj.grad(ours, i))(*inside), slopes, 2e-3)


def test_incomplete_beta_function() -> None:
    a, b = SHAPES[:8], SHAPES[:8][::-1].copy()
    x = np.array([0.2, 0.1, 0.9, 0.5, 0.01, 0, 1, 0.99], np.float32)
    close(special.betainc(a, b, x), scipy.special.betainc(a.astype(np.float64), b, x), 1e-4)
    wide = a[:5].astype(np.float64), b[:5].astype(np.float64)
    slopes = slope(lambda x: scipy.special.betainc(*wide, x), x[:5])
    close(mj.vmap(mj.grad(special.betainc, 2))(a[:5], b[:5], x[:5]), slopes, 2e-3)
    assert np.isnan(host(special.betainc(np.float32(1), np.float32(1), np.array([-0.1, 1.1], np.float32)))).all()


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e"])
def test_bessel_functions(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    points = np.array([-20, -3, 0, 0.1, 7.9, 8, 8.1, 50], np.float32)
    close(ours(points), theirs(points.astype(np.float64)))
    close(mj.vmap(mj.grad(ours))(points[1:5]), slope(theirs, points[1:5]), 1e-3)
    with mj.enable_x64(True):
        many = np.linspace(-20, 20, 101)
        np.testing.assert_allclose(host(ours(many)), theirs(many), rtol=1e-12)


def test_zeta_of_hurwitz() -> None:
    close(special.zeta(SHAPES[:7] + 1, PLACES[:7] + 0.5), scipy.special.zeta(SHAPES[:7] + 1.0, PLACES[:7] + 0.5), 1e-4)
    slopes = slope(lambda q: scipy.special.zeta(2.5, q), INSIDE)
    close(mj.vmap(mj.grad(lambda q: special.zeta(2.5, q)))(INSIDE), slopes, 1e-3)


def test_functions_with_integers() -> None:
    n = np.array([5, 5, 6, 3], np.float32)
    k = np.array([0, 2, 3, 4], np.float32)
    close(special.comb(n, k), scipy.special.comb(n, k))
    close(special.comb(5, 2, repetition=True), scipy.special.comb(5, 2, repetition=True))
    close(special.poch(n, k), scipy.special.poch(n, k))
    close(special.polygamma(2, INSIDE), scipy.special.polygamma(2, INSIDE))
    close(special.multigammaln(n, 2), scipy.special.multigammaln(n, 2))
    close(special.gammasgn(X[:-3]), scipy.special.gammasgn(X[:-3].astype(np.float64)))


def test_the_normal_quantile_is_precise_in_its_tails() -> None:
    p = np.array([0, 1e-30, 1e-12, 1e-5, 0.01, 0.2, 0.5, 0.7, 0.999, 1, 2, -1, np.nan], np.float32)
    close(special.ndtri(p), scipy.special.ndtri(p.astype(np.float64)))
    with mj.enable_x64(True):
        np.testing.assert_allclose(special.ndtri(p.astype(np.float64)), scipy.special.ndtri(p.astype(np.float64)), rtol=1e-12)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("position", [(), (0.5, 2.0)])
def test_continuous_distributions(name: str, position: tuple[float, ...]) -> None:
    ours, theirs, shape = getattr(stats, name), getattr(scipy.stats, name), CONTINUOUS[name]
    if position and name in ("gennorm", "wrapcauchy"):
        return  # JAX's have no position
    points = np.array([-3, -1, -0.5, 0.05, 0.1, 0.4, 0.9, 1.5, 2, 5, 30, np.nan], np.float32)
    for key in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"):
        if hasattr(ours, key):
            with np.errstate(all="ignore"):
                close(
                    getattr(ours, key)(points, *shape, *position),
                    getattr(theirs, key)(points.astype(np.float64), *shape, *position),
                    2e-4,
                )
    for key in ("ppf", "isf"):
        if hasattr(ours, key):
            q = np.array([0.001, 0.3, 0.5, 0.9, 1.2], np.float32)
            with np.errstate(all="ignore"):
                close(
                    getattr(ours, key)(q, *shape, *position), getattr(theirs, key)(q.astype(np.float64), *shape, *position), 2e-4
                )


@pytest.mark.parametrize("name", CONTINUOUS)
def test_log_densities_have_finite_derivatives_outside(name: str) -> None:
    points = np.array([-3, -0.5, 0.3, 0.6, 1.7, 9], np.float32)
    assert np.isfinite(host(mj.vmap(mj.grad(lambda x: getattr(stats, name).logpdf(x, *CONTINUOUS[name])))(points))).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name: str) -> None:
    ours, theirs, shape = getattr(stats, name), getattr(scipy.stats, name), DISCRETE[name]
    k = np.array([-1, 0, 1, 2, 3, 5, 7], np.int32)
    close(ours.logpmf(k, *shape), theirs.logpmf(k, *shape))
    close(ours.pmf(k, *shape, loc=1), theirs.pmf(k, *shape, loc=1))
    if hasattr(ours, "cdf"):
        close(ours.cdf(k, *shape), theirs.cdf(k, *shape))


def test_functions_have_the_parameters_of_jax() -> None:
    assert str(inspect.signature(stats.norm.logpdf)) == "(x, loc=0, scale=1)"
    assert str(inspect.signature(stats.beta.pdf)) == "(x, a, b, loc=0, scale=1)"
    assert str(inspect.signature(stats.binom.pmf)) == "(k, n, p, loc=0)"
    assert str(inspect.signature(stats.norm.ppf)) == "(q, loc=0, scale=1)"


def test_distributions_of_vectors() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 3))
    cov, x = (a @ a.T + np.eye(3)).astype(np.float32), rng.normal(size=(5, 3)).astype(np.float32)
    normal = scipy.stats.multivariate_normal
    close(stats.multivariate_normal.logpdf(x, x[0], cov), normal.logpdf(x, x[0], cov))
    close(stats.multivariate_normal.pdf(x, x[0], 2.0), normal.pdf(x, x[0], 2.0 * np.eye(3)))
    both = stats.multivariate_normal.logpdf(x[:, None], x[:2], np.stack([cov, 2 * cov]))
    close(both[:, 1], normal.logpdf(x, x[1], 2 * cov))
    p = np.array([0.2, 0.5, 0.3], np.float32)
    alpha = np.array([1, 2, 3], np.float32)
    close(stats.dirichlet.logpdf(p, alpha), scipy.stats.dirichlet.logpdf(p.astype(np.float64) / p.sum(dtype=np.float64), alpha))
    close(stats.dirichlet.pdf(p[:2], alpha), scipy.stats.dirichlet.pdf(p[:2], alpha))
    counts = np.array([1, 2, 3], np.int32)
    close(stats.multinomial.pmf(counts, 6, p), scipy.stats.multinomial.pmf(counts, 6, p))
    with pytest.raises(ValueError, match=r"x has 5 parts, alpha has 3"):
        stats.dirichlet.logpdf(np.ones(5, np.float32), alpha)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_samples(axis: int | None, keepdims: bool) -> None:
    x = np.random.default_rng(1).integers(0, 3, (4, 6)).astype(np.float32)
    ours, theirs = stats.mode(x, axis, keepdims=keepdims), scipy.stats.mode(x, axis, keepdims=keepdims)
    np.testing.assert_array_equal(host(ours.mode), theirs.mode)
    np.testing.assert_array_equal(host(ours.count), theirs.count)
    if not keepdims:
        close(stats.sem(x, axis), scipy.stats.sem(x, axis))


def test_softmax_is_of_all_elements_unless_an_axis_is_named() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("softmax", "log_softmax"):
        for named in ({}, {"axis": 0}, {"axis": -1}, {"axis": (0, 1)}):
            ours = getattr(special, name)(x, **named)
            np.testing.assert_allclose(ours, getattr(scipy.special, name)(x, **named), rtol=1e-5)
    assert float(special.softmax(np.float32(3))) == 1
    np.testing.assert_array_equal(host(special.softmax(np.array([1j, 1j], np.complex64))), [0.5, 0.5])


def test_the_normal_distribution_takes_lists() -> None:
    """As JAX's does, whose other functions refuse them."""
    for function in (special.ndtr, special.log_ndtr):
        np.testing.assert_array_equal(function([0.1, 2.0]), function(np.array([0.1, 2.0], np.float32)))
    with pytest.raises(TypeError, match="argument 0 is a list"):
        special.ndtri([0.1, 0.2])
