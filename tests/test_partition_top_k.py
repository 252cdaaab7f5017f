"""top_k and argmax along a sharded dim: candidates travel, not the dim; ties go to the first place."""

from __future__ import annotations

import itertools
import types

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.ops.sort.top_k import least, total_order
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh, Mesh
from tests.tools.wire import check_function, partitioned_program, traced, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))
SPECS = [P("x"), P(None, "x"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P("y"), None]


def test_candidates_travel():
    """Three values and three places of every line and shard."""
    found = traffic(lambda x: lax.top_k(x, 3), ["f32[16, 50257]"], MESH, [P(None, "x")], [P(), P()])
    assert found == {"all_gather": 16 * 3 * (4 + 4) * 7}


def test_of_many_lines_each_device_decides_some():
    """Candidates of 4096 lines go to one device each, 1/8 of them stays, and so do the winners on the way back."""
    found = traffic(lambda x: lax.top_k(x, 32), ["f32[4096, 50257]"], MESH, [P(None, "x")], [P(), P()])
    assert found == {"all_to_all": 4096 * 32 * (4 + 4) * 7 / 8, "all_gather": 4096 * 32 * (4 + 4) / 8 * 7}
    found = traffic(lambda x: mnp.argmax(x, -1), ["f32[262144, 50257]"], MESH, [P(None, "x")], [P()])
    assert found == {"all_to_all": 262144 * (4 + 4) * 7 / 8, "all_gather": 262144 * 4 / 8 * 7}


@pytest.mark.parametrize("shape", [(64, 4, 40), (256, 35), (1024, 9)], ids=str)
def test_lines_that_are_dealt_are_right(shape, monkeypatch):
    """However little they are: ties go to the first place, padding never wins."""
    for module in ("sort.top_k", "reduce.arg_reduction"):
        always = lambda local, candidates, lines, axes: not lines % local.mesh.axes_size(axes)  # noqa: E731
        monkeypatch.setattr(f"meshjit.ops.{module}.are_dealt", always)
    lines = [None] * (len(shape) - 1)
    specs = P(*lines, "x"), P(*lines, ("x", "y")), P("y", *lines[1:], "x")
    for dtype, spec in itertools.product(("float32", "int32", "bool", "bfloat16"), specs):
        x, exact = ties(shape, dtype), dtype != "bfloat16"
        check_function(lambda x: lax.top_k(x, 3), [x], GRID, [spec], [None, None], exact=exact)
        for f in (mnp.argmax, mnp.argmin):
            check_function(lambda x, f=f: f(x, -1), [x], GRID, [spec], [None], exact=exact)


def test_lines_of_their_own_need_nothing():
    assert traffic(lambda x: lax.top_k(x, 3), ["f32[16, 50257]"], MESH, [P("x", None)], [P("x"), P("x")]) == {}


def test_candidates_that_are_many_give_way_to_an_exchange():
    found = traffic(lambda x: lax.top_k(x, 2000), ["f32[512, 4096]"], MESH, [P(None, "x")], [P("x"), P("x")])
    assert found == {"all_to_all": 512 * 4096 * 4 / 8 * 7 / 8}


def test_vector_of_which_most_is_wanted_is_gathered_without_places():
    found = traffic(lambda x: lax.top_k(x, 2000), ["f32[4096]"], MESH, [P("x")], [P(), P()])
    assert found == {"all_gather": 4096 * 4 / 8 * 7}


def test_gradient_scatters_where_the_elements_are():
    gradient = mj.grad(lambda x: mnp.sum(lax.top_k(x, 3)[0] ** 2))
    found = traffic(gradient, ["f32[16, 50257]"], MESH, [P(None, "x")], [P(None, "x")])
    assert sum(found.values()) <= 16 * 3 * (4 + 4) * 7 + 2 * 16 * 3 * 4


def ties(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Few different values; of floats also zeros, infinities and NaN of both signs."""
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 3, shape)
    if not dtype.startswith(("float", "bfloat")):
        return values.astype(dtype)
    special = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    chosen = special[generator.integers(0, 6, shape)]
    return np.where(generator.uniform(size=shape) < 0.4, chosen, values).astype(np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
@pytest.mark.parametrize(("shape", "k"), [((10, 6), 2), ((3, 17), 1), ((2, 70), 2), ((70,), 1), ((9,), 9), ((5, 8), 7)])
def test_ties_and_uneven_shards(shape, k, dtype):
    """Shards smaller than k, shards that are all padding, padding next to -nan and -inf."""
    x = ties(shape, dtype)
    for spec, wanted in itertools.product(SPECS, (P(), P("x"))):
        spec = spec if spec is None or len(shape) > 1 else P(spec[-1])
        check_function(lambda x: lax.top_k(x, k), [x], GRID, [spec], [wanted, None], exact=dtype != "bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_all_equal_gives_the_first_places(dtype):
    x = np.zeros((2, 13), dtype)
    for spec in SPECS:
        check_function(lambda x: lax.top_k(x, 5), [x], GRID, [spec], [None, None])
    np.testing.assert_array_equal(lax.top_k(x, 5)[1], np.tile(np.arange(5), (2, 1)))


def test_order_is_total():
    """What jax.lax.top_k gives: 0.0 before -0.0, nan first, nan with a minus sign last."""
    nan = np.copysign(np.nan, -1)
    x = np.array([nan, np.nan, 1, -np.inf, np.inf, 0.0, -0.0, nan], np.float32)
    values, places = lax.top_k(x, 8)
    np.testing.assert_array_equal(places, [1, 4, 2, 5, 6, 3, 0, 7])
    np.testing.assert_array_equal(np.signbit(values), np.signbit(x[[1, 4, 2, 5, 6, 3, 0, 7]]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "uint16", "bool"])
def test_padding_is_the_least_element(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    info = np.iinfo(dtype) if dtype.kind in "iu" else None
    values = [False, True] if info is None and dtype == np.bool_ else [info.min, info.max] if info else [-np.inf, -np.nan, 0.0]
    array = np.array(values, np.float32 if info is None and dtype != np.bool_ else dtype).astype(dtype)
    order = total_order(np.concatenate([array, np.full(1, least(dtype), dtype)]))
    assert order[-1] == order.min()


def test_other_dims_and_names():
    x = ties((7, 4, 3), "int32")
    values, places = lax.top_k(x, 2, axis=0)
    want = np.argsort(-x, 0, kind="stable")[:2]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, 0))
    y = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 5.0]], np.float32)
    np.testing.assert_array_equal(lax.approx_max_k(y, 2)[1], [[0, 2], [2, 0]])
    np.testing.assert_array_equal(lax.approx_min_k(y, 2)[0], [[1, 2], [1, 1]])
    np.testing.assert_array_equal(lax.approx_min_k(y, 2)[1], [[1, 2], [0, 1]])
    with pytest.raises(ValueError, match="only aggregate_to_topk=True"):
        lax.approx_max_k(y, 2, aggregate_to_topk=False)
    with pytest.raises(ValueError, match="top_k: k is 4, the dim has extent 3"):
        lax.top_k(y, 4)
    with pytest.raises(TypeError, match="takes ordered operands"):
        lax.top_k(y.astype(np.complex64), 1)


def test_vmap_and_gradient():
    x = np.random.default_rng(0).permutation(60).reshape(5, 12).astype(np.float32)
    values, places = mj.vmap(lambda row: lax.top_k(row, 3), in_axes=1, out_axes=1)(x.T.copy())
    np.testing.assert_array_equal(places.T, np.argsort(-x, 1)[:, :3])
    gradient = mj.grad(lambda x: mnp.sum(lax.top_k(x, 3)[0] * np.array([1.0, 2.0, 3.0], np.float32)))(x)
    want = np.zeros_like(x)
    np.put_along_axis(want, np.argsort(-x, 1)[:, :3], np.array([[1.0, 2.0, 3.0]], np.float32), 1)
    np.testing.assert_array_equal(gradient, want)
    assert values.shape == (3, 5)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_argmax_over_a_sharded_dim(name, dtype):
    """The first of equal elements, NaN before all others; a pair per line and shard travels."""
    fun = getattr(mnp, name)
    for shape, seed in (((10, 6), 0), ((3, 17), 1), ((8, 2), 2), ((1, 9), 3)):
        x = ties(shape, dtype, seed)
        for spec, axis in itertools.product(SPECS, (0, 1)):
            check_function(lambda x, axis=axis: fun(x, axis), [x], GRID, [spec], [None])
        np.testing.assert_array_equal(fun(x, 1), getattr(np, name)(x, 1))
    found = traffic(lambda x: fun(x, 1), ["f32[16, 50257]"], MESH, [P(None, "x")], [P()])
    assert found == {"all_gather": 16 * (4 + 4) * 7}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_tpus_sort_candidates_with_their_places(dtype):
    devices = np.array([types.SimpleNamespace(id=i, process_index=0, platform="tpu") for i in range(8)], object)
    mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
    x = ties((3, 70), dtype)
    for spec, wanted in ((P(None, "x"), None), (P("y", "x"), P("y")), (P(None, ("y", "x")), P())):
        check_function(lambda x: lax.top_k(x, 2), [x], mesh, [spec], [wanted, wanted], exact=dtype != "bfloat16")
    local = partitioned_program(traced(lambda x: lax.top_k(x, 2), ["f32[16, 50257]"]), mesh, [P(None, "x")], [P(), P()])
    ops = {e.op.name for e in local.eqns}
    assert "sort" in ops and "gather" not in ops
