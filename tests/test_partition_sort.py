"""Sorting along a sharded dim: right (stability, NaN, uneven extents, several operands), and without a gather of the
whole array where another dim can take the shards meanwhile."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.ops.sort.sort import sort
from meshjit.plan.assign import Assigner
from meshjit.sharding import PartitionSpec as P
from meshjit.targets import cpu
from sharding.mesh import AbstractMesh
from tests.tools.laws import check_law
from tests.tools.wire import check_function, partitioned_program, traced, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))


def test_rows_are_exchanged_not_gathered():
    found = traffic(mnp.sort, ["f32[512, 4096]"], MESH, [P(None, "x")], [P(None, "x")])
    local = 512 * 4096 * 4 / 8
    assert found == {"all_to_all": 2 * local * 7 / 8}


def test_rows_are_sorted_where_they_are():
    assert traffic(mnp.sort, ["f32[512, 4096]"], MESH, [P("x", None)], [P("x", None)]) == {}


def test_result_is_left_with_the_rows_if_that_is_wanted():
    found = traffic(mnp.sort, ["f32[512, 4096]"], MESH, [P(None, "x")], [P("x", None)])
    assert found == {"all_to_all": 512 * 4096 * 4 / 8 * 7 / 8}


def test_argsort_sends_no_places_before_the_sort():
    """The places are an iota: each device makes those of its rows. Keys go there, sorted places come back."""
    found = traffic(mnp.argsort, ["f32[512, 4096]"], MESH, [P(None, "x")], [P(None, "x")])
    assert found == {"all_to_all": 2 * 512 * 4096 * 4 / 8 * 7 / 8}
    program = traced(mnp.argsort, ["f32[512, 4096]"])
    local = partitioned_program(program, MESH, [P(None, "x")], [P(None, "x")])
    exchanged = [str(e.inputs[0].dtype) for e in local.eqns if e.op.name == "all_to_all"]
    assert exchanged == ["float32", "int32"]


def test_descending_argsort_sends_no_more():
    argsort = lambda x: mnp.argsort(x, descending=True)  # noqa: E731
    found = traffic(argsort, ["f32[512, 4096]"], MESH, [P(None, "x")], [P(None, "x")])
    assert found == {"all_to_all": 2 * 512 * 4096 * 4 / 8 * 7 / 8}


def test_gradient_of_sort_gathers_nothing():
    gradient = mj.grad(lambda x, w: mnp.sum(mnp.sort(x) * w))
    found = traffic(gradient, ["f32[512, 4096]"] * 2, MESH, [P(None, "x")] * 2, [P(None, "x")])
    assert set(found) <= {"all_to_all", "reduce_scatter"}


def test_other_axes_stay():
    found = traffic(mnp.sort, ["f32[512, 4096]"], GRID, [P("y", "x")], [P("y", "x")])
    assert found == {"all_to_all": 2 * 512 * 4096 * 4 / 8 * 3 / 4}


def test_axes_are_dealt_to_several_dims():
    found = traffic(mnp.sort, ["f32[2, 4, 65536]"], MESH, [P(None, None, "x")], [P(None, None, "x")])
    local = 8 * 65536 * 4 / 8
    assert set(found) == {"all_to_all"} and found["all_to_all"] <= 2 * local * (3 / 4 + 1 / 2)


def test_vector_is_gathered():
    """No other dim can take the shards."""
    found = traffic(mnp.sort, ["f32[4096]"], MESH, [P("x")], [P("x")])
    assert found == {"all_gather": 4096 * 4 / 8 * 7}


def hard_values(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many equal elements; of floats also both zeros, infinities and NaN."""
    values = generator.integers(0, 3, shape)
    if dtype == "bool":
        return values > 1
    if dtype == "int32":
        return values.astype(np.int32) * np.int32(2**30)
    special = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0], np.float32)
    return np.where(generator.uniform(size=shape) < 0.5, special[generator.integers(0, 7, shape)], values).astype(dtype)


