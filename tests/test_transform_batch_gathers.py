"""Indices that count along a dim make it a batch: x[arange(b), i] and its kin look nothing up across lines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshjit as mj
from meshjit import numpy as mnp
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.sharding import PartitionSpec as P
from sharding.mesh import AbstractMesh
from tests.tools.wire import check_function, traced, traffic

MESH = AbstractMesh((8,), ("x",))
GRID = AbstractMesh((4, 2), ("x", "y"))

X = np.arange(6 * 5 * 7, dtype=np.float32).reshape(6, 5, 7)
I = np.array([3, 0, -1, 6, 2, 2], np.int32)  # noqa: E741
J = np.array([[1, 0, 4, 2, 3]] * 6, np.int32)

# What is taken with `np` for NumPy or mnp, the array and two index arrays; and how many columns stay.
PICKS = {
    "element of every row": (lambda np, x, i, j: x[np.arange(6), :, i], 1),
    "two counts": (lambda np, x, i, j: x[np.arange(6)[:, None], np.arange(5), i[:, None]], 1),
    "counts only": (lambda np, x, i, j: x[:5][np.arange(5), np.arange(5)], 1),
    "turned": (lambda np, x, i, j: x[j, np.arange(5), 0], 2),
    "turned and known": (lambda np, x, i, j: x[j.T, np.arange(5)[:, None]], 1),
    "negative counts": (lambda np, x, i, j: x[np.arange(6) - 6, :, i], 2),
    "fewer than there are": (lambda np, x, i, j: x[np.arange(5), :, i[:5]], 2),
    "more than there are": (lambda np, x, i, j: x[np.minimum(np.arange(9), 5), :, 0], 2),
    "reversed": (lambda np, x, i, j: x[np.arange(6)[::-1], :, i], 2),
    "other dtype": (lambda np, x, i, j: x[np.arange(6, dtype=np.uint8), :, i], 1),
}


def columns(program):
    """How many columns the indices of all gathers and scatters have."""
    return [e.inputs[1].shape[-1] for e in program.eqns if e.op.name in ("gather", "scatter")]


@pytest.mark.parametrize("name", PICKS)
def test_picks_are_numpys(name):
    pick, count = PICKS[name]
    fun = lambda x, i, j: pick(mnp, x, i, j)  # noqa: E731
    np.testing.assert_array_equal(mj.jit(fun)(X, I, J), pick(np, X, I, J))
    types = ["f32[6, 5, 7]", "i32[6]", "i32[6, 5]"]
    assert columns(traced(fun, types)) == [count]
    for specs in itertools.product((P("x"), P(None, "x"), P("y", None, "x")), (P("x"), P()), (P("x", "y"),)):
        check_function(fun, [X, I, J], GRID, specs, [None])


@pytest.mark.parametrize("kind", ["set", "add", "max"])
def test_updates_are_numpys(kind):
    def put(x, i, u):
        return getattr(x.at[mnp.arange(6), :, i], kind)(u)

    u = np.random.default_rng(0).integers(-300, 300, (6, 5)).astype(np.float32)
    want, place = X.copy(), (np.arange(6), slice(None), I)
    want[place] = {"set": u, "add": X[place] + u, "max": np.maximum(X[place], u)}[kind]
    np.testing.assert_array_equal(mj.jit(put)(X, I, u), want)
    assert columns(traced(put, ["f32[6, 5, 7]", "i32[6]", "f32[6, 5]"])) == [1]
    for specs in itertools.product((P("x"), P(None, "x"), P("y", None, "x")), (P("x"), P()), (P("x", "y"), P())):
        check_function(put, [X, I, u], GRID, specs, [None])


def test_lines_need_nothing():
    types, specs = ["f32[64, 1000]", "i32[64]"], [P("x"), P("x")]
    pick = lambda x, i: x[mnp.arange(64), i]  # noqa: E731
    assert traffic(pick, types, MESH, specs, [P("x")]) == {}
    assert traffic(mj.grad(lambda x, i: mnp.sum(pick(x, i) ** 2)), types, MESH, specs, [P("x")]) == {}
    assert traffic(lambda x, i: x.at[np.arange(64), i].set(0.0), types, MESH, specs, [P("x")]) == {}
    cache = lambda c, v, p: c.at[mnp.arange(8), p].set(v)  # noqa: E731
    types = ["f32[8, 1024, 4, 16]", "f32[8, 4, 16]", "i32[8]"]
    assert traffic(cache, types, MESH, [P("x")] * 3, [P("x")]) == {}


def test_elements_beyond_are_filled_and_dropped():
    places = np.array([0, 9, -9, 6, 7, -1])
    fun = lambda x, i: x[mnp.arange(6), 0].at[mnp.arange(6), i].add(1.0, mode="drop")  # noqa: E731
    want = X[:, 0].copy()
    for row, place in enumerate(places):
        if -7 <= place < 7:
            want[row, place] += 1
    np.testing.assert_array_equal(mj.jit(fun)(X, places), want)
    get = lambda x, i: x.at[mnp.arange(6), 0, i].get(mode="fill", fill_value=-1.0)  # noqa: E731
    inside = (places >= -7) & (places < 7)
    want = np.where(inside, X[np.arange(6), 0, np.where(inside, places, 0)], -1)
    np.testing.assert_array_equal(mj.jit(get)(X, places), want)


def test_counts_that_wrap_round_are_none():
    """An int8 counts to 127 and goes on at -128."""
    from meshjit.ops.base.constants import iota
    from meshjit.ops.base.conversion import convert
    from meshjit.ops.base.shape import reshape
    from meshjit.ops.index.take import gather
    from meshjit.simulate.evaluate import evaluate
    from meshjit.transform.pipeline import simplify

    with Builder("wrapping") as b:
        x = b.input(TensorType.parse("f32[200]"))
        places = reshape(convert(iota(dtype=np.dtype(np.int8), shape=(200,), dimension=0), dtype=np.dtype(np.int32)), shape=(200, 1))
        params = {"offset_dims": (), "collapsed_slice_dims": (0,), "operand_batching_dims": (), "start_indices_batching_dims": ()}
        params |= {"start_index_map": (0,), "slice_sizes": (1,), "mode": "clip", "fill_value": None, "indices_are_sorted": False}
        program = b.build([gather(x, places, **params)])
    line = np.arange(200, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(simplify(program), [line])[0], evaluate(program, [line])[0])
    assert columns(simplify(program)) == [1]
