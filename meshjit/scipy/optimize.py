"""`jax.scipy.optimize`: `minimize`, by BFGS with a line search that meets the strong Wolfe conditions.

Source: Nocedal and Wright, Numerical Optimization (2006), algorithms 3.5, 3.6 and 6.1. Everything runs on the devices, also under
jit, vmap and forward-mode derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.autodiff import value_and_grad
from meshjit.missing import explain as _explain
from meshjit.trace import line_of, user_source


class OptimizeResults(NamedTuple):
    """The point x (n,) of least value, whether the gradient is small there, why the search stopped (status: 0 success, 1 too many
    iterations, 3 no descent found, 4 not a number), the value, gradient, inverse Hessian, and how often fun and its gradient
    were computed in how many iterations."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _Search(NamedTuple):
    """The state of BFGS."""

    k: Any
    x: Any
    value: Any
    slope: Any
    inverse: Any  # of the Hessian
    calls: Any
    status: Any  # -1: going on
    previous: Any  # value of the iteration before


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """The minimum of fun(x, *args), a scalar, near x0 (n,). Source: jax.scipy.optimize.minimize.

    method: "BFGS" alone. tol: bound of the gradient's largest element, 1e-5 by default. options: maxiter (200 n), norm,
    gtol (tol), line_search_maxiter (10). TypeError for args that are no tuple, ValueError for other methods and options.
    """
    if not isinstance(args, tuple):
        raise TypeError(
            f"minimize: args must be a tuple, got {type(args).__name__}\n  at {line_of(user_source())}\n  fix: args=(a,)"
        )
    if method.lower() != "bfgs":
        raise ValueError(f"minimize: method {method!r} is not there\n  at {line_of(user_source())}\n  fix: method='BFGS'")
    settings = {
        "maxiter": None,
        "norm": np.inf,
        "gtol": 1e-5 if tol is None else tol,
        "line_search_maxiter": 10,
        **(options or {}),
    }
    strangers = sorted(set(settings) - {"maxiter", "norm", "gtol", "line_search_maxiter"})
    if strangers:
        raise ValueError(f"minimize: BFGS has no options {strangers}\n  at {line_of(user_source())}")
    x = mnp.asarray(x0)
    if x.ndim != 1:
        raise ValueError(
            f"minimize: x0 has shape {x.shape}, not one dim\n  at {line_of(user_source())}\n  fix: flatten_util.ravel_pytree"
        )
    x = x.astype(mnp.result_type(x, np.float32))
    return _bfgs(value_and_grad(lambda x: fun(x, *args)), x, **settings)


def _bfgs(
    both: Callable[..., Any], x: Any, *, maxiter: int | None, norm: Any, gtol: float, line_search_maxiter: int
) -> OptimizeResults:
    limit = 200 * x.size if maxiter is None else maxiter

    def size(slope: Any) -> Any:
        return mnp.linalg.norm(slope, ord=norm)

    def iterate(s: _Search) -> _Search:
        direction = -mnp.dot(s.inverse, s.slope)
        is_good, step, value, slope, calls = _line_search(both, s, direction, line_search_maxiter)
        change, turn = step * direction, slope - s.slope
        inverse = _updated(s.inverse, change, turn)
        status = mnp.where(size(slope) < gtol, 0, mnp.where(s.k + 1 >= limit, 1, -1))
        status = mnp.where(mnp.isfinite(value), status, 4)
        status = mnp.where(is_good, status, 3)
        new = _Search(s.k + 1, s.x + change, value, slope, inverse, s.calls + calls, status, s.value)
        keep = is_good & mnp.isfinite(value)
        kept = [mnp.where(keep, a, b) for a, b in zip(new[1:5], s[1:5], strict=True)]
        return _Search(new.k, kept[0], kept[1], kept[2], kept[3], new.calls, status, s.value)

    value, slope = both(x)
    start = _Search(
        np.int32(0),
        x,
        value,
        slope,
        mnp.eye(x.size, dtype=x.dtype),
        np.int32(1),
        mnp.where(size(slope) < gtol, 0, -1),
        value + size(slope) / 2,
    )
    end = lax.while_loop(lambda s: s.status < 0, iterate, start)
    return OptimizeResults(end.x, end.status == 0, end.status, end.value, end.slope, end.inverse, end.calls, end.calls, end.k)


