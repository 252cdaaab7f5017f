"""`lax.reduce` and `lax.reduce_window` of functions that are no op's: traced once, of scalars, as JAX does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, PartitionSpec as P, reshard

pytestmark = pytest.mark.device

X = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32) / 8
ZERO = np.float32(0)


def compounded(a: Any, b: Any) -> Any:
    """1 + c = (1 + a) (1 + b)"""
    return a * b + a + b


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_any_function(dims: tuple[int, ...]) -> None:
    expected = np.prod(1 + X.astype(np.float64), dims) - 1
    np.testing.assert_allclose(lax.reduce(X, ZERO, compounded, dims), expected, rtol=1e-5, atol=1e-6)


def test_the_function_gets_scalars() -> None:
    """So it may branch, as in JAX."""
    larger = lax.reduce(X, ZERO, lambda a, b: lax.cond(a > b, lambda: a, lambda: b), (0,))
    np.testing.assert_array_equal(larger, X.max(0, initial=0))
    shapes = []
    lax.reduce_window(X, ZERO, lambda a, b: shapes.append(a.shape) or a + b, (3, 2), (1, 1), "SAME")
    assert shapes == [()]


def test_what_it_closes_over_may_be_batched_and_differentiated() -> None:
    def scaled(s: Any, x: Any) -> Any:
        return lax.reduce(x, ZERO, lambda a, b: a + b + s * a * b, (0,))

    s = np.array([0, 1, 2], np.float32)
    batched = mj.vmap(scaled, (0, None))(s, X)
    np.testing.assert_allclose(batched[1], np.prod(1 + X, 0) - 1, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mj.grad(lambda x: scaled(1.0, x).sum())(X), np.prod(1 + X, 0) / (1 + X), rtol=1e-4)
    pairs = X[0, :, None] * X[0]
    np.testing.assert_allclose(mj.grad(scaled)(0.0, X[0]), (pairs.sum() - np.trace(pairs)) / 2, rtol=1e-3, atol=1e-6)


def test_types_and_places_stay() -> None:
    places = np.broadcast_to(np.arange(6), X.shape)

    def larger(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return mnp.where(first, a[0], b[0]), mnp.where(first, a[1], b[1])

    value, place = lax.reduce((X, places), (ZERO - np.inf, 0), larger, (1,))
    np.testing.assert_array_equal(value, X.max(1))
    np.testing.assert_array_equal(place, X.argmax(1))
    with mj.set_mesh(mj.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))):
        rows = reshard(np.ones((8, 3), np.float32), P("x"))
        assert str(mj.typeof(lax.reduce(rows, ZERO, compounded, (1,)))) == "float32[8@x]"


def test_another_number_of_results() -> None:
    with pytest.raises(TypeError, match=r"twice gives 2 arrays, and combines 1\n  at .*test_lax_reduce.py:\d+"):
        lax.reduce(X, ZERO, twice, (0,))


def twice(a: Any, b: Any) -> Any:
    return a, b


@pytest.mark.parametrize("extreme", [lax.max, lax.min])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(4, 6), (1, 5), (3, 0)])
def test_extremes_of_complex_numbers(extreme: Any, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """By the real part, of equal ones by the imaginary part, as in NumPy."""
    generator = np.random.default_rng(0)
    x = (generator.integers(0, 3, shape) + 1j * generator.integers(0, 3, shape)).astype(np.complex64)
    start = np.complex64(1 + 1j)
    numpys = np.maximum if extreme is lax.max else np.minimum
    expected = numpys.reduce(x, axis=dims, initial=start)
    for reduced in (lax.reduce, mj.jit(lambda a, b, f, d: lax.reduce(a, b, f, d), static_argnums=(2, 3))):
        result = np.asarray(reduced(x, start, extreme, dims))
        assert result.dtype == np.complex64 and (result == expected).all()


@pytest.mark.parametrize("largest", [mnp.max, lambda x: lax.reduce_max(x, (0,))])
def test_the_derivative_of_a_complex_extreme_is_that_of_the_element(largest: Any) -> None:
    """Elements with the same real part are no ties; equal ones share the derivative."""
    x = np.array([1j, 2 + 1j, 2 - 1j], np.complex64)
    for part in (mnp.real, mnp.imag):
        expected = [0, 1, 0] if part is mnp.real else [0, -1j, 0]
        np.testing.assert_array_equal(mj.grad(lambda x, part=part: part(largest(x)))(x), expected)
    np.testing.assert_array_equal(mj.grad(lambda x: mnp.real(largest(x)))(x[[1, 1, 0]]), [0.5, 0.5, 0])
    assert complex(mnp.max(np.array([np.inf + 1j, np.inf - 1j, 0], np.complex64))) == complex(np.inf, 1)
