"""Sums that a user leaves unfinished: what is sent and when, addends in shards, what refuses them, and their size on large meshes.
Values and types beside JAX are those of `test_explicit_like_jax`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.errors import ShardingTypeError
from meshjit.sharding import AbstractMesh, AxisType, NamedSharding, auto_axes, reshard
from sharding.spec import P

MESH = mj.make_mesh((4, 2), ("X", "Y"), axis_types=AxisType.Explicit)
MIXED = mj.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Auto, AxisType.Explicit))
A, B = np.arange(32, dtype=np.float32).reshape(8, 4) % 7, np.arange(64, dtype=np.float32).reshape(4, 16) % 5
LEFT = P("X", None, unreduced={"Y"})


def placed(x: Any, *entries: Any, mesh: Any = MESH, **sums: Any) -> Any:
    return mj.device_put(np.asarray(x), NamedSharding(mesh, P(*entries, **sums)))


@pytest.fixture(autouse=True)
def mesh() -> Any:
    with mj.set_mesh(MESH):
        yield


def product(a: Any, b: Any) -> Any:
    return mnp.dot(a, b, out_sharding=LEFT)


@pytest.fixture
def operands() -> tuple[Any, Any]:
    return placed(A, "X", "Y"), placed(B, "Y")


@pytest.fixture
def part(operands: Any) -> Any:
    return product(*operands)


def sent(f: Any, *args: Any) -> list[tuple[str, int, float]]:
    return [(c.kind, c.nbytes, c.trips) for c in mj.jit(f).lower(*args).plan.collectives]


def test_shards_are_addends(part: Any) -> None:
    assert repr(part).startswith("Array(shape=(8, 16), dtype=float32, P('X', None, unreduced={'Y'}) on Mesh(")
    sums = np.zeros((8, 16), np.float32)
    for shard in part.addressable_shards:
        sums[shard.index] += np.asarray(shard.data)
    np.testing.assert_array_equal(sums, A @ B)
    with pytest.raises(NotImplementedError, match=r"f32\[8@X,16\]\{U:Y\} is an unfinished sum.*\n.*reshard\(x, P\(\"X\", None\)\)"):
        np.asarray(part)


SENT: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[str, int, float]]]] = {
    "nothing": (product, []),
    "in the end": (lambda a, b: reshard(product(a, b) + product(a, b), P("X")), [("all_reduce", 128, 1.0)]),
    "scattered": (lambda a, b: reshard(product(a, b), P("X", "Y")), [("reduce_scatter", 128, 1.0)]),
    "once for two uses": (lambda a, b: (reshard(product(a, b), P("X")), product(a, b)), [("all_reduce", 128, 1.0)]),
    "after a loop": (
        lambda a, b: reshard(lax.scan(lambda c, _: (c + product(a, b), None), product(a, b), None, length=5)[0], P("X")),
        [("all_reduce", 128, 1.0)],
    ),
    "cut before": (lambda a, b: reshard(product(a, b)[:, :2].sum(1), P("X")), [("all_reduce", 8, 1.0)]),
    "by a reduced factor": (
        lambda a, b: reshard(product(a, b) @ reshard(mnp.ones((16, 2)), P(reduced={"Y"})), P("X")), [("all_reduce", 16, 1.0)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent(name: str, operands: Any) -> None:
    assert sent(SENT[name][0], *operands) == SENT[name][1]


def test_gradients_are_added_up_before_their_sum_is_finished() -> None:
    x, w = placed(A, "X"), placed(B)

    def loss(w: Any) -> Any:
        return ((x @ w) ** 2).sum()

    def accumulated(w: Any) -> Any:
        weights = reshard(w, P(reduced={"X"}))
        start = mnp.zeros((4, 16), out_sharding=P(unreduced={"X"}))
        return reshard(lax.scan(lambda g, _: (g + mj.grad(loss)(weights), None), start, None, length=3)[0], P("X"))

    np.testing.assert_array_equal(mj.jit(accumulated)(w), 6 * A.T @ (A @ B))
    assert sent(accumulated, w) == [("reduce_scatter", 256, 1.0)]


def test_every_way_between_placements(part: Any) -> None:
    """Each pair of specs, in jit and outside."""
    specs = [LEFT, P(None, None, unreduced={"X", "Y"}), P(None, "X", unreduced={"Y"}), P(unreduced={"X"}), P("X", reduced={"Y"}), P(("X", "Y"))]
    f = mj.jit(lambda u: [reshard(reshard(reshard(u, a), b), P()) for a, b in itertools.product(specs, specs)])
    for result in f(part):
        np.testing.assert_array_equal(result, A @ B)
    for spec in specs:
        np.testing.assert_array_equal(reshard(reshard(part, spec), P()), A @ B)


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "complex64"])
def test_dtypes_and_extents(dtype: str) -> None:
    for shape in ((7, 4), (0, 4), (8, 4)):
        a = np.ones(shape, np.int32)
        u = mj.jit(lambda a: mnp.einsum("bd,df->bf", a, a[:3].T, out_sharding=P(None, None, unreduced={"Y"})))
        got = reshard(u(placed(a, None, "Y").astype(dtype)), P("Y"))
        np.testing.assert_array_equal(np.asarray(got).astype(np.complex64), a @ a[:3].T)


def test_with_automatic_axes() -> None:
    """The dims that types leave open are the planner's, those of a sum too."""
    with mj.set_mesh(MIXED):
        a, b = placed(A, "X", "Y", mesh=MIXED), placed(B, "Y", mesh=MIXED)
        u = mj.jit(lambda a, b: mnp.dot(a, b, out_sharding=P(None, None, unreduced={"Y"})))(a, b)
        assert (mj.typeof(u).sharding.spec.unreduced, u.sharding.spec) == ({"Y"}, P("X", unreduced={"Y"}))
        np.testing.assert_array_equal(reshard(u, P()), A @ B)
        np.testing.assert_array_equal(auto_axes(lambda u: u * u, out_sharding=P())(u), (A @ B) ** 2)
        plan = mj.jit(lambda a, b: reshard(mnp.dot(a, b, out_sharding=P(None, None, unreduced={"Y"})), P())).lower(a, b).plan
        assert parse_program(print_program(plan.program)).eqns[-1].params["spec"] == plan.program.eqns[-1].params["spec"]


