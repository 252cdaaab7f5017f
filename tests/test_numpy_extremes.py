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


IDS = np.array([0, 1, 0, 2, 2, 7, -1, 1])
Z = np.array([1 + 2j, 3 - 1j, 1 + 5j, -1, -1 - 2j, 9, 9, 3 - 1j], np.complex64)


def lexical(values: list[complex], name: str) -> complex:
    return (max if name == "max" else min)(values, key=lambda z: (z.real, z.imag))


@pytest.mark.device
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_extremes_of_complex_rows_and_updates(name: str, dtype: str) -> None:
    """One op has no order of complex numbers, which were refused."""
    z, sign = Z.astype(dtype), -1 if name == "max" else 1
    segment = getattr(mj.ops, f"segment_{name}")
    rows = [lexical([complex(v) for v, i in zip(z, IDS, strict=True) if i == k], name) for k in range(3)] + [complex(sign * np.inf)]
    with mj.enable_x64(dtype == "complex128"):
        for f in (segment, mj.jit(segment, static_argnums=2), mj.vmap(segment, in_axes=(0, None, None))):
            batched = f is not segment and not hasattr(f, "lower")
            found = f(z[None], IDS, 4)[0] if batched else f(z, IDS, 4)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, rows)
        wide = segment(np.stack([z, z[::-1]], 1), IDS, 4)
        np.testing.assert_array_equal(wide[:, 0], rows)
        assert segment(z[:0], IDS[:0], 2).shape == (2,) and segment(z, IDS, 0).shape == (0,)
        table = mnp.full((4,), 1 + 3j, dtype)
        expected = [lexical([1 + 3j, row], name) for row in rows]
        at = table.at[IDS]
        for mode in (None, "drop"):
            wrapped = lexical([expected[3], 9, 1 + 3j], name)  # -1 is the last
            np.testing.assert_array_equal(getattr(at, name)(z, mode=mode), [*expected[:3], wrapped])
        clipped = getattr(at, name)(z, mode="clip")
        np.testing.assert_array_equal(clipped, [*expected[:3], wrapped])  # 7 is the last, too
        numbers = mj.lax.ScatterDimensionNumbers((), (0,), (0,))
        scattered = getattr(mj.lax, f"scatter_{name}")(table, IDS[:, None], z, numbers)
        np.testing.assert_array_equal(scattered[:3], expected[:3])


@pytest.mark.device
def test_extremes_of_complex_rows_under_transformations() -> None:
    ids, z = np.array([0, 1, 0, 1]), np.array([1 + 2j, 3, 1 + 5j, 3 - 1j], np.complex64)
    nan = mj.ops.segment_max(np.array([1, np.nan + 2j, 1j * np.nan, 4], np.complex64), np.array([0, 0, 1, 2]), 3)
    assert np.isnan(np.asarray(nan)).tolist() == [True, True, False]
    slope = mj.grad(lambda z: mnp.real(mj.ops.segment_max(z, ids, 2).sum() * (1 + 0j)))(z + np.array([0, 1, 0.5, 0], np.complex64))
    np.testing.assert_array_equal(slope, [0, 1, 1, 0])
    place = mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x"))
    found = mj.jit(lambda z: mj.ops.segment_max(z, ids, 2), in_shardings=place)(z)
    np.testing.assert_array_equal(found, [1 + 5j, 3])
