"""`x.at[index].set(y)` and its kin against NumPy's in-place updates, for every kind of index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import meshjit as mj
import meshjit.numpy as mnp
from tests.tools.asserting import assert_same
from tests.tools.indices import SHAPES, grid, indices
from tests.tools.numpy_eager import host, numpy_eager

pytestmark = pytest.mark.usefixtures("eager")

NUMPY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def _reference(x: np.ndarray[Any, Any], index: Any, kind: str, values: Any) -> np.ndarray[Any, Any]:
    x = np.array(x)
    if kind == "set":
        x[index] = values
    else:
        NUMPY[kind].at(x, index, values)
    return x


@settings(max_examples=300)
@given(st.data())
def test_any_index(data: Any):
    shape = data.draw(st.sampled_from(SHAPES))
    index, kind = data.draw(indices(shape)), data.draw(st.sampled_from(["set", *NUMPY]))
    x = grid(*shape)
    room = x[index].shape
    # Values of the full shape, of one that is broadcast, or one for all (with `set`, as elements may be met twice).
    form = () if kind == "set" else data.draw(st.sampled_from([room, room[1:], tuple(1 for _ in room), ()]))
    values = (grid(*form) % 5 - 2).astype(np.float32)
    with numpy_eager():
        update = getattr(host(x).at[index], kind)
        assert_same(update(host(values)), _reference(x, index, kind, values))


@pytest.mark.parametrize(
    "index",
    [np.s_[1:3], np.s_[::2], np.s_[::-1, 1], np.s_[:, None, 2], np.s_[[3, 0]], np.s_[:, [2, 0]], np.s_[..., 1], np.s_[()],
     np.s_[[2, 0], 1:], np.s_[2, [0, 2]], np.s_[1:1], np.s_[np.array([True, False, True, True])], np.s_[grid(4, 3) > 4],
     np.s_[:, np.array([False, True, True])], np.s_[np.zeros(0, int)], np.s_[-1, -1]],
    ids=str,
)  # fmt: skip
def test_set_of_different_values(index: Any):
    x = grid(4, 3)
    values = -1 - grid(*x[index].shape)
    assert_same(host(x).at[index].set(host(values)), _reference(x, index, "set", values))


@pytest.mark.parametrize("kind", ["set", *NUMPY])
@pytest.mark.parametrize("dtype", ["i32", "u8", "bf16", "f32"])
def test_kinds_and_dtypes(kind: str, dtype: str):
    from meshjit.core.types import DTYPES

    x = (grid(4, 3) % 7).astype(DTYPES[dtype])
    for index in (np.s_[1:3], np.s_[[0, 0, 2]], np.s_[1]):
        found = getattr(host(x).at[index], kind)(2)
        assert_same(found, _reference(x, index, kind, np.asarray(2, x.dtype)))


def test_duplicates_add_up():
    assert_same(host(grid(3)).at[np.array([1, 1, 1])].add(host([1.0, 2.0, 4.0])), np.float32([0, 8, 2]))
    assert_same(host(np.ones(3, np.float32)).at[np.array([0, 0])].multiply(host([3.0, 4.0])), np.float32([12, 1, 1]))
    assert_same(host(np.ones(3, np.float32)).at[np.array([0, 0])].mul(3), np.float32([9, 1, 1]))


def test_out_of_range_is_dropped():
    x = host(grid(4))
    assert_same(x.at[np.array([1, 9, -9, -1])].set(7.0), np.float32([0, 7, 2, 7]))
    assert_same(x.at[host([1, 4])].add(10), np.float32([0, 11, 2, 3]))
    assert_same(x.at[host([1, 9, -9])].set(7.0, mode="clip"), np.float32([7, 7, 2, 7]))
    assert_same(x.at[9].set(7.0, mode="drop"), grid(4))
    assert_same(host(grid(0, 3)).at[host([0])].set(1.0), grid(0, 3))
    assert_same(x.at[9].set(7.0), grid(4))
    assert_same(host(grid(2, 3)).at[:, -9].add(7.0), grid(2, 3))
    assert_same(host(grid(2, 3)).at[np.array([0, 1]), 9].mul(7.0), grid(2, 3))
    assert_same(mj.grad(lambda v: host(grid(4)).at[9].set(v).sum())(3.0), np.float32(0))
    with pytest.raises(IndexError, match="index 0 into dim 0, which is empty"):
        host(grid(0, 3)).at[0].set(1.0)
    with pytest.raises(ValueError, match="mode 'away' is not one of clip, fill, drop, promise_in_bounds"):
        x.at[host([9])].set(7.0, mode="away")


def test_booleans():
    x = np.array([True, False, False])
    assert_same(host(x).at[host([0, 1])].set(False), np.array([False] * 3))
    for index in (1, np.array([1, 2])):
        assert_same(host(x).at[index].max(True), _reference(x, index, "max", True))
        assert_same(host(x).at[index].min(False), _reference(x, index, "min", False))
        assert_same(host(x).at[index].add(True), _reference(x, index, "add", True))
        assert_same(host(x).at[index].multiply(True), _reference(x, index, "multiply", True))


@pytest.mark.parametrize("kind", ["set", "add", "min"])
@pytest.mark.parametrize("index", [True, False, np.True_, (0, True), (True, 1), (slice(1), False), (None, True), (True, Ellipsis, 1)])
def test_a_scalar_boolean_takes_all_or_nothing(index: Any, kind: str) -> None:
    x = grid(3, 4)
    np.testing.assert_array_equal(host(getattr(mnp.asarray(x).at[index], kind)(1)), _reference(x, index, kind, 1))
    np.testing.assert_array_equal(host(mnp.asarray(5.0).at[True].add(1)), 6)


def test_values_take_the_dtype_of_the_array():
    assert_same(host(grid(3), np.int32).at[0].add(1.7), np.int32([1, 1, 2]))
    assert_same(host(grid(3), np.float32).at[0].set(host(1, np.int32)), np.float32([1, 1, 2]))
    assert_same(host(np.zeros(3), np.uint8).at[0].subtract(1), np.uint8([255, 0, 0]))


def test_divide_power_apply_and_get():
    x = host(grid(4))
    assert_same(x.at[3].divide(2), np.float32([0, 1, 2, 1.5]))
    assert_same(x.at[np.array([3, 3])].divide(2), np.float32([0, 1, 2, 0.75]))
    assert_same(host([np.inf, 4.0], np.float32).at[1].divide(2), np.float32([np.inf, 2]))
    assert_same(x.at[3].power(2), np.float32([0, 1, 2, 9]))
    assert_same(x.at[1:].apply(mnp.negative), np.float32([0, -1, -2, -3]))
    assert_same(x.at[1:3].get(), np.float32([1, 2]))
    assert_same(x.at[np.array([1, 2])].get(indices_are_sorted=True, unique_indices=True), np.float32([1, 2]))
    assert_same(x.at[np.array([2, 1])].set(0, unique_indices=True), np.float32([0, 0, 0, 3]))


def test_values_that_do_not_fit():
    with pytest.raises(ValueError) as caught:
        host(grid(4, 3)).at[1].set(host(grid(2)))
    assert str(caught.value).startswith("shape (2,) cannot be broadcast to (3,)\n  at test_numpy_updates.py:")


def test_values_with_leading_extents_of_one_fit():
    """As in NumPy assignments: x[1] = [[…]]."""
    assert_same(host(grid(4, 3)).at[1].set(host(grid(1, 3))), _reference(grid(4, 3), 1, "set", grid(1, 3)))


def test_a_traced_mask_with_one_value_is_a_choice():
    shape = mj.eval_shape(lambda x: x.at[x > 1].set(0.0), np.zeros((3, 2), np.float32))
    assert shape.shape == (3, 2)
    with pytest.raises(IndexError, match="a traced boolean mask"):
        mj.eval_shape(lambda x: x.at[x > 1].set(x[0]), np.zeros((3, 2), np.float32))


def test_gradients_of_updates():
    x, places = host(grid(4)), np.array([1, 1, 3])
    values = host([1.0, 2.0, 3.0], np.float32)
    of_x, of_values = mj.grad(lambda x, v: mnp.sum(x.at[places].add(v) * grid(4)), argnums=(0, 1))(x, values)
    assert_same(of_x, grid(4))
    assert_same(of_values, np.float32([1, 1, 3]))
    of_x = mj.grad(lambda x: mnp.sum(x.at[1:3].set(0.0) * grid(4)))(x)
    assert_same(of_x, np.float32([0, 0, 0, 3]))


@pytest.mark.device
def test_updates_under_jit():
    x, places = grid(5, 4), np.array([[0, -1], [2, 0]])

    @mj.jit
    def f(x, i):
        return x.at[i, 1:].add(1.0), x.at[::2, ::-1].set(x[:3]), x.at[x > 7].multiply(0.0), x.at[1:, i].max(9.0)

    expected = [
        _reference(x, (places, slice(1, None)), "add", 1),
        _reference(x, np.s_[::2, ::-1], "set", x[:3]),
        np.where(x > 7, np.float32(0), x),
        _reference(x, (slice(1, None), places), "max", 9),
    ]
    for found, wanted in zip(f(x, places), expected, strict=True):
        assert_same(found, wanted)


def test_what_is_out_of_bounds_is_clipped_and_has_no_gradient() -> None:
    """As in JAX 0.10.2: gradients of arrays of indices are dropped, of single ones given to where they were taken."""
    x, i = np.arange(1.0, 6.0, dtype=np.float32), np.array([7, -9, 2, -1])
    for read, gradient in ((lambda x, i: x[i], [0, 0, 1, 0, 1]), (lambda x, i: x.at[i].get(mode="clip"), [1, 0, 1, 0, 2])):
        taken, back = mj.jit(mj.value_and_grad(lambda x, i, r=read: (r(x, i) * np.ones(4)).sum()))(x, i)
        assert float(taken) == 5 + 1 + 3 + 5
        np.testing.assert_array_equal(np.asarray(back), gradient)
    np.testing.assert_array_equal(np.asarray(mj.jit(mj.grad(lambda x, i: x[i]))(x, 7)), [0, 0, 0, 0, 1])


def test_apply_takes_a_mode() -> None:
    x = mnp.asarray(np.arange(4.0, dtype=np.float32))
    found = [x.at[np.array([1, 9])].apply(lambda x: x + 10, mode=mode) for mode in (None, "drop", "clip")]
    np.testing.assert_array_equal(np.asarray(mnp.stack(found)), [[0, 11, 2, 3], [0, 11, 2, 3], [0, 11, 2, 13]])


def test_updates_know_their_words() -> None:
    x = mnp.zeros(4)
    x.at[1].set(2.0, indices_are_sorted=True, unique_indices=True, wrap_negative_indices=True)
    with pytest.raises(TypeError, match=r"\.at\[\.\.\.\]\.set: there is no argument 'mod', only mode, indices_are_sorted"):
        x.at[1].set(2.0, mod="drop")


def test_negative_indices_that_do_not_wrap_are_out_of_bounds() -> None:
    """Reads are clamped, updates dropped; the bounds of slices count from the end all the same."""
    x = mnp.asarray(np.array([2, 3], np.int32))
    for index in (np.array([-1, -5, 5]), mnp.asarray([-1, -5, 5])):
        assert np.asarray(x.at[index].get(wrap_negative_indices=False)).tolist() == [2, 2, 3]
        assert np.asarray(x.at[index].set(9, wrap_negative_indices=False)).tolist() == [2, 3]
        assert np.asarray(x.at[index].add(1, mode="clip", wrap_negative_indices=False)).tolist() == [4, 4]
    assert int(x.at[-1].get(wrap_negative_indices=False)) == 2
    assert np.asarray(x.at[-1].set(9, wrap_negative_indices=False)).tolist() == [2, 3]
    assert np.asarray(x.at[-2:].get(wrap_negative_indices=False)).tolist() == [2, 3]
    assert np.asarray(x.at[np.array([0, 1])].multiply(2, wrap_negative_indices=False)).tolist() == [4, 6]


def test_multiplying_one_element_has_a_derivative() -> None:
    slope = mj.grad(lambda x: x.at[mnp.asarray(1)].multiply(x[0]).sum())(mnp.asarray(np.array([2.0, 3.0], np.float32)))
    assert np.asarray(slope).tolist() == [4, 2]


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_put_along_axis(axis: int | None) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    indices = np.argmax(-x, axis=axis, keepdims=axis is not None)
    indices = np.atleast_1d(indices)
    found = np.asarray(mnp.put_along_axis(x, indices, 9, axis, inplace=False))
    np.put_along_axis(x, indices, 9, axis)
    np.testing.assert_array_equal(found, x)
    with pytest.raises(ValueError, match="put_along_axis: arrays cannot be changed in place"):
        mnp.put_along_axis(x, indices, 9, axis)


def reference_apply(x, index):
    """NumPy's ufunc.at: as often as the index names an element."""
    result = x.copy()
    for place in np.ndindex(x.shape):
        for _ in range(counted(x.shape, index)[place]):
            result[place] = result[place] * 10 + 1
    return result


