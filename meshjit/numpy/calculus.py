"""Sampled functions: differences, gradients, integrals, interpolation, polynomials, covariances, cross products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.numpy import division, reductions, ufuncs
from meshjit.numpy.arguments import count_of
from meshjit.numpy.contraction import matmul
from meshjit.numpy.indexing import getitem, take
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    lifted,
    normal_axes,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.rearranging import diagonal
from meshjit.numpy.shaping import (
    atleast_2d,
    concatenate,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    slice_in_dim,
    stack,
)
from meshjit.numpy.sorting import argsort, searchsorted
from meshjit.ops.base.constants import spread
from meshjit.trace import bind, line_of, user_source

_WRITTEN_OUT = 16  # coefficients of a polynomial; more are a loop, as in JAX


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours, n times; `prepend` and `append` are joined on first."""
    a = asarray(a)
    if n < 0:
        raise ValueError(f"diff: order must not be negative, got {n}")
    if not shape_of(a):
        raise ValueError("diff: an array of 0 dims has no neighbours")
    axis = normal_axis(axis, len(shape_of(a)))
    if not n:  # nothing is joined on either
        return lifted(a)
    ends = [_end(e, a, axis) for e in (prepend, append)]
    parts = [p for p in (ends[0], a, ends[1]) if p is not None]
    a = concatenate(parts, axis) if len(parts) > 1 else a
    for _ in range(n):
        extent = shape_of(a)[axis]
        later, earlier = slice_in_dim(a, min(1, extent), extent, axis=axis), slice_in_dim(a, 0, max(extent - 1, 0), axis=axis)
        a = (ufuncs.not_equal if dtype_of(a) == np.bool_ else ufuncs.subtract)(later, earlier)
    return a