def test_with_the_automatic_planner(operands: Any) -> None:
    f = mj.auto(lambda a, b: reshard(product(a, b) + product(a, b), P("X", None)))
    np.testing.assert_array_equal(f(*operands), 2 * A @ B)


def test_of_code_for_single_devices(part: Any) -> None:
    """Addends that come and go, of a value and of a gradient."""
    with pytest.raises(ValueError, match="same on all devices along 'X', and out_specs"):
        mj.shard_map(lambda x: x * 2, in_specs=P(), out_specs=P(unreduced={"X"}))(mnp.ones(8))
    total = mj.shard_map(lambda u: lax.psum(u, "Y"), out_specs=P("X"))
    np.testing.assert_array_equal(total(part), A @ B)
    assert sent(total, part) == [("all_reduce", 128, 1.0)]
    doubled = mj.shard_map(lambda u: u + u, in_specs=LEFT, out_specs=LEFT)
    np.testing.assert_array_equal(reshard(doubled(part), P("X")), 2 * A @ B)
    assert sent(lambda u: total(doubled(u)), part) == [("all_reduce", 128, 1.0)]


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "sine": (mnp.sin, ShardingTypeError, r"unfinished sum over Y, in which sine is not linear\n.*\n  fix: .*reshard\(operand 0, P\("),
    "one": (lambda u: u + 1, ShardingTypeError, "operand 1 is not: every device would add it"),
    "other axes": (lambda u: u + reshard(u, P(unreduced={"X"})), ShardingTypeError, "an unfinished sum over Y, operand 1 over X"),
    "a factor": (lambda u: u * 2, ShardingTypeError, "operand 1 is not reduced over Y: its cotangent"),
    "reduced and sharded": (
        lambda u: reshard(mnp.ones(8), P(reduced={"X"})) * reshard(mnp.ones(8), P("X")), ShardingTypeError, "is reduced over X, over"
    ),
    "axes of no argument": (
        lambda u: mnp.dot(mnp.ones((2, 4)), mnp.ones((4, 2)), out_sharding=P(unreduced={"Y"})), ShardingTypeError, "no argument is sharded"
    ),
    "automatic": (lambda u: NamedSharding(MIXED, P(unreduced={"X"})), ValueError, "an axis of type Auto\n  fix: an Explicit axis"),
    "bools": (lambda u: reshard(mnp.arange(8) > 3, P(unreduced={"X"})), TypeError, "bools are not added up"),
    "bools in jit": (lambda u: mj.jit(lambda: reshard(mnp.arange(8) > 3, P(unreduced={"X"})))(), TypeError, "bools are not added up"),
    "branches": (lambda u: lax.cond(True, lambda u: reshard(u, P("X")), lambda u: u, u), TypeError, r"\{U:Y\}"),
    "a carry": (lambda u: lax.fori_loop(0, 2, lambda i, c: reshard(c, P("X")), u), TypeError, r"\{U:Y\} at first"),
    "in_shardings": (
        lambda u: mj.jit(lambda u: u, in_shardings=NamedSharding(MESH, P("X")))(u), ValueError, "unreduced={'Y'}.* but in_shardings say"
    ),
    "elsewhere": (lambda u: mj.shard_map(lambda x: x, in_specs=P("X"), out_specs=P("X"))(u), ValueError, "nothing is moved without"),
    "in a region": (
        lambda u: mj.shard_map(lambda x: mnp.exp(x), in_specs=LEFT, out_specs=LEFT)(u), ShardingTypeError, r"fix: lax.psum\(operand 0, \('Y',\)\)"
    ),
    "sent on": (
        lambda u: mj.shard_map(lambda x: lax.pmax(x, "Y"), in_specs=LEFT, out_specs=P("X"))(u), ValueError, "fix: lax.psum"
    ),
    "left unreduced": (
        lambda u: mj.shard_map(lambda x: x, in_specs=LEFT, out_specs=P("X"))(u), ValueError, "result f32.* is unreduced along 'Y'"
    ),
    "some axes": (
        lambda u: mj.shard_map(lambda x: x, in_specs=P(unreduced={"Y"}), out_specs=P(), axis_names={"Y"})(u), NotImplementedError, "not for 'X'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, part: Any) -> None:
    use, kind, words = ERRORS[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        use(part)


def test_checkpoints_hold_finished_sums(part: Any, tmp_path: Any) -> None:
    with pytest.raises(NotImplementedError, match="is an unfinished sum"):
        mj.checkpoints.save(tmp_path / "c", {"u": part}, 0)


def test_at_size() -> None:
    """32 layers of extents 2**17 on 4,096 devices, gradients left unreduced over the batch: nothing is as large as an array."""
    large = AbstractMesh((64, 64), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)

    def loss(x: Any, ws: Any) -> Any:
        for w in ws:
            x = mnp.tanh(mnp.dot(x, reshard(w, P(None, None, reduced={"data"}))))
        return (x**2).sum()

    with mj.set_mesh(large):
        x = mj.ShapeDtypeStruct((2**17, 256), np.float32, sharding=NamedSharding(large, P("data")))
        w = mj.ShapeDtypeStruct((256, 256), np.float32, sharding=NamedSharding(large, P()))
        lowered = mj.jit(mj.grad(loss, 1)).lower(x, [w] * 32)
    assert sum(c.kind == "all_reduce" for c in lowered.plan.collectives) == 32
