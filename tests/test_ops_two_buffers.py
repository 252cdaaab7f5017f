"""Loops that write what they carry to two buffers alternately (`meshjit/ops/control/two_buffers.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P

X = np.random.default_rng(0).integers(-9, 9, (64, 64)).astype(np.int32)
ROW = np.arange(64, dtype=np.int32)


def ring(u: Any) -> Any:
    return u - mnp.roll(u, 1, 0) + 3 * mnp.roll(u, -1, 1)


def heat(u: Any) -> Any:
    return mnp.pad(u[1:-1, 1:-1] + u[2:, 1:-1] - u[:-2, 1:-1], 1)


def wave(c: Any) -> Any:
    before, u = c
    return u, 2 * u - before + mnp.roll(u, 1, 0)


def coupled(c: Any) -> Any:
    u, v = c
    return u + mnp.roll(v, 1, 0), v - mnp.roll(u, 1, 0)


def staggered(c: Any) -> Any:
    velocity, place = c
    velocity = velocity + mnp.roll(place, 1, 0) - place
    return velocity, place + velocity


def interior(u: Any) -> Any:
    return u.at[1:-1].set(u[2:] + u[:-2])


IN_TURN: list[tuple[Callable[[Any], Any], int]] = [(ring, 1), (heat, 1), (wave, 2), (coupled, 2), (lambda c: c[::-1], 2), (lambda u: u.T, 1)]
IN_PLACE: list[tuple[Callable[[Any], Any], int]] = [
    (staggered, 2), (interior, 1), (lambda u: 2 * u + 1, 1), (lambda u: u + mnp.tanh(u) @ u, 1), (lambda u: u - mnp.sum(u, 0), 1),
    (lambda u: mnp.roll(u @ mnp.ones((64, 64), int), 1, 0), 1),  # copies take no time beside a large product
    (lambda c: (c[0] + c[1], c[1] * 2), 2), (lambda u: lax.fori_loop(0, 3, lambda i, v: v + i, u), 1), (lambda u: mnp.sort(u, 0), 1),
]  # fmt: skip


def looped(step: Callable[[Any], Any], steps: int) -> Callable[[Any], Any]:
    return lambda c: lax.fori_loop(0, steps, lambda _, c: step(c), c)


def carry(count: int, x: Any = X) -> Any:
    return x if count == 1 else tuple(x + n for n in range(count))


def barriers(fun: Callable[..., Any], *args: Any) -> int:
    text = mj.jit(fun).trace(*args).lower(lowering_platforms=("tpu",)).as_text()
    return text.count("stablehlo.optimization_barrier")


@pytest.mark.parametrize(("step", "count"), IN_TURN)
def test_new_values_that_cannot_be_written_over_old_ones(step: Callable[[Any], Any], count: int) -> None:
    assert barriers(looped(step, 8), carry(count)) == count
    assert not barriers(looped(step, 3), carry(count)), "there is no loop of two steps"
    assert not barriers(looped(step, 8), carry(count, X[:8, :8])), "a copy takes no time"


@pytest.mark.parametrize(("step", "count"), IN_PLACE)
def test_new_values_that_can(step: Callable[[Any], Any], count: int) -> None:
    assert not barriers(looped(step, 8), carry(count, X.astype(np.float32)))


def test_what_the_user_unrolls_stays_as_it_is() -> None:
    def run(u: Any) -> Any:
        return lax.fori_loop(0, 8, lambda _, u: ring(u), u, unroll=4)

    assert not barriers(run, X)


@pytest.mark.parametrize("steps", [4, 5, 9, 12])
@pytest.mark.parametrize(("step", "count"), IN_TURN)
def test_values_are_those_of_one_iteration_after_the_other(step: Callable[[Any], Any], count: int, steps: int) -> None:
    expected = carry(count)
    for _ in range(steps):
        expected = mj.tree.map(np.asarray, mj.jit(step)(expected))
    results = mj.jit(looped(step, steps))(carry(count))
    mj.tree.map(np.testing.assert_array_equal, results, expected)


@pytest.mark.parametrize("length", [4, 7])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "y"), P("y", "x")], ids=str)
def test_slices_pieces_and_shards(length: int, reverse: bool, spec: P) -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    xs = np.random.default_rng(1).integers(-9, 9, (length, 64)).astype(np.int32)

    def run(c: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> tuple[Any, Any]:
            before, u = c
            return (u, 2 * u - before + mnp.roll(u, 1, 0) * x), u[0] + x

        return lax.scan(body, c, xs, reverse=reverse)

    (before, u), rows = carry(2), [np.zeros(0)] * length
    for i in reversed(range(length)) if reverse else range(length):
        rows[i] = u[0] + xs[i]
        before, u = u, 2 * u - before + np.roll(u, 1, 0) * xs[i]
    placed = mj.device_put(carry(2), NamedSharding(mesh, spec))
    (last, now), made = mj.jit(run)(placed, xs)
    for result, expected in ((last, before), (now, u), (made, np.stack(rows))):
        np.testing.assert_array_equal(result, expected)


def test_derivatives_and_batches() -> None:
    x = X.astype(np.float32) / 9
    weights = np.cos(np.arange(64.0, dtype=np.float32))

    def run(u: Any) -> Any:
        return mnp.sum(looped(lambda u: mnp.roll(u, 1, 0) * weights + u, 6)(u))

    one = x[:, :1] * 0
    one[3] = 1
    batch = np.stack([x, -x])
    np.testing.assert_allclose(mj.vmap(run)(batch), [run(x), run(-x)], rtol=1e-5)
    slope = (run(x + one) - run(x - one)) / 2  # linear
    np.testing.assert_allclose(np.sum(mj.jit(mj.grad(run))(x) * one), slope, rtol=1e-3)


def test_the_compiled_loop_copies_nothing() -> None:
    x = carry(2, np.ones((256, 256), np.float32))
    text = mj.jit(looped(wave, 20)).lower(x).compile().as_text()
    (body,) = re.findall(r"body=(%[\w.]+)", text)
    lines = text.split(f"\n{body} ")[1].split("\n}")[0]
    assert "get-tuple-element" in lines and " copy(" not in lines