def _end(end: Any, x: Any, axis: int) -> Any:
    if end is None or shape_of(end):
        return end
    return broadcast_to(end, tuple(1 if d == axis else n for d, n in enumerate(shape_of(x))))


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """`numpy.ediff1d`: the differences of the flat array's neighbours, between to_begin and to_end. TypeError for booleans."""
    if dtype_of(ary) == np.bool_:
        raise TypeError(f"ediff1d: booleans have no differences\n  at {line_of(user_source())}\n  fix: diff, or .astype(int)")
    differences = diff(ravel(ary))
    parts = [ravel(p) for p in (to_begin, differences, to_end) if p is not None]
    return concatenate(parts)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Central differences inside, one-sided ones at the borders. Spacings: one number, or per axis a number or the
    coordinates of the places [extent]. ValueError for coordinates of another shape; NotImplementedError for an edge_order,
    as in JAX, which has the one of order 1."""
    if edge_order not in (None, 1):
        raise NotImplementedError(
            f"gradient: edge_order={edge_order} is not there"
            f"\n  at {line_of(user_source())}\n  fix: leave it out"
        )
    (f,), _ = promoted(f, inexact=True)
    axes = normal_axes(axis, len(shape_of(f)))
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(f"gradient: {len(varargs)} spacings for {len(axes)} axes")
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    slopes = [_slopes(f, step, dim) for step, dim in zip(steps, axes, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _slopes(f: Any, step: Any, dim: int) -> Any:
    extent, rank = shape_of(f)[dim], len(shape_of(f))
    if extent < 2:
        raise ValueError(f"gradient: dim {dim} has extent {extent}; at least 2 are needed")
    if shape_of(step) not in ((), (extent,)):
        raise ValueError(
            f"gradient: the coordinates of dim {dim} are {shape_of(step)}, the dim has extent {extent}"
            f"\n  at {line_of(user_source())}\n  fix: coordinates of shape ({extent},), or one number"
        )
    rises = diff(f, axis=dim)
    if not shape_of(step):
        ahead, behind = slice_in_dim(rises, 1, extent - 1, axis=dim), slice_in_dim(rises, 0, extent - 2, axis=dim)
        inner = ufuncs.multiply(ufuncs.add(ahead, behind), 0.5)
        first, last = slice_in_dim(rises, 0, 1, axis=dim), slice_in_dim(rises, extent - 2, extent - 1, axis=dim)
        return ufuncs.true_divide(concatenate([first, inner, last], dim), step)
    gaps = reshape(diff(step), (-1,) + (1,) * (rank - dim - 1))
    slopes = ufuncs.true_divide(rises, gaps)
    ahead, behind = slice_in_dim(slopes, 1, extent - 1, axis=dim), slice_in_dim(slopes, 0, extent - 2, axis=dim)
    after, before = getitem(gaps, slice(1, None)), getitem(gaps, slice(None, -1))
    weighted = ufuncs.add(ufuncs.multiply(ahead, before), ufuncs.multiply(behind, after))
    inner = ufuncs.true_divide(weighted, ufuncs.add(before, after))
    first, last = slice_in_dim(slopes, 0, 1, axis=dim), slice_in_dim(slopes, extent - 2, extent - 1, axis=dim)
    return concatenate([first, inner, last], dim)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral by the trapezoid rule."""
    (y,), _ = promoted(y, inexact=True)
    y = moveaxis(y, axis, -1)
    n = shape_of(y)[-1]
    if x is not None:
        dx = diff(x) if len(shape_of(x)) == 1 else diff(moveaxis(x, axis, -1))
    pairs = ufuncs.add(slice_in_dim(y, 1, n, axis=len(shape_of(y)) - 1), slice_in_dim(y, 0, n - 1, axis=len(shape_of(y)) - 1))
    return ufuncs.multiply(reductions.sum(ufuncs.multiply(pairs, dx), axis=-1), 0.5)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Piecewise linear interpolation of (xp, fp), xp rising; outside `left` and `right` (the end values), or "extrapolate".
    With a period all repeats, and xp may stand in any order."""
    (x, xp), _ = promoted(x, xp, inexact=True)
    (fp,), _ = promoted(fp, inexact=True)
    if dtype_of(x).kind == "c":
        raise ValueError(f"interp: x and xp must be real, got {dtype_of(x)}\n  at {line_of(user_source())}")
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, period)
        left = right = None
    if shape_of(xp) != shape_of(fp) or len(shape_of(xp)) != 1:
        raise ValueError(f"interp: xp and fp must be vectors of one length, got {shape_of(xp)} and {shape_of(fp)}")
    count = shape_of(xp)[0]
    place = ufuncs.clip(searchsorted(xp, x, "right"), 1, max(count - 1, 1))
    x0, x1 = (take(xp, p, axis=0, mode="clip") for p in (ufuncs.subtract(place, 1), place))
    f0, f1 = (take(fp, p, axis=0, mode="clip") for p in (ufuncs.subtract(place, 1), place))
    gap = ufuncs.subtract(x1, x0)
    share = ufuncs.true_divide(ufuncs.subtract(x, x0), ufuncs.where(ufuncs.equal(gap, 0), 1, gap))
    result = ufuncs.where(ufuncs.equal(gap, 0), f0, ufuncs.add(f0, ufuncs.multiply(share, ufuncs.subtract(f1, f0))))
    if not isinstance(left, str):
        result = ufuncs.where(ufuncs.less(x, getitem(xp, 0)), getitem(fp, 0) if left is None else left, result)
    if not isinstance(right, str):
        result = ufuncs.where(ufuncs.greater(x, getitem(xp, -1)), getitem(fp, -1) if right is None else right, result)
    return result


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """All within one period, in order, with the last point again in front of the first, and the first behind the last."""
    period = ufuncs.absolute(cast(period, dtype_of(x)))
    order = argsort(division.remainder(xp, period))
    xp, fp = take(division.remainder(xp, period), order, axis=0), take(fp, order, axis=0)
    xp = concatenate([ufuncs.subtract(xp[-1:], period), xp, ufuncs.add(xp[:1], period)], 0)
    return division.remainder(x, period), xp, concatenate([fp[-1:], fp, fp[:1]], 0)


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    """`numpy.unwrap`: p with multiples of `period` added from where neighbours along `axis` jump by `discont` (half a
    period) or more, so that no jump is more than half a period. ValueError for complex p. Source: jax.numpy.unwrap."""
    (p, period), _ = promoted(p, period)
    if dtype_of(p).kind == "c":
        raise ValueError(f"unwrap takes real numbers, got {dtype_of(p)}\n  at {line_of(user_source())}\n  fix: jnp.angle(p)")
    axis = normal_axis(axis, len(shape_of(p)))
    extent = shape_of(p)[axis]
    if not extent:
        return p
    half = (division.floor_divide if dtype_of(p).kind in "iu" else ufuncs.true_divide)(period, 2)
    steps = diff(p, axis=axis)
    within = ufuncs.subtract(division.remainder(ufuncs.add(steps, half), period), half)
    is_rise = ufuncs.logical_and(ufuncs.equal(within, ufuncs.negative(half)), ufuncs.greater(steps, 0))
    within = ufuncs.where(is_rise, half, within)
    is_small = ufuncs.less(ufuncs.absolute(steps), ufuncs.true_divide(period, 2) if discont is None else discont)
    added = reductions.cumsum(ufuncs.where(is_small, 0, ufuncs.subtract(within, steps)), axis=axis)
    later = ufuncs.add(slice_in_dim(p, 1, extent, axis=axis), added)
    return concatenate([slice_in_dim(p, 0, 1, axis=axis), later], axis)


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """The polynomial with these coefficients, the highest power first, at x (Horner); a loop of which so many steps are written
    out at once. ValueError for negative `unroll`, TypeError for what is no integer."""
    if count_of(unroll, "polyval: unroll") and not shape_of(p):
        raise ValueError(f"polyval: coefficients are a vector, got a number\n  at {line_of(user_source())}\n  fix: [p]")
    (p, x), _ = promoted(p, x)
    result = broadcast_to(np.zeros((), dtype_of(x)), shape_of(x))
    if shape_of(p)[0] > _WRITTEN_OUT:
        return _horner(p, asarray(x), result, unroll)
    for i in range(shape_of(p)[0]):
        result = ufuncs.add(ufuncs.multiply(result, x), getitem(p, i))
    return result


def _horner(p: Any, x: Any, start: Any, unroll: int) -> Any:
    """A scan over the coefficients."""
    type = TensorType(shape_of(x), dtype_of(x))
    with Builder("horner") as builder:
        point, total, coefficient = (builder.input(t) for t in (type, type, type.with_shape(())))
        following = ops("add")(ops("multiply")(total, point), spread(coefficient, type.shape))
        body = builder.build([following])
    params = {"length": shape_of(p)[0], "reverse": False, "num_consts": 1, "num_carry": 1, "unroll": max(1, unroll)}
    return bind(ops("scan"), x, start, p, body=body, weak_type=False, **params)


def _weighted_cov(m: Any, ddof: int, fweights: Any, aweights: Any) -> Any:
    weights: Any = np.ones(shape_of(m)[1], np.float32)
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None and shape_of(given) != (shape_of(m)[1],):
            raise RuntimeError(f"cov: {name} has shape {shape_of(given)}, there are {shape_of(m)[1]} observations")
        if name == "fweights" and given is not None and dtype_of(given).kind not in "iu":
            raise TypeError(f"cov: fweights count, so they must be integers, not {dtype_of(given)}")
        weights = weights if given is None else ufuncs.multiply(weights, given)
    total = reductions.sum(weights)
    mean = ufuncs.true_divide(reductions.sum(ufuncs.multiply(m, weights), axis=1, keepdims=True), total)
    centred = ufuncs.subtract(m, mean)
    free: Any = ufuncs.subtract(total, ddof)
    if aweights is not None:
        squares = reductions.sum(ufuncs.multiply(weights, aweights))
        free = ufuncs.subtract(total, ufuncs.true_divide(ufuncs.multiply(ddof, squares), total))
    products = matmul(ufuncs.multiply(centred, weights), ufuncs.conjugate(moveaxis(centred, 0, 1)))
    return ufuncs.true_divide(products, free)


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of 3 (or, giving numbers, of 2) elements along axisa and axisb, and in axisc; `axis` is
    all three."""
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    (a, b), _ = promoted(moveaxis(a, axisa, -1), moveaxis(b, axisb, -1))
    sizes = (shape_of(a)[-1], shape_of(b)[-1])
    if any(n not in (2, 3) for n in sizes):
        raise ValueError(f"cross: vectors must have 2 or 3 elements, got {sizes[0]} and {sizes[1]}")
    broadcast_shapes(shape_of(a)[:-1], shape_of(b)[:-1])

    def part(v: Any, i: int) -> Any:
        return getitem(v, (..., i)) if i < shape_of(v)[-1] else 0

    def minor(i: int, j: int) -> Any:
        return ufuncs.subtract(ufuncs.multiply(part(a, i), part(b, j)), ufuncs.multiply(part(a, j), part(b, i)))

    if sizes == (2, 2):
        return minor(0, 1)
    return moveaxis(stack([minor(1, 2), minor(2, 0), minor(0, 1)], axis=-1), -1, axisc)


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
    aweights: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """Covariances of variables in rows (columns if not rowvar); a vector is one variable. NaN of no observations. Each
    observation counts fweights times (integers), and by its share of aweights. ValueError for an array of more than 2 dims."""
    m = _variables(m, rowvar, "cov: x")
    m = m if y is None else concatenate([m, _variables(y, rowvar, "cov: y")], 0)
    m = m if dtype is None else cast(m, dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if fweights is not None or aweights is not None:
        result = _weighted_cov(m, ddof, fweights, aweights)
        return reshape(result, ()) if shape_of(result) == (1, 1) else result
    centred = ufuncs.subtract(m, reductions.mean(m, axis=1, keepdims=True))
    products = matmul(centred, ufuncs.conjugate(moveaxis(centred, 0, 1)))
    count = shape_of(m)[1]
    result = ufuncs.true_divide(products, float(count - ddof) if count else 0.0)
    return reshape(result, ()) if shape_of(result) == (1, 1) else result


def _variables(x: Any, rowvar: bool, name: str) -> Any:
    """Each variable as a row."""
    rank = len(shape_of(x))
    if rank > 2:
        raise ValueError(f"{name} must have at most 2 dims, it has shape {shape_of(x)}\n  at {line_of(user_source())}")
    (x,), _ = promoted(atleast_2d(x), inexact=True)
    return x if rowvar or rank < 2 else moveaxis(x, 0, 1)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """Correlations: covariances over the deviations, cut to [-1, 1]."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not shape_of(c):
        return ufuncs.true_divide(c, c)

    deviation = ufuncs.sqrt(ufuncs.real(diagonal(c)))
    result = ufuncs.true_divide(c, ufuncs.multiply(expand_dims(deviation, 1), expand_dims(deviation, 0)))
    return result if dtype_of(result).kind == "c" else ufuncs.clip(result, -1, 1)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The choice of the first condition that holds, else the default."""
    condlist, choicelist = list(condlist), list(choicelist)
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(f"select: {len(condlist)} conditions for {len(choicelist)} choices")
    (*choicelist, result), _ = promoted(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = ufuncs.where(condition, choice, result)
    return result
