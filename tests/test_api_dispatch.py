"""Calls of jitted functions by way of C++: when they may go that way, and that nothing is different for it."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.runtime.array import Array
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device


def on(spec: P, count: int = 4) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:count]), ("x",)), spec)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def sharded(*shape: int) -> mj.Array:
    return mj.device_put(floats(*shape), on(P("x")))


def warm(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compile, and call by way of C++."""
    for _ in range(3):
        f(*args, **kwargs)


def test_the_second_call_is_in_c_plus_plus(in_python: list[Any]) -> None:
    f, x = mj.jit(lambda x, y: {"sum": x + y}), sharded(10)
    for _ in range(6):
        np.testing.assert_array_equal(f(x, y=x)["sum"], 2 * floats(10))
    assert len(in_python) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x: mj.device_put(x, on(P())),
        lambda x: mj.device_put(x, mj.devices()[5]),
        lambda x: mnp.asarray(floats(8)),
        lambda x: floats(8),
        lambda x: mj.device_put(x.astype(mnp.int32), x.sharding),
        lambda x: mj.device_put(floats(7), x.sharding),
        lambda x: [x],
        lambda x: 3,
        lambda x: mj.device_put(mnp.asarray(3), x.sharding.with_spec(P())),
        lambda x: np.float32(1),
    ],
    ids=["spec", "device", "uncommitted", "numpy", "dtype", "shape", "tree", "int", "weak", "scalar"],
)
def test_other_arguments_are_seen(other: Callable[[Any], Any], in_python: list[Any]) -> None:
    f, x = mj.jit(lambda x: mnp.multiply(x[0] if isinstance(x, list) else x, 2)), sharded(8)
    warm(f, x)
    del in_python[:]
    y = other(x)
    result = f(y)
    assert len(in_python) == 1
    expected = mj.jit(lambda x: mnp.multiply(x[0] if isinstance(x, list) else x, 2))(y)
    np.testing.assert_array_equal(result, expected)
    assert result.weak_type == expected.weak_type and result.sharding == expected.sharding
    del in_python[:]
    f(x)
    assert not in_python


def test_numbers_are_not_part_of_the_look() -> None:
    f = mj.jit(lambda x, s: x * s)
    x = sharded(4)
    for s in (1, 2, 3, 4, 5):
        np.testing.assert_array_equal(f(x, s), s * floats(4))


def test_options_are_seen() -> None:
    f, x = mj.jit(lambda x: x.sum(dtype=float)), sharded(4)
    warm(f, x)
    assert f(x).dtype == np.float32
    with mj.config.using(enable_x64=True):
        assert f(x).dtype == np.float64
        warm(f, x)
        assert f(x).dtype == np.float64
    assert f(x).dtype == np.float32
    mj.config.update("enable_x64", True)
    try:
        assert f(x).dtype == np.float64
        warm(f, x)
        assert f(x).dtype == np.float64
    finally:
        mj.config.update("enable_x64", False)
    assert f(x).dtype == np.float32


def test_options_of_another_thread_are_not() -> None:
    f, x = mj.jit(lambda x: x.sum(dtype=float)), sharded(4)
    warm(f, x)
    found: list[Any] = []
    with mj.config.using(enable_x64=True):
        warm(f, x)
        thread = threading.Thread(target=lambda: found.extend(f(x).dtype for _ in range(4)))
        thread.start()
        thread.join()
        assert f(x).dtype == np.float64
    assert found == [np.float32] * 4


def test_the_mesh_is_seen(in_python: list[Any]) -> None:
    f = mj.jit(lambda x: mj.lax.with_sharding_constraint(x, P("x")))
    x = mj.device_put(floats(8), on(P(), 8))
    meshes = [on(P(), 8).mesh, Mesh(np.array(mj.devices()).reshape(4, 2), ("x", "y"))]
    for _ in range(3):
        for mesh in meshes:
            y = mj.device_put(x, NamedSharding(mesh, P()))
            with mesh:
                warm(f, y)
                assert f(y).sharding == NamedSharding(mesh, P("x"))
    assert len(in_python) == 2  # back in a mesh that was current before, nothing is learnt again
    with pytest.raises(ValueError, match="mesh"):
        f(x)


def test_nan_checks_are_seen() -> None:
    f, x = mj.jit(lambda x: mnp.log(x)), mj.device_put(-floats(4) - 1, on(P("x")))
    warm(f, x)
    with mj.config.using(debug_nans=True):
        for _ in range(4):
            with pytest.raises(FloatingPointError):
                f(x)
    assert np.isnan(f(x)).all()


def test_disable_jit_is_seen() -> None:
    seen: list[bool] = []
    f, x = mj.jit(lambda x: seen.append(isinstance(x, Array)) or x + 1), sharded(4)
    warm(f, x)
    del seen[:]
    with mj.config.using(disable_jit=True):
        f(x)
    assert seen == [True]


def test_inside_a_trace_it_is_traced() -> None:
    f, x = mj.jit(lambda x: x * 2), sharded(4)
    warm(f, x)
    outer = mj.jit(lambda y: f(y) + f(x))  # one traced, one captured
    for _ in range(4):
        np.testing.assert_array_equal(outer(x), 4 * floats(4))
    assert float(mj.grad(lambda y: f(y).sum())(x)[0]) == 2.0


