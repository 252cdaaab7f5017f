"""Forms of matrices beside the factorizations of `lax.linalg`: reductions, updates, the polar decomposition."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from meshjit.core.types import is_inexact
from meshjit.lax.loops import fori_loop
from meshjit.numpy import factoring, linalg as numpy_linalg, powers, ufuncs
from meshjit.numpy.creation import array, eye, iota, tril
from meshjit.numpy.factoring import adjoint, matrices
from meshjit.numpy.promote import asarray, cast, dtype_of, shape_of
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import concatenate, swapaxes
from meshjit.ops.base.families import part_dtype
from meshjit.ops.linalg.svd import polar_coefficients
from meshjit.trace import line_of, user_source


class EigImplementation(enum.Enum):
    """Who finds eigenvalues of general matrices; on CPU LAPACK whatever is said."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """How eigenvalues of Hermitian matrices are found; meshjit takes what the devices have whatever is said."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """How singular values are found; meshjit takes what the devices have whatever is said."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _product(a: Any, b: Any) -> Any:
    return numpy_linalg.matmul(a, b, precision="highest")


def require_inexact(name: str, *xs: Any) -> None:
    """TypeError for integers, as in JAX's own lax."""
    for x in xs:
        if not is_inexact(dtype_of(x)):
            raise TypeError(
                f"{name} takes floats or complex numbers, got {dtype_of(x)}\n  at {line_of(user_source())}"
                "\n  fix: convert it first, with .astype(float)"
            )


def hessenberg(a: Any) -> tuple[Any, Any]:
    """(H, scales) of a [..., n, n]: H is on and above the first subdiagonal of the first result, Householder reflections below
    it, their scales [..., n - 1] the second; Q* a Q = H. On CPU alone."""
    require_inexact("hessenberg", a)
    return factoring.hessenberg(a)


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """(reflections beside the three diagonals, the diagonal [..., n], the one below (above) [..., n - 1], scales [..., n - 1]) of
    the Hermitian matrix whose lower (upper) triangle a [..., n, n] holds. On CPU alone."""
    require_inexact("tridiagonal", a)
    return factoring.tridiagonal(a, lower)


def schur(
    x: Any, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable: Any = None
) -> list[Any]:
    """[T, Z] with x = Z T Z*, of x [..., n, n], or [T] alone. T is upper triangular; of real x it has 2 x 2 blocks for pairs of
    conjugate eigenvalues. On CPU alone. NotImplementedError for sort_eig_vals, as in JAX."""
    del select_callable
    require_inexact("schur", x)
    if sort_eig_vals:
        raise NotImplementedError("schur: eigenvalues stand in LAPACK's order\n  fix: sort_eig_vals=False")
    return factoring.schur(x, compute_schur_vectors)


