"""make_jaxpr and jit(f).trace(x).jaxpr: a Program under JAX's names, which says what JAX's says and can be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.api.primitives import PARAMS
from meshjit.core import primitives
from meshjit.core.op import REGISTRY
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device

V = np.array([1.0, 2.0, 3.0], np.float32)
M = np.arange(6, dtype=np.float32).reshape(2, 3)


NAMES: list[tuple[Callable[..., Any], Any, list[str]]] = [  # what JAX 0.10.2 gives
    (lambda x: (mnp.sin(x) * x, x @ x.T), M, ["sin", "mul", "transpose", "dot_general"]),
    (lambda x: mnp.exp(mnp.log(mnp.tanh(x))) ** 2 / x - x, 1.0, ["tanh", "log", "exp", "integer_pow", "div", "sub"]),
    (lambda x: mnp.sum(x) + mnp.max(x), V, ["reduce_sum", "reduce_max", "add"]),
    (lambda x: mnp.transpose(x).reshape(-1)[1:3], M, ["transpose", "reshape", "slice"]),
    (lambda x: lax.cond(x > 0, lambda: 1.0, lambda: 2.0), 1.0, ["gt", "convert_element_type", "cond"]),
    (lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x), 1.0, ["while"]),
    (lambda x: mj.jit(mnp.sin)(x), 1.0, ["jit"]),
    (lambda x: mj.checkpoint(mnp.sin)(x), 1.0, ["remat2"]),
    (lambda x: mnp.maximum(x, 0) <= mnp.floor(-x), V, ["max", "neg", "floor", "le"]),
    (lambda x: x * 2.0, V, ["mul"]),
]


@pytest.mark.parametrize("case", range(len(NAMES)))
def test_names_are_those_of_jax(case: int) -> None:
    function, at, names = NAMES[case]
    assert [eqn.primitive.name for eqn in mj.make_jaxpr(function)(at).eqns] == names
    assert [eqn.primitive.name for eqn in mj.jit(function).trace(at).jaxpr.jaxpr.eqns] == names


def test_names_belong_to_ops_that_are_there() -> None:
    assert set(primitives.NAMES) <= set(REGISTRY)
    assert set(PARAMS) <= {*primitives.NAMES.values(), *REGISTRY}


def test_params_are_those_of_jax() -> None:
    def params(function: Callable[..., Any], x: Any) -> dict[str, Any]:
        return mj.make_jaxpr(function)(x).eqns[-1].params

    assert params(lambda x: x @ x.T, M)["dimension_numbers"] == (((1,), (0,)), ((), ()))
    assert params(lambda x: x.astype(int), V)["new_dtype"] == np.int32
    assert params(lambda x: mnp.broadcast_to(x, (2, 3)), V) == {"shape": (2, 3), "broadcast_dimensions": (1,)}
    assert params(lambda x: x[1:2], V)["start_indices"] == (1,) and params(lambda x: x**2, 1.0) == {"y": 2}
    assert params(lambda x: x > 0, V) == {} and params(lambda x: x.reshape(3, 1), V)["new_sizes"] == (3, 1)
    scan = params(lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x), V)
    assert (scan["length"], scan["num_consts"], scan["num_carry"]) == (3, 0, 1)
    assert [eqn.primitive.name for eqn in scan["jaxpr"].jaxpr.eqns] == ["add"]
    loop = params(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x), 1.0)
    assert sorted(loop) == ["body_jaxpr", "body_nconsts", "cond_jaxpr", "cond_nconsts"]
    branches = params(lambda x: lax.cond(x > 0, mnp.sin, mnp.cos, x), 1.0)["branches"]
    assert [b.eqns[0].primitive.name for b in branches] == ["cos", "sin"]


def test_parts_of_a_jaxpr() -> None:
    closed_over = mnp.ones(3)
    closed = mj.make_jaxpr(lambda x: {"a": x + closed_over, "b": 3.0, "c": mnp.arange(3) * x})(V)
    assert len(closed.consts) == len(closed.jaxpr.constvars) == len(closed.jaxpr.invars) == 1
    assert [str(t) for t in closed.in_avals] == ["float32[3]"]
    assert [str(t) for t in closed.out_avals] == ["float32[3]", "~float32[]", "float32[3]"]
    first = closed.eqns[0]
    assert first.invars == [*closed.jaxpr.invars, *closed.jaxpr.constvars] and first.outvars[0].aval.shape == (3,)
    assert closed.jaxpr.outvars[0] is first.outvars[0] and closed.jaxpr.outvars[1].val == 3
    assert closed.effects == set() == closed.jaxpr.effects and str(first) == "a:f32[3] = add b c"
    doubled = mj.make_jaxpr(lambda x: x * 2.0)(V).eqns[0]
    assert doubled.invars[1].val == 2 and isinstance(doubled.invars[1].val, np.float32)
    assert doubled.primitive is mj.make_jaxpr(lambda x: x * x)(V).eqns[0].primitive and str(doubled.primitive) == "mul"
    printed = mj.make_jaxpr(lambda x: (mj.debug.print("{}", x), x)[1])(V)
    assert len(printed.effects) == 1


def count(jaxpr: Any) -> int:
    return sum(1 + sum(map(count, mj.core.jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns)


def test_they_can_be_walked() -> None:
    closed = mj.make_jaxpr(lambda x: mj.jit(lambda y: lax.scan(lambda c, z: (c + z, c * 2), 0.0, y))(x))(V)
    assert count(closed.jaxpr) == 4


def test_they_can_be_evaluated() -> None:
    weights = mnp.ones(3)
    closed = mj.make_jaxpr(lambda x: (mnp.sum(x * weights * 2), mnp.sin(x)))(V)

    def again(x: Any) -> Any:
        return mj.core.eval_jaxpr(closed.jaxpr, closed.consts, x)

    for evaluate in (again, mj.jit(again)):
        total, sines = evaluate(V)
        assert float(total) == 12 and isinstance(total, mj.Array)
        np.testing.assert_allclose(sines, np.sin(V), rtol=1e-6)
    np.testing.assert_array_equal(mj.grad(lambda x: again(x)[0])(V), np.full(3, 2.0))
    np.testing.assert_array_equal(mj.vmap(lambda x: again(x)[0])(np.stack([V, V])), [12, 12])
    inner = mj.make_jaxpr(lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x))(V).eqns[0].params["jaxpr"]
    np.testing.assert_array_equal(mj.core.eval_jaxpr(inner.jaxpr, inner.consts, np.float32(1), np.float32(2)), [3, 1])
    with pytest.raises(TypeError) as error:
        mj.core.eval_jaxpr(closed.jaxpr, closed.consts, V[:2])
    text = str(error.value)
    assert text.startswith("eval_jaxpr: lambda takes (f32[3], f32[3]), arguments and then constants, and was given (f32[2], f32[3])")
    assert "\n  at test_api_jaxpr.py:" in text and text.endswith("\n  fix: make_jaxpr for arguments like these")


def test_constraints_keep_their_mesh() -> None:
    place = NamedSharding(Mesh(np.asarray(mj.devices()), ("x",)), P("x"))
    closed = mj.make_jaxpr(lambda x: lax.with_sharding_constraint(x, place) * 2)(np.arange(8.0))
    (result,) = mj.core.eval_jaxpr(closed.jaxpr, closed.consts, np.arange(8, dtype=np.float32))
    assert result.sharding.is_equivalent_to(place, 1)
    np.testing.assert_array_equal(result, 2 * np.arange(8))


def test_names_in_core() -> None:
    seen: list[bool] = []
    mj.jit(lambda x: seen.append(isinstance(x, mj.core.Tracer)) or x)(1.0)
    assert seen == [True] and not isinstance(mnp.ones(2), mj.core.Tracer)
    assert isinstance(mj.typeof(1.0), mj.core.ShapedArray)
    with mj.core.ensure_compile_time_eval():
        assert int(mnp.arange(3).sum()) == 3
