"""Searching, counting and segments of sharded values: partial sums, no gather of the data; and values as JAX's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy as mnp, ops, segments
from meshjit.errors import ConcretizationTypeError
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.wire import check_function, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))
N = 1 << 16


def all_reduced(elements: int) -> dict[str, float]:
    return {"all_reduce": 2 * elements * 4 * 7 / 8}


# -- searchsorted


def test_a_sharded_table_stays():
    found = traffic(mnp.searchsorted, [f"f32[{N}]", "f32[1000]"], MESH, [P("x"), P()], [P()])
    assert found == all_reduced(1000)


def test_sharded_values_need_nothing():
    assert traffic(mnp.searchsorted, [f"f32[{N}]", f"f32[{N}]"], MESH, [P(), P("x")], [P("x")]) == {}


METHODS = ("scan", "scan_unrolled", "sort", "compare_all", "default")


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_of_hard_values(side):
    """Equal entries, NaN, infinities, both zeros; tables shorter than the mesh; more values than entries."""
    rng = np.random.default_rng(0)
    special = np.array([-np.inf, -0.0, 0.0, 1, 1, np.inf, np.nan, np.nan], np.float32)
    for n, method in zip((0, 1, 3, 11, 40), METHODS, strict=True):
        table = np.sort(rng.choice(special, n)).astype(np.float32)
        values = np.concatenate([special, rng.choice(special, 5)])
        find = lambda a, v, m=method: mnp.searchsorted(a, v, side, method=m)  # noqa: E731
        np.testing.assert_array_equal(find(table, values), np.searchsorted(table, values, side))
        for specs in itertools.product((P("x"), P(("y", "x")), P()), (P("y"), P("x"), P())):
            check_function(find, [table, values], GRID, specs, [None])


def test_searchsorted_of_members_of_a_batch():
    rng = np.random.default_rng(1)
    tables, values = np.sort(rng.integers(0, 9, (3, 10)), -1), rng.integers(0, 9, (3, 4))
    want = np.stack([np.searchsorted(t, v) for t, v in zip(tables, values, strict=True)])
    np.testing.assert_array_equal(mj.vmap(mnp.searchsorted)(tables, values), want)
    want = np.stack([np.searchsorted(tables[0], v) for v in values.T], 1)
    np.testing.assert_array_equal(mj.vmap(mnp.searchsorted, in_axes=(None, 1), out_axes=1)(tables[0], values), want)
    want = np.stack([np.searchsorted(t, values[0]) for t in tables])
    np.testing.assert_array_equal(mj.vmap(mnp.searchsorted, in_axes=(0, None))(tables, values[0]), want)


def test_searchsorted_errors():
    with pytest.raises(ValueError, match="method 'binary' is not one of default, scan, scan_unrolled, sort, compare_all"):
        mnp.searchsorted(np.arange(3), 1, method="binary")
    with pytest.raises(ValueError, match="side is 'middle'"):
        mnp.searchsorted(np.arange(3), 1, side="middle")


# -- counting


def test_counts_are_summed_not_gathered():
    count = lambda x: mnp.bincount(x, length=100)  # noqa: E731
    assert traffic(count, [f"i32[{N}]"], MESH, [P("x")], [P()]) == all_reduced(100)
    weigh = lambda x, w: mnp.bincount(x, w, length=100)  # noqa: E731
    assert traffic(weigh, [f"i32[{N}]", f"f32[{N}]"], MESH, [P("x"), P("x")], [P()]) == all_reduced(100)
    edges = np.linspace(0, 1, 21, dtype=np.float32)
    for shape, spec in ((f"{N}", P("x")), (f"64, {N // 64}", P(None, "x"))):
        found = traffic(lambda x: mnp.histogram(x, edges)[0], [f"f32[{shape}]"], MESH, [spec], [P()])
        assert set(found) == {"all_reduce"} and found["all_reduce"] <= 2 * 21 * 4
    assert traffic(lambda x: mnp.digitize(x, edges), [f"f32[{N}]"], MESH, [P("x")], [P("x")]) == {}


def test_bincount_and_histogram_of_uneven_shards():
    rng = np.random.default_rng(2)
    x, w = rng.integers(-2, 12, 13).astype(np.int32), rng.normal(size=13).astype(np.float32)
    for specs in itertools.product((P("x"), P(("x", "y"))), (P("x"), P("y"))):
        check_function(lambda x, w: mnp.bincount(x, w, length=9), [x, w], GRID, specs, [None], exact=False)
        check_function(lambda x, w: mnp.histogram(w, 5, weights=w)[0], [x, w], GRID, specs, [None], exact=False)
        check_function(lambda x, w: mnp.digitize(x, np.array([1, 4, 6])), [x, w], GRID, specs, [P("x")])


def test_unique_moves_the_vector_twice():
    """All elements to the sort, and the inverse back."""
    fun = lambda a: mnp.unique(a, size=20, return_counts=True, return_inverse=True, return_index=True)  # noqa: E731
    found = traffic(fun, [f"i32[{N}]"], MESH, [P("x")], [P(), P(), P("x"), P()])
    assert sum(found.values()) <= 2 * N * 4 / 8 * 7 + 3000
    x = np.random.default_rng(3).integers(0, 9, 21).astype(np.int32)
    for spec in (P("x"), P(("x", "y")), P("y")):
        check_function(fun, [x], GRID, [spec], [None, P("x"), spec, None])


# -- segments


def test_segments_are_jaxs():
    """Ids out of range are left out; what no row reaches is the identity."""
    data, ids = np.arange(6, dtype=np.float32), np.array([0, 1, -1, 7, 2, 2])
    np.testing.assert_array_equal(segments.segment_sum(data, ids, 4), [0, 1, 9, 0])
    np.testing.assert_array_equal(segments.segment_prod(data, ids, 4), [0, 1, 20, 1])
    np.testing.assert_array_equal(segments.segment_max(data, ids, 4), [0, 1, 5, -np.inf])
    np.testing.assert_array_equal(segments.segment_min(data.astype(np.int32), ids, 4), [0, 1, 4, 2**31 - 1])

    np.testing.assert_array_equal(segments.segment_max(data > 0, ids, 4), [False, True, True, False])
    np.testing.assert_array_equal(segments.segment_sum(data, ids, 4, mode="clip"), [2, 1, 9, 3])
    np.testing.assert_array_equal(segments.segment_sum(data, np.array([0, 1, 1, 0, 2, 2])), [3, 3, 9])
    assert segments.segment_sum(np.zeros((3, 2), np.float32), np.zeros(3, np.int32), 0).shape == (0, 2)
    assert ops.segment_sum is segments.segment_sum


def test_one_entry_is_that_of_every_id():
    ids = np.array([0, 1, 1, 3])
    np.testing.assert_array_equal(segments.segment_sum(2, ids, 5), [2, 4, 0, 2, 0])
    np.testing.assert_array_equal(segments.segment_max(np.float32(3), ids, 5), [3, 3, -np.inf, 3, -np.inf])
    np.testing.assert_array_equal(segments.segment_sum(np.ones((1, 2)), ids, 4), [[1, 1], [2, 2], [0, 0], [1, 1]])
    np.testing.assert_array_equal(segments.segment_sum(2, ids[:0], 2), [0, 0])


def test_rows_of_segments_stay():
    add = lambda d, i: segments.segment_sum(d, i, 50)  # noqa: E731
    found = traffic(add, [f"f32[{N}, 16]", f"i32[{N}]"], MESH, [P("x"), P("x")], [P()])
    assert found == all_reduced(50 * 16)
    found = traffic(add, [f"f32[{N}, 16]", f"i32[{N}]"], MESH, [P("x"), P("x")], [P(None, "x")])
    assert set(found) == {"reduce_scatter"} and sum(found.values()) == 50 * 16 * 4 * 7 / 8
    gradient = mj.grad(lambda d, i: mnp.sum(segments.segment_sum(d, i, 50) ** 2))
    found = traffic(gradient, [f"f32[{N}, 16]", f"i32[{N}]"], MESH, [P("x"), P("x")], [P("x")])
    assert found == all_reduced(50 * 16)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
def test_segments_of_uneven_shards(name):
    rng = np.random.default_rng(4)
    data, ids = rng.integers(-3, 4, (13, 5)).astype(np.float32), rng.integers(-2, 9, 13).astype(np.int32)
    fun = getattr(segments, f"segment_{name}")
    for specs in itertools.product((P("x"), P("y", "x"), P(None, "x")), (P("x"), P("y"), P())):
        for out in (None, P("x"), P("y")):
            check_function(lambda d, i: fun(d, i, 7), [data, ids], GRID, specs, [out])


def test_segment_errors():
    data, ids = np.zeros((4, 2), np.float32), np.zeros(3, np.int32)
    with pytest.raises(ValueError, match=r"segment_sum: data has shape \(4, 2\), segment_ids \(3,\)"):
        segments.segment_sum(data, ids, 2)
    with pytest.raises(TypeError, match="segment_ids must be integers, got float32"):
        segments.segment_sum(data, ids[:1].astype(np.float32), 2)
    with pytest.raises(ValueError, match="num_segments is -1"):
        segments.segment_max(data[:3], ids, -1)
    with pytest.raises(ConcretizationTypeError, match="segment_sum needs the highest id"):
        mj.jit(segments.segment_sum)(data[:3], ids)


# -- known indices


def test_known_runs_of_indices_are_slices():
    x = np.arange(40).reshape(10, 4)
    for index in ([3, 4, 5], [9, 7, 5, 3, 1], [-3, -2, -1], [0], [2, 1, 0]):
        places = np.array(index)
        found = mj.make_jaxpr(lambda x, i=places: mnp.asarray(x)[i])(x)
        assert "gather" not in str(found)
        np.testing.assert_array_equal(mnp.asarray(x)[np.array(index)], x[index])
        np.testing.assert_array_equal(mnp.asarray(x)[:, None, np.array([0, 2])], x[:, None, [0, 2]])
    for index in ([0, 0], [1, 2, 4]):
        np.testing.assert_array_equal(mnp.asarray(x)[np.array(index)], x[index])
    updated = mnp.asarray(x).at[np.array([8, 6, 4])].set(0)
    want = x.copy()
    want[[8, 6, 4]] = 0
    np.testing.assert_array_equal(updated, want)
    found = traffic(lambda x: x[np.arange(5, 25)], [f"f32[{N}, 8]"], MESH, [P("x")], [P()])
    assert set(found) <= {"all_reduce", "collective_permute", "all_gather"} and sum(found.values()) <= 3 * 20 * 8 * 4


def test_digitize_of_falling_bins():
    x, bins = np.arange(-2, 10).astype(np.float32), np.array([7.0, 3, 1], np.float32)
    for right in (False, True):
        np.testing.assert_array_equal(mnp.digitize(x, bins, right=right), np.digitize(x, bins, right=right))


def test_modes_of_take():
    """By default what is out of bounds is filled; wrapping is for take and take_along_axis alone."""
    x, places = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[0, -1, 5], [3, -4, 2]])
    nan = np.nan
    for mode in (None, "fill"):
        np.testing.assert_array_equal(mnp.take_along_axis(x, places, 1, mode=mode), [[0, 2, nan], [nan, nan, 5]])
        np.testing.assert_array_equal(mnp.take(x, np.array([1, -1, 2]), 0, mode=mode)[:, 0], [3, 3, nan])
    np.testing.assert_array_equal(mnp.take_along_axis(x, places, 1, mode="clip"), [[0, 2, 2], [5, 3, 5]])
    np.testing.assert_array_equal(mnp.take_along_axis(x, places, 1, mode="wrap"), [[0, 2, 2], [3, 5, 5]])
    np.testing.assert_array_equal(mnp.take(x, np.array([1, -1, 2, 5]), 0, mode="wrap")[:, 0], [3, 3, 0, 3])
    with pytest.raises(ValueError, match="mode 'wrap' is not one of clip, fill, drop, promise_in_bounds"):
        mnp.asarray(x).at[np.array([0, 5])].get(mode="wrap")
