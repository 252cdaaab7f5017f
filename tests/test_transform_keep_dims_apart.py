"""Merged dims kept apart: the same values for every program, and nothing gathered where order is not looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.core.evaluate import evaluate
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.inspect.collectives import collective_rows
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import reshape
from meshjit.sharding import NamedSharding, PartitionSpec
from meshjit.transform.keep_dims_apart import keep_dims_apart
from sharding.mesh import AbstractMesh
from tests.tools.fuzz import CONTROL, REVERSIBLE, case, gradient_case
from tests.tools.wire import check_function, traffic

P = PartitionSpec


def check(program: Program, arrays: Any) -> Program:
    apart = verify(keep_dims_apart(verify(program), lambda eqn: True))
    with np.errstate(all="ignore"):
        for got, want in zip(evaluate(apart, arrays), evaluate(program, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    return apart


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_values_stay_the_same_in_drawn_programs(start: int) -> None:
    for seed in range(start, start + 10):
        for drawn in (case(seed, 12), case(seed, 10, CONTROL), gradient_case(seed, 6, REVERSIBLE)):
            check(drawn[0], drawn[4])


def traced(fun: Any, *args: Any) -> Program:
    return mj.jit(fun).trace(*args).program


def names(program: Program) -> list[str]:
    return [eqn.op.name for eqn in program.eqns]


def test_what_is_computed_per_token_has_no_merged_dim_left() -> None:
    def fun(x: Any, w: Any, b: Any) -> Any:
        tokens = x.reshape(-1, x.shape[-1])
        return nn.relu(tokens @ w + b).reshape(*x.shape[:2], -1)

    args = (np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32), np.ones(5, np.float32))
    apart = check(traced(fun, *args), args)
    assert not any(v.shape == (6, 5) for eqn in apart.eqns if eqn.op.name == "dot_general" for v in eqn.outputs)


def test_reductions_of_the_merged_dim_reduce_both() -> None:
    with Builder("main") as builder:
        x = builder.input(TensorType((2, 3, 4), np.dtype(np.float32)))
        program = builder.build([reduce_sum(reshape(x, shape=(6, 4)), axes=(0,))])
    assert names(check(program, [np.arange(24, dtype=np.float32).reshape(2, 3, 4)])) == ["reduce_sum"]


@pytest.mark.parametrize("before, after", [
    ((2, 3, 4, 5), (120,)), ((2, 3, 4, 5), (6, 20)), ((2, 3, 4, 5), (2, 3, 2, 10)), ((2, 1, 3, 4), (24, 1)), ((1, 6, 4), (24,)),
    ((2, 3, 1), (6,)), ((4, 6, 5, 2), (6, 4, 10)), ((0, 3, 5), (0, 15)), ((), (1,)),
])  # fmt: skip
def test_values_of_any_merge(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    def fun(x: Any) -> Any:
        y = mnp.exp(x.reshape(after))
        return y, y.sum(0), (y * y).sum(), mnp.cumsum(y, 0), y.reshape(-1) @ x.reshape(-1), y.reshape(before) + x

    x = np.random.default_rng(0).normal(size=before).astype(np.float32)
    check(traced(fun, x), [x])


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("index", [np.int32, np.uint8])
def test_the_first_place_of_an_extreme_in_a_grid(dtype: Any, index: Any) -> None:
    """Also where values are equal, or no number, and where the index dtype is too short for places, or for the last dim."""
    generator = np.random.default_rng(0)
    for shape in ((3, 4, 5), (2, 3, 300), (1, 6, 2)):
        x = generator.integers(-2, 3, shape).astype(dtype)
        if dtype == np.float32 and shape[0] == 3:
            x[2, 1, 3] = x[2, 3, 0] = np.nan
        program = traced(lambda x: (lax.argmax(x.ravel(), 0, index), lax.argmin(x.ravel(), 0, index)), x)
        assert not any(v.shape == (x.size,) for eqn in check(program, [x]).eqns for v in eqn.inputs)


def test_what_merges_again_what_is_apart_is_apart_too() -> None:
    def fun(x: Any) -> Any:
        return mnp.exp(mnp.tanh(x.reshape(6, 4)).reshape(24)).reshape(2, 3, 4)

    x = np.ones((2, 3, 4), np.float32)
    assert names(check(traced(fun, x), [x])) == ["tanh", "exponential"]


@pytest.mark.parametrize("mesh_shape", [(4, 2), (2, 4)])
def test_tokens_of_a_sharded_batch_and_sequence_are_not_gathered(mesh_shape: tuple[int, int]) -> None:
    mesh = mj.make_mesh(mesh_shape, ("data", "model"))
    placed = NamedSharding(mesh, P("data", "model"))

    def mlp(x: Any, w1: Any, w2: Any) -> Any:
        tokens = x.reshape(-1, x.shape[-1])
        return (nn.gelu(tokens @ w1) @ w2).reshape(x.shape)

    def loss(x: Any, w1: Any, w2: Any) -> Any:
        return (mlp(x, w1, w2) ** 2).sum()

    rng = np.random.default_rng(0)
    args = tuple(rng.normal(size=s).astype(np.float32) for s in ((8, 256, 16), (16, 32), (32, 16)))
    forward = mj.jit(mlp, in_shardings=(placed, None, None), out_shardings=placed)
    assert collective_rows(forward.lower(*args).lowering.local, mesh) == []
    np.testing.assert_allclose(np.asarray(forward(*args)), np.asarray(mlp(*args)), rtol=2e-4, atol=1e-4)
    backward = mj.jit(mj.grad(loss, (1, 2)), in_shardings=(placed, None, None))
    rows = collective_rows(backward.lower(*args).lowering.local, mesh)
    assert {row.kind for row in rows} == {"all_reduce"}, rows
    assert sum(row.bytes for row in rows) <= 2 * sum(a.nbytes for a in args[1:])
    for got, want in zip(backward(*args), mj.grad(loss, (1, 2))(*args), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-3, atol=1e-1)


def test_in_the_body_of_a_loop_too() -> None:
    mesh = mj.make_mesh((4, 2), ("data", "model"))
    placed = NamedSharding(mesh, P("data", "model"))

    def run(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: (mnp.tanh(c.reshape(-1, 16) @ w).reshape(c.shape), None), x, None, length=3)[0]

    args = (np.ones((8, 6, 16), np.float32), np.ones((16, 16), np.float32) / 16)
    compiled = mj.jit(run, in_shardings=(placed, None), out_shardings=placed)
    assert collective_rows(compiled.lower(*args).lowering.local, mesh) == []
    np.testing.assert_allclose(np.asarray(compiled(*args)), np.asarray(run(*args)), rtol=1e-5)


BY_COLUMNS = PartitionSpec(None, "x")
X4 = AbstractMesh((4,), ("x",))


def counted(x: Any) -> Any:
    return mnp.bincount(x.ravel(), length=16)


def added(x: Any, values: Any) -> Any:
    return mnp.zeros((16, 3)).at[x.ravel()].add(values.reshape(-1, 3))


def least(x: Any, values: Any) -> Any:
    return mnp.full((16, 3), 9.0).at[x.ravel()].min(values.reshape(-1, 3))


def last(x: Any, values: Any) -> Any:
    return mnp.zeros((16, 3)).at[x.ravel()].set(values.reshape(-1, 3))


def looked_up(x: Any, table: Any) -> Any:
    return mnp.bincount(table[x].ravel(), length=9)


@pytest.mark.parametrize("spec", [BY_COLUMNS, P("x")])
@pytest.mark.parametrize("columns", [48, 10])
@pytest.mark.parametrize("fun, other", [(counted, None), (added, 3), (least, 3), (last, 3), (looked_up, 0)])
def test_scatters_of_ravelled_indices_gather_none(fun: Any, other: int | None, columns: int, spec: P) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.integers(-3, 20, (8, columns)).astype(np.int32)]
    if other is not None:
        arrays.append(
            generator.integers(0, 9, (8, columns, 3)).astype(np.float32) if other else generator.integers(0, 9, 30).astype(np.int32)
        )
    inputs = [spec, P() if other == 0 else P(*spec, None)][: len(arrays)]
    check_function(fun, arrays, X4, inputs, [P()])
    types = [str(TensorType(a.shape, a.dtype)) for a in arrays]
    if columns == 48 and fun is not last:  # fewer are cheaper to gather than to sum; of those that set, numbers travel, too
        assert "all_gather" not in traffic(fun, types, X4, inputs, [P()])


def test_windows_of_a_scatter_are_not_taken_apart() -> None:
    numbers = lax.ScatterDimensionNumbers((0, 1, 2), (), (0, 1, 2))

    def fun(x: Any, y: Any, place: Any) -> Any:
        return lax.scatter_max(x, place, mnp.reshape(y, (3, 4, 2)), numbers)

    arrays = np.zeros((5, 6, 3), np.float32), np.arange(24, dtype=np.float32).reshape(3, 2, 2, 2), np.array([1, 2, 1], np.int32)
    program = mj.jit(fun).trace(*arrays).program
    apart = keep_dims_apart(program, lambda eqn: True)
    verify(apart, "keep_dims_apart")
    expected = arrays[0].copy()
    expected[1:4, 2:6, 1:3] = arrays[1].reshape(3, 4, 2)
    np.testing.assert_array_equal(evaluate(apart, arrays)[0], expected)
