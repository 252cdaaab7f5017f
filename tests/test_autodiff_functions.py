"""What vjp and linearize give: functions that are trees, so that they leave jit and enter another; and derivatives in two calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax

pytestmark = pytest.mark.device


def f(x: Any, params: Any) -> Any:
    return mnp.sin(x) * params["a"] + params["b"]


ARGUMENTS = (2.0, {"a": 3.0, "b": np.float32(1.0)})


def close(result: Any, expected: Any) -> None:
    for a, b in zip(mj.tree.leaves(result), mj.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


def test_a_vjp_leaves_jit_and_enters_another() -> None:
    expected = (3 * np.cos(2), {"a": np.sin(2), "b": 1.0})
    value, pull = mj.jit(lambda *args: mj.vjp(f, *args))(*ARGUMENTS)
    close(value, 3 * np.sin(2) + 1)
    for result in (pull(1.0), mj.jit(pull)(1.0), mj.jit(lambda pull, ct: pull(ct))(pull, 1.0)):
        close(result, expected)
    close(mj.tree.map(lambda x: 2 * x, pull)(1.0), (4 * 3 * np.cos(2), {"a": 2 * np.sin(2), "b": 1.0}))
    assert len(mj.tree.leaves(pull)) == 3 and repr(pull).startswith("<the derivative of f backwards, which keeps [Array(")
    eager = mj.vjp(f, *ARGUMENTS)[1]
    close((eager(1.0), eager(2.0)[0]), (expected, 6 * np.cos(2)))
    close(mj.vmap(pull)(mnp.ones(2))[0], np.full(2, 3 * np.cos(2)))


def test_what_a_vjp_keeps_of_the_arguments() -> None:
    _, pull = mj.vjp(f, *ARGUMENTS)
    assert [type(x).__name__ for x in (pull.args_res[0], pull.args_res[1]["b"])] == ["NotNeeded", "NotNeeded"]
    close(pull.args_res[1]["a"], 3.0)
    close(sorted(map(float, pull.opaque_residuals)), sorted([np.sin(2), np.cos(2)]))
    pull.args_res[1]["a"] = mnp.asarray(30.0)
    close(pull(1.0)[0], 30 * np.cos(2))


def test_a_linearized_function_is_a_partial() -> None:
    value, push = mj.jit(lambda x: mj.linearize(mnp.sin, x))(2.0)
    assert isinstance(push, mj.tree_util.Partial)
    close((value, push.args, push(1.0)), (np.sin(2), ([np.cos(2)],), np.cos(2)))
    close(mj.jit(lambda push, t: push(t))(push, 3.0), 3 * np.cos(2))
    assert "<the derivative of sin in a direction>" in repr(push)
    value, push, aux = mj.linearize(lambda x: (x * x, {"x": x}), 3.0, has_aux=True)
    close((value, push(1.0), aux), (9.0, 6.0, {"x": 3.0}))


def test_fwd_and_bwd_compile_once() -> None:
    traces: list[int] = []

    def loss(x: Any, w: Any) -> Any:
        traces.append(1)
        return mnp.tanh(x @ w).sum()

    x, w = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    for argnums in (0, (0, 1)):
        fwd, bwd = mj.fwd_and_bwd(loss, argnums)
        for scale in (1.0, 2.0, 3.0):
            value, residuals = fwd(x, scale * w)
            result = bwd(residuals, 2.0)
            close((value, result), (loss(x, scale * w), mj.grad(lambda *a: 2 * loss(*a), argnums)(x, scale * w)))
    traces.clear()
    fwd(x, w)
    assert not traces
    fwd, bwd = mj.fwd_and_bwd(lambda x: (x * x, "aux"), 0, has_aux=True, jitted=False)
    value, residuals, aux = fwd(3.0)
    close((value, bwd(residuals, 1.0)), (9.0, 6.0))
    assert aux == "aux"


def test_linearize_goes_through_loops_of_unknown_length() -> None:
    def looped(n: Any, x: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, c: 2 * mnp.sin(c), x)

    expected = mj.jvp(lambda x: looped(3, x), (0.5,), (1.0,))[1]
    close(mj.jit(lambda n, x: mj.linearize(lambda x: looped(n, x), x)[1](1.0))(3, 0.5), expected)
    close(mj.jit(lambda n, x: mj.jacfwd(lambda x: looped(n, x))(x))(3, 0.5), expected)
    twice = lambda n: lambda x: lax.scan(lambda c, _: (looped(n, c), None), x, None, length=2)[0]  # noqa: E731
    close(
        mj.jit(lambda n, x: mj.linearize(twice(n), x)[1](1.0))(3, 0.5),
        mj.jit(lambda n, x: mj.jvp(twice(n), (x,), (1.0,))[1])(3, 0.5),
    )
    with pytest.raises(ValueError, match="reverse-mode differentiation does not work for while_loop"):
        mj.jit(lambda n, x: mj.grad(twice(n))(x))(3, 0.5)


def test_a_vjp_takes_one_argument() -> None:
    pull = mj.vjp(lambda x: (x, x), 1.0)[1]
    close(pull((1.0, 2.0)), (3.0,))
    with pytest.raises(TypeError, match="was called with 2 arguments, but it takes one"):
        pull(1.0, 2.0)