def householder_product(a: Any, taus: Any) -> Any:
    """The first n columns of the product of k reflections, whose vectors stand below the diagonal of a [..., m, n] and whose
    scales are taus [..., k]; m ≥ n ≥ k."""
    require_inexact("householder_product", a, taus)
    return factoring.householder_product(a, taus)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Q c, or c Q without `left`, where Q [..., m, m] is the product of the reflections in a [..., m, n] and taus [..., k]; with
    `transpose` Q*. Q itself is not made on CPU."""
    require_inexact("ormqr", a, taus, c)
    return factoring.ormqr(a, taus, c, left, transpose)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """x with A x = b [..., n, k]: A[i, i - 1] = dl[i], A[i, i] = d[i], A[i, i + 1] = du[i], all [..., n]; dl[0] and du[n - 1] are
    not read. With perturb_singular, on CPU alone, pivots that vanish are made small instead."""
    require_inexact("tridiagonal_solve", dl, d, du, b)
    return factoring.tridiagonal_solve(dl, d, du, b, perturb_singular)


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Any:
    """alpha A Aᵀ + beta C of A [..., m, n] and symmetric C [..., m, m]; with symmetrize_output the lower triangle, mirrored."""
    a, c = matrices("symmetric_product", a_matrix, c_matrix)
    result = _product(a, swapaxes(a, -1, -2)) * alpha + c * beta
    return tril(result) + swapaxes(tril(result, -1), -1, -2) if symmetrize_output else result


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """Upper R' with R'ᵀ R' = Rᵀ R + w wᵀ, of upper R [n, n] and w [n]: a rotation of two rows for every row."""
    r, w = matrices("cholesky_update", r_matrix, w_vector, square=True)
    n = shape_of(r)[-1]
    if len(shape_of(r)) != 2 or shape_of(w) != (n,):
        raise TypeError(
            f"cholesky_update takes a matrix [n, n] and a vector [n], got {shape_of(r)} and {shape_of(w)}"
            f"\n  at {line_of(user_source())}\n  fix: vmap(cholesky_update) for batches"
        )

    def rotate(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        r, w = state
        x, y = r[k, k], w[k]
        zero = y == 0
        size = ufuncs.sqrt(ufuncs.where(zero, 1, x * x + y * y))
        c, s = ufuncs.where(zero, 1, x / size), ufuncs.where(zero, 0, y / size)
        row = r[k]
        return r.at[k].set(c * row + s * w), c * w - s * row

    return fori_loop(0, n, rotate, (asarray(r), asarray(w)))[0] if n else r


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(U, H, i32 steps, whether the last one changed little) with x = U H, of x [..., m, n], m ≥ n: U has orthonormal columns, H
    is Hermitian without negative eigenvalues. dynamic_shape: the rows and columns that count, the others are zeros.

    By Halley's iteration with weights (Nakatsukasa, Bai, Gygi 2010). Its weights follow from the dtype alone, so that as many
    steps are made as the smallest singular value can need: there are derivatives, unlike in JAX, and batches."""
    require_inexact("qdwh", x)
    (a,) = matrices("qdwh", x)
    rows, columns = shape_of(a)[-2:]
    if rows < columns:
        raise ValueError(f"qdwh: needs at least as many rows as columns, got {shape_of(a)}\n  at {line_of(user_source())}")
    if dynamic_shape is not None:
        inside = (ufuncs.less(iota(np.int32, (rows, columns), d), dynamic_shape[d]) for d in (0, 1))
        a = ufuncs.where(ufuncs.logical_and(*inside), a, 0)
    u, count, small = _unitary(a, is_hermitian, max_iterations, eps)
    h = factoring.symmetrized(_product(adjoint(u), a))
    return u, h, array(count, np.int32), small


def _unitary(a: Any, is_hermitian: bool, most: int | None, eps: float | None) -> tuple[Any, int, Any]:
    dtype = part_dtype(dtype_of(a))
    least = float(np.finfo(dtype).eps if eps is None else eps)
    one, infinite = (ufuncs.abs(a).sum(d).max(-1, initial=0) for d in (-2, -1))
    size = ufuncs.sqrt(one * infinite)[..., None, None]
    x = before = a / cast(ufuncs.where(size == 0, 1, size), dtype_of(a))
    steps = polar_coefficients(least)[:most]
    for weights in steps:
        before, x = x, _step(x, *weights)
        x = factoring.symmetrized(x) if is_hermitian else x
    x = x * 1.5 - _product(x, _product(adjoint(x), x)) * 0.5  # Newton and Schulz, for the last digits
    change = ufuncs.sqrt(total(powers.square(ufuncs.abs(x - before)), (-2, -1)))
    return x, len(steps), change < (4 * least) ** (1 / 3)


def _step(x: Any, a: float, b: float, c: float) -> Any:
    """b/c X + (a - b/c) X (1 + c X* X)⁻¹; where c is large by QR, else by Cholesky."""
    n = shape_of(x)[-1]
    unit = eye(n, dtype=dtype_of(x))
    if c > 100:
        tall = concatenate([x * c**0.5, ufuncs.add(unit, x[..., :n, :] * 0)], -2)
        q = factoring.qr(tall, False)[0]
        rows = shape_of(x)[-2]
        change = _product(q[..., :rows, :], adjoint(q[..., rows:, :])) * ((a - b / c) / c**0.5)
    else:
        factor = factoring.cholesky(unit + _product(adjoint(x), x) * c, False)
        half = factoring.triangular_solve("qdwh", factor, x, False, True, True, True, False)
        change = factoring.triangular_solve("qdwh", factor, half, False, True, False, False, False) * (a - b / c)
    return x * (b / c) + change
