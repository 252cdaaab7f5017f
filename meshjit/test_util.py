"""`jax.test_util`: derivatives against differences of the function's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.autodiff import jvp as _jvp, linearize as _linearize, vjp as _vjp
from meshjit.missing import explain as _explain
from meshjit.numpy.dtypes import finfo, issubdtype

_STEP = 1e-4  # JAX's, also in float64
_TOLERANCE = {2: 1e-1, 4: 2e-2, 8: 1e-5}  # by bytes of the narrowest float: differences of f32 values are good to 3 digits


def check_jvp(
    f: Callable[..., Any], f_jvp: Callable[..., Any], args: Sequence[Any], atol: Any = None, rtol: Any = None, eps: Any = None,
    err_msg: str = "",
) -> None:  # fmt: skip
    """Hold f_jvp(primals, tangents) to differences of f along a random direction; AssertionError where they differ."""
    primals = tuple(tree.map(np.asarray, tuple(args)))
    tangents = _direction(primals, 0)
    value, along = f_jvp(primals, tangents)
    _assert_close(value, f(*primals), atol, rtol, f"{err_msg} JVP primal")
    _assert_close(along, _difference(f, primals, tangents, eps), atol, rtol, f"{err_msg} JVP tangent")


def check_vjp(
    f: Callable[..., Any], f_vjp: Callable[..., Any], args: Sequence[Any], atol: Any = None, rtol: Any = None, eps: Any = None,
    err_msg: str = "",
) -> None:  # fmt: skip
    """Hold f_vjp(*primals) -> (value, pullback) to differences of f: <ct, df·t> must be <pullback(ct), t>."""
    primals = tuple(tree.map(np.asarray, tuple(args)))
    value, pullback = f_vjp(*primals)
    _assert_close(value, f(*primals), atol, rtol, f"{err_msg} VJP primal")
    tangents, cotangent = _direction(primals, 0), _direction(value, 1)
    expected = _inner(cotangent, _difference(f, primals, tangents, eps))
    _assert_close(_inner(pullback(cotangent), tangents), expected, atol, rtol, f"{err_msg} VJP cotangent projection")


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"), atol: Any = None,
    rtol: Any = None, eps: Any = None,
) -> None:  # fmt: skip
    """Hold the derivatives of f up to `order`, in these modes, to differences at args (floats, real or complex, in trees).

    modes: of "fwd" (jvp), "rev" (vjp) and "lin" (linearize). eps: the step of the differences, by default 1e-4; where one of the
    args has 16 bits or fewer, the cube root of the epsilon of its dtype.
    Raises AssertionError where they differ by more than atol + rtol·|value|, ValueError for another mode.
    Source: jax.test_util.check_grads."""
    modes = [modes] if isinstance(modes, str) else list(modes)
    if strange := [mode for mode in modes if mode not in ("fwd", "rev", "lin")]:
        raise ValueError(f'check_grads: {strange[0]!r} is no mode\n  fix: of "fwd", "rev" and "lin"')
    primals = tuple(tree.map(np.asarray, tuple(args)))
    if "fwd" in modes:
        check_jvp(f, lambda p, t: _jvp(f, p, t), primals, atol, rtol, eps, f"order {order}:")
        if order > 1:
            check_grads(lambda *p: _jvp(f, p, _direction(primals, 2))[1], primals, order - 1, modes, atol, rtol, eps)
    if "lin" in modes:
        check_jvp(f, lambda p, t: _linear(f, p, t), primals, atol, rtol, eps, f"order {order}: LIN of")
        if order > 1:
            check_grads(lambda *p: _linear(f, p, _direction(primals, 2))[1], primals, order - 1, modes, atol, rtol, eps)
    if "rev" in modes:
        check_vjp(f, lambda *p: _vjp(f, *p), primals, atol, rtol, eps, f"order {order}:")
        if order > 1:
            pulled = lambda *p: (lambda value, pull: pull(_direction(value, 3)))(*_vjp(f, *p))  # noqa: E731
            check_grads(pulled, primals, order - 1, modes, atol, rtol, eps)


def _linear(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    value, pushed = _linearize(f, *primals)
    return value, pushed(*tangents)


def _direction(like: Any, seed: int) -> Any:
    """A random tangent for each leaf, of its shape and dtype."""
    draw = np.random.RandomState(seed)

    def leaf(x: Any) -> Any:
        values = draw.standard_normal(np.shape(x))
        if issubdtype(x.dtype, np.complexfloating):
            values = values + 1j * draw.standard_normal(np.shape(x))
        return np.asarray(values).astype(x.dtype)

    return tree.map(leaf, like)


def _difference(f: Callable[..., Any], primals: Any, tangents: Any, eps: float | None) -> Any:
    """(f(x + εt) - f(x - εt)) / 2ε. Added to numbers of 16 bits, JAX's step would change nothing."""
    coarsest = max(float(finfo(x.dtype).eps) for x in tree.leaves(primals))
    step = eps if eps is not None else _STEP if coarsest < _STEP else coarsest ** (1 / 3)
    ends = [f(*tree.map(lambda x, t, s=sign: x + np.asarray(s * step, x.dtype) * t, primals, tangents)) for sign in (1, -1)]
    return tree.map(lambda a, b: (np.asarray(a) - np.asarray(b)) / (2 * step), *ends)


def _inner(a: Any, b: Any) -> Any:
    return sum(np.real(np.sum(np.asarray(x) * np.asarray(y))) for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True))


def _assert_close(a: Any, b: Any, atol: float | None, rtol: float | None, what: str) -> None:
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        size = min(np.real(x).dtype.itemsize, np.real(y).dtype.itemsize)
        absolute, relative = (_TOLERANCE[size] if limit is None else limit for limit in (atol, rtol))
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=relative, atol=absolute, err_msg=what.strip())


_explain(__name__)
