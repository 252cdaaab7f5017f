"""Derivatives and batches outside of jit of functions that put values on other devices: what JAX gives, and where it lies there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from sharding.spec import ShardingError

pytestmark = pytest.mark.device

D = mj.devices()
LEFT = Mesh(np.array(D[:4]), ("x",), (AxisType.Auto,))
RIGHT = Mesh(np.array(D[4:8]).reshape(2, 2), ("y", "z"), (AxisType.Auto, AxisType.Auto))
ON_LEFT, ON_RIGHT = NamedSharding(LEFT, P("x")), NamedSharding(RIGHT, P("y"))
WEIGHTS = [mj.device_put(np.full((3, 3), 0.1 * (i + 1), np.float32), D[i]) for i in range(4)]
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def stages(weights: Any, x: Any, move: Any = mj.device_put) -> Any:
    for i, w in enumerate(weights):
        x = mnp.tanh(move(x, D[i]) @ w)
    return mnp.sum(x**2)


def whole(weights: Any, x: Any) -> Any:
    return stages(weights, x, lambda v, _: v)


def homes(tree: Any) -> list[set[int]]:
    return [{d.id for d in v.devices()} for v in mj.tree.leaves(tree)]


def same(a: Any, b: Any) -> None:
    for x, y in zip(mj.tree.leaves(a), mj.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_stages_on_a_device_each() -> None:
    host = [np.asarray(w) for w in WEIGHTS]
    value, slopes = mj.value_and_grad(stages)(WEIGHTS, X)
    same((value, slopes), mj.value_and_grad(whole)(host, X))
    assert homes((value, slopes)) == [{3}, {0}, {1}, {2}, {3}]
    assert homes(mj.grad(stages, 1)(WEIGHTS, mj.device_put(X, D[5]))) == [{5}]
    value, back = mj.vjp(stages, WEIGHTS, X)
    for seed in (1.0, 2.0):
        same(back(mnp.float32(seed)), mj.vjp(whole, host, X)[1](mnp.float32(seed)))
    value, tangent = mj.jvp(stages, (WEIGHTS, X), (WEIGHTS, X))
    same((value, tangent), mj.jvp(whole, (host, X), (host, X)))
    assert homes((value, tangent)) == [{3}, {3}]
    value, linear = mj.linearize(stages, WEIGHTS, X)
    same([linear(WEIGHTS, X), linear(WEIGHTS, X)], [tangent, tangent])


def test_derivatives_of_derivatives_and_batches() -> None:
    host = [np.asarray(w) for w in WEIGHTS]

    def curved(f: Any, weights: Any) -> Any:
        return mj.jvp(mj.grad(lambda w: f([w, *weights[1:]], X)), (weights[0],), (weights[0],))

    same(curved(stages, WEIGHTS), curved(whole, host))
    batch = np.stack([X, -X, 2 * X])
    assert homes(mj.vmap(stages, (None, 0))(WEIGHTS, batch)) == [{3}]
    slopes = mj.vmap(mj.grad(stages, (0, 1)), (None, 0))(WEIGHTS, batch)
    same(slopes, mj.vmap(mj.grad(whole, (0, 1)), (None, 0))(host, batch))
    assert homes(slopes[0]) == [{0}, {1}, {2}, {3}]


def test_stages_on_a_mesh_each() -> None:
    a, b = mj.device_put(np.arange(8, dtype=np.float32), ON_LEFT), mj.device_put(np.arange(8, dtype=np.float32), ON_RIGHT)

    def f(a: Any, b: Any) -> Any:
        h = lax.with_sharding_constraint(mnp.sin(a), ON_LEFT)
        return (lax.with_sharding_constraint(mj.device_put(h * 2, ON_RIGHT) * b, ON_RIGHT)).sum()

    slopes = mj.grad(f, (0, 1))(a, b)
    assert [s.sharding for s in slopes] == [ON_LEFT, ON_RIGHT]
    same(slopes, (2 * np.cos(a) * b, 2 * np.sin(a)))
    jacobians = [jac(lambda a: mj.device_put(mnp.sin(a), ON_RIGHT))(a) for jac in (mj.jacrev, mj.jacfwd)]
    same(jacobians, [np.diag(np.cos(a))] * 2)
    assert homes(jacobians) == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    members = mj.vmap(lambda a: mj.device_put(mnp.sin(a), ON_RIGHT))(np.stack([a, a, a]))
    assert members.sharding == NamedSharding(RIGHT, P(None, "y"))


def test_after_code_for_single_devices() -> None:
    double = mj.shard_map(lambda v: v * 2, mesh=LEFT, in_specs=P("x"), out_specs=P("x"))
    slope = mj.grad(lambda w: (mj.device_put(double(w), D[5]) ** 2).sum())(mj.device_put(np.ones(4, np.float32), ON_LEFT))
    assert slope.tolist() == [8] * 4 and homes(slope) == [{0, 1, 2, 3}]


@pytest.mark.parametrize("shape", [(), (3,), (0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_there_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    x = mj.device_put(np.ones(shape).astype(mnp.dtype(dtype)), D[2])
    f = lambda w: (mj.device_put(mj.device_put(w, D[1]) * 3, D[2]) * w).real.sum()  # noqa: E731
    slope = mj.grad(f)(x)
    assert slope.dtype == x.dtype and homes(slope) == [{2}]
    np.testing.assert_array_equal(np.asarray(slope).astype(np.complex64), np.full(shape, 6))


def test_values_aux_trees_and_keys() -> None:
    def f(p: Any) -> Any:
        p = mj.device_put(p, D[1])
        h = p["a"] * mj.random.normal(mj.device_put(mj.random.key(0), D[1]), (3,))
        return (h.sum() if h.sum() > -100 else p["b"].sum()), {"h": mj.device_put(h, D[3]), "c": mnp.ones(2)}

    slopes, aux = mj.grad(f, has_aux=True)({"a": mj.device_put(mnp.ones(3), D[0]), "b": mnp.ones(2)})
    np.testing.assert_allclose(slopes["a"], mj.random.normal(mj.random.key(0), (3,)))
    assert homes(slopes["a"]) == [{0}] and not slopes["b"].any() and homes(aux["h"]) == [{3}] and aux["c"].tolist() == [1, 1]


def test_inside_of_jit_one_device_says_nothing() -> None:
    slope = mj.jit(mj.grad(lambda w: (mj.device_put(w, D[1]) ** 2).sum()))(mj.device_put(np.ones(3, np.float32), D[0]))
    assert slope.tolist() == [2] * 3 and homes(slope) == [{0}]


def test_what_meets_on_different_devices_is_named() -> None:
    v = mj.device_put(np.ones(3, np.float32), D[2])
    with pytest.raises(ShardingError, match=r"(?s)is on device cpu:1.*is on device cpu:2.*fix: move one"):
        mj.grad(lambda w: (mj.device_put(w, D[1]) * v).sum())(np.ones(3, np.float32))


OTHER = Mesh(np.array(D[4:8]), ("x",), (AxisType.Auto,))
ON_OTHER = NamedSharding(OTHER, P("x"))


def of_jit(f: Any, place: NamedSharding) -> Any:
    return mj.jit(f, in_shardings=(place.with_spec(P()), place), out_shardings=place)


def constrained(f: Any, place: NamedSharding) -> Any:
    return mj.jit(lambda p, x: lax.with_sharding_constraint(f(p, lax.with_sharding_constraint(x, place)), place))


def on_single_devices(f: Any, place: NamedSharding) -> Any:
    return mj.shard_map(f, mesh=place.mesh, in_specs=(P(), P("x")), out_specs=P("x"))


@pytest.mark.parametrize("stage", [of_jit, constrained, on_single_devices, lambda f, p: mj.checkpoint(constrained(f, p))])
def test_stages_that_name_their_meshes(stage: Any) -> None:
    """Also a cotangent that meets nothing but a constraint, and equal axes of other devices."""
    first, second = (lambda p, x: mnp.sin(p * x)), (lambda p, x: p * x * 2)

    def f(p: Any, q: Any, x: Any) -> Any:
        parts = (stage(second, ON_OTHER)(q, mj.device_put(stage(first, ON_LEFT)(p, i * x), ON_OTHER)) for i in (1, 2))
        return sum(part.sum() for part in parts)

    p, q = (mj.device_put(np.float32(v), place.with_spec(P())) for v, place in ((3, ON_LEFT), (5, ON_OTHER)))
    x = mj.device_put(np.arange(8, dtype=np.float32) / 8, ON_LEFT)
    value, slopes = mj.value_and_grad(f, (0, 1, 2))(p, q, x)
    assert homes((value, slopes)) == [{4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}]

    def plain(p: Any, q: Any, x: Any) -> Any:
        return sum((q * mnp.sin(p * i * x) * 2).sum() for i in (1, 2))

    same((value, slopes), mj.value_and_grad(plain, (0, 1, 2))(*map(np.asarray, (p, q, x))))
    updated = [p - 0.1 * slopes[0], q - 0.1 * slopes[1]]
    assert homes(updated) == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    _, back = mj.vjp(lambda p, x: stage(second, ON_OTHER)(5.0, mj.device_put(stage(first, ON_LEFT)(p, x), ON_OTHER)), p, x)
    assert homes(back(mnp.ones(8))) == [{0, 1, 2, 3}, {0, 1, 2, 3}]


def test_a_stage_without_a_move_before_it_is_refused() -> None:
    x = mj.device_put(np.ones(8, np.float32), ON_LEFT)
    f = lambda x: constrained(lambda p, x: p * x, ON_OTHER)(2.0, constrained(lambda p, x: p * x, ON_LEFT)(2.0, x)).sum()  # noqa: E731
    for transform in (mj.grad, lambda f: mj.jit(mj.grad(f))):
        with pytest.raises(ShardingError, match=r"Mesh\('x': 4\)"):
            transform(f)(x)


def checkpointed(weights: Any, x: Any, **settings: Any) -> Any:
    for i, w in enumerate(weights):
        x = mj.checkpoint(lambda w, x, i=i: mnp.tanh(mj.device_put(x, D[i]) @ w), **settings)(w, x)
    return mnp.sum(x**2)


@pytest.mark.parametrize("settings", [{}, {"prevent_cse": False}, {"policy": mj.checkpoint_policies.dots_saveable}], ids=str)
def test_checkpoints_put_values_on_other_devices(settings: Any) -> None:
    """They stayed where they were, and met weights on other devices."""
    host = [np.asarray(w) for w in WEIGHTS]
    value, slopes = mj.value_and_grad(checkpointed)(WEIGHTS, X, **settings)
    same((value, slopes), mj.value_and_grad(whole)(host, X))
    assert homes((value, slopes)) == [{3}, {0}, {1}, {2}, {3}]
    value, back = mj.vjp(lambda x: checkpointed(WEIGHTS, x, **settings), mj.device_put(X, D[5]))
    same([back(value), back(value)], [mj.vjp(lambda x: whole(host, x), X)[1](value)] * 2)
    assert homes(back(value)) == [{5}]
    hessian_of = lambda f, weights: mj.jvp(mj.grad(lambda x: f(weights, x)), (X,), (X,))  # noqa: E731
    same(hessian_of(checkpointed, WEIGHTS), hessian_of(whole, host))
    batch = np.stack([X, 2 * X])
    same(mj.vmap(mj.grad(lambda x: checkpointed(WEIGHTS, x)))(batch), mj.vmap(mj.grad(lambda x: whole(host, x)))(batch))
    around = mj.grad(lambda x: mj.checkpoint(lambda x: checkpointed(WEIGHTS, x, **settings))(x))(X)
    same(around, mj.grad(lambda x: whole(host, x))(X))
    assert homes(mj.checkpoint(lambda x: mj.device_put(x, D[3]) * 2)(X)) == [{3}]


def test_a_checkpoint_brings_each_cotangent_back_to_where_its_value_was() -> None:
    """Also where it was traced once: the places of the first call were those of the next."""
    f = mj.checkpoint(lambda x: mnp.sin(mj.device_put(x, ON_RIGHT)))
    places = [D[1], D[2], D[1], ON_LEFT]
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    backs = [mj.vjp(f, mj.device_put(x, place))[1] for place in places]
    for back, place in zip(backs, places, strict=True):
        (found,) = back(np.ones(4, np.float32))
        np.testing.assert_allclose(found, np.cos(x), rtol=1e-6)
        assert homes(found) == homes(mj.device_put(x, place))


def test_batches_of_custom_rules_put_values_on_other_devices() -> None:
    def moved(x: Any) -> Any:
        return mj.device_put(x, D[3]) * 2

    with_jvp, with_vjp = mj.custom_jvp(moved), mj.custom_vjp(moved)
    with_jvp.defjvp(lambda primals, tangents: (moved(*primals), 3 * tangents[0]))
    with_vjp.defvjp(lambda x: (moved(x), None), lambda _, g: (3 * g,))
    for f in (with_jvp, with_vjp, mj.checkpoint(with_jvp), mj.checkpoint(mj.vmap(with_vjp))):
        found = mj.vmap(f)(X[None])
        np.testing.assert_array_equal(found, 2 * X[None])
        assert homes(found) == [{3}]
