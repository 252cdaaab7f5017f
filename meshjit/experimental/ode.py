"""Ordinary differential equations with an adaptive step, differentiable by the adjoint equation (`jax.experimental.ode`).

The method of Dormand and Prince ("A family of embedded Runge-Kutta formulae", 1980), with the step control of Hairer, Nørsett
and Wanner ("Solving Ordinary Differential Equations I", II.4) and Shampine's values between the steps ("Some practical
Runge-Kutta formulas", 1986). Derivatives come of a second equation that runs backwards (Pontryagin; Chen et al., "Neural
ordinary differential equations", 2018), so memory does not grow with the number of steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import meshjit.numpy as np
from meshjit import lax
from meshjit.autodiff import vjp, vmap
from meshjit.custom_derivatives import closure_convert, custom_vjp
from meshjit.flatten_util import ravel_pytree
from meshjit.missing import explain as _explain
from meshjit.tree_util import tree_flatten, tree_leaves, tree_map, tree_unflatten

_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)  # of the stages after the first, in steps
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_FIFTH = (*_STAGES[-1], 0.0)
_FOURTH = (5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)
_MIDDLE = tuple(
    x / 2
    for x in (
        6025192743 / 30085553152, 0.0, 51252292925 / 65400821598, -2691868925 / 45128329728,
        187940372067 / 1594534317056, -1776094331 / 19743644256, 11237099 / 235043384,
    )
)  # fmt: skip
_SAFETY, _GROWTH, _SHRINKAGE = 0.9, 10.0, 0.2  # of the next step
_ORDER = 5


class Limits(NamedTuple):
    """Of an integration: tolerances of a step's error, the most steps between two times, and the longest step."""

    relative: float
    absolute: float
    steps: float
    longest: float


class _Stand(NamedTuple):
    """How far the integration has come: the last step went from `before` to `time`."""

    state: Any  # (n,)
    slope: Any  # (n,)
    time: Any
    step: Any  # the next one's length
    before: Any
    polynomial: Any  # (5, n): the state in the last step, in powers 4 to 0 of the part of it that has passed


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = math.inf,
    hmax: float = math.inf,
) -> Any:
    """The solution of dy/dt = func(y, t, *args) with y = `y0` at t[0], at each time of `t` (`jax.experimental.ode.odeint`).

    y0: a tree of floating arrays; func gives a tree like it. t: (times,), increasing. Each leaf of the result has a leading
    dimension of `times`. Differentiable with respect to y0, t, args and what func closes over, any number of times, in
    reverse mode. rtol, atol: of the error of one step; mxstep: the most steps between two times, hmax: the longest step.
    TypeError where an argument is no number."""
    for leaf in tree_leaves(args):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, complex | float | int):
            raise TypeError(f"odeint: args have to be arrays or numbers, and one is {leaf!r}\n  fix: close over it in func")
    times = np.asarray(t, np.result_type(t, np.float32) if not _is_inexact(t) else None)
    converted, captured = closure_convert(func, y0, times[0], *args)
    return _solve_tree(converted, Limits(rtol, atol, mxstep, hmax), y0, times, *args, *captured)


def _solve_tree(func: Callable[..., Any], limits: Limits, y0: Any, times: Any, *args: Any) -> Any:
    flat, unravel = ravel_pytree(y0)

    def of_flat(y: Any, t: Any, *args: Any) -> Any:
        return ravel_pytree(func(unravel(y), t, *args))[0]

    return vmap(unravel)(_solve(of_flat, limits, flat, times, *args))


@functools.partial(custom_vjp, nondiff_argnums=(0, 1))
def _solve(func: Callable[..., Any], limits: Limits, y0: Any, times: Any, *args: Any) -> Any:
    def slope(y: Any, t: Any) -> Any:
        return func(y, t, *args).astype(y0.dtype)

    def until(stand: _Stand, target: Any) -> tuple[_Stand, Any]:
        def goes_on(state: tuple[Any, _Stand]) -> Any:
            count, stand = state
            return (stand.time < target) & (count < limits.steps) & (stand.step > 0)

        _, stand = lax.while_loop(goes_on, lambda s: (s[0] + 1, _advance(slope, s[1], limits)), (0, stand))
        part = (target - stand.before) / np.where(stand.time == stand.before, 1, stand.time - stand.before)
        return stand, np.polyval(stand.polynomial, part).astype(y0.dtype)

    first = slope(y0, times[0])
    step = np.clip(_first_step(slope, y0, first, times[0], limits), 0.0, limits.longest).astype(times.dtype)
    begin = _Stand(y0, first, times[0], step, times[0], np.stack([*[np.zeros_like(y0)] * 4, y0]))
    return np.concatenate([y0[None], lax.scan(until, begin, times[1:])[1]])


def _solve_forward(func: Callable[..., Any], limits: Limits, y0: Any, times: Any, *args: Any) -> tuple[Any, Any]:
    solution = _solve(func, limits, y0, times, *args)
    return solution, (solution, times, args)


