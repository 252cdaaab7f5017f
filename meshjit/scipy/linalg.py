"""`jax.scipy.linalg`: factors, and systems of equations with them. overwrite_a and check_finite are SciPy's and mean nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import lax
from meshjit.lax import linalg as lax_linalg
from meshjit.missing import explain as _explain
from meshjit.numpy import factoring, linalg as numpy_linalg, promote, rearranging, shaping, sorting, ufuncs
from meshjit.numpy.creation import eye, iota, tril, triu, zeros
from meshjit.numpy.factoring import adjoint, matrices
from meshjit.numpy.indexing import take_along_axis
from meshjit.numpy.promote import asarray, broadcast_to, dtype_of, promoted, shape_of
from meshjit.numpy.shaping import concatenate, expand_dims, squeeze
from meshjit.ops.base.families import part_dtype
from meshjit.scipy import operands
from meshjit.scipy.matrix_forms import (
    hessenberg as hessenberg,
    polar as polar,
    qr_multiply as qr_multiply,
    rsf2csf as rsf2csf,
    schur as schur,
)
from meshjit.scipy.matrix_functions import (
    expm as expm,
    expm_frechet as expm_frechet,
    funm as funm,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from meshjit.scipy.special_matrices import (
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
)
from meshjit.scipy.tridiagonal import eigh_tridiagonal as eigh_tridiagonal
from meshjit.trace import line_of, user_source


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.cholesky`: upper R with a = R* R, or lower L with a = L L*, of the matrix whose upper, or lower, triangle
    `a` holds."""
    del overwrite_a, check_finite
    (a,) = matrices("cholesky", a, square=True)
    factor = factoring.cholesky(a if lower else adjoint(a), False)
    return factor if lower else adjoint(factor)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """`jax.scipy.linalg.cho_factor`: the factor and `lower`, for cho_solve."""
    return cholesky(a, lower, overwrite_a, check_finite), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.cho_solve`: x with a x = b, from the factor of `a`."""
    del overwrite_b, check_finite
    factor, lower = c_and_lower
    first = solve_triangular(factor, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(factor, first, trans=2 if lower else 0, lower=lower)


_TRANS: dict[Any, tuple[bool, bool]] = {0: (False, False), 1: (True, False), 2: (True, True)}
_TRANS |= {"N": _TRANS[0], "T": _TRANS[1], "C": _TRANS[2]}


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Any:
    """`jax.scipy.linalg.solve_triangular`: op(a) x = b; trans 0 ("N") is a, 1 ("T") its transpose, 2 ("C") its adjoint.
    `b` is one vector, or matrices [..., n, k]."""
    del overwrite_b, debug, check_finite
    if trans not in _TRANS:
        raise ValueError(f"solve_triangular: trans is {trans!r}; write 0, 1 or 2\n  at {line_of(user_source())}")
    a, b = matrices("solve_triangular", a, b, square=True, narrow=True)
    is_vector = len(shape_of(b)) == 1
    b = expand_dims(b, -1) if is_vector else b
    batch = np.broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    a, b = (broadcast_to(x, (*batch, *shape_of(x)[-2:])) for x in (a, b))
    x = factoring.triangular_solve("solve_triangular", a, b, True, lower, *_TRANS[trans], unit_diagonal)
    return squeeze(x, -1) if is_vector else x


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """`jax.scipy.linalg.lu_factor`: L and U in one matrix, and the exchanges of rows, for lu_solve."""
    del overwrite_a, check_finite
    factors, pivots, _ = factoring.lu(a)
    return factors, pivots


def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.lu_solve`: op(a) x = b from the factors of `a`; trans as in solve_triangular."""
    del overwrite_b, check_finite
    factors, pivots = lu_and_piv
    (factors,) = matrices("lu_solve", factors, square=True)
    order = lax_linalg.lu_pivots_to_permutation(pivots, shape_of(factors)[-1])
    b = promoted(factors, b)[0][1]
    is_vector = len(shape_of(b)) == 1
    b = expand_dims(b, -1) if is_vector else b
    if trans == 0:
        b = solve_triangular(factors, _rows(b, order), lower=True, unit_diagonal=True)
        x = solve_triangular(factors, b)
    else:
        b = solve_triangular(factors, b, trans=trans)
        x = solve_triangular(factors, b, trans=trans, lower=True, unit_diagonal=True)
        x = _rows(x, _inverse(order))
    return squeeze(x, -1) if is_vector else x


def _rows(b: Any, order: Any) -> Any:
    *batch, rows, columns = np.broadcast_shapes(shape_of(b), (*shape_of(order), 1))
    b = broadcast_to(b, (*batch, rows, columns))
    return take_along_axis(b, broadcast_to(expand_dims(order, -1), shape_of(b)), -2)


def _inverse(order: Any) -> Any:
    return sorting.argsort(order, axis=-1)


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, ...]:
    """`jax.scipy.linalg.lu`: (P, L, U) with a = P L U, or (P L, U) with permute_l."""
    del overwrite_a, check_finite
    (a,) = matrices("lu", a)
    factors, _, order = factoring.lu(a)
    rows, columns = shape_of(a)[-2:]
    steps = min(rows, columns)
    lower = tril(factors[..., :, :steps], -1) + eye(rows, steps, dtype=dtype_of(a))
    upper = triu(factors[..., :steps, :])
    if permute_l:
        return _rows(lower, _inverse(order)), upper
    exchange = ufuncs.equal(expand_dims(order, -2), iota(np.int32, (rows, 1), 0))
    return exchange.astype(part_dtype(dtype_of(a))), lower, upper


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Any, ...]:
    """`jax.scipy.linalg.qr`: mode is "full", "economic" or "r" (R alone, in a tuple); with pivoting the columns' order, too."""
    del overwrite_a, lwork, check_finite
    if mode not in ("full", "economic", "r"):
        raise ValueError(f'qr: mode is {mode!r}; write "full", "economic" or "r"\n  at {line_of(user_source())}')
    (a,) = matrices("qr", a)
    factors = lax_linalg.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return factors[1:] if mode == "r" else factors


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: Any = None,
    type: int = 1,  # noqa: A002
    check_finite: bool = True,
) -> Any:
    """`scipy.linalg.eigh`: (eigenvalues, rising, eigenvectors) of Hermitian `a`, or the eigenvalues alone. As in
    JAX it is of (a + aᴴ) / 2, whatever `lower` is.

    With a positive definite `b`, for all three types (JAX has none of them): a v = w b v (1), a b v = w v (2) or b a v = w v
    (3); vectors have v* b v = 1, of type 3 v* b⁻¹ v = 1. Then the triangle of both that `lower` says is read."""
    del overwrite_a, overwrite_b, turbo, check_finite
    if eigvals is not None:
        raise NotImplementedError("eigh: eigvals must be None; take a slice of all of them\n  fix: eigh(a)[0][first:end]")
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type is {type!r}; write 1, 2 or 3\n  at {line_of(user_source())}")
    if b is None:
        vectors, values = factoring.eigh(a, lower, True)
    else:
        vectors, values = _generalised(a, b, lower, type)
    return values if eigvals_only else (values, vectors)


