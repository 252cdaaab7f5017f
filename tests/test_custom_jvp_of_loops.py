"""Rules of custom_jvp that hold loops, branches and checkpoints of values and tangents at once, backwards. Values as jax 0.10.2 gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax

pytestmark = pytest.mark.device
X = np.arange(4, dtype=np.float32) / 4


def loop(v: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: mnp.sin(c) + v, v)


def branch(v: Any) -> Any:
    return lax.cond(v.sum() > 0, lambda q: mnp.sin(q) * v, lambda q: q, v)


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[float], list[float]]] = {  # first and second derivative
    "loop": (loop, [0, 11.122357, 8.755048, 5.489875], [64, 13.178274, -19.567621, -4.434717]),
    "branch": (branch, [0, 0.12113692, 0.8804332, 2.516076], [0, 1.4230816, 4.8255816, 8.002654]),
    "checkpoint": (mj.checkpoint(lambda v: mnp.sin(mnp.sin(v))), [0, 0.9202006, 1.4366589, 1.4319812],
                   [4, 3.069805, 0.9848361, -0.8928153]),
    "jit": (mj.jit(lambda v: mnp.sin(mnp.sin(v))), [0, 0.9202006, 1.4366589, 1.4319812], [4, 3.069805, 0.984836, -0.8928152]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_rule_that_pushes_forward(name: str) -> None:
    """Twice the derivative, squared, summed."""
    f, first, second = FUNCTIONS[name]
    function = mj.custom_jvp(f)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        value, tangent = mj.jvp(f, primals, tangents)
        return value, 2 * tangent

    gradient = mj.grad(lambda v: (function(v) ** 2).sum())
    np.testing.assert_allclose(gradient(X), first, rtol=1e-5)
    np.testing.assert_allclose(mj.jit(mj.grad(lambda v: gradient(v).sum()))(X), second, rtol=1e-5)
    if name != "branch":  # of each pair by itself
        np.testing.assert_allclose(mj.vmap(gradient)(X.reshape(2, 2)).reshape(-1), first, rtol=1e-5)


def test_a_loop_that_carries_values_and_tangents() -> None:
    """Forward sensitivities, as rules of solvers carry them."""
    function = mj.custom_jvp(lambda v: lax.scan(lambda c, _: (mnp.sin(c) * v, None), v, None, length=3)[0])

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (v,), (d,) = primals, tangents

        def step(carry: Any, _: Any) -> Any:
            y, dy = carry
            return (mnp.sin(y) * v, mnp.cos(y) * dy * v + mnp.sin(y) * d), dy

        (y, dy), steps = lax.scan(step, (v, d), None, length=3)
        return y, dy + steps.sum(0)

    expected = [0, 0.01340532, 0.36232877, 2.5772321]
    np.testing.assert_allclose(mj.grad(lambda v: (function(v) ** 2).sum())(X), expected, rtol=1e-5)
    np.testing.assert_allclose(mj.grad(lambda v: (mj.checkpoint(function)(v) ** 2).sum())(X), expected, rtol=1e-5)
    np.testing.assert_allclose(mj.linearize(function, X)[1](X), [0, 0.4337652, 1.5296758, 3.5918794], rtol=1e-5)
