"""Arrays in the host's memory: where they lie, what is computed of them, what is offloaded."""

from __future__ import annotations

import functools
import pickle
import re
from typing import Any

import numpy as np
import pytest

import meshjit as mj
from meshjit import lax, numpy as mnp
from meshjit.ad_checkpoint import checkpoint_name
from meshjit.memory import Space
from meshjit.runtime import _jaxlib
from meshjit.sharding import AbstractMesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

X = np.arange(16, dtype=np.float32).reshape(8, 2)


@pytest.fixture
def mesh() -> Any:
    return mj.make_mesh((4, 2), ("x", "y"))


@pytest.fixture
def host(mesh: Any) -> NamedSharding:
    return NamedSharding(mesh, P("x"), memory_kind="pinned_host")


@pytest.fixture
def device(mesh: Any) -> NamedSharding:
    return NamedSharding(mesh, P("x"))


def really_in(x: Any) -> set[str]:
    """The memories of the buffers themselves, as jaxlib says."""
    return {shard._sharding._memory_kind for shard in _jaxlib.arrays._singles(x)}


def kind(x: Any) -> str:
    """Where an array lies, by its sharding, its type and its buffers."""
    named = x.sharding.memory_kind
    assert really_in(x) == {named}
    assert mj.typeof(x).memory_space is (Space.Host if named == "pinned_host" else Space.Device)
    return named


# -- arrays


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(8, 2), (5, 3), (0, 2), (1, 1)])
def test_an_array_goes_there_and_back(host: Any, device: Any, shape: tuple[int, ...], dtype: str) -> None:
    x = mnp.asarray(np.arange(np.prod(shape)).reshape(shape) % 2, dtype)
    there = mj.device_put(x, host)
    back = mj.device_put(there, device)
    assert (kind(there), kind(back)) == ("pinned_host", "device")
    for y in (there, back, mj.device_put(there, host.update(spec=P("y"))), there.copy()):
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x))
    assert mj.device_put(there, host) is there and kind(there.copy()) == "pinned_host"


def test_spaces_keep_the_placement(host: Any, device: Any) -> None:
    there = mj.device_put(mj.device_put(X, device), Space.Host)
    assert there.sharding == host and kind(mj.device_put(there, Space.Device)) == "device"
    assert kind(mj.device_put(X, Space.Host)) == "pinned_host"
    with pytest.raises(ValueError, match="device_put of x: Space.Any names no memory|MemorySpace.Any names no memory"):
        mj.device_put(X, Space.Any)


def test_shards_are_where_the_array_is(host: Any, device: Any) -> None:
    there = mj.device_put(X, host)
    shards = [s.data for s in there.addressable_shards]
    assert {kind(s) for s in shards} == {"pinned_host"}
    assert kind(mj.make_array_from_single_device_arrays((8, 2), host, shards)) == "pinned_host"
    assert kind(mj.make_array_from_single_device_arrays((8, 2), device, shards)) == "device"
    assert kind(mj.make_array_from_callback((8, 2), host, lambda index: X[index])) == "pinned_host"
    assert kind(mnp.zeros((8, 2), device=host)) == "pinned_host"
    assert kind(pickle.loads(pickle.dumps(there))) == "device"  # as in JAX: a pickle has values alone


def test_donated_arrays_go(host: Any, device: Any) -> None:
    there = mj.device_put(X, host)
    back = mj.device_put(there, device, donate=True)
    assert there.is_deleted() and kind(back) == "device"


def test_a_key_can_lie_there() -> None:
    keys = mj.device_put(mj.random.split(mj.random.key(0), 4), Space.Host)
    assert keys.sharding.memory_kind == "pinned_host"
    assert mj.random.key_data(keys).sharding.memory_kind == "pinned_host"


@pytest.mark.parametrize("wrong", ["foo", ""])
def test_kinds_that_do_not_exist(mesh: Any, wrong: str) -> None:
    text = f"memory_kind is {wrong!r}; cpu:0 has memories device, pinned_host, unpinned_host\n  fix: one of them"
    for make in (lambda: NamedSharding(mesh, P(), memory_kind=wrong), lambda: SingleDeviceSharding(mj.devices()[0], memory_kind=wrong)):
        with pytest.raises(ValueError, match=re.escape(text)):
            make()
    with pytest.raises(TypeError, match="memory_kind is 3 of type int\n  fix: a name such as \"pinned_host\", or None"):
        NamedSharding(mesh, P(), memory_kind=3)  # pyright: ignore[reportArgumentType]


