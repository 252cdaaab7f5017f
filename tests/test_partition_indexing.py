"""gather, scatter and dynamic slices of sharded values: right for duplicate and out-of-range indices in every mode, and
nothing travels but what must."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.sharding import PartitionSpec as P
from meshjit.simulate.evaluate import evaluate
from sharding.mesh import AbstractMesh
from tests.tools.laws import check_law
from tests.tools.wire import check_function, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))
MODES = ("clip", "fill", "promise_in_bounds")
KINDS = ("set", "add", "mul", "min", "max")

# -- scatter: rows of a table


def scatter_rows(kind: str, mode: str, unique: bool = False):
    params = {
        "update_window_dims": (1,), "inserted_window_dims": (0,), "input_batching_dims": (),
        "scatter_indices_batching_dims": (), "scatter_dims_to_operand_dims": (0,), "kind": kind, "mode": mode,
        "indices_are_sorted": False, "unique_indices": unique,
    }  # fmt: skip
    return lambda x, i, u: REGISTRY["scatter"](x, i, u, **params)


def program_of(fun, arrays):
    with Builder("main") as builder:
        inputs = [builder.input(TensorType(tuple(a.shape), a.dtype)) for a in arrays]
        return builder.build([fun(*inputs)])


def rows(rng: np.random.Generator, mode: str, dtype: str) -> list[np.ndarray]:
    """A table of 10 rows, 13 indices of which many are equal and, unless the mode forbids, some out of range."""
    low, high = (0, 10) if mode == "promise_in_bounds" else (-3, 14)
    indices = rng.integers(low, high, (13, 1)).astype(np.int32)
    indices[3:6] = indices[2]
    table, updates = (rng.integers(1, 4, (n, 6)).astype(dtype) for n in (10, 13))
    if dtype == "float32":
        updates[1] = np.nan
        updates[4, 2], table[2, 1], updates[7] = np.inf, -np.inf, -0.0
    return [table, indices, updates]


PLACES = [(P(), P("x"), P("x")), (P("x"), P("y"), P("y")), (P("x", "y"), P(), P(None, "y")), (P(("x", "y")), P("x"), None)]
PLACES += [(P("y"), P(("x", "y")), P(("x", "y"))), (None, P("y"), P("x")), (P(None, "x"), P("y"), P("y", "x"))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_scatter_of_duplicate_and_out_of_range_rows(kind, mode):
    rng = np.random.default_rng(KINDS.index(kind))
    for dtype in ("float32", "int32"):
        arrays = rows(rng, mode, dtype)
        program = program_of(scatter_rows(kind, mode), arrays)
        outs = itertools.cycle((None, P(), P("x"), P("y", "x"), P(None, "y")))
        for places, out in zip(PLACES, outs, strict=False):
            check_law(program, GRID, places, [out], arrays, exact=dtype == "int32")


@pytest.mark.parametrize("mode", MODES)
def test_the_last_update_of_a_row_is_kept(mode):
    """Also when updates of one row are on several devices: what NumPy and XLA on CPU do."""
    arrays = rows(np.random.default_rng(5), mode, "int32")
    want = arrays[0].copy()
    for i, u in zip(arrays[1][:, 0], arrays[2], strict=True):
        if mode == "clip" or 0 <= i < 10:
            want[min(max(i, 0), 9)] = u
    program = program_of(scatter_rows("set", mode), arrays)
    np.testing.assert_array_equal(evaluate(program, arrays)[0], want)
    for places in PLACES:
        check_law(program, GRID, places, [P()], arrays)


def test_bools_are_set_and_scattered():
    arrays = rows(np.random.default_rng(6), "fill", "int32")
    arrays = [arrays[0] > 2, arrays[1], arrays[2] > 1]
    for kind, places in itertools.product(("set", "min", "max"), PLACES):
        check_law(program_of(scatter_rows(kind, "fill"), arrays), GRID, places, [None], arrays)


def test_setting_keeps_the_sign_of_zero():
    table, indices = np.full((6, 2), -0.0, np.float32), np.array([[1], [4]], np.int32)
    updates = np.array([[-0.0, 0.0], [1.0, -0.0]], np.float32)
    arrays = [table, indices, updates]
    program = program_of(scatter_rows("set", "fill"), arrays)
    from tests.tools.laws import partitioned

    (found,), _, _ = partitioned(program, AbstractMesh((2,), ("x",)), [P(), P("x"), P("x")], [P()], arrays)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(evaluate(program, arrays)[0]))


# -- windows of some elements of a sharded dim


def test_parts_of_windows_are_set_where_they_lie():
    """Many long windows over a short dim, sharded along the windows: what is summed is one result, not all updates."""
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    write = lambda x, i, u: lax.scatter(x, i, u, numbers)  # noqa: E731
    types = ["f32[64, 8]", "i32[200, 1]", "f32[200, 32, 8]"]
    found = traffic(write, types, MESH, [P(), P(), P(None, "x")], [P()])
    assert found == {"all_reduce": 2 * 64 * 8 * 4 * 7 / 8}
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(64, 8)), rng.integers(-9, 64, (200, 1)), rng.normal(size=(200, 30, 8))]
    arrays = [a.astype(t) for a, t in zip(arrays, (np.float32, np.int32, np.float32), strict=True)]
    check_function(write, arrays, MESH, [P(), P(), P(None, "x")], [P()])  # 30 over 8: of the last shards some is padding


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("size", [2, 5, 9])
def test_windows_of_a_sharded_dim(size, mode):
    """Windows longer than a shard, overlapping ones, some half out of bounds."""
    rng = np.random.default_rng(size)
    x = rng.integers(-9, 9, (11, 3)).astype(np.int32)
    starts = rng.integers(-4, 14, (6, 1)).astype(np.int32)
    numbers = lax.GatherDimensionNumbers((1, 2), (), (0,))
    take = lambda x, i: lax.gather(x, i, numbers, (size, 3), mode=mode)  # noqa: E731
    for place, out in itertools.product([P("x"), P("x", "y"), P(("y", "x")), P()], [None, P(None, "x"), P("y", "x"), P("x")]):
        check_function(take, [x, starts], GRID, [place, None], [out])
    found = traffic(take, ["i32[1100, 3]", "i32[6, 1]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_reduce": 2 * 6 * size * 3 * 4 * 7 / 8}


@pytest.mark.parametrize("kind", ["set", "add", "max"])
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_windows_written_to_a_sharded_dim(kind, mode):
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, (11, 3)).astype(np.int32)
    starts = rng.integers(-4, 14, (6, 1)).astype(np.int32)
    updates = rng.integers(-9, 9, (6, 4, 3)).astype(np.int32)
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0,))
    put = {"set": lax.scatter, "add": lax.scatter_add, "max": lax.scatter_max}[kind]
    write = lambda x, i, u: put(x, i, u, numbers, mode=mode)  # noqa: E731
    given_places = [P(), P("y"), P("x"), P(None, "x"), P("y", "x"), P(None, ("y", "x"))]
    for place, given in itertools.product([P("x"), P("x", "y"), P(("y", "x")), P()], given_places):
        check_function(write, [x, starts, updates], GRID, [place, P(*given[:1]), given], [None])
    assert traffic(write, ["i32[1100, 3]", "i32[6, 1]", "i32[6, 4, 3]"], MESH, [P("x"), P(), P()], [P("x")]) == {}


# -- what travels


def test_lookup_reduces_the_result_only():
    found = traffic(lambda t, i: t[i], ["f32[50257, 64]", "i32[32]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_reduce": 2 * 32 * 64 * 4 * 7 / 8}


def test_a_small_table_is_gathered_rather_than_a_large_result_summed():
    found = traffic(lambda t, i: t[i], ["f32[1000, 64]", "i32[100000]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_gather": 1000 * 64 * 4 / 8 * 7}
    found = traffic(lambda x, s: lax.dynamic_slice(x, (s, 0), (6000, 64)), ["f32[8192, 64]", "i32[]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_gather": 8192 * 64 * 4 / 8 * 7}


def test_the_counts_of_a_search_are_summed_where_searching_a_shard_saves_more():
    """On 8 CPU devices the sum takes 117 ms, a gathered table 174: ten rounds of halving for each of a million values."""
    found = traffic(mnp.searchsorted, ["f32[1000]", "f32[1000000]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_reduce": 2 * 1000000 * 4 / 8 * 7}
    found = traffic(mnp.searchsorted, ["f32[16]", "f32[1000000]"], MESH, [P("x"), P()], [P()])
    assert found == {"all_gather": 16 * 4 / 8 * 7}


def test_gradient_of_lookup_is_local():
    gradient = mj.grad(lambda t, i, w: mnp.sum(t[i] * w))
    types = ["f32[50257, 64]", "i32[32]", "f32[32, 64]"]
    assert traffic(gradient, types, MESH, [P("x"), P(), P()], [P("x")]) == {}


def test_elements_taken_along_a_sharded_dim():
    """Cross-entropy's: the logits stay, one element of every line is summed from its owner."""
    take = lambda x, i: mnp.take_along_axis(x, i, axis=-1)  # noqa: E731
    found = traffic(take, ["f32[32, 50257]", "i32[32, 1]"], MESH, [P(None, "x"), P()], [P()])
    assert found == {"all_reduce": 2 * 32 * 4 * 7 / 8}


