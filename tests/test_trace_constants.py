"""Constants of a traced function: small ones are equations, large ones inputs that are sharded like others."""

from __future__ import annotations

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import NamedSharding, PartitionSpec

LARGE = np.arange(1 << 19, dtype=np.float32).reshape(1024, 512) / (1 << 19)


def lowered_inputs(fun, *args, **shardings):
    low = mj.jit(fun, **shardings).lower(*args)
    return low, [low.plan.placements[v] for v in low.plan.program.inputs]


def test_a_large_constant_is_an_input_that_is_sharded() -> None:
    mesh = mj.make_mesh((8,), ("x",))

    def fun(a):
        return (a @ LARGE).sum(0) + mnp.tanh(LARGE).sum(0)

    a = np.ones((4, 1024), np.float32)
    low, placements = lowered_inputs(fun, a, in_shardings=NamedSharding(mesh, PartitionSpec(None, "x")))
    assert [str(p.dims) for p in placements] == ["((), ('x',))", "(('x',), ())"]
    assert [v.type.nbytes for v in low.lowering.local.inputs] == [a.nbytes // 8, LARGE.nbytes // 8]
    assert not any(eqn.op.name == "constant" and eqn.params["value"].nbytes > 1 << 20 for eqn in low.plan.program.eqns)
    compiled = mj.jit(fun, in_shardings=NamedSharding(mesh, PartitionSpec(None, "x")))
    np.testing.assert_allclose(np.asarray(compiled(a)), fun(mj.device_put(a)), rtol=1e-4)


def test_it_is_one_input_however_often_it_is_used_and_wherever() -> None:
    def fun(x):
        once = lax.scan(lambda c, _: (c + LARGE, None), x, None, length=3)[0]
        return mj.grad(lambda x: (x * LARGE).sum())(once) + LARGE

    low, placements = lowered_inputs(fun, LARGE * 2)
    assert len(placements) <= 4
    np.testing.assert_allclose(np.asarray(mj.jit(fun)(LARGE * 2)), 2 * LARGE, rtol=1e-6)
    text = low.as_text("meshjit")
    assert "…" not in text, "no large constant is left"


def test_changing_the_array_afterwards_changes_nothing() -> None:
    mine = LARGE.copy()
    fun = mj.jit(lambda x: x + mine)
    first = np.asarray(fun(1.0))
    mine[:] = 0
    np.testing.assert_array_equal(np.asarray(fun(1.0)), first)


def test_small_ones_and_ones_of_one_value_stay_constants() -> None:
    zeros = np.zeros((1024, 1024), np.float32)
    _, placements = lowered_inputs(lambda x: x + zeros + np.arange(1024, dtype=np.float32), zeros)
    assert len(placements) == 1
