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