# -- what is computed


def test_what_is_computed_lies_where_its_operands_do(host: Any, device: Any) -> None:
    there, here = mj.device_put(X, host), mj.device_put(X, device)
    for f in (mnp.sin, lambda x: x + 1, lambda x: x * x, lambda x: x.T, lambda x: x[2], lambda x: x.sum(0), lambda x: x.astype(int)):
        for run in (f, mj.jit(f)):
            assert (kind(run(there)), kind(run(here))) == ("pinned_host", "device")
            np.testing.assert_allclose(np.asarray(run(there)), f(X) if f is not mnp.sin else np.sin(X), rtol=1e-6)


def test_operands_in_two_memories_are_an_error(host: Any, device: Any) -> None:
    there, here = mj.device_put(X, host), mj.device_put(X, device)
    text = r"multiply at test_memories.py:\d+ .*: its operands lie in different memories\n  f32\[8,2\]: argument a is in pinned_host\n  f32"
    with pytest.raises(ValueError, match=text):
        mj.jit(lambda a, b: a * b)(there, here)
    with pytest.raises(ValueError, match="its operands lie in different memories"):
        there + here
    np.testing.assert_array_equal(mj.jit(lambda a, b: mj.device_put(a, Space.Device) * b)(there, here), X * X)


def test_results_go_where_out_shardings_say(host: Any, device: Any) -> None:
    f = mj.jit(lambda x: (x + 1, x * 2), out_shardings=(host, device))
    for x in (mj.device_put(X, device), X):
        one, two = f(x)
        assert (kind(one), kind(two)) == ("pinned_host", "device")
        np.testing.assert_array_equal(one, X + 1)
    with pytest.raises(ValueError, match="memory|pinned_host"):
        mj.jit(lambda x: x, in_shardings=host)(mj.device_put(X, device))
    compiled = mj.jit(lambda x: x + 1).lower(mj.device_put(X, host)).compile()
    assert compiled.input_shardings[0][0].memory_kind == compiled.output_shardings.memory_kind == "pinned_host"


def test_types_say_it_inside(host: Any) -> None:
    seen = []

    @mj.jit
    def f(x: Any) -> Any:
        y = mj.device_put(x, host)
        seen.extend([str(mj.typeof(x)), str(mj.typeof(y)), mj.typeof(y).memory_space])
        return mj.device_put(y, Space.Device) + x

    np.testing.assert_array_equal(f(X), 2 * X)
    assert seen == ["float32[8,2]", "float32<host>[8,2]", Space.Host]


@pytest.mark.parametrize("transform", ["jvp", "grad", "vmap", "scan", "cond", "shard_map", "remat"])
def test_in_transformations(transform: str, mesh: Any, host: Any) -> None:
    def there_and_back(x: Any) -> Any:
        return mj.device_put(mj.device_put(x, Space.Host), Space.Device) ** 2

    runs = {
        "jvp": lambda: mj.jvp(there_and_back, (X,), (np.ones_like(X),))[1],
        "grad": lambda: mj.jit(mj.grad(lambda x: there_and_back(x).sum()))(X),
        "vmap": lambda: mj.vmap(there_and_back)(X),
        "scan": lambda: lax.scan(lambda c, x: (c + there_and_back(x), None), np.zeros(2, np.float32), X)[0],
        "cond": lambda: mj.jit(lambda p, x: lax.cond(p, there_and_back, lambda x: x, x))(True, X),
        "shard_map": lambda: mj.shard_map(there_and_back, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(X),
        "remat": lambda: mj.grad(lambda x: mj.checkpoint(there_and_back)(x).sum())(X),
    }
    expected = {"jvp": 2 * X, "grad": 2 * X, "scan": (X**2).sum(0), "remat": 2 * X}.get(transform, X**2)
    result = runs[transform]()
    assert kind(result) == "device"
    np.testing.assert_allclose(result, expected)


def test_layers_are_streamed_from_the_host(mesh: Any) -> None:
    weights = np.linspace(-1, 1, 3 * 8 * 8, dtype=np.float32).reshape(3, 8, 8)
    x = np.sin(np.arange(32, dtype=np.float32)).reshape(4, 8)

    def loss(weights: Any, x: Any, bring: Any) -> Any:
        return (lax.scan(lambda x, w: (mnp.tanh(x @ bring(w)), None), x, weights)[0] ** 2).sum()

    there = mj.device_put(weights, NamedSharding(mesh, P(None, "x", "y"), memory_kind="pinned_host"))
    bring = functools.partial(mj.device_put, device=Space.Device)
    value, gradient = mj.jit(mj.value_and_grad(lambda w: loss(w, x, bring)))(there)
    expected = mj.value_and_grad(lambda w: loss(w, x, lambda w: w))(weights)
    assert kind(gradient) == "pinned_host"
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-5)