def _solve_backward(func: Callable[..., Any], limits: Limits, saved: Any, cotangent: Any) -> tuple[Any, ...]:
    """The adjoint equation, backwards from each time to the one before: derivatives of the state, of the first time, of args."""
    solution, times, args = saved
    leaves, structure = tree_flatten(args)
    which = [i for i, leaf in enumerate(leaves) if _is_inexact(leaf)]

    def slopes(augmented: Any, minus_t: Any, *args: Any) -> Any:
        y, y_bar, _, _ = augmented
        given, pull = vjp(lambda y, t, *moved: func(y, t, *_with(args, which, moved, structure)), y, -minus_t, *_of(args, which))
        own, of_time, *of_args = pull(y_bar)
        return -given, own, of_time, tuple(of_args)

    def one_back(carry: Any, xs: Any) -> tuple[Any, Any]:
        y_bar, start_bar, args_bar = carry
        y, slope, g, g_before, ends, begins = xs
        end_bar = np.sum(slope * g).real.astype(times.dtype)
        state = (y, y_bar, start_bar - end_bar, args_bar)
        back = _solve_tree(slopes, limits, state, np.stack([-ends, -begins]), *args)
        _, y_bar, start_bar, args_bar = tree_map(lambda x: x[-1], back)
        return (y_bar + g_before, start_bar, args_bar), end_bar

    slope = vmap(lambda y, t: func(y, t, *args))(solution, times)
    begin = (cotangent[-1], np.zeros((), times.dtype), tuple(np.zeros_like(x) for x in _of(args, which)))
    intervals = (solution[1:], slope[1:], cotangent[1:], cotangent[:-1], times[1:], times[:-1])
    (y_bar, start_bar, args_bar), ends = lax.scan(one_back, begin, intervals, reverse=True)
    bars: list[Any] = [None] * len(leaves)
    for i, bar in zip(which, args_bar, strict=True):
        bars[i] = bar
    return y_bar, np.concatenate([start_bar[None], ends]), *tree_unflatten(structure, bars)


_solve.defvjp(_solve_forward, _solve_backward)


def _is_inexact(x: Any) -> bool:
    return bool(np.issubdtype(np.result_type(x), np.inexact))


def _of(args: Any, which: Sequence[int]) -> list[Any]:
    leaves = tree_leaves(args)
    return [np.asarray(leaves[i]) for i in which]


def _with(args: Any, which: Sequence[int], moved: Sequence[Any], structure: Any) -> Any:
    leaves = tree_leaves(args)
    for i, value in zip(which, moved, strict=True):
        leaves[i] = value
    return tree_unflatten(structure, leaves)


def _advance(slope: Callable[..., Any], stand: _Stand, limits: Limits) -> _Stand:
    """One step further where its error is small enough; else a shorter step is tried next."""
    y, step = stand.state, stand.step.astype(stand.state.dtype)
    slopes = [stand.slope]
    for time, weights in zip(_TIMES, _STAGES, strict=True):
        slopes.append(slope(y + step * _weighted(weights, slopes), stand.time + stand.step * time))
    after = y + step * _weighted(_FIFTH, slopes)
    error = step * _weighted([a - b for a, b in zip(_FIFTH, _FOURTH, strict=True)], slopes)
    ratio = _norm(error / (limits.absolute + limits.relative * np.maximum(np.abs(y), np.abs(after)))).astype(stand.step.dtype)
    middle = y + step * _weighted(_MIDDLE, slopes)
    end = stand.time + stand.step
    polynomial = _through(y, middle, after, step * slopes[0], step * slopes[-1])
    moved = _Stand(after, slopes[-1], end, _next_step(stand.step, ratio, limits), stand.time, polynomial)
    kept = stand._replace(step=moved.step)
    return _Stand(*[np.where(ratio <= 1, a, b) for a, b in zip(moved, kept, strict=True)])


def _weighted(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    return sum(w * k for w, k in zip(weights, slopes, strict=True) if w)


def _norm(x: Any) -> Any:
    """The root of the mean square."""
    return np.sqrt(np.mean(np.abs(x) ** 2)) if x.size else np.zeros((), x.real.dtype)


def _next_step(step: Any, ratio: Any, limits: Limits) -> Any:
    least = np.where(ratio <= 1, 1.0, _SHRINKAGE)
    factor = np.where(ratio == 0, _GROWTH, np.clip(_SAFETY * np.maximum(ratio, 1e-30) ** (-1 / _ORDER), least, _GROWTH))
    return np.clip(step * factor, 0.0, limits.longest).astype(step.dtype)


def _through(start: Any, middle: Any, end: Any, slope: Any, end_slope: Any) -> Any:
    """The polynomial of degree 4 on [0, 1] with these three values, and these slopes at its ends."""
    a, b, c = end - start - slope, end_slope - slope, 16 * (middle - start - slope / 2)
    return np.stack([2 * b - 8 * a + c, 14 * a - 3 * b - 2 * c, c + b - 5 * a, slope, start])


def _first_step(slope: Callable[..., Any], y: Any, first: Any, time: Any, limits: Limits) -> Any:
    """Hairer, Nørsett and Wanner, II.4: from how large the state, its slope and its curvature are."""
    scale = limits.absolute + limits.relative * np.abs(y)
    size, speed = _norm(y / scale), _norm(first / scale)
    tiny = (size < 1e-5) | (speed < 1e-5)
    guess = np.where(tiny, 1e-6, 0.01 * size / np.where(tiny, 1.0, speed))
    ahead = slope(y + guess.astype(y.dtype) * first, time + guess.astype(time.dtype))
    bend = np.maximum(speed, _norm((ahead - first) / scale) / guess)
    flat = bend <= 1e-15
    step = np.where(flat, np.maximum(1e-6, guess * 1e-3), (0.01 / np.where(flat, 1.0, bend)) ** (1 / _ORDER))
    return np.minimum(100 * guess, step)


_explain(__name__)