def test_lines_of_a_batch_need_nothing():
    take = lambda x, i: mnp.take_along_axis(x, i, axis=-1)  # noqa: E731
    assert traffic(take, ["f32[32, 100]", "i32[32, 9]"], MESH, [P("x"), P("x")], [P("x")]) == {}
    put = lambda x, i, u: mj.vmap(lambda a, b, c: a.at[b].set(c))(x, i, u)  # noqa: E731
    assert traffic(put, ["f32[32, 100]", "i32[32, 9]", "f32[32, 9]"], MESH, [P("x")] * 3, [P("x")]) == {}


def test_many_updates_of_few_elements_are_set_without_being_gathered():
    """Indices are gathered; results, which are small, are summed."""
    put = lambda x, i, u: x.at[i].set(u)  # noqa: E731
    found = traffic(put, ["f32[16, 64]", "i32[8192]", "f32[8192, 64]"], MESH, [P(), P("x"), P("x")], [P()])
    assert found == {"all_gather": 8192 * 4 / 8 * 7, "all_reduce": 2 * 16 * 64 * 4 * 7 / 8}


def test_few_updates_of_many_elements_are_gathered():
    """Cheaper than a sum of results as large as the operand."""
    for put in (lambda x, i, u: x.at[i].set(u), lambda x, i, u: x.at[i].add(u)):
        found = traffic(put, ["f32[8192, 64]", "i32[16]", "f32[16, 64]"], MESH, [P(), P("x"), P("x")], [P()])
        assert sum(found.values()) <= (16 * 4 + 16 * 64 * 4) / 8 * 7
        found = traffic(put, ["f32[8192, 64]", "i32[16]", "f32[16, 64]"], MESH, [P("x"), P("x"), P("x")], [P("x")])
        assert sum(found.values()) <= (16 * 4 + 16 * 64 * 4) / 8 * 7


