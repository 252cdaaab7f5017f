"""Functions whose values or derivatives were others under a transformation, with the numbers that JAX 0.10 gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy, scipy
from meshjit.scipy import linalg, special
from meshjit.scipy.interpolate import RegularGridInterpolator

mnp: Any = numpy
stats: Any = scipy.stats
F32: Any = np.float32


def grad_of_sum(f: Any, x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(mj.grad(lambda x: mnp.sum(f(x)))(F32(x)))


@pytest.mark.device
@pytest.mark.parametrize("count", [2, 4, 5, 11, 50, 200])
def test_the_last_of_linspace_is_its_stop(count: int) -> None:
    start, stop = F32(-2.794), F32(-0.061)
    ends = mj.jit(lambda a, b: mnp.linspace(a, b, count))(start, stop)
    assert ends[0] == start and ends[-1] == stop
    assert mj.grad(lambda b: mnp.linspace(start, b, count)[-1])(stop) == 1


@pytest.mark.device
def test_jit_drops_no_element_of_a_histogram() -> None:
    x = F32([-0.061, -1.233, -1.284, -2.794])
    counts, edges = mj.jit(lambda x: mnp.histogram(x, bins=3))(x)
    assert counts.tolist() == [1, 2, 1] and edges[-1] == x.max()
    cells, _ = mj.jit(lambda x: mnp.histogramdd(x[:, None], bins=3))(x)
    assert cells.tolist() == [1, 2, 1]


def test_no_derivative_passes_into_a_piece_that_does_not_hold() -> None:
    x = F32([-2, 4, -3])
    pieces = [lambda x: x**2, mnp.sqrt, -1.0]
    np.testing.assert_allclose(mnp.piecewise(x, [x < -2.5, x > 0], pieces), [-1, 2, 9])
    np.testing.assert_allclose(grad_of_sum(lambda x: mnp.piecewise(x, [x < -2.5, x > 0], pieces), x), [0, 0.25, -6])
    matrix = mnp.piecewise(x[None] * F32([[1], [2]]), [x > 0], [lambda x, by: x * by], 3.0)
    np.testing.assert_allclose(matrix, [[0, 12, 0], [0, 24, 0]])


def test_a_piece_is_given_one_element() -> None:
    x = F32([-1, 2, 3])
    assert mnp.piecewise(x, [x < 0, x > 0], [lambda x: x - x.mean(), lambda x: 7]).tolist() == [0, 7, 7]
    with pytest.raises(TypeError, match=r"piecewise: a piece is one number, not \(2,\)"):
        mnp.piecewise(x, [x > 0], [lambda x: mnp.stack([x, x])])
    with pytest.raises(ValueError, match="piecewise: 2 functions for 3 conditions"):
        mnp.piecewise(x, x < 0, [1.5, 2.5])


@pytest.mark.parametrize("dims", [(0,), (2, 0)])
def test_pieces_of_nothing(dims: tuple[int, ...]) -> None:
    assert mnp.piecewise(np.zeros(dims, F32), [np.zeros(dims, bool)], [mnp.sin]).shape == dims


def test_hermitian_factorings_are_those_of_the_symmetric_part() -> None:
    x = F32([[4, 1, 0], [3, 5, 2], [0, -2, 6]])
    symmetric = (x + x.T) / 2
    for f in (lambda x: mnp.linalg.pinv(x, hermitian=True), lambda x: mnp.linalg.svd(x, hermitian=True)[1]):
        np.testing.assert_allclose(f(x), f(symmetric), rtol=1e-5, atol=1e-6)
        slopes = grad_of_sum(f, x)
        np.testing.assert_allclose(slopes, slopes.T, rtol=1e-5, atol=1e-6)
    eye = np.asarray(mj.jacfwd(lambda x: mnp.linalg.pinv(x, hermitian=True))(np.eye(2, dtype=F32)))
    np.testing.assert_allclose(eye[0, 1], [[0, -0.5], [-0.5, 0]], atol=1e-6)  # eigenvalues that are equal


def test_factors_of_two_halves_keep_their_digits() -> None:
    x, y = np.array([[1 + 2**-7]], ml_dtypes.bfloat16), np.array([[1 + 2**-10]], np.float16)
    assert mnp.matmul(x, y, preferred_element_type=F32)[0, 0] == (1 + 2**-7) * (1 + 2**-10)
    assert mj.lax.dot_general(y, x, (((1,), (0,)), ((), ())), preferred_element_type=F32)[0, 0] == (1 + 2**-7) * (1 + 2**-10)


def test_gradient_takes_coordinates() -> None:
    f, places = F32([1, 2, 4, 8.5]), F32([0, 1, 3, 4])
    np.testing.assert_allclose(mnp.gradient(f, places), np.gradient(f, places), rtol=1e-6)
    rows, columns = mnp.gradient(np.stack([f, f * f, -f]), 2.0, places)
    want = np.gradient(np.stack([f, f * f, -f]), 2.0, places)
    np.testing.assert_allclose(rows, want[0], rtol=1e-6)
    np.testing.assert_allclose(columns, want[1], rtol=1e-6)
    np.testing.assert_allclose(mnp.gradient(f[:2], places[1:3]), [0.5, 0.5])
    with pytest.raises(ValueError, match=r"gradient: the coordinates of dim 0 are \(3,\), the dim has extent 4"):
        mnp.gradient(f, places[:3])


def test_interp_of_complex_values() -> None:
    x, places, values = F32([1, 2, 4, 8.5]), F32([0, 1, 3]), np.array([1j, 2, 3 + 1j], np.complex64)
    np.testing.assert_allclose(mnp.interp(x, places, values), np.interp(x, places, values), rtol=1e-6)
    np.testing.assert_allclose(mnp.interp(x, places, values, period=4), np.interp(x, places, values, period=4), rtol=1e-6)
    assert mnp.interp(x, places, np.ones(3, ml_dtypes.bfloat16)).dtype == F32
    with pytest.raises(ValueError, match="interp: x and xp must be real, got complex64"):
        mnp.interp(x * 1j, places, F32([1, 2, 3]))


@pytest.mark.parametrize(
    ("f", "x", "slopes"),
    [
        (special.ndtri, [-0.5, 0, 0.1, 0.5, 1, 1.5], [np.nan, 0, 5.6981, 2.5066, 0, np.nan]),
        (lambda n: special.comb(n, F32(2)), [-np.inf, -2, -1, 1, 4], [0, 0, 0, 0, 3.5]),
        (stats.norm.isf, [-0.5, 0, 0.1, 0.5, 1, 1.5], [np.nan, 0, -5.6981, -2.5066, 0, np.nan]),
        (stats.logistic.pdf, [-np.inf, -1, 0, 1, np.inf], [0, 0.090858, 0, -0.090858, 0]),
        (stats.laplace.cdf, [-np.inf, -1, 0, 1, np.inf], [0, 0.18394, 0.5, 0.18394, 0]),
    ],
)
def test_derivatives_at_the_edges_of_distributions(f: Any, x: list[float], slopes: list[float]) -> None:
    np.testing.assert_allclose(grad_of_sum(f, x), slopes, rtol=1e-4, atol=1e-7)


def test_logistic_far_out() -> None:
    assert stats.logistic.logpdf(F32([-np.inf, -200, 200, np.inf])).tolist() == [-np.inf, -200, -200, -np.inf]


ROWS = np.array([[1, 2], [0, 3], [1, 2], [0, 1]], F32)
ALL: Any = {"return_index": True, "return_inverse": True, "return_counts": True}


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unique_slices_are_those_of_numpy(dtype: Any, axis: int) -> None:
    x = np.random.default_rng(3).integers(0, 2, (5, 3, 2)).astype(dtype)
    known: Any = np.unique(x.astype(F32) if dtype == ml_dtypes.bfloat16 else x, axis=axis, **ALL)
    count = known[0].shape[axis]
    for ours in (mnp.unique(x, axis=axis, **ALL), mj.jit(lambda x: mnp.unique(x, axis=axis, size=count, **ALL))(x)):
        assert ours[0].dtype == dtype
        np.testing.assert_array_equal(np.asarray(ours[0]).astype(known[0].dtype), known[0])
        for mine, other in zip(ours[1:], known[1:], strict=True):
            np.testing.assert_array_equal(mine, np.ravel(other))


def test_unique_slices_of_a_size() -> None:
    values, index, inverse, counts = mnp.unique(ROWS, axis=0, size=5, **ALL)
    assert values.tolist() == [[0, 1], [0, 3], [1, 2], [0, 1], [0, 1]]
    assert (index.tolist(), inverse.tolist(), counts.tolist()) == ([3, 1, 0, 3, 3], [2, 1, 2, 0], [1, 1, 2, 0, 0])
    assert mnp.unique(ROWS, axis=0, size=2).tolist() == [[0, 1], [0, 3]]
    assert mnp.unique(ROWS, axis=1, size=3, fill_value=F32([1, 2, 3, 4]))[:, 2].tolist() == [1, 2, 3, 4]
    nans = F32([[np.nan, 1], [0, 2], [np.nan, 1]])
    assert mnp.unique(nans, axis=0, **ALL)[2].tolist() == [1, 0, 1]
    assert mnp.unique(nans, axis=0, equal_nan=False, **ALL)[2].tolist() == [1, 0, 2]


@pytest.mark.parametrize(("shape", "axis", "found"), [((0, 2), 0, (0, 2)), ((2, 0), 0, (1, 0)), ((2, 0), 1, (2, 0))])
def test_unique_slices_of_nothing(shape: tuple[int, ...], axis: int, found: tuple[int, ...]) -> None:
    assert mnp.unique(np.zeros(shape), axis=axis).shape == found
    with pytest.raises(ValueError, match="an empty array has no slices to fill size=2 with"):
        mnp.unique(np.zeros((0, 2)), axis=0, size=2)


@pytest.mark.device
def test_unique_slices_in_batches_and_derivatives() -> None:
    stack = np.stack([ROWS, ROWS[::-1]])
    inverse = mj.vmap(lambda x: mnp.unique(x, axis=0, size=3, return_inverse=True)[1])(stack)
    assert inverse.tolist() == [[2, 1, 2, 0], [0, 2, 1, 2]]
    slopes = mj.grad(lambda x: (mnp.unique(x, axis=0, size=3) * F32([[1], [2], [3]])).sum())(ROWS)
    assert slopes.tolist() == [[3, 3], [2, 2], [0, 0], [1, 1]]


PLACES = np.array([0, 2, 1, 3], np.int32)


@pytest.mark.device
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (mnp.add, [3, 3, 5, 4]),
        (mnp.multiply, [2, 3, 6, 4]),
        (mnp.maximum, [2, 3, 3, 4]),
        (mnp.subtract, [-1, 3, -1, 4]),
        (mnp.logical_and, [True, True, True, True]),
        (mnp.frompyfunc(lambda a, b: a + 2 * b, 2, 1), [5, 3, 8, 4]),
    ],
)
def test_reduceat_takes_places_that_are_traced(function: Any, expected: list[float]) -> None:
    x = F32([1, 2, 3, 4])
    assert mj.jit(lambda i: function.reduceat(x, i))(PLACES).tolist() == expected == function.reduceat(x, PLACES).tolist()
    rows = mj.jit(lambda i: function.reduceat(np.stack([x, x]), i, axis=1))(PLACES)
    assert rows.tolist() == [expected, expected]


@pytest.mark.device
def test_reduceat_of_many_places_and_of_none() -> None:
    x, places = F32(np.arange(40) % 7), np.arange(0, 40, 2)
    np.testing.assert_allclose(mnp.add.reduceat(x, places), np.add.reduceat(x, places))
    slopes = mj.grad(lambda x: (mnp.multiply.reduceat(x, places)).sum())(x)
    np.testing.assert_allclose(slopes, x.reshape(-1, 2)[:, ::-1].ravel())
    assert mnp.add.reduceat(x, np.zeros(0, int)).shape == (0,)
    batches = mj.vmap(lambda i: mnp.add.reduceat(x[:4], i))(np.stack([PLACES, PLACES[::-1]]))
    assert batches.tolist() == [[1, 2, 3, 3], [3, 1, 2, 6]]


@pytest.mark.parametrize(
    ("f", "error", "says"),
    [
        (lambda x: mj.lax.betainc(x, x, x), ValueError, "betainc: no derivative by a and b is known"),
        (lambda x: mj.lax.polygamma(x, x), ValueError, "polygamma: no derivative by the order is known"),
        (lambda x: mj.lax.zeta(x + 2, x), NotImplementedError, "zeta has no jvp rule: no derivative by the exponent is known"),
    ],
)
def test_a_derivative_that_is_not_there_is_an_error_of_the_kind_that_jax_has(f: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        mj.grad(f)(F32(0.5))


SYMMETRIC = F32([[4, 1, 0], [1, 5, 2], [0, 2, 6]])
SKEWED = SYMMETRIC + F32([[0, 1, 2], [0, 0, 1], [0, 0, 0]])


def test_cholesky_of_scipy_reads_one_triangle() -> None:
    low, high = np.tril(SKEWED), np.triu(SKEWED)
    np.testing.assert_allclose(linalg.cholesky(SKEWED, lower=True), np.linalg.cholesky(low + np.tril(low, -1).T), rtol=1e-5)
    np.testing.assert_allclose(linalg.cholesky(SKEWED), np.linalg.cholesky(high + np.triu(high, 1).T).T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(linalg.cho_factor(SKEWED)[0], linalg.cholesky(SKEWED))


def test_eigh_of_scipy_is_of_the_symmetric_part() -> None:
    values = np.linalg.eigvalsh((SKEWED + SKEWED.T) / 2)
    for lower in (True, False):
        np.testing.assert_allclose(linalg.eigh(SKEWED, eigvals_only=True, lower=lower), values, rtol=1e-5)
    slopes = np.asarray(mj.grad(lambda a: linalg.eigh(a, eigvals_only=True)[0])(SYMMETRIC))
    np.testing.assert_allclose(slopes, slopes.T, rtol=1e-5, atol=1e-6)


def test_solve_of_a_positive_matrix_has_the_derivative_of_the_equation() -> None:
    b = F32([[1, 2], [0, 1], [3, 1]])
    for lower in (False, True):
        for rhs in (b, b[:, 0]):
            pulled = mj.vjp(lambda a, b, lower=lower: linalg.solve(a, b, lower=lower, assume_a="pos"), SYMMETRIC, rhs)[1](rhs)
            expected = mj.vjp(mnp.linalg.solve, SYMMETRIC, rhs)[1](rhs)
            for mine, other in zip(pulled, expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"solve: a is \(3, 3\), so b must be \(3,\) or one dim more, not \(4,\)"):
        linalg.solve(SYMMETRIC, np.ones(4, F32), assume_a="pos")


def test_zeta_has_a_derivative_by_the_exponent() -> None:
    x, q = F32([1.5, 2, 3, 6, 1.1]), F32([0.5, 1, 2, 0.1, 3])
    slopes = mj.grad(lambda x: special.zeta(x, q).sum())(x)
    np.testing.assert_allclose(slopes, [-2.0682094, -0.93754822, -0.19812626, 2.302585e6, -99.604752], rtol=1e-5)
    assert float(mj.grad(mj.grad(special.zeta))(F32(2), F32(1))) == pytest.approx(1.98928, rel=1e-4)


@pytest.mark.parametrize(("choose", "slopes"), [(mnp.maximum, [0, 0.5, 1, 0, 0]), (mnp.minimum, [1, 0.5, 0, 0, 0])])
def test_the_derivative_of_a_choice_compares_the_operands_alone(choose: Any, slopes: list[float]) -> None:
    x, y = F32([1, 2, 3, np.nan, 1]), F32([2, 2, 2, 1, np.nan])
    assert mj.grad(lambda x: choose(x, y).sum())(x).tolist() == slopes
    text = mj.jit(mj.grad(lambda x: choose(x, y).sum())).lower(x).as_text()
    assert "stablehlo.compare" in text and "stablehlo.m" not in text.replace("stablehlo.multiply", "")


@pytest.mark.parametrize("places", [[1, 2], [3, 0, -1, 3], [4], 2, -3])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_insert_takes_places_that_are_traced(places: Any, axis: int | None) -> None:
    x, where = np.arange(16, dtype=F32).reshape(4, 4), np.array(places, np.int32)
    values = -np.arange(1, 1 + np.size(places), dtype=F32)
    values = values[:, None] if axis == 0 and where.ndim else values
    expected = np.insert(x, where, values, axis)
    np.testing.assert_array_equal(mj.jit(lambda x, i: mnp.insert(x, i, values, axis))(x, where), expected)


def test_insert_in_a_batch_of_places() -> None:
    x, places = F32([1, 2, 3]), np.array([[0, 3], [2, 1]])
    rows = mj.vmap(lambda i: mnp.insert(x, i, F32([8, 9])))(places)
    assert rows.tolist() == [[8, 1, 2, 3, 9], [1, 9, 2, 8, 3]]
    slopes = mj.grad(lambda v: (mj.jit(lambda i: mnp.insert(x, i, v))(places[1]) * F32([1, 2, 3, 4, 5])).sum())(F32([8, 9]))
    assert slopes.tolist() == [4, 2]


def test_qdwh_counts_its_steps_in_an_array() -> None:
    count, converged = mj.lax.linalg.qdwh(np.eye(3, dtype=F32))[2:]
    assert isinstance(count, mj.Array) and count.dtype == np.int32 and bool(converged)
    assert mj.vmap(lambda x: mj.lax.linalg.qdwh(x)[2])(np.ones((2, 3, 3), F32)).shape == (2,)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex64"])
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_interpolators_of_numpys_values_take_traced_places(dtype: str, method: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype) ** 2 * np.asarray(1 + 1j if dtype == "complex64" else 1, dtype)
    places = np.array([[0.5, 1.25], [2.0, 2.75], [9.0, 0.0]], np.float32)

    def at(x: Any) -> Any:
        return RegularGridInterpolator((np.arange(3.0), np.arange(4.0)), values, method)(x)

    expected = np.asarray(at(places))
    for found in (mj.jit(at)(places), mj.vmap(at)(places[:, None])[:, 0], mj.lax.map(lambda x: at(x[None])[0], places)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
