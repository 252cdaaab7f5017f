"""shard_alike: two values in one placement, whichever of them says where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.experimental.shard_alike import shard_alike
from meshjit.sharding import AxisType, NamedSharding
from sharding.spec import P

pytestmark = pytest.mark.device

MESH = mj.make_mesh((4, 2), ("x", "y"), axis_types=AxisType.Auto)
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def placed(x: Any, *entries: Any, mesh: Any = MESH) -> Any:
    return mj.device_put(x, NamedSharding(mesh, P(*entries)))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize(
    "other", [mnp.ones, lambda shape: lax.broadcasted_iota(np.int32, shape, 0), lambda shape: mnp.ones(shape) > 0]
)
def test_one_says_where_both_are(kind: AxisType, other: Any) -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=kind)
    x = placed(X, "x", "y", mesh=mesh)
    for f in (lambda v: shard_alike(v, other((8, 4))), lambda v: shard_alike(other((8, 4)), v)[::-1]):
        for call in (mj.jit(f), f):
            first, second = call(x)
            assert first.sharding.spec == second.sharding.spec == P("x", "y")
            np.testing.assert_array_equal(first, X)
            np.testing.assert_array_equal(second, other((8, 4)))


def test_uneven_and_empty() -> None:
    f = mj.jit(lambda v: shard_alike(v * 2, mnp.zeros(v.shape)))
    assert [r.sharding.spec for r in f(placed(np.ones((7, 3), np.float32), "x"))] == [P("x"), P("x")]
    first, second = f(placed(np.ones((0, 4), np.float32), "x"))
    assert first.sharding == second.sharding


def test_it_is_an_identity_to_all_transformations() -> None:
    x = placed(X, "x", "y")
    ones = np.ones_like(X)

    def f(v: Any) -> Any:
        tree, other = shard_alike({"a": v, "b": [mnp.sin(v)]}, {"a": mnp.ones(v.shape), "b": [v * v]})
        return tree["a"] * other["a"] + tree["b"][0] * other["b"][0]

    derivative = 1 + np.cos(X) * X**2 + 2 * np.sin(X) * X
    np.testing.assert_allclose(mj.jit(mj.grad(lambda v: mnp.sum(f(v))))(x), derivative, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(mj.jvp(f, (x,), (ones,))[1], derivative, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(mj.jit(mj.vmap(f))(x), f(X), rtol=1e-5, atol=1e-4)
    batched = mj.vmap(shard_alike, (0, None), 0)(x, np.ones(4, np.float32))
    np.testing.assert_array_equal(batched[1], ones)
    looped = lax.scan(lambda c, _: (sum(shard_alike(c, mnp.ones(c.shape))), None), x, None, length=2)[0]
    np.testing.assert_array_equal(looped, X + 2)
    kept = mj.grad(mj.checkpoint(lambda v: mnp.sum(shard_alike(mnp.sin(v), v)[0])))(x)
    np.testing.assert_allclose(kept, np.cos(X), rtol=1e-5, atol=1e-6)


def test_nothing_is_sent_where_one_is_free() -> None:
    x = placed(X, "x", "y")
    assert not mj.jit(lambda v: shard_alike(v, mnp.ones(v.shape))).lower(x).plan.collectives


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"shard_alike: x\['a'\] is f32\[8,4\], y\['a'\] is f32\[4\]"):
        shard_alike({"a": mnp.ones((8, 4))}, {"a": mnp.ones(4)})
    with pytest.raises(ValueError, match="fix: two of one structure"):
        shard_alike([mnp.ones(4)], mnp.ones(4))