def test_updates_at_every_other_row_stay():
    """The rows of the update lie where they belong."""
    for put in (lambda x, u: x.at[::2].set(u), lambda x, u: x.at[::2].add(u)):
        assert traffic(put, ["f32[8192, 64]", "f32[4096, 64]"], MESH, [P("x")] * 2, [P("x")]) == {}


@pytest.mark.parametrize("kind", ["set", "add", "multiply", "min", "max"])
def test_strided_updates_are_numpys(kind):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (11, 6)).astype(np.float32)
    for index in (np.s_[::2], np.s_[1:9:3, ::-1], np.s_[::-1], np.s_[9:2:-4, 1::2], np.s_[3, ::3], np.s_[2:5:2, 2:4]):
        u = rng.integers(-9, 9, x[index].shape).astype(np.float32)
        want = x.copy()
        how = {"set": None, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[kind]
        want[index] = u if how is None else how(x[index], u)
        put = lambda x, u, index=index: getattr(mnp.asarray(x).at[index], kind)(u)  # noqa: E731
        np.testing.assert_array_equal(put(x, u), want)
        for specs in itertools.product((P("x"), P("y", "x")), (P("x") if u.ndim > 1 else P(), P())):
            check_function(put, [x, u], GRID, specs, [None])


# -- dynamic slices


@pytest.mark.parametrize("start", [-12, -5, 0, 3, 6, 7, 9, 100])
def test_dynamic_slices_are_clamped_by_the_whole_extent(start):
    """Not by that of the shard: extent 10 over 4 and over 8 devices, a part of 4 begins at 6 at the latest. As in JAX a
    negative start is counted from the end first."""
    x, update = np.arange(10, dtype=np.float32), -np.arange(1, 5, dtype=np.float32)
    begin = min(max(start + 10 * (start < 0), 0), 6)
    want = x.copy()
    want[begin : begin + 4] = update
    for mesh, spec in itertools.product((MESH, AbstractMesh((4,), ("x",))), (P("x"), P())):
        for out in (P("x"), P()):
            s = np.int32(start)
            cut = lambda x, s: lax.dynamic_slice(x, (s,), (4,))  # noqa: E731
            check_function(cut, [x, s], mesh, [spec, P()], [out])
            put = lambda x, u, s: lax.dynamic_update_slice(x, u, (s,))  # noqa: E731
            check_function(put, [x, update, s], mesh, [spec, out, P()], [spec])
    np.testing.assert_array_equal(lax.dynamic_slice(x, (start,), (4,)), x[begin : begin + 4])
    np.testing.assert_array_equal(lax.dynamic_update_slice(x, update, (start,)), want)


def test_dynamic_slices_gather_nothing():
    cut = lambda x, s: lax.dynamic_slice(x, (s, 0), (4, 64))  # noqa: E731
    assert traffic(cut, ["f32[8192, 64]", "i32[]"], MESH, [P("x"), P()], [P()]) == {"all_reduce": 2 * 4 * 64 * 4 * 7 / 8}
    put = lambda x, u, s: lax.dynamic_update_slice(x, u, (s, 0))  # noqa: E731
    assert traffic(put, ["f32[8192, 64]", "f32[4, 64]", "i32[]"], MESH, [P("x"), P(), P()], [P("x")]) == {}


@pytest.mark.parametrize("extents", [(16, 14), (13, 10), (40, 37), (41, 31)], ids=str)
def test_nearly_all_of_a_sharded_dim_at_any_start(extents):
    """Shards fetch what any start may need, unevenly cut dims and starts beyond the ends included."""
    n, m = extents
    x, update = np.arange(3 * n, dtype=np.float32).reshape(n, 3), -np.arange(1, 3 * m + 1, dtype=np.float32).reshape(m, 3)
    for mesh in (MESH, AbstractMesh((3, 2), ("x", "y"))):
        for spec in (P("x"), P(tuple(mesh.axis_names))):
            for start in (-1, 0, 1, n - m, n):
                s = np.int32(start)
                check_function(lambda x, s: lax.dynamic_slice(x, (s, 0), (m, 3)), [x, s], mesh, [spec, P()], [spec])
                put = lambda x, u, s: lax.dynamic_update_slice(x, u, (s, 0))  # noqa: E731
                check_function(put, [x, update, s], mesh, [spec, spec, P()], [spec])


def test_nearly_all_of_a_sharded_dim_costs_what_is_left_out():
    """Of 4096 rows 4000: 96 rows for all starts, and up to 84 by which shards of 512 and of 500 are apart."""
    rows = 4 * 64 * (96 + 7 * 12)
    cut = lambda x, s: lax.dynamic_slice(x, (s, 0), (4000, 64))  # noqa: E731
    assert sum(traffic(cut, ["f32[4096, 64]", "i32[]"], MESH, [P("x"), P()], [P("x")]).values()) <= rows
    put = lambda x, u, s: lax.dynamic_update_slice(x, u, (s, 0))  # noqa: E731
    assert sum(traffic(put, ["f32[4096, 64]", "f32[4000, 64]", "i32[]"], MESH, [P("x"), P("x"), P()], [P("x")]).values()) <= rows


def test_a_dynamic_slice_may_be_sharded_over_other_axes_than_its_dim():
    mesh = AbstractMesh((2, 3), ("x", "y"))
    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    for start in (-2, 0, 3, 13, 99):
        for size in (1, 7, 9):
            cut = lambda x, s, size=size: lax.dynamic_slice(x, (s, 0), (size, 2))  # noqa: E731
            check_function(cut, [x, np.int32(start)], mesh, [P("x"), P()], [P("y")])
            check_function(cut, [x, np.int32(start)], mesh, [P(), P()], [P("y")])