def counted(shape, index):
    counts = np.zeros(shape, int)
    np.add.at(counts, index, 1)
    return counts


APPLIED = [
    (np.array([1, 3, 1]), slice(None)), (np.array([1, -1, 3, 0]),), (slice(None), np.array([2, 2])), (np.array([[1], [1]]), np.array([0, 0])),
    (2,), (slice(1, 3),), (..., np.array([0, 0, -1])), (np.arange(12).reshape(4, 3) > 4,), (np.array([], int),),
]  # fmt: skip


@pytest.mark.parametrize("index", APPLIED, ids=str)
def test_apply_is_repeated_where_an_index_is(index) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    f = lambda v: v * 10 + 1  # noqa: E731
    expected = reference_apply(x, index)
    assert_same(host(x).at[index].apply(f), expected)
    assert_same(mj.jit(lambda x: x.at[index].apply(f))(x), expected)
    given = [i for i in index if isinstance(i, np.ndarray) and i.dtype != bool]

    def traced(x, *arrays):
        rest = iter(arrays)
        return x.at[tuple(next(rest) if isinstance(i, np.ndarray) and i.dtype != bool else i for i in index)].apply(f)

    assert_same(mj.jit(traced)(x, *given), expected)
    place = mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x"))
    assert_same(mj.jit(traced)(mj.device_put(x, place), *given), expected)