def test_deleted_arguments_are_named() -> None:
    f, x = mj.jit(lambda params: params["w"] + 1), sharded(8)
    warm(f, {"w": x})
    twin = mj.device_put(x, on(P(("x",))))
    x.delete()
    with pytest.raises(RuntimeError, match=r"argument params\['w'\]: Array f32\[8\] has been deleted by its delete\(\)"):
        f({"w": x})
    for _ in range(4):
        with pytest.raises(RuntimeError, match=r"argument params\['w'\]: Array f32\[8\] has been deleted"):
            f({"w": twin})
    np.testing.assert_array_equal(f({"w": sharded(8)}), floats(8) + 1)


def test_donated_arrays_are_gone_at_every_call() -> None:
    f = mj.jit(lambda x: x + 1, donate_argnums=0)
    x = sharded(8)
    for i in range(6):
        y = f(x)
        assert x.is_deleted() and not y.is_deleted()
        x = y
        np.testing.assert_array_equal(x, floats(8) + i + 1)


def test_memory_that_two_arrays_share_is_not_donated_twice() -> None:
    x = sharded(8)
    twin = mj.device_put(x, on(P(("x",))))
    f = mj.jit(lambda a, b: a + b, donate_argnums=0)
    with pytest.raises(ValueError, match=r"argument a and argument b are the same array, and argument a is donated"):
        f(x, twin)
    with pytest.raises(ValueError, match="are the same array"):
        f(twin, x)


def test_static_and_captured_values() -> None:
    captured = sharded(8)
    f = mj.jit(lambda x, n: x * n + captured, static_argnames="n")
    for n in (1, 2, 1.0, True, 2):
        for _ in range(4):
            result = f(sharded(8), n=n)
            np.testing.assert_array_equal(result, floats(8) * n + floats(8))


def test_captured_arrays_go_along(in_python: list[Any]) -> None:
    one, other = sharded(8), mnp.asarray(floats(8))
    f = mj.jit(lambda x: x + one * other)
    x, y = sharded(8), mj.device_put(floats(8), on(P()))
    for _ in range(8):
        np.testing.assert_array_equal(f(x), floats(8) + floats(8) ** 2)
    assert len(in_python) == 1
    for _ in range(8):
        np.testing.assert_array_equal(f(y), floats(8) + floats(8) ** 2)
    assert len(in_python) == 2
    one.delete()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="has been deleted"):
            f(x)


def test_captured_arrays_of_another_trace_are_its_own() -> None:
    arrays = {1: sharded(4), 2: sharded(4) * 10}
    f = mj.jit(lambda x: x + arrays[x.ndim].sum())
    x, y = sharded(4), mj.device_put(floats(4, 4), on(P()))
    for _ in range(6):
        np.testing.assert_array_equal(f(x), floats(4) + 6)
        np.testing.assert_array_equal(f(y), floats(4, 4) + 60)


def test_calls_that_c_plus_plus_cannot_take_come_to_python(in_python: list[Any]) -> None:
    f = mj.jit(lambda x: x + 1)
    for _ in range(40):
        f(floats(3))
    assert len(in_python) == 40
    x = sharded(8)
    for _ in range(4):
        np.testing.assert_array_equal(f(x), floats(8) + 1)


def test_unused_arguments_may_lie_anywhere(in_python: list[Any]) -> None:
    f, x = mj.jit(lambda unused, x: x + 1), sharded(8)
    for unused in (mj.device_put(floats(3), on(P())), mnp.ones(2), x, np.ones(3), 5):
        warm(f, unused, x)
        np.testing.assert_array_equal(f(unused, x), floats(8) + 1)


def test_clearing_caches_compiles_again() -> None:
    traced: list[int] = []
    f, x = mj.jit(lambda x: traced.append(1) or x + 1), sharded(8)
    for _ in range(3):
        warm(f, x)
        f.clear_cache()
    assert len(traced) == 3
    warm(f, x)
    mj.clear_caches()
    f(x)
    assert len(traced) == 5


def test_functions_and_arguments_are_let_go() -> None:
    def make() -> Any:
        big = sharded(8)
        f = mj.jit(lambda x: x + 1)
        warm(f, big)
        return weakref.ref(f), weakref.ref(big), f(big)

    f, big, result = make()
    gc.collect()
    assert f() is None and big() is None
    np.testing.assert_array_equal(result, floats(8) + 1)


def test_threads() -> None:
    """On one device: XLA:CPU can hang when several threads start programs of several devices, under JAX, too."""
    f, x = mj.jit(lambda x: x + 1), mj.device_put(floats(8), mj.devices()[1])
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.extend(f(x) for _ in range(25))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 100
    for r in results:
        np.testing.assert_array_equal(r, floats(8) + 1)


def test_errors_in_the_function_are_raised_once() -> None:
    tries: list[int] = []

    def broken(x: Any) -> Any:
        tries.append(1)
        raise RuntimeError("no")

    f = mj.jit(broken)
    for n in (1, 2):
        with pytest.raises(RuntimeError, match="no"):
            f(sharded(8))
        assert len(tries) == n
