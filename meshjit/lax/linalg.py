"""`jax.lax.linalg`: factorizations and triangular systems of batches of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.lax import matrix_forms
from meshjit.lax.loops import fori_loop
from meshjit.lax.matrix_forms import (
    EighImplementation as EighImplementation,
    EigImplementation as EigImplementation,
    SvdAlgorithm as SvdAlgorithm,
    cholesky_update as cholesky_update,
    hessenberg as hessenberg,
    householder_product as householder_product,
    ormqr as ormqr,
    qdwh as qdwh,
    schur as schur,
    symmetric_product as symmetric_product,
    tridiagonal as tridiagonal,
    tridiagonal_solve as tridiagonal_solve,
)
from meshjit.missing import explain as _explain
from meshjit.numpy import factoring, singular, ufuncs
from meshjit.numpy.creation import arange
from meshjit.numpy.promote import asarray, broadcast_to, cast, dtype_of, shape_of
from meshjit.numpy.reductions import sum as total
from meshjit.trace import line_of, user_source, vary, varying_of


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """Lower L with x = L L*, of the Hermitian positive definite x [..., n, n]; nan where there is none.

    symmetrize_input takes (x + x*) / 2; otherwise only the lower triangle is read."""
    if not symmetrize_input:  # which makes floats of integers
        matrix_forms.require_inexact("cholesky", x)
    return factoring.cholesky(x, symmetrize_input)


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[Any]:
    """[eigenvalues, left eigenvectors, right eigenvectors] of x [..., n, n], complex, without those that are not wanted.

    On CPU alone. Eigenvectors have length 1 and their largest element real and positive; so they have derivatives wherever
    no two eigenvalues are equal."""
    del enable_eigvec_derivs, implementation, use_magma
    matrix_forms.require_inexact("eig", x)
    return factoring.eig(x, bool(compute_left_eigenvectors), bool(compute_right_eigenvectors))


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: Any = None,
) -> tuple[Any, Any]:
    """(eigenvectors as columns, eigenvalues, rising) of Hermitian x [..., n, n].

    With subset_by_index (a, b) those from a to before b. They are rising whatever sort_eigenvalues says."""
    del sort_eigenvalues, implementation
    matrix_forms.require_inexact("eigh", x)
    v, w = factoring.eigh(x, lower, symmetrize_input)
    if subset_by_index is None:
        return v, w
    first, end = subset_by_index
    if not 0 <= first < end <= shape_of(w)[-1]:
        raise ValueError(f"eigh: subset_by_index {subset_by_index} is no range within {shape_of(w)[-1]} eigenvalues")
    return v[..., first:end], w[..., first:end]


def lu(x: Any) -> tuple[Any, Any, Any]:
    """(L and U in one matrix, i32 [..., k] the row that row i was exchanged with, i32 [..., m] the order of the rows) of
    x [..., m, n], k = min(m, n): the rows of x in this order are L U."""
    matrix_forms.require_inexact("lu", x)
    return factoring.lu(x)


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """i32 [..., permutation_size]: the order of rows of which row i was exchanged with row pivots[..., i], in turn."""
    if isinstance(pivots, list | tuple) or not shape_of(pivots) or dtype_of(pivots) != np.int32:
        raise TypeError(
            f"lu_pivots_to_permutation takes int32 [..., k], got {dtype_of(pivots)} of shape {shape_of(pivots)}"
            f"\n  at {line_of(user_source())}\n  fix: the second result of lax.linalg.lu"
        )
    *batch, steps = shape_of(pivots)
    if steps > permutation_size:
        raise ValueError(f"lu_pivots_to_permutation: {steps} exchanges of {permutation_size} rows\n  at {line_of(user_source())}")
    places = arange(permutation_size, dtype=np.int32)
    pivots = cast(asarray(pivots), np.int32)

    def exchange(i: Any, order: Any) -> Any:
        other = total(ufuncs.where(ufuncs.equal(arange(steps, dtype=np.int32), i), pivots, 0), -1, keepdims=True)
        is_other, is_own = ufuncs.equal(places, cast(other, np.int32)), ufuncs.equal(places, i)
        mine, theirs = (total(ufuncs.where(m, order, 0), -1, keepdims=True) for m in (is_own, is_other))
        return cast(ufuncs.where(is_own, theirs, ufuncs.where(is_other, mine, order)), np.int32)

    first = vary(broadcast_to(places, (*batch, permutation_size)), varying_of(pivots))
    return fori_loop(0, steps, exchange, first)


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> tuple[Any, ...]:
    """(Q, R) with x = Q R, of x [..., m, n]: Q is [..., m, m], or [..., m, min(m, n)] without full_matrices.

    With pivoting (Q, R, i32 [..., n] p) with x[..., p] = Q R, the diagonal of R falling in size; on CPU alone."""
    del use_magma
    matrix_forms.require_inexact("qr", x)
    if pivoting:
        return tuple(factoring.qr_pivoted(x, full_matrices))
    return factoring.qr(x, full_matrices)


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> Any:
    """(U, S, Vh) with x = U S Vh, of x [..., m, n], S falling; or S alone. See jax.lax.linalg.svd."""
    del algorithm
    matrix_forms.require_inexact("svd", x)
    results = singular.svd(x, full_matrices, compute_uv, False, subset_by_index)
    return tuple(results) if compute_uv else results


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """x with op(a) x = b (left_side) or x op(a) = b, for a triangular `a` [..., n, n] of which one triangle is read.

    `b` is [..., n, k] (left_side) or [..., k, n], or a vector [..., n]."""
    matrix_forms.require_inexact("triangular_solve", a, b)
    how = (left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    return factoring.triangular_solve("triangular_solve", a, b, *how)

_explain(__name__)
