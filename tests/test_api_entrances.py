"""How calls of jitted functions come in: static, donated and captured arguments in C++, contexts, recursion, tracebacks."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.device


def on(spec: P, count: int = 4) -> NamedSharding:
    return NamedSharding(Mesh(np.array(mj.devices()[:count]), ("x",)), spec)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def sharded(*shape: int, count: int = 4) -> mj.Array:
    return mj.device_put(floats(*shape), on(P("x"), count))


# -- donated arguments


@pytest.mark.parametrize("count", [1, 4])
def test_donating_calls_run_in_c_plus_plus_and_say_who_took(count: int, in_python: list[Any]) -> None:
    step = mj.jit(lambda state, x: {"w": state["w"] + x, "b": state["b"] * 2}, donate_argnums=0)
    x, state = sharded(8, count=count), {"w": sharded(8, count=count), "b": sharded(8, count=count)}
    for _ in range(4):
        before, state = state, step(state, x)
        for name, array in before.items():
            assert array.is_deleted() and not state[name].is_deleted()
            with pytest.raises(RuntimeError, match=r"its memory was given to jit\(lambda\) \(donated\)"):
                array.numpy()
    assert len(in_python) <= 2 and not x.is_deleted()  # on one device results are placed otherwise than the first arguments
    with pytest.raises(RuntimeError, match=r"jit\(lambda\), argument state\['[bw]'\]: .* given to jit\(lambda\) \(donated\)"):
        step(before, x)
    plain = mj.jit(lambda x: x + 1)
    plain(x)
    with pytest.raises(RuntimeError, match=r"jit\(lambda\), argument x: .* given to jit\(lambda\) \(donated\)"):
        plain(before["w"])


@pytest.mark.parametrize("count", [1, 4])
def test_donated_and_passed_twice(count: int) -> None:
    f = mj.jit(lambda a, b: a + b, donate_argnums=0)
    new = lambda: sharded(8, count=count)  # noqa: E731
    for _ in range(3):
        f(new(), new())
    x = new()
    twin = mj.device_put(x, on(P(("x",)), count))
    f(mj.device_put(new(), twin.sharding), new()), f(new(), mj.device_put(new(), twin.sharding))
    for a, b in ((x, x), (x, twin), (twin, x)):
        with pytest.raises(ValueError, match=r"argument a and argument b are the same array, and argument a is donated"):
            f(a, b)
    assert not x.is_deleted()
    f(twin, new())
    for array in (x, twin):
        with pytest.raises(RuntimeError, match="has been deleted"):
            f(new(), array)


def test_captured_and_donated() -> None:
    x = sharded(8)
    f = mj.jit(lambda a: a + x, donate_argnums=0)
    for _ in range(3):
        f(sharded(8))
    with pytest.raises(ValueError, match=r"argument a and captured array x are the same array, and argument a is donated"):
        f(x)
    np.testing.assert_array_equal(f(sharded(8)), 2 * floats(8))


@pytest.mark.filterwarnings("ignore:.*donated")
def test_donated_arrays_are_gone_where_xla_has_no_use_for_them(in_python: list[Any]) -> None:
    f = mj.jit(lambda a, b: (a + b).sum(), donate_argnums=0)
    for _ in range(3):
        a, b = sharded(8), sharded(8)
        assert float(f(a, b)) == 56 and a.is_deleted() and not b.is_deleted()
    assert len(in_python) == 1
    g = mj.jit(lambda a: a + 1, donate_argnums=0)
    for _ in range(3):
        a = sharded(8)
        view = a.numpy()
        g(a)
        assert a.is_deleted()
        np.testing.assert_array_equal(view, floats(8))


@pytest.mark.filterwarnings("ignore:.*donated")
def test_donated_arrays_that_nothing_depends_on_stay(in_python: list[Any]) -> None:
    f = mj.jit(lambda a, unused: a + 1, donate_argnums=(0, 1))
    unused = sharded(3)
    for _ in range(3):
        f(sharded(8), unused)
    assert not unused.is_deleted() and len(in_python) == 3


def test_donated_by_name_and_in_several_places() -> None:
    f = mj.jit(lambda a, b, c: (a + 1, b + 2, c + 3), donate_argnums=(0, 2))
    for _ in range(3):
        a, b, c = sharded(8), sharded(8), sharded(8)
        f(a, b, c)
        assert [x.is_deleted() for x in (a, b, c)] == [True, False, True]
    g = mj.jit(lambda a, *, b: (a + 1, b + 2), donate_argnames="b")
    for _ in range(3):
        a, b = sharded(8), sharded(8)
        g(a, b=b)
        assert [x.is_deleted() for x in (a, b)] == [False, True]


def test_negative_positions() -> None:
    f = mj.jit(lambda *args: tuple(x + 1 for x in args), donate_argnums=-1)
    g = mj.jit(lambda *args: args[0] * args[-1], static_argnums=-1)
    for _ in range(3):
        a, b = sharded(8), sharded(8)
        f(a, b)
        assert [x.is_deleted() for x in (a, b)] == [False, True]
        np.testing.assert_array_equal(g(a, 3), floats(8) * 3)


def test_nothing_is_donated_inside_a_trace() -> None:
    f, x = mj.jit(lambda a: a + 1, donate_argnums=0), sharded(8)
    f(sharded(8)), f(sharded(8))
    for _ in range(2):
        np.testing.assert_array_equal(mj.jit(lambda: f(x))(), floats(8) + 1)
    with mj.disable_jit():
        f(x), f(x)
    assert not x.is_deleted()


def test_donating_beside_arguments_from_the_host() -> None:
    f = mj.jit(lambda a, b: a + b, donate_argnums=0)
    for b in (floats(8), 1, sharded(8)):
        for _ in range(3):
            a = sharded(8)
            np.testing.assert_array_equal(f(a, b), floats(8) + np.asarray(b))
            assert a.is_deleted()
    np.testing.assert_array_equal(f(floats(8), sharded(8)), 2 * floats(8))


# -- static arguments


def test_static_values_are_seen_in_c_plus_plus(in_python: list[Any]) -> None:
    f, x = mj.jit(lambda x, n: x * (n if isinstance(n, int) else 10), static_argnums=1), sharded(8)
    for _ in range(4):
        for n, factor in ((1, 1), (True, 1), (2, 2), ("a", 10), (1.0, 10), ((1, 2), 10)):
            np.testing.assert_array_equal(f(x, n), floats(8) * factor)
            np.testing.assert_array_equal(f(x, n=n), floats(8) * factor)
    assert len(in_python) == 12


def test_static_values_that_cannot_be_are_named_at_every_call() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            raise TypeError("odd")

    f, x = mj.jit(lambda x, n: x * 2, static_argnums=1), sharded(8)
    for _ in range(3):
        f(x, 3)
        with pytest.raises(ValueError, match=r"jit\(lambda\): static argument 'n' is a list, which is not hashable"):
            f(x, [3])
        with pytest.raises(ValueError, match=r"jit\(lambda\): static argument 'n' is a list, which is not hashable"):
            f(x, n=[3])
    with pytest.raises(ValueError, match=r"static arguments must compare with ==, but comparing one of type Odd"):
        f(x, Odd()), f(x, Odd())


# -- captured arrays


def test_captured_arrays_lead_the_parameters() -> None:
    w, x = sharded(8), mj.device_put(floats(8).astype(np.int32), on(P("x")))
    f = mj.jit(lambda unused, x: x + w)
    lowered = f.lower(1, x)
    assert "main(%0: tensor<2xi32>" not in lowered.as_text() and lowered.as_text().index("2xf32") < lowered.as_text().index("2xi32")
    compiled = lowered.compile()
    assert compiled.input_formats[0][1].layout.major_to_minor == (0,)
    np.testing.assert_array_equal(compiled(1, x), 2 * floats(8))
    for _ in range(3):
        np.testing.assert_array_equal(f(1, x), 2 * floats(8))
    w.delete()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"jit\(lambda\), captured array w: Array f32\[8\] has been deleted by its delete"):
            f(1, x)


def test_each_kind_of_call_has_the_captured_arrays_that_it_needs(in_python: list[Any]) -> None:
    one, two = mnp.ones(4), sharded(4)
    f = mj.jit(lambda x: x + one if x.ndim == 1 else x + two)
    for _ in range(3):
        for x in (sharded(4), mj.device_put(floats(4, 4), on(P()))):
            np.testing.assert_array_equal(f(x), np.asarray(x) + np.asarray(one if x.ndim == 1 else two))
    assert len(in_python) == 2


# -- contexts


def test_functions_that_call_themselves() -> None:
    left = [3]

    @mj.jit
    def f(x: Any) -> Any:
        left[0] -= 1
        return f(constant) + x if left[0] > 0 else x * 2

    constant = sharded(4)
    np.testing.assert_array_equal(f(constant), 4 * floats(4))
    left[0] = 3
    with mj.disable_jit(), on(P()).mesh:
        np.testing.assert_array_equal(f(constant), 4 * floats(4))


def test_values_known_inside_a_trace_run_at_once() -> None:
    f, x, seen = mj.jit(lambda x: x + 1), sharded(4), []

    def outer(y: Any) -> Any:
        for _ in range(3):
            with mj.ensure_compile_time_eval():
                seen.append(f(x))
            y = y + mj.jit(lambda: f(x))() + f(x)
        return y

    np.testing.assert_array_equal(mj.jit(outer)(x), floats(4) + 6 * (floats(4) + 1))
    assert all(isinstance(value, mj.Array) for value in seen)


def test_each_thread_has_contexts_of_its_own() -> None:
    f = mj.jit(lambda x: x.sum(dtype=float))
    x, start, found = mj.device_put(floats(4), mj.devices()[0]), threading.Barrier(4), {}

    def run(name: str, wide: bool) -> None:
        start.wait()
        with mj.config.using(enable_x64=wide):
            found[name] = [f(x).dtype for _ in range(50)]

    threads = [threading.Thread(target=run, args=(str(i), i % 2 == 1)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [set(found[str(i)]) for i in range(4)] == [{np.dtype(float if i % 2 else np.float32)} for i in range(4)]


def test_an_option_changes_for_threads_that_have_a_mesh() -> None:
    f, x = mj.jit(lambda x: x.sum(dtype=float)), mj.device_put(floats(4), on(P()))
    turns, found = [threading.Event() for _ in range(3)], []

    def run() -> None:
        with x.sharding.mesh:
            for turn in turns:
                turn.wait(10)
                found.append([f(x).dtype for _ in range(3)])
                turn.clear()
                done.set()

    done, thread = threading.Event(), threading.Thread(target=run)
    thread.start()
    try:
        for turn, wide in zip(turns, (False, True, False), strict=True):
            mj.config.update("enable_x64", wide)
            turn.set()
            done.wait(10), done.clear()
    finally:
        mj.config.update("enable_x64", False)
        thread.join()
    assert [set(kinds) for kinds in found] == [{np.dtype(np.float32)}, {np.dtype(float)}, {np.dtype(np.float32)}]


def test_caches_may_be_cleared_while_a_function_is_traced() -> None:
    f = mj.jit(lambda x: (mj.clear_caches(), f.clear_cache(), x + 1)[-1])
    for _ in range(3):
        np.testing.assert_array_equal(f(sharded(4)), floats(4) + 1)


# -- what a jitted function is


def test_tracebacks_have_the_users_frames_alone() -> None:
    def broken(x: Any, n: int = 0) -> Any:
        raise KeyError("mine")

    for f in (mj.jit(broken), mj.jit(broken, static_argnums=1), mj.jit(broken, donate_argnums=0)):
        for _ in range(2):
            with pytest.raises(KeyError, match="mine") as caught:
                f(sharded(4), n=1) if f.parameters.static_nums else f(sharded(4))
            assert [frame.name for frame in traceback.extract_tb(caught.tb)][-2:] == [
                "test_tracebacks_have_the_users_frames_alone", "broken",
            ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"static_argnums": 1}, {"donate_argnums": 0}], ids=["plain", "static", "donating"])
def test_functions_are_let_go_with_what_they_hold(options: dict[str, Any]) -> None:
    gc.collect()
    gc.disable()
    try:
        arrays = {"w": sharded(8)}
        f = mj.jit(lambda x, n=1: x + arrays["w"] * n, **options)
        for _ in range(3):
            f(sharded(8))
        gone = [weakref.ref(f), weakref.ref(arrays.pop("w"))]
        del f
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


@mj.jit
def named(x: Any) -> Any:
    return x + 1


def test_copies_and_pickles_are_those_of_functions() -> None:
    assert pickle.loads(pickle.dumps(named)) is named
    assert copy.copy(named) is named and copy.deepcopy({"f": named})["f"] is named
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(mj.jit(lambda x: x))


def test_methods_attributes_and_signatures() -> None:
    import inspect

    class Model:
        def __init__(self) -> None:
            self.w = sharded(8)

        @mj.jit
        def wrong(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any, scale: float = 2.0) -> Any:
            """Doc."""
            return self.w * x * scale

    f = mj.jit(Model())
    assert callable(f) and isinstance(f, mj.stages.Wrapped) and isinstance(f, Callable)
    assert list(inspect.signature(f).parameters) == ["x", "scale"]
    np.testing.assert_array_equal(f(sharded(8)), 2 * floats(8) ** 2)
    np.testing.assert_array_equal(f.__call__(sharded(8)), 2 * floats(8) ** 2)
    with pytest.raises(TypeError, match="Model"):
        Model().wrong(sharded(8))