def _updated(inverse: Any, change: Any, turn: Any) -> Any:
    """The inverse Hessian, of which now turn = Hessian change (6.17); as it was where the function did not curve upwards."""
    curvature = mnp.dot(turn, change)
    rho = mnp.where(curvature > 0, 1 / mnp.where(curvature > 0, curvature, 1), 0)
    left = mnp.eye(change.size, dtype=change.dtype) - rho * mnp.outer(change, turn)
    return left @ inverse @ left.T + rho * mnp.outer(change, change)


class _Bracket(NamedTuple):
    """The state of the line search: steps low and high, with values there, that enclose a good one once `zooming`."""

    i: Any
    low: Any
    low_value: Any
    low_slope: Any
    high: Any
    high_value: Any
    zooming: Any
    step: Any  # the next to try
    result: Any  # (step, value, gradient)
    done: Any


def _line_search(
    both: Callable[..., Any], s: _Search, direction: Any, limit: int, c1: float = 1e-4, c2: float = 0.9
) -> tuple[Any, ...]:
    """Whether a step along `direction` meets the strong Wolfe conditions, then that step, value and gradient there, and calls."""
    start_slope = mnp.dot(s.slope, direction)
    guess = 1.01 * 2 * (s.value - s.previous) / start_slope
    first = mnp.where((guess > 0) & (guess < 1) & (s.k > 0), guess, 1.0).astype(s.x.dtype)
    zero = mnp.zeros_like(first)

    def attempt(b: _Bracket) -> _Bracket:
        value, gradient = both(s.x + b.step * direction)
        slope = mnp.dot(gradient, direction)
        too_high = ~(value <= s.value + c1 * b.step * start_slope) | ((value >= b.low_value) & (b.zooming | (b.i > 0)))
        good = ~too_high & (mnp.abs(slope) <= -c2 * start_slope)
        passed = ~too_high & ~good & mnp.where(b.zooming, slope * (b.high - b.low) >= 0, slope >= 0)
        # too high: the step closes the bracket. Passed the minimum: the bracket turns round. Else: the step is its new low end.
        high = mnp.where(too_high, b.step, mnp.where(passed, b.low, b.high))
        high_value = mnp.where(too_high, value, mnp.where(passed, b.low_value, b.high_value))
        low, low_value, low_slope = (
            mnp.where(too_high, old, new) for old, new in zip(b[1:4], (b.step, value, slope), strict=True)
        )
        zooming = b.zooming | too_high | passed
        step = mnp.where(zooming, _between(low, low_value, low_slope, high, high_value), 2 * b.step)
        result = tuple(
            mnp.where(good | (low == b.step), new, old) for new, old in zip((b.step, value, gradient), b.result, strict=True)
        )
        return _Bracket(b.i + 1, low, low_value, low_slope, high, high_value, zooming, step, result, good)

    begin = _Bracket(
        np.int32(0),
        zero,
        s.value,
        start_slope,
        zero,
        s.value,
        np.asarray(False),
        first,
        (zero, s.value, s.slope),
        np.asarray(False),
    )
    b = lax.while_loop(lambda b: ~b.done & (b.i < 3 * limit), attempt, begin)
    step, value, gradient = b.result
    return b.done | (step > 0), step, value, gradient, b.i


def _between(low: Any, low_value: Any, low_slope: Any, high: Any, high_value: Any) -> Any:
    """Where the parabola through both ends is least, but in the bracket's middle part; else its middle."""
    width = high - low
    bend = high_value - low_value - low_slope * width
    step = low - low_slope * width * width / (2 * mnp.where(bend == 0, 1, bend))
    least, most = mnp.minimum(low, high) + 0.1 * mnp.abs(width), mnp.maximum(low, high) - 0.1 * mnp.abs(width)
    return mnp.where((step >= least) & (step <= most) & (bend > 0), step, low + width / 2)


_explain(__name__)
