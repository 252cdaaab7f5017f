"""Special functions by series, continued fractions and recurrences against SciPy: values in both widths, slopes, batches, sharded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.device
special: Any = mj.scipy.special

UNARY = "dawsn erfcx exp1 expi fresnel sici spence".split()
POINTS = np.concatenate([np.linspace(-9, 9, 49), np.logspace(-5, 2, 23), [1.6, 39.9, 40.1, np.inf, -np.inf, np.nan]])
INSIDE = np.array([0.15, 0.4, 0.85, 1.5, 2.2, 3.2, 7.5], np.float32)


def both(value: Any) -> tuple[Any, ...]:
    return tuple(host(v) for v in value) if isinstance(value, tuple) else (host(value),)


def agree(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(both(ours), both(theirs), strict=True):
        np.testing.assert_allclose(a, b.astype(a.dtype), rtol=tolerance, atol=tolerance)


def slope(function: Any, x: Any) -> Any:
    """By central differences, in 64 bits."""
    x = np.asarray(x, np.float64)
    return tuple((a - b) / 2e-6 for a, b in zip(both(function(x + 1e-6)), both(function(x - 1e-6)), strict=True))


@pytest.mark.parametrize("name", UNARY)
def test_values_and_slopes(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    with np.errstate(all="ignore"):
        narrow = POINTS.astype(np.float32)
        agree(ours(narrow), theirs(narrow.astype(np.float64)), 3e-5)
        with mj.enable_x64(True):
            agree(ours(POINTS), theirs(POINTS), 1e-12)
    slopes = mj.vmap(lambda x: mj.jvp(ours, (x,), (mnp.ones_like(x),))[1])(INSIDE)
    agree(slopes, slope(theirs, INSIDE), 1e-3)
    first = lambda x: both_first(ours(x))  # noqa: E731
    curved = mj.vmap(mj.grad(mj.grad(first)))(INSIDE[:6])
    expected = slope(lambda x: np.asarray(slope(lambda y: both_first(theirs(y)), x)[0]) * 1.0, INSIDE[:6])[0]
    np.testing.assert_allclose(curved, expected, rtol=0.02, atol=0.02)


def both_first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", UNARY)
def test_dtypes_shapes_and_errors(name: str) -> None:
    ours = getattr(special, name)
    assert {v.shape for v in both(ours(mnp.zeros((0, 3))))} == {(0, 3)}
    assert {v.dtype for v in both(ours(np.array([1, 2])))} == {np.dtype(np.float32)}
    for dtype in (mnp.bfloat16, np.float16):
        half = mnp.array([0.3, 1, 2], dtype)
        assert all(v.dtype == dtype for v in both(ours(half)))
        agree(tuple(v.astype(np.float32) for v in both(ours(half))), ours(half.astype(np.float32)), 1e-2)
    with pytest.raises(TypeError, match="argument 0 is a list: this function takes arrays and numbers"):
        ours([1.0, 2.0])
    if name != "erfcx":
        error = NotImplementedError if name == "fresnel" else ValueError  # as JAX's
        with pytest.raises(error, match="takes real numbers, not complex64"):
            ours(mnp.array([1j]))


@pytest.mark.parametrize("name", UNARY)
def test_sharded_unevenly(name: str) -> None:
    mesh = mj.make_mesh((4,), ("x",))
    ours, x = getattr(special, name), np.linspace(0.1, 6, 13).astype(np.float32)
    placed = mj.device_put(np.pad(x, (0, 3), constant_values=1), NamedSharding(mesh, P("x")))
    agree(mj.jit(lambda x: ours(x[:13]))(placed), ours(x), 1e-6)


def test_faddeeva_in_the_whole_plane() -> None:
    z = np.linspace(-5, 5, 11)[:, None] + 1j * np.linspace(-3, 5, 12)
    agree(special.wofz(z.astype(np.complex64)), scipy.special.wofz(z), 1e-4)
    assert special.wofz(np.float32(1)).dtype == np.complex64
    with mj.enable_x64(True):
        np.testing.assert_allclose(special.wofz(z), scipy.special.wofz(z), rtol=1e-12)
        np.testing.assert_allclose(special.erfcx(z), scipy.special.erfcx(z), rtol=1e-12)
    w = mj.grad(special.wofz, holomorphic=True)(mnp.complex64(0.5 + 1j))
    step = (scipy.special.wofz(0.5 + 1e-6 + 1j) - scipy.special.wofz(0.5 - 1e-6 + 1j)) / 2e-6
    np.testing.assert_allclose(w, step, rtol=1e-3)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 20])
def test_exponential_integrals_of_higher_order(n: int) -> None:
    with mj.enable_x64(True):
        agree(special.expn(n, POINTS), scipy.special.expn(n, POINTS), 1e-12)
    agree(mj.vmap(mj.grad(lambda x: special.expn(n, x)))(INSIDE), slope(lambda x: scipy.special.expn(n, x), INSIDE), 1e-3)


def test_owens_t() -> None:
    h, a = np.meshgrid([0, 1e-3, 0.3, 1, 2.5, 8, -1, np.inf], [0, 0.1, 0.7, 1, 1.3, 9, -2, 1e3, np.inf])
    with mj.enable_x64(True):
        np.testing.assert_allclose(special.owens_t(h, a), scipy.special.owens_t(h, a), rtol=1e-11)
    for i in range(2):
        given = [INSIDE[:4], INSIDE[3::-1].copy()]
        expected = slope(lambda x, i=i, g=given: scipy.special.owens_t(*(x if i == j else g[j] for j in range(2))), given[i])
        agree(mj.vmap(mj.grad(special.owens_t, i))(*given), expected, 1e-3)


def test_bessel_functions_of_whole_orders() -> None:
    x = np.array([-12, -0.5, 0, 1e-4, 0.3, 2, 7, 15], np.float32)
    ours = special.bessel_jn(x, v=5)
    assert ours.shape == (6, 8)
    agree(ours, scipy.special.jv(np.arange(6)[:, None], x.astype(np.float64)), 1e-5)
    slopes = mj.vmap(mj.jacrev(lambda x: special.bessel_jn(x, v=3)))(x)
    agree(slopes.T, scipy.special.jvp(np.arange(4)[:, None], x.astype(np.float64)), 1e-4)


def test_spherical_harmonics() -> None:
    n, m = np.array([(n, m) for n in range(6) for m in range(-n, n + 1)]).T
    theta, phi = np.linspace(0.1, 3, len(n)), np.linspace(0, 6, len(n))
    agree(special.sph_harm_y(n, m, theta, phi), scipy.special.sph_harm_y(n, m, theta, phi), 1e-5)
    jitted = mj.jit(lambda n, m, t, p: special.sph_harm_y(n, m, t, p, n_max=5))
    agree(jitted(n, m, theta, phi), scipy.special.sph_harm_y(n, m, theta, phi), 1e-5)
    with pytest.raises(NotImplementedError, match="diff_n is not there"):
        special.sph_harm_y(n, m, theta, phi, 1)


def test_associated_legendre_functions() -> None:
    z = np.array([-0.9, -0.3, 0, 0.4, 0.99])
    orders, degrees = np.arange(7)[:, None, None], np.arange(7)[:, None]
    with mj.enable_x64(True):
        values, slopes = special.lpmn(6, 6, z)
        expected, steep = scipy.special.assoc_legendre_p(degrees, orders, z, diff_n=1)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(slopes, steep, rtol=1e-12, atol=1e-12)
        many = special.lpmn_values(80, 80, z, True)
        azimuth_0 = scipy.special.sph_harm_y(np.arange(81)[:, None], np.arange(81)[:, None, None], np.arccos(z), 0).real
        np.testing.assert_allclose(many, azimuth_0, rtol=1e-9, atol=1e-12)
        tangent = mj.jvp(lambda z: special.lpmn_values(6, 6, z, False), (z,), (np.ones(5),))[1]
        np.testing.assert_allclose(tangent, steep, rtol=1e-10, atol=1e-12)
        ends = special.lpmn(3, 3, np.array([1.0, -1]))[1]
    np.testing.assert_array_equal(ends[0], [[0, 0], [1, 1], [3, -3], [6, 6]])
    np.testing.assert_array_equal(ends[1], [[0, 0], [np.inf, -np.inf], [np.inf, np.inf], [np.inf, -np.inf]])
    np.testing.assert_array_equal(ends[2], [[0, 0], [0, 0], [-6, 6], [-30, -30]])
    single = mj.jit(lambda z: special.lpmn(3, 3, z))(z.astype(np.float32))
    assert [x.dtype for x in single] == [np.float32] * 2
    np.testing.assert_allclose(single[0], values[:4, :4], rtol=1e-5, atol=1e-6)
    assert special.lpmn_values(0, 0, np.zeros(0, np.float32), True).shape == (1, 1, 0)
    for error, text, wrong in (
        (NotImplementedError, r"lpmn: the greatest order 2 is not the greatest degree 3\n  at .*\n  fix: m=n", (2, 3, z)),
        (TypeError, r"lpmn: z is int32; it is float32 or float64", (2, 2, np.arange(3, dtype=np.int32))),
        (ValueError, r"lpmn: z has 2 dims; points have one\n  at .*\n  fix: z.ravel\(\)", (2, 2, np.zeros((2, 2), np.float32))),
    ):
        with pytest.raises(error, match=text):
            special.lpmn(*wrong)


def test_bernoulli_numbers() -> None:
    for n in (0, 1, 2, 3, 20):
        assert special.bernoulli(n).shape == (n + 1,)
        agree(special.bernoulli(n), scipy.special.bernoulli(n)[: n + 1], 1e-6)
    with pytest.raises(ValueError, match=r"bernoulli: n is -1, it must be at least 0"):
        special.bernoulli(-1)


KUMMER = [q.ravel() for q in np.meshgrid([-2, 0.5, 1, 3.3], [0.7, 2, 5], [-30, -3, -0.5, 0, 0.5, 3, 30])]
GAUSS = [q.ravel() for q in np.meshgrid([-2, 0.5, 1], [0.7, 2, -1.3], [0.6, 1.9, 4.5], [-30, -3, -0.5, 0, 0.3, 0.5, 0.9, 0.99])]


@pytest.mark.parametrize(("name", "table"), [("hyp1f1", KUMMER), ("hyp2f1", GAUSS)])
def test_hypergeometric_functions(name: str, table: list[Any]) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    with mj.enable_x64(True):
        np.testing.assert_allclose(ours(*table), theirs(*table), rtol=2e-11, atol=1e-14)
    agree(ours(*(q.astype(np.float32) for q in table)), theirs(*table), 1e-3)
    start = [1.3, 2.4, 0.4] if name == "hyp1f1" else [1.3, 0.4, 2.6, 0.7]
    for i in range(len(start)):
        expected = slope(lambda x, i=i: theirs(*(x if i == j else start[j] for j in range(len(start)))), start[i])
        agree(mj.grad(ours, i)(*start), expected[0], 1e-3)


def test_kummers_function_of_whole_numbers() -> None:
    """Polynomials where a is none of b's poles, infinite at those; of a = 0 it is 1, as JAX's, where SciPy's is infinite."""
    a, b, x = (q.ravel() for q in np.meshgrid([-3.0, -2, -1, 0, 1, 2.5], [-3.0, -2, -1, 0, 1, 2.5], [-1.0, 0, 2]))
    agree(special.hyp1f1(*np.float32([a, b, x])), np.where(a == 0, 1, scipy.special.hyp1f1(a, b, x)), 1e-5)
    assert np.isnan(special.hyp1f1(np.float32([np.nan, 1]), np.float32([1, np.nan]), 1.0)).all()


@pytest.mark.parametrize("a", [-3.0, -2.0, 0.0])
def test_where_kummers_series_ends_its_derivative_goes_on(a: float) -> None:
    for x in (0.5, -0.5, 3.0):
        expected = (scipy.special.hyp1f1(a + 1e-6, 0.7, x) - scipy.special.hyp1f1(a - 1e-6, 0.7, x)) / 2e-6
        np.testing.assert_allclose(mj.grad(special.hyp1f1)(a, 0.7, x), expected, rtol=1e-5)


def test_ends_of_the_hypergeometric_function() -> None:
    assert float(special.hyp2f1(1.0, 2.0, 3.0, 1.5)) == np.inf and np.isnan(float(special.hyp2f1(1.0, 2.0, 3.0, np.nan)))
    np.testing.assert_allclose(special.hyp2f1(-2.0, 0.7, 2.0, 1.5), 0.39625, rtol=1e-6)  # a polynomial
    np.testing.assert_allclose(special.hyp2f1(0.5, 0.7, 2.5, 1.0), scipy.special.hyp2f1(0.5, 0.7, 2.5, 1.0), rtol=1e-5)
