"""Maxima and minima of complex numbers, which NumPy orders by their real parts, then by their imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy as mnp
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")
X = np.array([[1 + 2j, 1 + 3j, -1j], [2, 2 - 1j, 0]], np.complex64)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_complex_extremes_are_numpys(name: str, axis: Any, keepdims: bool) -> None:
    ours = host(getattr(mnp, name)(X, axis, keepdims=keepdims))
    theirs = getattr(np, name)(X, axis, keepdims=keepdims)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_complex_extremes_of_nan_empty_and_selected() -> None:
    assert np.isnan(host(mnp.max(np.array([1, np.nan + 1j], np.complex64))))
    assert mnp.max(np.zeros((3, 0, 2), np.complex64), 2).shape == (3, 0)
    for initial in (0, 1.5, 9j):
        assert host(mnp.max(X, initial=initial)).array == np.max(X, initial=initial)
        assert host(mnp.min(X, initial=initial)).array == np.min(X, initial=initial)
    chosen = np.abs(X) > 1
    np.testing.assert_array_equal(host(mnp.max(X, 0, where=chosen, initial=-np.inf)), np.max(X, 0, where=chosen, initial=-np.inf))
    assert host(mnp.max(np.zeros((3, 0), np.complex64), 1, initial=2, keepdims=True)).array.tolist() == [[2], [2], [2]]


def test_whether_a_dtype_is_complex_is_asked_of_anything_that_has_one() -> None:
    assert mnp.iscomplexobj(mj.ShapeDtypeStruct((2,), np.complex64)) and not mnp.iscomplexobj(mj.random.key(0))
    assert mnp.iscomplexobj(1j) and not mnp.iscomplexobj([1.0])


def test_a_number_times_a_boolean_is_the_number_or_nothing():
    x = np.array([np.inf, -np.inf, np.nan, -2.0], np.float32)
    on, off = np.array([True, False, True, True]), np.array([False, True, False, False])
    for fun in (lambda a, b: a * b, lambda a, b: b * a, mnp.multiply, mj.jit(mnp.multiply), mj.vmap(mnp.multiply)):
        for dtype in (np.float32, np.float16, mnp.bfloat16, np.complex64):
            product = fun(mnp.asarray(x.astype(dtype)), mnp.asarray(off))
            assert product.dtype == dtype and not product.weak_type and product[0] == product[2] == product[3] == 0
            assert fun(mnp.asarray(x.astype(dtype)), mnp.asarray(on))[3] == -2
    assert (mnp.inf * mnp.asarray(False), (mnp.inf * mnp.asarray(True)).weak_type) == (0, True)
    np.testing.assert_array_equal(mj.grad(lambda v: (v * mnp.asarray(off)).sum())(mnp.asarray(x)), off)
    np.testing.assert_array_equal(mnp.arange(3) * mnp.asarray([True, False, True]), [0, 0, 2])
    with pytest.raises(TypeError):
        mnp.ones((3, 2)) * mnp.asarray(on)[:, None]


@pytest.mark.device
def test_clamp_of_complex_numbers() -> None:
    x, low, high = X.ravel(), np.complex64(0), np.complex64(1 + 2.5j)
    expected = np.minimum(np.maximum(x, low), high)
    for call in (mj.lax.clamp, mj.jit(mj.lax.clamp), mj.vmap(mj.lax.clamp, in_axes=(None, 0, None))):
        np.testing.assert_array_equal(np.asarray(call(low, x, high)), expected)
    with pytest.raises(TypeError, match="clamp"):
        mj.lax.clamp(np.float32(0), x, high)
