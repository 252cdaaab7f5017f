"""What code for single devices finds around it: meshes without devices, meshes of code around, and types that say how values vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, ManualAxisType, NamedSharding
from sharding.spec import P, ShardingError

pytestmark = pytest.mark.device

MESH = mj.make_mesh((2, 4), ("x", "y"), axis_types=AxisType.Auto)
EXPLICIT = mj.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=AxisType.Explicit)
DATA = np.arange(16, dtype=np.float32).reshape(8, 2)
X, NOTHING = ManualAxisType({"x"}), ManualAxisType()  # pyright: ignore[reportArgumentType]


def square(x: Any) -> Any:
    return mj.shard_map(lambda x: x * x, mesh=MESH.abstract_mesh, in_specs=P("x"), out_specs=P("x"))(x)


def placed(mesh: Any, *spec: Any) -> Any:
    return mj.device_put(DATA, NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("transform", [lambda f: f, mj.jit])
def test_a_mesh_without_devices_is_that_of_the_arguments(transform: Any) -> None:
    f = transform(square)
    np.testing.assert_array_equal(f(placed(MESH, "x")), DATA**2)
    assert f(placed(MESH, "y")).sharding == NamedSharding(MESH, P("x"))
    np.testing.assert_array_equal(transform(mj.grad(lambda x: f(x).sum()))(placed(MESH, "x")), 2 * DATA)
    np.testing.assert_array_equal(transform(mj.vmap(f))(placed(MESH, "x")[None])[0], DATA**2)


def test_beside_an_array_on_the_mesh_others_may_be_anywhere() -> None:
    f = mj.shard_map(lambda x, y: x + y, mesh=MESH.abstract_mesh, in_specs=P("y"), out_specs=P("y"))
    assert f(DATA, placed(MESH, "x")).sharding == NamedSharding(MESH, P("y"))


def test_a_mesh_without_devices_needs_an_argument_on_one() -> None:
    with pytest.raises(ValueError, match=r"(?s)the mesh has no devices, AbstractMesh.*no argument is on some.*fix: pass a Mesh"):
        square(DATA)
    with pytest.raises(ValueError, match=r"the mesh is AbstractMesh\(.*'y': 4.*an argument is on Mesh\('x': 2, 'y': 2, 'z': 2"):
        square(placed(EXPLICIT, "x"))


@pytest.mark.parametrize("f", [mj.jit(square), mj.grad(lambda x: square(x).sum()), mj.jit(mj.grad(lambda x: square(x).sum()))])
def test_a_program_over_no_devices_is_refused(f: Any) -> None:
    with pytest.raises(ShardingError, match=r"(?s)shard_map at .*of axes 'x': 2, 'y': 4, and the arguments are on one device"):
        f(DATA)
    with pytest.raises(ShardingError, match=r"(?s)the arguments are on Mesh\('x': 2, 'y': 2, 'z': 2.*fix: shard_map\(..., mesh=\)"):
        f(placed(EXPLICIT, "x"))
    with mj.set_mesh(MESH):
        assert f(DATA).shape == DATA.shape


@pytest.mark.parametrize("transform", [lambda f: f, mj.jit])
def test_code_in_code_over_explicit_axes(transform: Any) -> None:
    def inner(x: Any) -> Any:
        assert mj.typeof(x).vma == {"x", "y"}
        return mnp.sin(x)

    def outer(x: Any) -> Any:
        assert mj.typeof(x).vma == {"x"}
        return mj.smap(inner, in_axes=0, out_axes=0, axis_name="y")(x)

    with mj.set_mesh(EXPLICIT):
        f = transform(mj.smap(outer, out_axes=0, axis_name="x"))
        x = placed(EXPLICIT, "x", "y")
        np.testing.assert_allclose(f(x), np.sin(DATA), rtol=1e-6)
        np.testing.assert_allclose(transform(mj.grad(lambda x: f(x).sum()))(x), np.cos(DATA), rtol=1e-5)


def test_eval_shape_says_over_which_axes_results_vary() -> None:
    told: list[Any] = []

    def f(w: Any, x: Any) -> Any:
        y = mj.eval_shape(lambda w, x: {"both": w * x, "w": w, "sum": lax.psum(x, "x")}, w, x)
        told.extend(y[k].manual_axis_type for k in ("both", "w", "sum"))
        again = mj.eval_shape(mnp.sin, y["both"])
        told.extend(mj.typeof(like(again)).mat for like in (mnp.zeros_like, mnp.ones_like, lambda s: lax.full_like(s, 2.0)))
        told.append(mj.typeof(again).mat)
        _, back = mj.vjp(lambda w: w * x, w)
        return back(mnp.ones_like(y["both"]))[0] + x

    f = mj.shard_map(f, mesh=MESH, in_specs=(P(), P("x")), out_specs=P("x"))
    np.testing.assert_array_equal(f(np.float32(3), DATA[:, 0]), DATA[:, 0] + DATA[:, 0].sum())
    assert told == [X, None, None, X, X, X, X]


def test_eval_shape_in_code_for_single_devices_leaves_nothing_behind() -> None:
    own = mj.random.key(0)

    def f(x: Any) -> Any:
        key = mj.eval_shape(mj.random.split, own)
        assert key.shape == (2,) and mj.eval_shape(lambda x: x[None], x).shape == (1, *x.shape)
        return x

    traced = mj.jit(mj.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))).trace(DATA)
    (eqn,) = [e for e in traced.program.eqns if e.op.name == "manual"]
    assert [e.op.name for e in eqn.params["body"].eqns] == []


def test_shape_dtype_struct_like() -> None:
    like = mj.ShapeDtypeStruct.like
    assert like(DATA) == mj.ShapeDtypeStruct((8, 2), np.float32)
    assert like(2.0) == mj.ShapeDtypeStruct((), np.float32, weak_type=True)
    assert like(placed(MESH, "x")).sharding == NamedSharding(MESH, P("x")) and like(mnp.ones(3)).sharding is None
    assert like(mj.random.key(0)).dtype == mj.random.key(0).dtype
    assert like(like(DATA)) == like(DATA)
    with pytest.raises(TypeError, match="x is not an array"):
        like("text")

    def f(x: Any) -> Any:
        shape = like(x)
        assert shape.manual_axis_type == X
        return mj.pure_callback(lambda x: x + 1, shape, x)

    np.testing.assert_array_equal(mj.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(DATA), DATA + 1)


def test_what_is_handed_over_needs_no_hash() -> None:
    class Unhashable:
        def __hash__(self) -> int:
            raise RuntimeError("no hash")

    thing = Unhashable()

    def f(own: Any, x: Any) -> Any:
        assert own is thing
        return x + 1

    np.testing.assert_array_equal(mj.shard_map(f, mesh=MESH, in_specs=(None, P("x")), out_specs=P("x"))(thing, DATA), DATA + 1)


@pytest.mark.parametrize("transform", [mj.jit, lambda f: mj.jit(mj.grad(lambda x: f(x).sum())), lambda f: f])
def test_constraints_on_the_mesh_without_devices_go_to_that_of_the_code_around(transform: Any) -> None:
    """Of arguments that lie nowhere in particular the program was for no devices."""
    mesh = mj.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=AxisType.Auto)

    def body(v: Any) -> Any:
        return lax.with_sharding_constraint(v * v, NamedSharding(mj.sharding.get_abstract_mesh(), P("y", "z")))

    f = transform(mj.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
    x = np.arange(28, dtype=np.float32).reshape(4, 7)
    for argument in (x, mnp.asarray(x), mj.device_put(x, NamedSharding(mesh, P("x")))):
        np.testing.assert_array_equal(f(argument), transform(lambda v: v * v)(x))
