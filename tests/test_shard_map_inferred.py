"""shard_map without in_specs: arguments stay where explicit axes say that they are. Values as jax 0.10.2 gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, NamedSharding
from sharding.spec import P

pytestmark = pytest.mark.device

MESH = mj.make_mesh((4, 2), ("x", "y"), axis_types=AxisType.Explicit)
MIXED = mj.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
X = np.arange(16, dtype=np.float32).reshape(8, 2)


def placed(values: Any, *entries: Any, mesh: Any = MESH) -> Any:
    return mj.device_put(np.asarray(values, np.float32), NamedSharding(mesh, P(*entries)))


def test_arguments_stay_where_they_are() -> None:
    x, w = placed(X, "x", "y"), placed(np.ones((2, 3)), "y")
    rows = (np.arange(8) // 2)[:, None]
    with mj.set_mesh(MESH):
        product = mj.shard_map(lambda a, b: lax.psum(a @ b, "y"), out_specs=P("x"))
        np.testing.assert_array_equal(product(x, w), X @ np.ones((2, 3)))
        numbered = mj.shard_map(lambda tree: tree["k"] + lax.axis_index("x"), out_specs=P("x", "y"))
        np.testing.assert_array_equal(mj.jit(numbered)({"k": x}), X + rows)
        assert numbered({"k": x}).sharding.spec == P("x", "y")
        total = mj.shard_map(lambda a: lax.psum((a**2).sum(), ("x", "y")), out_specs=P())
        np.testing.assert_array_equal(mj.grad(lambda x: total(x))(x), 2 * X)
        assert mj.jit(product).lower(x, w).plan.collectives[0].kind == "all_reduce"
        assert len(mj.jit(product).lower(x, w).plan.collectives) == 1  # nothing moves before
    given = mj.shard_map(lambda a: a * 2, mesh=MESH, out_specs=P("x", "y"))  # the mesh of the call, and none in the context
    np.testing.assert_array_equal(given(x), 2 * X)


@pytest.mark.parametrize("other", [2.0, np.ones(8, np.float32), mnp.ones(8)], ids=["a number", "of NumPy", "on no mesh"])
def test_what_is_on_no_mesh_is_the_same_for_all(other: Any) -> None:
    with mj.set_mesh(MESH):
        f = mj.shard_map(lambda a, n: a * mnp.sum(n), out_specs=P("x", "y"))
        np.testing.assert_array_equal(f(placed(X, "x", "y"), other), X * np.sum(other))


def test_some_axes() -> None:
    with mj.set_mesh(MIXED):
        some = mj.shard_map(lambda a: a * lax.axis_index("x"), out_specs=P("x"), axis_names={"x"})
        np.testing.assert_array_equal(some(placed(X, "x", mesh=MIXED)), X * (np.arange(8) // 2)[:, None])
    with mj.set_mesh(MESH):
        named = mj.smap(lambda a: a * 2, out_axes=0, axis_name="x")
        np.testing.assert_array_equal(named(placed(X, "x", "y")), 2 * X)


def test_inside_of_another() -> None:
    """The inner function reads its specs off the axes that the outer one leaves."""
    x, types = placed(X, "x", "y"), list[str]()

    def inner(a: Any) -> Any:
        types.append(str(mj.typeof(a)))
        return mnp.sin(a) * lax.axis_index("y") + lax.axis_index("x")

    def outer(a: Any) -> Any:
        return mj.shard_map(inner, out_specs=P(None, "y"), axis_names={"y"})(a)

    at = np.arange(8)[:, None] // 2, np.arange(2)
    with mj.set_mesh(MESH):
        nested = mj.shard_map(outer, out_specs=P("x"), axis_names={"x"})
        result = mj.jit(nested)(x)
        np.testing.assert_allclose(result, np.sin(X) * at[1] + at[0], rtol=1e-6)
        assert result.sharding.spec == P("x", "y")
        assert types == ["float32[2,1]{V:(x,y)}"]
        np.testing.assert_allclose(mj.grad(lambda v: nested(v).sum())(x), np.cos(X) * at[1], rtol=1e-6)
        named = mj.smap(mj.smap(lambda a: a.T, out_axes=0, axis_name="y"), out_axes=1, axis_name="x")
        np.testing.assert_array_equal(mj.jit(named)(x), X.T)
        in_a_loop = mj.shard_map(lambda a: lax.scan(lambda c, _: (outer(c), None), a, None, length=2)[0],
                                 out_specs=P("x"), axis_names={"x"})  # fmt: skip
        np.testing.assert_allclose(mj.jit(in_a_loop)(x), np.sin(np.sin(X) * at[1] + at[0]) * at[1] + at[0], rtol=1e-5)


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "automatic axes": (lambda: mj.shard_map(lambda a: a * 2, out_specs=P("x"), mesh=MIXED)(X), "x Explicit, y Auto"),
    "inside of another": (
        lambda: mj.shard_map(lambda a: mj.shard_map(lambda b: b, out_specs=P("y"), axis_names={"y"})(a),
                             mesh=MIXED, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(placed(X, "x", mesh=MIXED)),
        "the code around is for single devices along x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    use, words = ERRORS[name]
    with pytest.raises(TypeError, match=f"there are no in_specs, and the mesh axes are .*{words}"):
        use()
