"""What is made of singular values: svd, pinv, rank, least squares, condition numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meshjit.core.types import TensorType
from meshjit.numpy import contraction, factoring, powers, reductions, shaping, ufuncs
from meshjit.numpy.factoring import NotAMatrixError, adjoint, matrices
from meshjit.numpy.indexing import take_along_axis
from meshjit.numpy.promote import cast, dtype_of, ops, promoted, shape_of
from meshjit.numpy.sorting import argsort
from meshjit.ops.base.families import part_dtype
from meshjit.trace import bind, line_of, user_source


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """`jax.numpy.linalg.svd`: (U, S, Vh) with a = U S Vh, S falling, or S alone; U and Vh are square with full_matrices.

    With `hermitian` it is had from eigh of (a + aᴴ) / 2. subset_by_index (i, j) keeps the values from i to before j."""
    (a,) = matrices("svd", a, square=hermitian)
    if not compute_uv and not hermitian:
        u, s, vh = a, bind(ops("svd"), a, vectors=False), a
    else:
        u, s, vh = _hermitian(a) if hermitian else bind(ops("svd"), a, vectors=True)
    if subset_by_index is not None:
        first, end = subset_by_index
        if full_matrices and compute_uv or not 0 <= first < end <= shape_of(s)[-1]:
            raise ValueError(
                f"svd: subset_by_index {subset_by_index} must be a range within {shape_of(s)[-1]} values, "
                f"and needs full_matrices=False\n  at {line_of(user_source())}"
            )
        s = s[..., first:end]
        u, vh = (u[..., first:end], vh[..., first:end, :]) if compute_uv else (u, vh)
    if not compute_uv:
        return s
    if full_matrices:
        u, vh = _completed(u), adjoint(_completed(adjoint(vh)))
    return SVDResult(u, s, vh)


def _hermitian(a: Any) -> tuple[Any, Any, Any]:
    """|eigenvalues| falling; a negative one turns its left vector round."""
    v, w = factoring.eigh(a, True, True)
    order = argsort(ufuncs.negative(ufuncs.absolute(w)), axis=-1)
    w = take_along_axis(w, order, -1)
    v = take_along_axis(v, shaping.broadcast_arrays(shaping.expand_dims(order, -2), v)[0], -1)
    signs = cast(ufuncs.where(ufuncs.less(w, 0), -1, 1), dtype_of(v))
    return ufuncs.multiply(v, shaping.expand_dims(signs, -2)), ufuncs.absolute(w), adjoint(v)


def _completed(u: Any) -> Any:
    """Orthonormal columns and, beside them, as many as the square needs."""
    rows, columns = shape_of(u)[-2:]
    if rows == columns:
        return u
    q, _ = factoring.qr(u, True)
    return shaping.concatenate([u, q[..., columns:]], -1)


def svdvals(x: Any, /) -> Any:
    """`jax.numpy.linalg.svdvals`: the singular values, falling."""
    return svd(x, compute_uv=False)


def _eps(x: Any) -> float:
    return float(np.finfo(part_dtype(dtype_of(x))).eps)


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """`jax.numpy.linalg.pinv`: singular values up to rtol (10 max(m, n) eps) times the largest count as zero.

    With `hermitian` it is that of (a + aᴴ) / 2."""
    (a,) = matrices("pinv", a, square=hermitian)
    if rtol is not None and rcond is not None:
        raise ValueError(f"pinv: rtol and rcond mean the same, give one of them\n  at {line_of(user_source())}")
    a = factoring.symmetrized(a) if hermitian else a
    rtol = rcond if rtol is None else rtol
    tolerance = 10.0 * max(shape_of(a)[-2:]) * _eps(a) if rtol is None else rtol
    if isinstance(tolerance, int | float | np.number):
        return bind(ops("pinv"), a, rtol=float(tolerance), weak_type=False)
    u, s, vh = bind(ops("svd"), a, vectors=True)
    limit = ufuncs.multiply(s[..., :1], shaping.expand_dims(tolerance, -1) if shape_of(tolerance) else tolerance)
    inverse = ufuncs.where(ufuncs.greater(s, limit), ufuncs.divide(1, s), 0)
    weighted = ufuncs.multiply(vh, shaping.expand_dims(cast(inverse, dtype_of(s)), -1))
    return contraction.matmul(adjoint(weighted), adjoint(u), precision="highest")


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:  # noqa: N803
    """`jax.numpy.linalg.matrix_rank`: singular values above `tol`, or above rtol (max(m, n) eps) times the largest."""
    if tol is not None and rtol is not None:
        raise ValueError(f"matrix_rank: give tol or rtol, not both\n  at {line_of(user_source())}")
    x = promoted(M, inexact=True)[0][0]
    if len(shape_of(x)) < 2:
        return cast(reductions.any_(ufuncs.not_equal(x, 0)), np.int32)
    s = svd(x, False, False, hermitian)
    if tol is None:
        rtol = max(shape_of(x)[-2:]) * _eps(x) if rtol is None else rtol
        tol = ufuncs.multiply(reductions.max(s, axis=-1), rtol)
    return reductions.sum(ufuncs.greater(s, shaping.expand_dims(tol, -1) if shape_of(tol) else tol), axis=-1)


def lstsq(a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """`jax.numpy.linalg.lstsq`: (x of least |a x - b|, its squared residuals, rank, singular values) of one system
    [m, n]. Singular values below rcond (max(m, n) eps) times the largest count as zero; numpy_resid leaves residuals
    out, as NumPy does, where the rank is traced to be less than n or m is not more than n."""
    (a, b) = matrices("lstsq", a, b)
    rows, columns = _one_matrix(a, b)
    is_vector = len(shape_of(b)) == 1
    b = shaping.expand_dims(b, -1) if is_vector else b
    u, s, vh = bind(ops("svd"), a, vectors=True)
    rcond = max(rows, columns) * _eps(a) if rcond is None else rcond
    counts = ufuncs.logical_and(ufuncs.greater(s, 0), ufuncs.greater_equal(s, ufuncs.multiply(s[:1], rcond)))
    inverse = cast(ufuncs.where(counts, ufuncs.divide(1, ufuncs.where(counts, s, 1)), 0), dtype_of(s))
    inside = ufuncs.multiply(contraction.matmul(adjoint(u), b, precision="highest"), shaping.expand_dims(inverse, -1))
    x = contraction.matmul(adjoint(vh), inside, precision="highest")
    rest = ufuncs.absolute(ufuncs.subtract(b, contraction.matmul(a, x, precision="highest")))
    residuals = reductions.sum(powers.square(rest), axis=0)
    if numpy_resid and rows <= columns:
        residuals = residuals[:0]
    return shaping.squeeze(x, -1) if is_vector else x, residuals, reductions.sum(cast(counts, np.int32)), s


def _one_matrix(a: Any, b: Any) -> tuple[int, int]:
    shape, rhs_shape = shape_of(a), shape_of(b)
    if len(shape) != 2 or len(rhs_shape) not in (1, 2) or rhs_shape[0] != shape[0]:
        kind = TensorType(shape, dtype_of(a))
        raise NotAMatrixError(
            f"lstsq: takes one matrix [m, n] and [m] or [m, k], got {kind} and {rhs_shape}\n  at {line_of(user_source())}\n"
            "  fix: use vmap for a batch"
        )
    return shape[0], shape[1]
