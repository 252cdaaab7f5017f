"""Functions inside of others that name another mesh, in constraints or code for devices: in the words of one, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit.lax import with_sharding_constraint as constrained
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
from sharding.spec import ShardingError

pytestmark = pytest.mark.device

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def on(sizes: tuple[int, ...], names: str, *entries: Any, backwards: bool = False) -> NamedSharding:
    devices = np.array(mj.devices()[: int(np.prod(sizes))])
    return NamedSharding(Mesh((devices[::-1] if backwards else devices).reshape(sizes), tuple(names)), P(*entries))


def outer(*entries: Any) -> NamedSharding:
    return on((4, 2), "xy", *entries)


def inner() -> NamedSharding:
    return on((2, 4), "pq", "p", "q")


WAYS: dict[str, Callable[[Any], Any]] = {
    "nested jit": lambda x: mj.jit(lambda a: constrained(a * 2, inner()))(x),
    "shardings": lambda x: mj.jit(lambda a: a * 2, in_shardings=None, out_shardings=inner())(x),
    "twice nested": lambda x: mj.jit(lambda a: mj.jit(lambda b: constrained(b, inner()))(a) * 2)(x),
    "scan": lambda x: mj.lax.scan(lambda c, _: (constrained(c * 2, inner()), None), x, None, length=1)[0],
    "branch": lambda x: mj.lax.cond(True, lambda a: constrained(a * 2, inner()), lambda a: constrained(a, outer()), x),
    "while": lambda x: mj.lax.while_loop(
        lambda a: constrained(a, outer("x")).sum() < 900, lambda a: constrained(a * 2, inner()), x
    ),
    "gradient": lambda x: mj.grad(lambda a: (constrained(a, inner()) ** 2).sum())(x),
    "pullback": lambda x: mj.vjp(lambda a: constrained(a * 2, inner()), x)[1](x)[0],
    "linearized": lambda x: mj.linearize(lambda a: constrained(a * 2, inner()), x)[1](x),
    "checkpoint": lambda x: mj.checkpoint(lambda a: constrained(a * 2, inner()))(x),
}


@pytest.mark.parametrize("way", WAYS)
def test_constraints_of_another_mesh_of_the_same_devices(way: str) -> None:
    f = mj.jit(lambda a: WAYS[way](constrained(a, outer("x"))))
    result = f(X)
    np.testing.assert_array_equal(result, 2 * X)
    assert result.sharding.is_equivalent_to(inner(), 2)
    np.testing.assert_array_equal(f(X), 2 * X)


@pytest.mark.parametrize("way", WAYS)
def test_constraints_outside_of_jit(way: str) -> None:
    for x in (X, mj.device_put(X, outer("x"))):
        result = WAYS[way](x)
        np.testing.assert_array_equal(result, 2 * X)
        assert result.sharding.is_equivalent_to(inner(), 2)


def test_members_of_a_batch_under_constraints() -> None:
    place = on((2, 4), "pq", "q")
    for x in (X, mj.device_put(X, outer("x"))):
        result = mj.vmap(lambda a: constrained(a * 2, place))(x)
        np.testing.assert_array_equal(result, 2 * X)
        assert result.sharding.spec[1] == "q" or result.sharding.shard_shape((8, 4))[1] == 1


def test_a_function_is_used_by_callers_on_several_meshes() -> None:
    doubled = mj.jit(lambda a: constrained(a * 2, inner()))
    for sizes, names in (((4, 2), "xy"), ((8,), "z"), ((2, 2, 2), "abc"), ((2, 4), "pq")):
        place = on(sizes, names, names[0])
        result = mj.jit(lambda a, place=place: doubled(constrained(a, place)))(X)
        np.testing.assert_array_equal(result, 2 * X)
        assert result.sharding.is_equivalent_to(inner(), 2)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda: on((4,), "h", "h"), "one set of devices, and these are [0, 1, 2, 3, 4, 5, 6, 7] and [0, 1, 2, 3]"),
        (
            lambda: on((4, 2), "xy", "x", backwards=True),
            "its devices in one order, and these are [0, 1, 2, 3, 4, 5, 6, 7] and [7, 6, 5, 4, 3, 2, 1, 0]",
        ),
    ],
)
def test_meshes_that_do_not_go_together(other: Callable[[], NamedSharding], text: str) -> None:
    nested = mj.jit(lambda a: constrained(a, other()))
    with pytest.raises(ShardingError) as error:
        mj.jit(lambda a: nested(constrained(a, outer("x"))))(X)
    first, why, fix = str(error.value).split("\n")
    assert first.startswith(f"lambda uses two meshes: {outer().mesh} at ")
    assert (why, fix) == (f"  a compiled function runs on {text}", "  fix: build every NamedSharding of lambda on the same mesh")


def test_axes_that_cannot_say_it() -> None:
    with pytest.raises(ShardingError, match="they have the same devices, but what is sharded on one cannot be said with the axes"):
        mj.jit(lambda a: constrained(constrained(a, on((2, 3), "ab", "a")), on((3, 2), "cd", "c")))(X[:6])


def test_committed_operands_on_other_devices_than_constraints() -> None:
    with pytest.raises(ShardingError) as error:
        mj.grad(lambda a: (constrained(a, inner()) ** 2).sum())(mj.device_put(X, on((4,), "h", "h")))
    assert "its sharding constraints are on Mesh('p': 2, 'q': 4)" in str(error.value)
    assert "an operand f32[8,4] is on Mesh('h': 4), P('h',)" in str(error.value)


# --- jit's device= and backend=


def _device_ways() -> dict[str, Callable[[Any], Any]]:
    wide = outer("x", "y")
    return {
        "constraint": lambda x: constrained(x * 2, wide),
        "device_put": lambda x: mj.device_put(x * 2, wide),
        "nested jit": lambda x: mj.jit(lambda a: constrained(a * 2, wide))(x),
        "nested in_shardings": lambda x: mj.jit(lambda a: a * 2, in_shardings=wide)(x),
        "nested out_shardings": lambda x: mj.jit(lambda a: a * 2, out_shardings=wide)(x),
        "nested device": lambda x: mj.jit(lambda a: a * 2, device=mj.devices()[2])(x),
        "one other device": lambda x: constrained(x * 2, SingleDeviceSharding(mj.devices()[3])),
        "a mesh of one other device": lambda x: constrained(x * 2, on((1,), "x", "x")),
        "scan": lambda x: mj.lax.scan(lambda c, _: (constrained(c * 2, wide), None), x, None, length=1)[0],
        "branch": lambda x: mj.lax.cond(x[0, 0] >= 0, lambda a: constrained(a * 2, wide), lambda a: a, x),
        "gradient": mj.grad(lambda x: constrained(x * x, wide).sum()),
        "batch": mj.vmap(lambda x: constrained(x * 2, outer("x"))),
        "no argument of it": lambda x: constrained(mj.numpy.zeros((8, 4)), wide),
    }


@pytest.mark.filterwarnings("ignore:jit. device=:DeprecationWarning")
@pytest.mark.parametrize("way", _device_ways())
def test_a_device_of_jit_and_other_devices_inside_is_an_error_that_names_both(way):
    fun = mj.jit(_device_ways()[way], device=mj.devices()[1])
    for call in (fun, fun.lower, lambda x: fun(mj.device_put(x, outer("x")))):
        with pytest.raises(ShardingError) as error:
            call(X)
        text = str(error.value)
        assert "inside, at test_api_meshes.py:" in text and "but device= (or backend=) of jit is on device cpu:1\n" in text
        assert text.endswith("\n  fix: leave device= and backend= out; what is inside says where the function runs")


@pytest.mark.filterwarnings("ignore:jit. device=:DeprecationWarning")
def test_a_device_of_jit_and_the_same_device_inside_go_together() -> None:
    device = mj.devices()[0]
    for place in (SingleDeviceSharding(device), on((1,), "x", "x"), on((1, 1), "xy", "y", "x")):
        result = mj.jit(lambda x, place=place: constrained(x * 2, place), device=device)(X)
        assert result.devices() == {device} and result.committed
        np.testing.assert_array_equal(result, X * 2)
    result = mj.jit(lambda x: mj.jit(lambda a: a * 2, device=device)(x), backend="cpu")(X)
    np.testing.assert_array_equal(result, X * 2)


@pytest.mark.parametrize("who", ["in_shardings for x", "out_shardings for result", "argument x"])
def test_a_constraint_inside_and_other_devices_outside_name_the_line(who):
    small = NamedSharding(Mesh(np.array(mj.devices()[:4]), ("x",)), P("x"))
    shardings: Any = {} if who.startswith("arg") else {who.split()[0]: small}
    x = mj.device_put(X, small) if who.startswith("arg") else X
    with pytest.raises(ShardingError) as error:
        mj.jit(lambda x: constrained(x * 2, outer("x")), **shardings)(x)
    text = str(error.value)
    assert "a sharding constraint inside, at test_api_meshes.py:" in text and f"but {who} is on Mesh('x': 4) of devices" in text


def test_the_mesh_of_the_context_without_its_devices_is_that_mesh() -> None:
    """As flax asks for it: NamedSharding(get_abstract_mesh(), spec), beside the mesh itself."""
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)

    def step(x: Any) -> Any:
        x = constrained(x, NamedSharding(mj.sharding.get_abstract_mesh(), P("x", None)))
        return constrained(x + 1, NamedSharding(mesh, P("x", "y")))

    with mj.set_mesh(mesh):
        eager = constrained(X, NamedSharding(mj.sharding.get_abstract_mesh(), P("x", None)))
        assert eager.sharding == NamedSharding(mesh, P("x", None))
        for run in (mj.jit(step), step):
            y = run(X)
            assert y.sharding == NamedSharding(mesh, P("x", "y"))
            np.testing.assert_array_equal(y, X + 1)


def test_a_mesh_of_other_sizes_without_devices_is_another_mesh() -> None:
    other = mj.sharding.AbstractMesh((2, 4), ("x", "y"))
    with mj.set_mesh(mj.make_mesh((4, 2), ("x", "y"))), pytest.raises(ShardingError, match="uses two meshes"):
        mj.jit(lambda x: constrained(constrained(x, NamedSharding(other, P("x"))), outer("x")))(X)


def test_the_sharding_of_a_type_outside_of_a_mesh_places_nothing() -> None:
    x = mj.numpy.ones(3)
    y = mj.random.normal(mj.random.key(0), (3,), out_sharding=mj.typeof(x).sharding)
    np.testing.assert_array_equal(y, mj.random.normal(mj.random.key(0), (3,)))


# -- code for the devices of several meshes


def mesh_of(sizes: tuple[int, ...], names: str) -> Mesh:
    return Mesh(np.array(mj.devices()[: int(np.prod(sizes))]).reshape(sizes), tuple(names))


def over(mesh: Mesh, *entries: Any, **options: Any) -> Callable[..., Any]:
    """shard_map with one spec for the operand and the result."""
    return mj.shard_map(mesh=mesh, in_specs=P(*entries), out_specs=P(*entries), **options)


ROWS = over(mesh_of((4, 2), "xy"), "x", "y")(lambda v: v + mj.lax.psum(v, "y"))
SCALED = over(mesh_of((2, 4), "ab"), "a", "b")(lambda v: v * mj.lax.axis_index("b"))
RING = over(mesh_of((8,), "i"), "i")(lambda v: mj.lax.ppermute(v, "i", [(k, (k + 1) % 8) for k in range(8)]))
# Names as those of the first mesh, other strides, and an axis of one device.
SAME_NAMES = over(mesh_of((4, 2, 1), "yxo"), ("x", "y"), check_vma=False)(
    lambda v: mj.lax.psum(v, ("o", "x")) + mj.lax.axis_index(("x", "y")) + mj.lax.axis_index("o")
)
BLOCKS = over(mesh_of((2, 2, 2), "pqr"), "r", "q", check_vma=False)(
    lambda v: mj.lax.pmax(v, "p") + mj.lax.all_gather(v, "r", axis=0, tiled=True)[: v.shape[0]]
)
LOOP = over(mesh_of((2, 4), "ab"), "a", "b")(
    lambda v: mj.lax.scan(lambda c, r: (c, r + mj.lax.psum(r, ("a", "b"))), mj.lax.psum(v[0], "b"), v)[1]
)
SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)

SEVERAL: dict[str, Callable[[Any], Any]] = {
    "two": lambda x: SCALED(ROWS(x)),
    "three": lambda x: RING(SCALED(ROWS(x))).sum(0),
    "same names": lambda x: ROWS(SAME_NAMES(ROWS(x))),
    "three axes": lambda x: BLOCKS(ROWS(x)),
    "loop inside": lambda x: LOOP(ROWS(x)),
    "loop around": lambda x: mj.lax.fori_loop(0, 3, lambda _, c: RING(SCALED(c)) % 7, x),
    "branches": lambda x: mj.lax.cond(x.sum() > 0, lambda a: SCALED(ROWS(a)), RING, x),
    "nested jit": lambda x: mj.jit(lambda a: SCALED(a) + RING(a))(ROWS(x)),
    "constraint": lambda x: SCALED(constrained(ROWS(x), on((8,), "i", None, "i"))),
    "batch": lambda x: mj.vmap(lambda a: RING(ROWS(a)))(mj.numpy.stack([x, x + 1])),
    "gradient": mj.grad(lambda x: (RING(SCALED(ROWS(x))) ** 2).sum()),
    "checkpoint": mj.grad(lambda x: (mj.checkpoint(lambda a: RING(SCALED(a)))(ROWS(x)) ** 2).sum()),
    "directional": lambda x: mj.jvp(lambda a: RING(SCALED(a)) ** 2, (x,), (x,))[1],
    "twice": mj.grad(lambda x: mj.grad(lambda a: (RING(SCALED(a)) ** 3).sum())(x).sum()),
}


@pytest.mark.parametrize("way", SEVERAL)
def test_code_for_devices_of_several_meshes(way: str) -> None:
    """As one call of shard_map after the other, each on its own mesh."""
    expected = SEVERAL[way](SQUARE)
    for x in (SQUARE, mj.device_put(SQUARE, on((8,), "i", None, "i"))):
        np.testing.assert_allclose(mj.jit(SEVERAL[way])(x), expected, rtol=1e-6)


def test_code_for_devices_on_another_mesh_by_hand() -> None:
    rows = SQUARE + SQUARE.reshape(8, 2, 4).sum(1, keepdims=True).repeat(2, 1).reshape(8, 8)
    scaled = rows * np.repeat(np.arange(4), 2)
    np.testing.assert_array_equal(mj.jit(SEVERAL["two"])(SQUARE), scaled)
    np.testing.assert_array_equal(mj.jit(SEVERAL["three"])(SQUARE), scaled.sum(0))


def test_other_meshes_send_what_their_own_would() -> None:
    """A sum over b=4 of a mesh ('a', 2), ('b', 4) is one over (x:(2)2, y) of x=4, y=2."""
    summed = mj.shard_map(lambda v: mj.lax.psum(v, "b"), mesh=mesh_of((2, 4), "ab"), in_specs=P("a", "b"), out_specs=P("a"))
    local = over(mesh_of((4, 2), "xy"), None)(lambda v: v * 2)
    (collective,) = mj.jit(lambda x: summed(local(x))).lower(SQUARE).plan.collectives
    assert str(collective) == "all_reduce over (x:(2)2, y), 32 bytes"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            lambda x: over(mesh_of((2, 3), "ab"), "a", "b")(lambda v: v)(x[:6, :6]),
            lambda x: over(mesh_of((3, 2), "cd"), "c", "d")(lambda v: v)(x),
            "they have the same devices, but what is sharded on one cannot be said with the axes of the other",
        ),
        (
            ROWS,
            over(mesh_of((2, 4), "ab"), "a", axis_names={"a"})(lambda v: v),
            "shard_map over some axes of a mesh (axis_names) and code for another mesh do not go together in one function",
        ),
        (ROWS, over(mesh_of((4,), "h"), "h")(lambda v: v), "one set of devices, and these are"),
    ],
)
def test_code_for_devices_that_does_not_go_together(first: Any, second: Any, text: str) -> None:
    with pytest.raises(ShardingError) as error:
        mj.jit(lambda x: second(first(x)))(SQUARE)
    assert text in str(error.value).split("\n")[1]


def test_a_constraint_on_a_mesh_without_devices_says_the_spec_as_it_was_written() -> None:
    x, on_devices = mj.device_put(X, outer("x", "y")), outer("x")
    there = NamedSharding(on_devices.mesh.abstract_mesh, P("x"))  # pyright: ignore[reportAttributeAccessIssue]
    for fun in (lambda v: constrained(v, there), mj.jit(lambda v: constrained(v, there))):
        assert fun(x).sharding == on_devices


@pytest.mark.parametrize("types", ["Auto", "Explicit"])
@pytest.mark.parametrize("names", ["x", "y"])
def test_out_shardings_of_a_mesh_without_devices_have_those_of_the_call(types: str, names: str) -> None:
    """As in JAX: libraries write NamedSharding(get_abstract_mesh(), spec). The devices are the context's, or the arguments'."""
    kinds = (getattr(mj.sharding.AxisType, types),)
    mesh = Mesh(np.array(mj.devices()[:8]), tuple(names), kinds)
    sharding = NamedSharding(mesh.abstract_mesh, P(names, None))
    double = mj.jit(lambda x: {"a": x * 2, "b": x.sum()}, out_shardings={"a": sharding, "b": None})
    placed = mj.device_put(X, NamedSharding(mesh, P(names)))
    with mj.set_mesh(mesh):
        results = [double(X), double(placed), mj.jit(lambda x: double(double(x)["a"]))(X)]
    results.append(double(placed))
    for factor, result in zip((2, 2, 4, 2), results, strict=True):
        np.testing.assert_array_equal(result["a"], X * factor)
        assert result["a"].sharding.is_equivalent_to(NamedSharding(mesh, P(names)), 2)
        assert result["a"].sharding.device_set == set(mesh.devices.flat)
    with pytest.raises(ValueError, match="which needs 8 devices; none were given"):
        double(X)
