"""Reading by index against NumPy: every kind of index, drawn at random and mixed; take and take_along_axis as JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from tests.tools.asserting import assert_same
from tests.tools.indices import SHAPES, grid, indices
from tests.tools.numpy_eager import host, numpy_eager
from tests.tools.wire import traced

pytestmark = pytest.mark.usefixtures("eager")





@settings(max_examples=400)
@given(st.data())
def test_any_index(data: Any):
    shape = data.draw(st.sampled_from(SHAPES))
    index = data.draw(indices(shape))
    x = grid(*shape)
    with numpy_eager():
        if any(isinstance(p, np.ndarray) for p in index) and data.draw(st.booleans()):
            given_index = tuple(host(p) if isinstance(p, np.ndarray) else p for p in index)
        else:
            given_index = index
        assert_same(host(x)[given_index], x[index])


@pytest.mark.parametrize(
    "index",
    [
        np.s_[[0, 2]],
        np.s_[[0, -1], [1, 2]],
        np.s_[:, [[0], [1]]],
        np.s_[np.array([True, False, True, True])],
        np.s_[:, np.array([True, False, True])],
        np.s_[np.array([True, False, True, True]), 1],
        np.s_[np.array([False] * 4)],
        np.s_[grid(4, 3) > 4],
        np.s_[(grid(4, 3) > 4)[..., None]],
        np.s_[np.array([True, False, True, True]), :, None, [0, 1, 1]],
        np.s_[1, :, [0, 1]],
        np.s_[[0, 1], None, [1, 2]],
        np.s_[None, [0, 1], 1],
        np.s_[..., [0, 1]],
        np.s_[np.int8(-1), np.uint8(2)],
        np.s_[np.array(2)],
        np.s_[np.array([3, 1], np.uint8)],
        np.s_[[]],
        np.s_[()],
        np.s_[True],
        np.s_[False],
        np.s_[None],
    ],
    ids=str,
)
def test_named_indices(index: Any):
    x = grid(4, 3, 2)
    if not (isinstance(index, np.ndarray) and index.ndim == 3):
        assert_same(host(x)[index], x[index])
    else:
        assert_same(host(grid(4, 3, 1))[index], grid(4, 3, 1)[index])


@pytest.mark.parametrize("dtype", ["bool", "u8", "i32", "c64", "bf16"])
def test_every_dtype(dtype: str):
    from meshjit.core.types import DTYPES

    x = grid(4, 3).astype(DTYPES[dtype])
    assert_same(host(x)[[0, -1], ::-2], x[[0, -1], ::-2])


def test_a_traced_mask_is_refused():
    with pytest.raises(IndexError) as caught:
        mj.eval_shape(lambda x: x[x > 0], np.zeros(3, np.float32))
    text = str(caught.value)
    assert "a traced boolean mask (computed at test_numpy_indexing.py:" in text
    assert "gives a result whose shape depends on values\n  at test_numpy_indexing.py:" in text
    assert "fix: use mnp.where(mask, x, other)" in text


@pytest.mark.parametrize(
    ("index", "kind", "text"),
    [
        (np.s_[0, 0, 0], IndexError, "too many indices: 3 for an array of 2 dims"),
        (np.s_[..., ...], IndexError, "an index can hold one ellipsis only"),
        (1.0, TypeError, "indices must be integers or booleans, got f32[]"),
        (np.array([True]), IndexError, "a boolean mask of shape (1,) indexes dims of shape (4,)"),
        (np.s_[..., np.array([True])], IndexError, "a boolean mask of shape (1,) indexes dims of shape (3,)"),
        (np.s_[[0, 1, 2], [0, 1]], ValueError, "Incompatible shapes for broadcasting: shapes (3,), (2,) do not fit together"),
    ],
)
def test_wrong_indices(index: Any, kind: Any, text: str):
    with pytest.raises(kind) as caught:
        host(grid(4, 3))[index]
    assert str(caught.value).startswith(text) and "\n  at test_numpy_indexing.py:" in str(caught.value)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0), (0,)])
def test_a_mask_with_an_extent_of_0_selects_nothing(shape: tuple[int, ...]) -> None:
    x, mask = grid(4, 3), np.zeros(shape, np.bool_)
    assert_same(host(x)[mask], x[mask])
    assert_same(host(x)[host(mask)], x[mask])
    assert_same(host(x).at[mask].set(7.0), x)
    assert_same(host(x).at[mask].add(np.zeros((0, *x.shape[len(shape) :]), np.float32)), x)
    made = mj.make_jaxpr(lambda x, mask: x.at[mask].set(7.0))(x, mask)
    assert made.out_avals[0].shape == (4, 3) and not made.eqns
    with pytest.raises(IndexError, match=r"a boolean mask of shape \(5, 0\) indexes dims of shape \(4, 3\)"):
        host(x)[np.zeros((5, 0), np.bool_)]


def test_a_mask_of_an_empty_dim_has_its_extent() -> None:
    with pytest.raises(IndexError, match=r"a boolean mask of shape \(2, 3\) indexes dims of shape \(0, 3\)"):
        host(np.zeros((0, 3), np.float32))[np.zeros((2, 3), np.bool_)]


def test_traced_slice_bounds_are_refused():
    with pytest.raises(IndexError) as caught:
        mj.eval_shape(lambda x, n: x[:n], np.zeros(3, np.float32), np.int32(1))
    assert "slice bounds must be Python ints" in str(caught.value) and "lax.dynamic_slice_in_dim" in str(caught.value)


def test_arrays_out_of_range_are_clamped():
    x = host(grid(6))
    assert_same(x[np.array([1, 10, -1, -10])], np.float32([1, 5, 5, 0]))
    assert_same(x[host(10)], np.float32(5))
    assert_same(x.at[np.array([1, 10, -10])].get(mode="fill", fill_value=7.0), np.float32([1, 7, 7]))
    assert_same(x.at[host([1, 10, -10])].get(mode="clip"), np.float32([1, 5, 0]))
    assert_same(host([0, 1], np.int32).at[host([0, 9])].get(mode="fill"), np.int32([0, -(2**31)]))
    assert_same(host([0, 1], np.uint8).at[host([0, 9])].get(mode="fill"), np.uint8([0, 255]))


def test_take():
    x, wild = host(grid(6)), host([1, 10, -1, -10])
    assert_same(mnp.take(x, wild), np.float32([1, np.nan, 5, np.nan]))
    assert_same(mnp.take(x, wild, mode="clip"), np.float32([1, 5, 0, 0]))
    assert_same(mnp.take(x, wild, mode="wrap"), np.float32([1, 4, 5, 2]))
    assert_same(mnp.take(x, wild, fill_value=-1.0), np.float32([1, -1, 5, -1]))
    assert_same(mnp.take(x, 9), np.float32(np.nan))
    y = grid(2, 3, 4)
    for axis in (None, 0, 1, 2, -1):
        assert_same(mnp.take(host(y), host([[1, 0], [0, 1]]), axis=axis), np.take(y, [[1, 0], [0, 1]], axis=axis))
        assert_same(mnp.take(host(y), 1, axis=axis), np.take(y, 1, axis=axis))
        assert_same(mnp.take(host(y), [1, 1, 0], axis=axis), np.take(y, [1, 1, 0], axis=axis))
    assert_same(mnp.take(host(grid(0, 3)), np.zeros(0, np.int32), axis=0), grid(0, 3))
    with pytest.raises(IndexError, match="axis 2 is out of range for an array of 1 dims"):
        mnp.take(x, 0, axis=2)


def test_take_along_axis():
    y, wild = host(grid(2, 3)), host([[0, 5, -1], [-9, 2, 1]])
    assert_same(mnp.take_along_axis(y, wild, 1), np.float32([[0, np.nan, 2], [np.nan, 5, 4]]))
    assert_same(mnp.take_along_axis(y, wild, 1, mode="clip"), np.float32([[0, 2, 2], [3, 5, 4]]))
    assert_same(mnp.take_along_axis(y, wild, 1, fill_value=0.0), np.float32([[0, 0, 2], [0, 5, 4]]))
    x = np.random.default_rng(0).integers(0, 99, (3, 4, 5))
    for axis in (0, 1, 2, -1):
        order = np.argsort(x, axis=axis)
        assert_same(mnp.take_along_axis(host(x, np.int32), host(order), axis), np.take_along_axis(x, order, axis).astype(np.int32))
        some = np.take(order, [0, 1], axis=axis)
        assert_same(mnp.take_along_axis(host(x, np.int32), host(some), axis), np.take_along_axis(x, some, axis).astype(np.int32))
    row = np.array([[[2]], [[0]], [[1]]])
    assert_same(mnp.take_along_axis(host(x, np.int32), host(row), 1), np.take_along_axis(x, row, 1).astype(np.int32))
    assert_same(mnp.take_along_axis(host(grid(4)), host([3, 0]), None), np.float32([3, 0]))
    assert_same(mnp.take_along_axis(host(grid(2, 2)), host([3, 9]), None, fill_value=8.0), np.float32([3, 8]))
    assert_same(mnp.take_along_axis(host(grid(0, 3)), host(np.zeros((0, 2), int)), 1), grid(0, 2))
    with pytest.raises(ValueError, match="take_along_axis: indices have 1 dims, the array 2"):
        mnp.take_along_axis(y, host([0]), 0)


def test_iteration_and_len():
    rows = list(host(grid(3, 2)))
    assert len(rows) == 3
    assert_same(rows[1], np.float32([2, 3]))
    with pytest.raises(TypeError, match="iteration over .* an array of 0 dims"):
        list(host(1.0))
    with pytest.raises(TypeError, match=r"arrays cannot be changed in place\n  at .*\n  fix: x = x.at\[index\].set\(value\)"):
        host(grid(3))[0] = 1


@pytest.mark.device
def test_indices_under_jit():
    x, places = grid(5, 4, 3), np.array([[0, -1], [2, 1]])
    found = mj.jit(lambda x, i: (x[i, 1:, ::-1], x[:, i, 0], x[i, :, i], x[..., None, 2]))(x, places)
    for a, b in zip(found, (x[places, 1:, ::-1], x[:, places, 0], x[places, :, places], x[..., None, 2]), strict=True):
        assert_same(a, b)


def test_an_empty_ellipsis_parts_index_arrays() -> None:
    x = np.arange(7 * 5 * 6, dtype=np.float32).reshape(7, 5, 6)
    i = np.array([1])
    for index in ((slice(3), i, ..., i), (slice(3), 0, ..., i), (None, slice(3), i, ..., 2), (..., i, i, i), (slice(2), i, i, ...)):
        np.testing.assert_array_equal(np.asarray(mnp.asarray(x)[index]), x[index])
    set_ = mnp.asarray(x).at[:3, i, ..., i].set(mnp.arange(3.0))
    x[:3, i, ..., i] = np.arange(3.0)
    np.testing.assert_array_equal(np.asarray(set_), x)


def test_an_index_into_an_empty_dim_of_an_empty_result() -> None:
    assert mnp.zeros((0, 0, 5))[1:1, np.array([[0]])].shape == (0, 1, 1, 5)
    with pytest.raises(IndexError, match="an index into an empty dim"):
        mnp.zeros((0, 5))[np.array([0])]


def test_starts_of_small_dtypes_count_from_the_end_of_a_longer_dim() -> None:
    x = mnp.arange(200)
    starts = [np.int8(-1), np.uint8(255), np.uint32(2**32 - 1), np.int16(-5), np.int8(-128)]
    found = [int(lax.dynamic_slice(x, (mnp.asarray(i),), (1,))[0]) for i in starts]
    assert found == [199, 199, 199, 195, 72]
    with pytest.raises(IndexError, match="index_in_dim: index 0 is out of bounds for dim -1 of extent 0"):
        lax.index_in_dim(mnp.zeros((1, 0)), 0, -1)


def test_gather_of_an_empty_batch() -> None:
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(1,), start_index_map=(1,), operand_batching_dims=(0,), start_indices_batching_dims=(0,)
    )
    assert lax.gather(mnp.zeros((0, 3)), np.zeros((0, 2, 1), np.int32), numbers, (1, 1)).shape == (0, 2)


def test_take_along_axis_takes_blocks_where_all_lines_take_the_same() -> None:
    def take(x: Any, i: Any) -> Any:
        return mnp.take_along_axis(x, i[:, :, None, None], axis=1)

    (eqn,) = [e for e in traced(take, ["f32[3, 5, 4, 2]", "i32[3, 6]"]).eqns if e.op.name == "gather"]
    assert eqn.params["slice_sizes"] == (1, 1, 4, 2) and eqn.outputs[0].shape == (3, 6, 4, 2)
    x, i = np.arange(120.0, dtype=np.float32).reshape(3, 5, 4, 2), np.arange(18).reshape(3, 6) % 5
    np.testing.assert_array_equal(take(x, i), np.take_along_axis(x, i[:, :, None, None], 1))
    one = np.take_along_axis(np.broadcast_to(x[:1], x.shape), i[:, :, None, None], 1)
    np.testing.assert_array_equal(take(x[:1], i), one)


def test_take_along_axis_takes_nothing_of_nothing() -> None:
    for x, i, axis in (((0, 1, 2), (0, 2, 1), 0), ((2, 0), (2, 0), 1), ((2, 0), (1, 0), 1), ((2, 3), (2, 0), 1), ((0, 3), (0, 2), 1)):
        found = mnp.take_along_axis(np.zeros(x, np.float32), np.zeros(i, np.int32), axis)
        assert found.shape == np.take_along_axis(np.zeros(x), np.zeros(i, int), axis).shape and found.dtype == np.float32
