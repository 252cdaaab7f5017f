"""`jax.numpy`'s polynomials: vectors of coefficients, the highest power first."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.lax.loops import fori_loop
from meshjit.numpy.promote import concrete, promoted, shape_of
from meshjit.trace import line_of, user_source


def _coefficients(name: str, *ps: Any, inexact: bool = False) -> list[Any]:
    """In one dtype; ValueError for what is no vector."""
    vectors = [mnp.atleast_1d(mnp.asarray(p)) for p in promoted(*ps, inexact=inexact)[0]]
    for p in vectors:
        if len(shape_of(p)) != 1:
            raise ValueError(f"{name}: coefficients are vectors, got shape {shape_of(p)}\n  at {line_of(user_source())}")
    return vectors


def _trimmed(name: str, p: Any) -> Any:
    """Without zeros in front; one element at least."""
    known = concrete(p, f"{name} needs the coefficients to know how many are left", "trim_leading_zeros=False")
    places = np.nonzero(known)[0]
    return p[int(places[0]) if len(places) else len(known) - 1 :]


def _sum_of(name: str, p: Any, q: Any, sign: int) -> Any:
    p, q = _coefficients(name, p, q)
    longer = max(shape_of(p)[0], shape_of(q)[0])
    p, q = (mnp.pad(x, (longer - shape_of(x)[0], 0)) for x in (p, q))
    return p + q if sign > 0 else p - q


def polyadd(a1: Any, a2: Any) -> Any:
    """`numpy.polyadd`: the sum of two polynomials."""
    return _sum_of("polyadd", a1, a2, 1)


def polysub(a1: Any, a2: Any) -> Any:
    """`numpy.polysub`: the difference of two polynomials."""
    return _sum_of("polysub", a1, a2, -1)


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """`numpy.polymul`: the product of two polynomials, of m + n - 1 coefficients; zeros in front are left out as NumPy does
    only with trim_leading_zeros, which needs to know them."""
    p, q = _coefficients("polymul", a1, a2, inexact=True)
    if trim_leading_zeros:
        p, q = _trimmed("polymul", p), _trimmed("polymul", q)
    return mnp.convolve(p if shape_of(p)[0] else mnp.zeros(1, p.dtype), q if shape_of(q)[0] else mnp.zeros(1, q.dtype))


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """`numpy.polydiv`: (quotient, remainder); the remainder has as many coefficients as u, unless trim_leading_zeros."""
    u, v = _coefficients("polydiv", u, v, inexact=True)
    steps = shape_of(u)[0] - shape_of(v)[0] + 1
    if steps <= 0:
        quotient, rest = mnp.zeros(1, u.dtype), u
    else:
        quotient, rest = fori_loop(0, steps, lambda k, state: _divided(k, state[0], state[1], v), (mnp.zeros(steps, u.dtype), u))
    return quotient, _trimmed("polydiv", rest) if trim_leading_zeros else rest


def _divided(k: Any, quotient: Any, rest: Any, v: Any) -> tuple[Any, Any]:
    """One step of long division."""
    factor = rest[k] / v[0]
    places = k + mnp.arange(shape_of(v)[0])
    return quotient.at[k].set(factor), rest.at[places].add(-factor * v)


def polyder(p: Any, m: int = 1) -> Any:
    """`numpy.polyder`: the m-th derivative. ValueError for negative m."""
    (p,), m = _coefficients("polyder", p, inexact=True), _order("polyder", m)
    if m == 0:
        return p
    powers = mnp.arange(shape_of(p)[0] - 1, m - 1, -1, dtype=p.real.dtype)
    factors = functools.reduce(operator.mul, [powers - i for i in range(m)])
    return p[: shape_of(powers)[0]] * factors


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """`numpy.polyint`: the m-th antiderivative, with the constants k, one or m of them (zeros). ValueError for negative m."""
    m = _order("polyint", m)
    if m == 0:
        return mnp.asarray(promoted(p, inexact=True)[0][0])
    p, constants = _coefficients("polyint", p, 0 if k is None else k, inexact=True)
    if shape_of(constants)[0] not in (1, m):
        raise ValueError(
            f"polyint: k has {shape_of(constants)[0]} constants, there must be 1 or m = {m}\n  at {line_of(user_source())}"
        )
    constants = mnp.broadcast_to(constants, (m,)) if k is None or shape_of(constants)[0] != m else constants
    for i in range(m):
        powers = mnp.arange(shape_of(p)[0], 0, -1, dtype=p.real.dtype)
        p = mnp.concatenate([p / powers, constants[i : i + 1]])
    return p


def _order(name: str, m: Any) -> int:
    if int(m) < 0:
        raise ValueError(f"{name}: the order m must be 0 or more, it is {m}\n  at {line_of(user_source())}")
    return int(m)


def poly(seq_of_zeros: Any) -> Any:
    """`numpy.poly`: the monic polynomial with these roots, or the characteristic one of a square matrix."""
    (zeros,) = promoted(seq_of_zeros, inexact=True)[0]
    zeros = mnp.atleast_1d(mnp.asarray(zeros))
    shape = shape_of(zeros)
    if len(shape) == 2 and shape[0] == shape[1] and shape[0]:
        zeros = mnp.linalg.eigvals(zeros)
    elif len(shape) != 1:
        raise ValueError(f"poly takes a vector of roots or a square matrix, got shape {shape}\n  at {line_of(user_source())}")
    count = shape_of(zeros)[0]
    if not count:
        return mnp.ones((), zeros.dtype)
    first = mnp.zeros(count + 1, zeros.dtype).at[0].set(1)
    return fori_loop(0, count, lambda i, p: p - zeros[i] * mnp.roll(p, 1).at[0].set(0), first)


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """`numpy.roots`: complex, the eigenvalues of the companion matrix. With strip_zeros zeros in front and behind must be known;
    without, roots that zeros in front take away are NaN, and stand last."""
    (p,) = _coefficients("roots", p, inexact=True)
    if shape_of(p)[0] < 2:
        return mnp.zeros(0, np.result_type(np.complex64, p.dtype))
    if not strip_zeros:
        return _all_roots(p)
    known = concrete(p, "roots needs to know which coefficients are zero", "roots(p, strip_zeros=False)")
    places = np.nonzero(known)[0]
    if not len(places):
        return mnp.zeros(0, np.result_type(np.complex64, p.dtype))
    inner = _roots(p[int(places[0]) : int(places[-1]) + 1])
    return mnp.concatenate([inner, mnp.zeros(len(known) - 1 - int(places[-1]), inner.dtype)])


def _roots(p: Any) -> Any:
    n = shape_of(p)[0] - 1
    if not n:
        return mnp.zeros(0, np.result_type(np.complex64, p.dtype))
    first = -p[1:] / p[0]
    return mnp.linalg.eigvals(mnp.concatenate([first[None], mnp.eye(n - 1, n, dtype=p.dtype)]))


def _all_roots(p: Any) -> Any:
    """The zeros in front brought to the end, where each makes a root 0; the smallest ones, so many, are none."""
    missing = mnp.argmax(p != 0)
    missing = mnp.where(mnp.all(p == 0), shape_of(p)[0] - 1, missing)
    ordered = _roots(mnp.roll(mnp.where(mnp.all(p == 0), 1, p), -missing))
    ordered = ordered[mnp.argsort(-mnp.abs(ordered))]
    return mnp.where(mnp.arange(shape_of(ordered)[0]) < shape_of(ordered)[0] - missing, ordered, complex(np.nan, np.nan))


def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: bool | str = False
) -> Any:
    """`numpy.polyfit`: the polynomial of degree deg of least squares through (x [n], y [n] or [n, k]), weighted by w [n].

    With `full` also residuals, rank, singular values and rcond; with `cov` the covariances, scaled unless "unscaled"."""
    deg, line = _order("polyfit", deg), line_of(user_source())
    (x, y), _ = promoted(x, y, inexact=True)
    x, y = mnp.asarray(x), mnp.asarray(y)
    if len(shape_of(x)) != 1 or len(shape_of(y)) not in (1, 2) or shape_of(x)[0] != shape_of(y)[0] or not shape_of(x)[0]:
        raise TypeError(f"polyfit: x must be [n] and y [n] or [n, k], got {shape_of(x)} and {shape_of(y)}\n  at {line}")
    rcond = shape_of(x)[0] * float(np.finfo(x.real.dtype).eps) if rcond is None else rcond
    left, right = mnp.vander(x, deg + 1), y
    if w is not None:
        w = mnp.asarray(promoted(w, x, inexact=True)[0][0])
        if shape_of(w) != shape_of(x):
            raise TypeError(f"polyfit: w has shape {shape_of(w)}, x {shape_of(x)}\n  at {line}")
        left, right = left * w[:, None], (right.T * w).T
    scale = mnp.sqrt(mnp.sum(left * left, 0))
    c, residuals, rank, singular = mnp.linalg.lstsq(left / scale, right, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, singular, mnp.asarray(rcond)
    if not cov:
        return c
    inverse = mnp.linalg.inv(mnp.matmul(left.T, left, precision="highest") / mnp.outer(scale, scale)) / mnp.outer(scale, scale)
    factor: Any = 1
    if cov != "unscaled":
        free = shape_of(x)[0] - deg - 1
        if free <= 0:
            raise ValueError(f"polyfit: {shape_of(x)[0]} points say nothing of covariances at degree {deg}\n  at {line}")
        factor = residuals / free
    return c, inverse * factor if len(shape_of(y)) == 1 else inverse[:, :, None] * factor
