"""Places that int32 does not hold: here dims of 4 elements and more count as such, so that values can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.numpy import places, triangles

X = np.arange(24, dtype=np.float32).reshape(3, 8)
WHERE = np.array([2, -1, 7, -8], np.int32)
ROWS = np.array([0, 2, 1, 1], np.int32)

CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "an index": (lambda x, i: x[:, i[1]], lambda x, i: x[:, i[1]]),
    "indices": (lambda x, i: x[:, i], lambda x, i: x[:, i]),
    "indices of two dims": (lambda x, i: x[ROWS, i], lambda x, i: x[ROWS, i]),
    "take": (lambda x, i: mnp.take(x, i, axis=1), lambda x, i: x[:, i]),
    "take around": (lambda x, i: mnp.take(x, i + 8, axis=1, mode="wrap"), lambda x, i: x[:, i]),
    "take along": (lambda x, i: mnp.take_along_axis(x[:, :4], i[None] % 4, 1), lambda x, i: x[:, i % 4]),
    "set": (lambda x, i: x.at[:, i].set(0), lambda x, i: np.where(np.isin(np.arange(8), i % 8), 0, x)),
    "set beside a slice": (lambda x, i: x.at[i[0], 1::3].add(1), lambda x, i: x + _marked(2, slice(1, None, 3))),
    "set with steps": (lambda x, i: x.at[1:, ::3].set(-1), lambda x, i: _set(x, np.s_[1:, ::3])),
    "set a block": (lambda x, i: x.at[1, 2:4].set(-1), lambda x, i: _set(x, np.s_[1, 2:4])),
    "slice": (lambda x, i: lax.dynamic_slice(x, (1, i[1]), (2, 3)), lambda x, i: x[1:, 5:]),
    "update": (lambda x, i: lax.dynamic_update_slice(x, -np.ones((1, 2), np.float32), (i[0], i[0])), lambda x, i: _set(x, np.s_[2:, 2:4])),
    "roll": (lambda x, i: mnp.roll(x, i[0], 1), lambda x, i: np.roll(x, 2, 1)),
    "eye": (lambda x, i: mnp.eye(5, 4, -1), lambda x, i: np.eye(5, 4, -1)),
    "triangle": (lambda x, i: mnp.tril(x, 1), lambda x, i: np.tril(x, 1)),
    "fill_diagonal": (lambda x, i: mnp.fill_diagonal(x, -1, inplace=False), lambda x, i: _diagonal(x)),
    "frequencies": (lambda x, i: mnp.fft.fftfreq(9, 0.5), lambda x, i: np.fft.fftfreq(9, 0.5)),
    "median": (lambda x, i: mnp.median(x), lambda x, i: np.median(x)),
    "quantile without NaN": (lambda x, i: mnp.nanquantile(x, 0.3, axis=1), lambda x, i: np.quantile(x, 0.3, axis=1)),
}  # fmt: skip


def _set(x: Any, index: Any) -> Any:
    x = x.copy()
    x[index] = -1
    return x


def _marked(row: int, columns: slice) -> Any:
    marks = np.zeros(X.shape, np.float32)
    marks[row, columns] = 1
    return marks


def _diagonal(x: Any) -> Any:
    x = x.copy()
    np.fill_diagonal(x, -1)
    return x


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
def test_a_function_finds_them(name: str, jitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MOST", 4)
    function, meaning = CALLS[name]
    found = (mj.jit(lambda x, i: function(x, i)) if jitted else function)(mnp.asarray(X) + 0, mnp.asarray(WHERE))
    assert found.dtype == mnp.float32
    np.testing.assert_allclose(np.asarray(found), meaning(X, WHERE), rtol=1e-6)


def test_results_that_would_be_such_places_are_refused() -> None:
    large = mj.ShapeDtypeStruct((2**31,), np.float32)
    for function in (lambda x: mnp.searchsorted(x, 1.0), lambda x: mnp.nonzero(x, size=3), lambda x: mnp.unique(x, size=3)):
        with pytest.raises(OverflowError, match=r"2147483648 elements have places that int32 does not hold\n  at .*\n  fix: split"):
            mj.jit(function).lower(large)


TRIANGLES = [(3, 3, 0), (4, 6, 1), (6, 4, -2), (5, 5, 9), (5, 5, -9), (0, 3, 0), (3, 0, 0), (7, 2, -3), (2, 7, 3)]


@pytest.mark.parametrize("most", [triangles._TABLE, -1], ids=["table", "computed"])
def test_triangles_are_numpys_written_down_or_computed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangles, "_TABLE", most)
    for n, m, k in TRIANGLES:
        for name in ("tril_indices", "triu_indices"):
            found, meant = getattr(mnp, name)(n, k, m), getattr(np, name)(n, k, m)
            np.testing.assert_array_equal(np.asarray(found), meant, err_msg=f"{name} {n} {m} {k}")


PLACES: list[Any] = [0, -1, 3, [0, 2], [1, 1], [2, 0], [], slice(0, 2), slice(None), slice(None, None, 2), slice(3, 0, -1), [-1, 0]]


@pytest.mark.parametrize("shape, axis", [((5,), None), ((5,), 0), ((4, 4), 1), ((4, 4), 0), ((4, 4), None)])
def test_insertions_and_deletions_are_numpys(shape: tuple[int, ...], axis: int | None) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for where in PLACES:
        np.testing.assert_array_equal(np.asarray(mnp.delete(x, where, axis)), np.delete(x, where, axis))
        count = len(where) if isinstance(where, list) else 1
        for values in (9.0, np.arange(count, dtype=np.float32) if count > 1 and axis is None else 7.0):
            np.testing.assert_array_equal(np.asarray(mnp.insert(x, where, values, axis)), np.insert(x, where, values, axis))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_pads_longer_than_the_dim_turn_again_and_again(mode: Any) -> None:
    for extent in (1, 2, 5):
        x = np.arange(extent, dtype=np.float32)
        for widths in ((0, 0), (1, 4), (9, 13)):
            np.testing.assert_array_equal(np.asarray(mnp.pad(x, widths, mode=mode)), np.pad(x, widths, mode=mode))


@pytest.mark.parametrize("start, stop, step", [(0.0, 1.0, 0.1), (0.1, 300.0, 0.1), (5.0, 2.0, -0.7), (-1.0, 1.0, 1 / 3), (0.0, -1.0, -0.5)])
def test_arange_is_start_and_steps_in_its_own_dtype_as_in_jax(start: float, stop: float, step: float) -> None:
    found = np.asarray(mnp.arange(start, stop, step))
    counted = np.arange(len(np.arange(start, stop, step)), dtype=np.float32)
    np.testing.assert_array_equal(found, counted * np.float32(step) + np.float32(start))
    assert not np.signbit(found[0]) or start < 0


def test_arange_takes_its_dtype_from_its_arguments_as_in_jax() -> None:
    assert mnp.arange(np.float16(3)).dtype == np.float16
    assert mnp.arange(np.int8(5)).dtype == np.int8
    assert np.asarray(mnp.arange(0, 5, 0.5, dtype=np.int32)).tolist() == [0] * 10


def test_a_long_polynomial_is_a_loop_with_a_gradient() -> None:
    p, x = np.linspace(-1, 1, 37, dtype=np.float32), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(np.asarray(mj.jit(mnp.polyval)(p, x)), np.polyval(p, x), rtol=1e-5, atol=1e-5)
    slope = mj.grad(lambda p: mnp.polyval(p, x).sum())(p)
    np.testing.assert_allclose(np.asarray(slope), np.vander(x.ravel(), 37).sum(0), rtol=1e-5, atol=1e-5)
    assert "while" in mj.jit(mnp.polyval).lower(p, x).as_text()


def test_means_of_more_elements_than_int32_counts_divide_by_their_number() -> None:
    large = mj.ShapeDtypeStruct((2**16, 2**16), np.float32)
    assert f"{np.float32(2**32).tobytes().hex().upper()}" in mj.jit(mnp.mean).lower(large).as_text()