def test_the_state_of_an_optimizer_stays_on_the_host(host: Any, device: Any) -> None:
    @functools.partial(mj.jit, out_shardings=(device, host), donate_argnums=(0, 1))
    def step(w: Any, m: Any) -> Any:
        m = 0.9 * mj.device_put(m, device) + w
        return w - 0.1 * m, m

    w, m = mj.device_put(X, device), mj.device_put(np.zeros_like(X), host)
    expected_w, expected_m = X, np.zeros_like(X)
    for _ in range(3):
        old = m
        w, m = step(w, m)
        assert old.is_deleted()
        expected_m = 0.9 * expected_m + expected_w
        expected_w = expected_w - 0.1 * expected_m
    assert (kind(w), kind(m)) == ("device", "pinned_host")
    np.testing.assert_allclose(w, expected_w, rtol=1e-5)
    np.testing.assert_allclose(m, expected_m, rtol=1e-5)


# -- offloaded by a checkpoint


def policies() -> Any:
    named = mj.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["act"], offload_src="device", offload_dst="pinned_host"
    )
    return [named, mj.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("scanned", [False, True])
def test_offloaded_values_are_the_same(which: int, scanned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    w = np.linspace(-1, 1, 3 * 16, dtype=np.float32).reshape(3, 4, 4)

    def layer(x: Any, w: Any) -> Any:
        return x + mnp.cos(checkpoint_name(mnp.sin(x @ w), "act"))

    def loss(layer: Any, x: Any) -> Any:
        if scanned:
            return lax.scan(lambda x, w: (layer(x, w), None), x, w)[0].sum()
        return functools.reduce(layer, w, x).sum()

    offloaded = mj.checkpoint(layer, policy=policies()[which])
    x = np.ones((2, 4), np.float32)
    expected = mj.grad(lambda x: loss(layer, x))(x)
    for run in (lambda f: f, mj.jit):
        np.testing.assert_allclose(run(mj.grad(lambda x: loss(offloaded, x)))(x), expected, rtol=1e-5)
    mj.ad_checkpoint.print_saved_residuals(offloaded, x, w[0])
    assert "f32<host>[2,4]" in capsys.readouterr().out


# -- for machines that have the memory


def test_a_tpu_is_told(mesh: Any) -> None:
    abstract = AbstractMesh((4, 2), ("x", "y"))
    there = mj.ShapeDtypeStruct((8, 2), np.float32, sharding=NamedSharding(abstract, P("x"), memory_kind="pinned_host"))
    f = mj.jit(lambda h: mnp.sin(mj.device_put(h, Space.Device)), out_shardings=NamedSharding(abstract, P("x")))
    text = f.trace(there).lower(lowering_platforms=("tpu",)).as_text()
    assert 'mhlo.memory_kind = "pinned_host"' in text and '_xla_buffer_placement = "device"' in text
    assert "annotate_device_placement" not in f.trace(there).lower(lowering_platforms=("cpu",)).as_text()


def test_memory_limits_are_of_the_devices_own(mesh: Any) -> None:
    abstract = AbstractMesh((4, 2), ("x", "y"))
    large = mj.ShapeDtypeStruct((2**20, 8), np.float32, sharding=NamedSharding(abstract, P("x"), memory_kind="pinned_host"))
    small = mj.ShapeDtypeStruct((2**20, 8), np.float32, sharding=NamedSharding(abstract, P("x")))

    def peak(argument: Any) -> float:
        f = mj.jit(lambda h: mj.device_put(h[:8], Space.Device).sum())
        return f.trace(argument).lower(lowering_platforms=("tpu",)).report().memory.peak

    assert peak(large) < 2**20 < peak(small)


# -- iteration


def test_an_array_whose_type_says_that_it_is_divided_can_be_iterated() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Explicit,) * 2)
    x = mj.device_put(X, NamedSharding(mesh, P("x", "y")))
    assert [row.tolist() for row in x] == X.tolist() and next(iter(x)).sharding.spec == P("y")
    assert len(list(zip(x, x, strict=True))) == 8 and next(reversed(list(x))).tolist() == X[-1].tolist()