SPECS = [P("x"), P(None, "x"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P("y"), None]


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("shape", [(10, 6), (3, 17), (8, 8), (1, 9), (5, 0)])
def test_stable_argsort_of_hard_values(shape, dtype):
    generator = np.random.default_rng(0)
    x = hard_values(generator, shape, dtype)
    for spec, axis in itertools.product(SPECS, (0, 1)):
        wanted = SPECS[int(generator.integers(len(SPECS)))]
        check_function(lambda x, axis=axis: mnp.argsort(x, axis), [x], GRID, [spec], [wanted])
        descending = lambda x, axis=axis: mnp.argsort(x, axis, descending=True)  # noqa: E731
        check_function(descending, [x], GRID, [spec], [wanted])


def test_argsort_is_numpys():
    x = hard_values(np.random.default_rng(1), (6, 40), "float32")
    np.testing.assert_array_equal(mnp.argsort(x), np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(mnp.sort(x, descending=True), np.sort(x)[:, ::-1])
    turned = np.argsort(x[:, ::-1], kind="stable")[:, ::-1]
    np.testing.assert_array_equal(mnp.argsort(x, descending=True), x.shape[1] - 1 - turned)


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_several_operands_stay_together(keys):
    generator = np.random.default_rng(keys)
    arrays = [hard_values(generator, (7, 9), d) for d in ("int32", "float32", "bool")]
    for spec, axis in itertools.product(SPECS, (0, 1)):
        specs = [spec, SPECS[int(generator.integers(len(SPECS)))], None]
        check_function(
            lambda *xs, axis=axis: lax.sort(xs, axis, num_keys=keys), arrays, GRID, specs, [None, spec, P("x")]
        )


# -- every device makes its own block


@pytest.fixture
def in_place(monkeypatch):
    """Sorts that always stay in place, however short."""
    monkeypatch.setattr(cpu, "SELECTION_EXTENT", 0)
    monkeypatch.setattr(Assigner, "_sends_much", lambda *arguments: False)


def sorting(arrays, params):
    with Builder("main") as builder:
        return builder.build(sort(*[builder.input(TensorType(a.shape, a.dtype)) for a in arrays], **params))


BLOCK_DTYPES = ["float32", "float64", "bfloat16", "float16", "int32", "int64", "int8", "uint8", "uint32", "bool"]


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_blocks_of_hard_values(in_place, dtype):
    """Shards smaller than a run of equal keys, shards that are all padding, NaN and both zeros; places show stability."""
    rng = np.random.default_rng(BLOCK_DTYPES.index(dtype))
    for shape, axes, descending in (((13,), "x", False), ((2, 21), ("y", "x"), True), ((9,), ("x", "y"), True), ((40,), "y", False)):
        x = hard_values(rng, shape, "float32")
        x = np.nan_to_num(x, posinf=9, neginf=0).clip(0, 9) if dtype not in ("float32", "float64", "bfloat16", "float16") else x
        x = x.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
        last = len(shape) - 1
        places = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy()
        spec = P(*[None] * last, axes)
        params = {"dimension": last, "num_keys": 1, "is_stable": True} | ({"descending": True} if descending else {})
        program = sorting([x, places], params)
        plan, _ = check_law(program, GRID, [spec, spec], [spec, spec], [x, places], exact=False)
        assert plan.equations[0].results[0].dims[last], "the dim was to stay sharded"


@pytest.mark.parametrize("keys", [1, 2])
def test_blocks_of_several_operands(in_place, keys):
    """With several keys everything is sorted and the own block kept."""
    rng = np.random.default_rng(keys)
    arrays = [hard_values(rng, (17, 2), d) for d in ("int32", "float32", "bool")]
    for spec in (P("x"), P(("x", "y")), P("y", "x")):
        check_function(lambda *xs: lax.sort(xs, 0, num_keys=keys), arrays, GRID, [spec] * 3, [spec] * 3)


def test_a_long_vector_is_gathered_once_and_sorted_in_blocks():
    for fun in (mnp.sort, mnp.argsort):
        found = traffic(fun, [f"f32[{1 << 20}]"], MESH, [P("x")], [P("x")])
        assert found == {"all_gather": (1 << 20) * 4 / 8 * 7}
        local = partitioned_program(traced(fun, [f"f32[{1 << 20}]"]), MESH, [P("x")], [P("x")])
        assert [e.inputs[0].shape for e in local.eqns if e.op.name == "sort"] == [(1 << 17,)]


def test_few_long_lines_are_sorted_in_blocks_and_many_exchanged():
    found = traffic(mnp.sort, [f"f32[2, {1 << 18}]"], MESH, [P(None, "x")], [P(None, "x")])
    assert found == {"all_gather": 2 * (1 << 18) * 4 / 8 * 7}
    found = traffic(mnp.sort, [f"f32[64, {1 << 18}]"], MESH, [P(None, "x")], [P(None, "x")])
    assert found == {"all_to_all": 2 * 64 * (1 << 18) * 4 / 8 * 7 / 8}
