"""`minimize`: known minima from several starts, under jit and vmap, and why a search stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.scipy.optimize import minimize


def rosenbrock(x: Any) -> Any:
    return mnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x: Any) -> Any:
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


@pytest.mark.parametrize(
    ("function", "start", "end"),
    [
        (rosenbrock, [0.0, 0.0], [1.0, 1.0]),
        (rosenbrock, [-1.0, 1.5, 1.0], [1.0, 1.0, 1.0]),
        (himmelblau, [1.0, 1.0], [3.0, 2.0]),
        (lambda x: 0.26 * mnp.sum(x**2) - 0.48 * x[0] * x[1], [5.0, 5.0], [0.0, 0.0]),
        (lambda x: mnp.sum(x**2), [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_reaches_the_minimum(function: Callable[[Any], Any], start: list[float], end: list[float]) -> None:
    with mj.enable_x64(True):
        result = mj.jit(lambda x: minimize(function, x, method="BFGS", options={"gtol": 1e-7}))(np.array(start))
    np.testing.assert_allclose(result.x, end, atol=1e-5)
    assert bool(result.success) and int(result.status) == 0
    assert int(result.nit) <= int(result.nfev) <= 150
    np.testing.assert_allclose(result.jac, mj.grad(function)(result.x), atol=1e-6)


def test_members_of_a_batch_stop_by_themselves() -> None:
    starts = np.array([[1.0, 1.0], [-3.0, 3.0], [3.0, -2.0], [3.0, 2.0]], np.float32)
    results = mj.vmap(lambda x: minimize(himmelblau, x, method="BFGS"))(starts)
    expected = [[3, 2], [-2.805118, 3.131313], [3.584428, -1.848127], [3, 2]]
    np.testing.assert_allclose(results.x, expected, atol=1e-4)
    assert results.nit[3] == 0


def test_says_why_it_stopped() -> None:
    few = minimize(rosenbrock, np.zeros(2, np.float32), method="BFGS", options={"maxiter": 3})
    assert (bool(few.success), int(few.status), int(few.nit)) == (False, 1, 3)
    kink = minimize(lambda x, a: mnp.where(x[0] < 0, mnp.nan, a * x[0]), np.ones(1, np.float32), (2.0,), method="BFGS")
    assert (bool(kink.success), int(kink.status)) == (False, 3)
    assert float(kink.fun) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"args": 1, "method": "BFGS"}, TypeError, "args must be a tuple, got int"),
        ({"method": "CG"}, ValueError, "method 'CG' is not there"),
        ({"method": "BFGS", "options": {"disp": True}}, ValueError, r"BFGS has no options \['disp'\]"),
    ],
)
def test_refuses(kwargs: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        minimize(rosenbrock, np.zeros(2, np.float32), **kwargs)
