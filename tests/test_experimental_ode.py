"""odeint against solutions in closed form, and its derivatives against those of the solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.experimental.ode import odeint
from meshjit.sharding import NamedSharding, PartitionSpec as P

TIMES = np.linspace(0, 2, 5, dtype=np.float32)


def swing(y: Any, t: Any, stiffness: Any) -> Any:
    return mnp.stack([y[1], -stiffness * y[0]])


def test_values_are_those_of_the_solution() -> None:
    found = odeint(swing, mnp.array([1.0, 0.0]), TIMES, 4.0)
    np.testing.assert_allclose(found, np.stack([np.cos(2 * TIMES), -2 * np.sin(2 * TIMES)], 1), atol=2e-5)
    turning = odeint(lambda y, t: 1j * y, mnp.array(1 + 0j), TIMES)
    np.testing.assert_allclose(turning, np.exp(1j * TIMES), atol=2e-5)
    np.testing.assert_allclose(odeint(lambda y, t: 2 * t, 0.0, mnp.array([0, 1, 3])), [0, 1, 9], rtol=1e-5)
    assert odeint(swing, mnp.array([1.0, 0.0]), TIMES[:1], 4.0).shape == (1, 2)
    assert odeint(lambda y, t: y, mnp.zeros((0, 3)), TIMES).shape == (5, 0, 3)


def test_trees_and_tolerances() -> None:
    start = {"fall": mnp.ones(3), "path": mnp.zeros(())}

    def slope(y: Any, t: Any, rates: Any) -> Any:
        return {"fall": -rates["k"] * y["fall"], "path": y["fall"].sum()}

    rates = np.array([0.5, 1, 2], np.float32)
    found = odeint(slope, start, TIMES, {"k": rates}, rtol=1e-6, atol=1e-6)
    falls = np.exp(-TIMES[:, None] * rates)
    np.testing.assert_allclose(found["fall"], falls, atol=1e-4)
    np.testing.assert_allclose(found["path"], ((1 - falls) / rates).sum(1), atol=1e-4)
    coarse = odeint(swing, mnp.array([1.0, 0.0]), TIMES, 4.0, rtol=1e-2, atol=1e-2)
    assert 1e-5 < np.abs(coarse[:, 0] - np.cos(2 * TIMES)).max() < 5e-2
    few = odeint(swing, mnp.array([1.0, 0.0]), TIMES, 4.0, mxstep=1, hmax=0.01)
    assert np.abs(few[-1, 0] - np.cos(4)) > 0.1  # it stops where it is


@pytest.mark.parametrize("stiffness", [1.0, 3.0])
def test_derivatives_are_those_of_the_solution(stiffness: float) -> None:
    def last(start: Any, times: Any, stiffness: Any) -> Any:
        return odeint(swing, start, times, stiffness)[-1, 0]

    w, t = np.sqrt(stiffness), 2.0
    by_start, by_times, by_stiffness = mj.grad(last, (0, 1, 2))(mnp.array([1.0, 0.0]), TIMES, stiffness)
    np.testing.assert_allclose(by_start, [np.cos(w * t), np.sin(w * t) / w], atol=1e-4)
    np.testing.assert_allclose(by_times, [w * np.sin(w * t), 0, 0, 0, -w * np.sin(w * t)], atol=2e-4)
    np.testing.assert_allclose(by_stiffness, -t * np.sin(w * t) / (2 * w), atol=1e-4)


def test_derivatives_compose() -> None:
    def fallen(rate: Any) -> Any:  # closed over
        return odeint(lambda y, t: -rate * y, 1.0, TIMES, rtol=1e-5, atol=1e-5)[-1]

    rates = np.array([0.5, 1.0], np.float32)
    np.testing.assert_allclose(mj.vmap(mj.grad(fallen))(rates), -2 * np.exp(-2 * rates), rtol=1e-3)
    np.testing.assert_allclose(mj.jit(mj.grad(mj.grad(fallen)))(0.5), 4 * np.exp(-1), rtol=1e-3)
    whole = mj.grad(lambda rate: mnp.sum(odeint(lambda y, t, n, r: -r * y, 1.0, TIMES, 3, rate)))(0.5)
    np.testing.assert_allclose(whole, -(TIMES * np.exp(-TIMES / 2)).sum(), rtol=1e-3)


def test_sharded_states() -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)
    heat = mj.device_put(np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32), NamedSharding(mesh, P("x", "y")))

    def spread(y: Any, t: Any) -> Any:
        return mnp.roll(y, 1, 0) + mnp.roll(y, -1, 0) - 2 * y

    step = mj.jit(lambda y: odeint(spread, y, TIMES[:2], rtol=1e-5, atol=1e-5)[-1])
    np.testing.assert_allclose(step(heat), step(np.asarray(heat)), atol=1e-4)


def test_arguments_are_numbers() -> None:
    with pytest.raises(TypeError, match="odeint: args have to be arrays or numbers, and one is 'fast'"):
        odeint(lambda y, t, how: y, 1.0, TIMES, "fast")