def test_apply_counts_places_that_are_moved_inside() -> None:
    x, f = mnp.arange(5.0), lambda v: v * 10 + 1
    assert_same(x.at[np.array([1, 9, -1, -9])].apply(f, mode="clip"), np.float32([1, 11, 2, 3, 411]))
    assert_same(x.at[np.array([1, 9, -1, -9])].apply(f), np.float32([0, 11, 2, 3, 41]))
    assert_same(x.at[np.array([1, 1])].apply(f, unique_indices=True), np.float32([0, 11, 2, 3, 4]))
    batch = mj.vmap(lambda i: x.at[i].apply(f))(np.array([[1, 1], [2, 3]]))
    assert_same(batch, np.float32([[0, 111, 2, 3, 4], [0, 1, 21, 31, 4]]))


def test_derivatives_of_apply() -> None:
    x = np.float32([0.5, 1.0, 2.0])
    slopes = mj.grad(lambda x: x.at[np.array([1, 1, 2])].apply(mnp.sin).sum())(x)
    expected = [1, np.cos(np.sin(1.0)) * np.cos(1.0), np.cos(2.0)]
    np.testing.assert_allclose(np.asarray(slopes), expected, rtol=1e-6)
    traced = mj.jit(mj.grad(lambda x, i: x.at[i].apply(mnp.sin, unique_indices=True).sum()))(x, np.array([0, 2]))
    np.testing.assert_allclose(np.asarray(traced), [np.cos(0.5), 1, np.cos(2.0)], rtol=1e-6)


def test_apply_needs_a_function_of_elements() -> None:
    with pytest.raises(TypeError, match=r"keeps the shape: it was given \(2,\) and returned \(\)\n  at test_numpy_updates.py"):
        mnp.arange(5.0).at[np.array([1, 2])].apply(mnp.sum)


def test_scatter_apply() -> None:
    numbers = mj.lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    x, f = mnp.arange(5.0), lambda v: v * 10 + 1
    for apply in (mj.lax.scatter_apply, mj.jit(mj.lax.scatter_apply, static_argnums=(2, 3), static_argnames=("update_shape", "mode"))):
        assert_same(apply(x, np.array([[1], [3], [1]]), f, numbers, update_shape=(3,)), np.float32([0, 111, 2, 31, 4]))
        assert_same(apply(x, np.array([[1], [9]]), f, numbers, update_shape=(2,)), np.float32([0, 11, 2, 3, 4]))
        assert_same(apply(x, np.array([[1], [9]]), f, numbers, update_shape=(2,), mode="clip"), np.float32([0, 11, 2, 3, 41]))
    rows = mj.lax.ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_same(mj.lax.scatter_apply(grid, np.array([[1], [1]]), f, rows, update_shape=(2, 3)), np.stack([grid[0], f(f(grid[1]))]))