def _generalised(a: Any, b: Any, lower: bool, kind: int) -> tuple[Any, Any]:
    """With b = L L*: the eigenvectors y of L⁻¹ a L⁻* (type 1) or L* a L; v is L⁻* y, of type 3 L y."""
    a, b = matrices("eigh", a, b, square=True)
    a, b = (x if lower else adjoint(x) for x in (a, b))
    a = tril(a, -1) + adjoint(tril(a))
    factor = factoring.cholesky(b, False)
    if kind == 1:
        half = solve_triangular(factor, a, lower=True)
        inner = adjoint(solve_triangular(factor, adjoint(half), lower=True))
    else:
        inner = _product(_product(adjoint(factor), a), factor)
    y, values = factoring.eigh(inner, True, True)
    return _product(factor, y) if kind == 3 else solve_triangular(factor, y, trans=2, lower=True), values


def _product(a: Any, b: Any) -> Any:
    return numpy_linalg.matmul(a, b, precision="highest")


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """`jax.scipy.linalg.solve`: a x = b; assume_a="pos" goes by Cholesky, reading the triangle that `lower` says. Derivatives are
    those of the equation, by all elements of `a`."""
    del overwrite_a, overwrite_b, debug, check_finite
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f'solve: assume_a is {assume_a!r}; write "gen", "sym", "her" or "pos"\n  at {line_of(user_source())}')
    if assume_a != "pos":
        return factoring.solve("solve", a, b)
    (a,) = matrices("solve", a, square=True)
    a, b = promoted(a, b, inexact=True)[0]
    batch = shape_of(a)[:-1]
    if batch not in (shape_of(b), shape_of(b)[:-1]):
        line = line_of(user_source())
        raise ValueError(f"solve: a is {shape_of(a)}, so b must be {batch} or one dim more, not {shape_of(b)}\n  at {line}")
    known = lax.stop_gradient(a)
    factor = lax_linalg.cholesky(known if lower else adjoint(known), symmetrize_input=False)
    return lax.custom_linear_solve(lambda x: _product(a, x), b, lambda _, y: cho_solve((factor, True), y), symmetric=True)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """`jax.scipy.linalg.svd`: (U, s, Vh), or s alone."""
    del overwrite_a, check_finite, lapack_driver
    (a,) = matrices("svd", a)
    return lax_linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.det`."""
    del overwrite_a, check_finite
    return numpy_linalg.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.inv`."""
    del overwrite_a, check_finite
    return numpy_linalg.inv(a)


def block_diag(*arrs: Any) -> Any:
    """`jax.scipy.linalg.block_diag`: matrices along the diagonal of one; vectors are rows."""
    operands.refuse_lists(*arrs)
    blocks, _ = promoted(*(arrs or (np.zeros((1, 0), np.float32),)))
    if any(len(shape_of(x)) > 2 for x in blocks):
        raise ValueError(f"block_diag: takes arrays of 2 dims at most, got {[shape_of(x) for x in blocks]}")
    blocks = [x if len(shape_of(x)) == 2 else x.reshape(1, -1) for x in blocks]
    width = sum(shape_of(x)[1] for x in blocks)
    rows, start = [], 0
    for x in blocks:
        here, columns = shape_of(x)
        sides = (zeros((here, n), dtype_of(x)) for n in (start, width - start - columns))
        before, behind = sides
        rows.append(concatenate([before, x, behind], 1))
        start += columns
    return concatenate(rows, 0)


def toeplitz(c: Any, r: Any = None) -> Any:
    """`jax.scipy.linalg.toeplitz`: first column c [..., m], first row r [..., n] (of which the first is not read; default
    conj(c)), whose leading dims are broadcast."""
    operands.refuse_lists(c, r)
    c = shaping.atleast_1d(c)
    r = ufuncs.conj(c) if r is None else shaping.atleast_1d(r)
    line, rows, columns = _line(rearranging.flip(c, -1), r)
    row, column = (iota(np.int32, (rows, columns), d) for d in (0, 1))
    place = ufuncs.add(ufuncs.subtract(rows - 1, row), column)
    return line[..., place] if rows and columns else zeros((*shape_of(line)[:-1], rows, columns), dtype_of(line))


def hankel(c: Any, r: Any = None) -> Any:
    """`jax.scipy.linalg.hankel`: first column c [..., m], last row r [..., n] (of which the first is not read; default zeros),
    whose leading dims are broadcast. ValueError for scalars."""
    operands.refuse_lists(c, r)
    c = asarray(c)
    r = ufuncs.multiply(c, 0) if r is None else asarray(r)
    if not shape_of(c) or not shape_of(r):
        raise ValueError(f"hankel: c and r are vectors, got {shape_of(c)} and {shape_of(r)}\n  at {line_of(user_source())}")
    line, rows, columns = _line(c, r)
    place = ufuncs.add(*(iota(np.int32, (rows, columns), d) for d in (0, 1)))
    return line[..., place] if rows and columns else zeros((*shape_of(line)[:-1], rows, columns), dtype_of(line))


def _line(first: Any, second: Any) -> tuple[Any, int, int]:
    """The vectors [..., m] and [..., n] one behind the other, without the first of the second, never weak; m; n."""
    (first, second), _ = promoted(first, second)
    m, n = shape_of(first)[-1], shape_of(second)[-1]
    batch = promote.broadcast_shapes(shape_of(first)[:-1], shape_of(second)[:-1])
    first, second = broadcast_to(first, (*batch, m)), broadcast_to(second, (*batch, n))
    line = concatenate([first, second[..., 1:]], -1)
    return promote.exactly(line, dtype_of(line)), m, n


_explain(__name__)
