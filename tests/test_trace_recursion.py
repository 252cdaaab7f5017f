"""Functions inside functions, many levels deep; and functions that call themselves without end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.region import nesting
from meshjit.sharding import NamedSharding, PartitionSpec as P
from meshjit.trace.recursion import MOST_LEVELS

X = np.arange(12, dtype=np.float32) / 12
Function = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Python's limit is what it was, whatever happens."""
    before = sys.getrecursionlimit()
    yield
    assert sys.getrecursionlimit() == before


def nested(levels: int, around: Callable[[Function], Function]) -> Function:
    inside: Function = mnp.sin
    for _ in range(levels):
        inside = around(inside)
    return inside


def jitted(inside: Function) -> Function:
    return mj.jit(lambda x: inside(x) + 1)


def on_mesh(x: Any) -> Any:
    return mj.device_put(x, NamedSharding(mj.make_mesh((8,), ("x",)), P("x")))


@pytest.mark.parametrize(
    ("run", "right"),
    [
        (lambda f: f(X), np.sin(X) + 200),
        (lambda f: mj.jit(f)(on_mesh(X)), np.sin(X) + 200),
        (lambda f: mj.vmap(f)(X), np.sin(X) + 200),
        (lambda f: mj.vmap(mj.grad(f))(X), np.cos(X)),
        (lambda f: mj.jit(mj.grad(lambda x: f(x).sum()))(X), np.cos(X)),
        (lambda f: mj.grad(lambda x: f(x).sum())(on_mesh(X)), np.cos(X)),
        (lambda f: mj.jvp(f, (X,), (X,))[1], np.cos(X) * X),
        (lambda f: lax.scan(lambda c, _: (f(c) - 200, None), X, None, length=2)[0], np.sin(np.sin(X))),
    ],
    ids=["plain", "mesh", "vmap", "vmap of grad", "jit of grad", "grad on a mesh", "jvp", "in a scan"],
)
def test_two_hundred_jitted_functions_inside_one_another(run: Callable[[Function], Any], right: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(run(nested(200, jitted))), right, rtol=1e-5, atol=2e-5)


def test_levels_that_were_called_before_one_by_one() -> None:
    inside: Function = mnp.sin
    for _ in range(60):
        inside = jitted(inside)
        mj.eval_shape(inside, X)
    program = mj.jit(inside).trace(X).program
    assert nesting(program) <= 35
    np.testing.assert_allclose(np.asarray(inside(X)), np.sin(X) + 60, rtol=1e-5)


def test_few_levels_stay_calls() -> None:
    assert nesting(mj.jit(nested(20, jitted)).trace(X).program) == 21


def test_threads_have_room_of_their_own() -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(np.asarray(nested(150, jitted)(X)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(np.allclose(x, np.sin(X) + 150, rtol=1e-5) for x in found)


def test_a_limit_that_the_user_sets_meanwhile_stays() -> None:
    before = sys.getrecursionlimit()

    def f(x: Any) -> Any:
        sys.setrecursionlimit(before + 1000)
        return x

    try:
        inside: Function = f
        for _ in range(30):
            inside = jitted(inside)
        inside(X)
        assert sys.getrecursionlimit() == before + 1000
    finally:
        sys.setrecursionlimit(before)


LOOPS: dict[str, Callable[[Function], Function]] = {
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c) * 0.5, None), x, None, length=1)[0],
    "fori": lambda f: lambda x: lax.fori_loop(0, 1, lambda i, c: f(c) * 0.5, x),
    "cond": lambda f: lambda x: lax.cond(x.sum() > -100, f, lambda y: y * 3, x) * 0.5,
    "jit in scan": lambda f: lambda x: lax.scan(lambda c, _: (mj.jit(f)(c) * 0.5, None), x, None, length=1)[0],
}


@pytest.mark.parametrize("kind", LOOPS)
def test_fifty_loops_and_branches_inside_one_another(kind: str) -> None:
    f, right = nested(50, LOOPS[kind]), np.sin(X) * 0.5**50
    for x in (X, on_mesh(X)):
        np.testing.assert_allclose(np.asarray(mj.jit(f)(x)), right, rtol=1e-5)


@pytest.mark.parametrize("kind", ["scan", "jit in scan"])
def test_gradients_of_loops_inside_one_another_take_time_in_proportion(kind: str) -> None:
    """It was 2**levels: each loop asked twice about the one in it."""
    f = nested(24, LOOPS[kind])
    np.testing.assert_allclose(np.asarray(mj.jit(mj.grad(lambda x: f(x).sum()))(X)), np.cos(X) * 0.5**24, rtol=1e-5)


def endless() -> dict[str, Function]:
    """Functions that call themselves, each in one line of the name."""

    def branch(x: Any) -> Any:
        return lax.cond(x.sum() > 0, lambda y: branch(y - 1), lambda y: y, x)

    def loop(x: Any) -> Any:
        return lax.scan(lambda c, _: (loop(c), None), x, None, length=2)[0]

    def slope(x: Any) -> Any:
        return mj.grad(lambda y: slope(y).sum())(x)

    def batch(x: Any) -> Any:
        return mj.vmap(batch)(x[None])[0]

    def plain(x: Any) -> Any:
        return plain(x) + 1

    @mj.jit
    def one(x: Any) -> Any:
        return other(x)

    @mj.jit
    def other(x: Any) -> Any:
        return one(x)

    @partial(mj.jit, donate_argnums=0)
    def donating(x: Any) -> Any:
        return donating(x)

    @partial(mj.jit, static_argnums=1)
    def static(x: Any, n: int = 0) -> Any:
        return static(x, n + 1)

    return {f.__name__: f for f in (branch, loop, slope, batch, plain, one, donating, static)}


@pytest.mark.parametrize("name", ["branch", "loop", "slope", "batch", "plain", "one", "donating", "static"])
def test_a_function_that_calls_itself_without_end_is_named_with_its_line(name: str) -> None:
    f = endless()[name]
    with pytest.raises(RecursionError) as caught:
        (f if hasattr(f, "lower") else mj.jit(f))(X)
    first, line, why, fix = str(caught.value).splitlines()
    assert first == f"tracing {name}: a function calls itself without end, or too many are traced inside one another"
    assert line.startswith("  at test_trace_recursion.py:") and (f".{name}" in line or name == "one" and ".other" in line)
    assert f", {250 if name == 'one' else MOST_LEVELS} times inside of itself" in line or name == "plain"
    assert why.startswith("  tracing runs each function once, whatever arrays hold")
    assert fix == "  fix: lax.while_loop, lax.fori_loop or lax.scan; or let a Python number end it (a static argument, x.ndim)"


def test_in_a_thread_it_is_an_error_too() -> None:
    found: list[BaseException] = []

    def run() -> None:
        try:
            endless()["one"](X)
        except RecursionError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "calls itself without end" in str(found[0])


def test_a_python_number_ends_a_recursion() -> None:
    @partial(mj.jit, static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x, n - 1) * 0.9

    np.testing.assert_allclose(np.asarray(power(X, 150)), X * 0.9**150, rtol=1e-4)
