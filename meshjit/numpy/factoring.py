"""Factorizations and systems of equations as the numpy, lax and scipy surfaces share them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.numpy import ufuncs
from meshjit.numpy.creation import tril
from meshjit.numpy.promote import broadcast_shapes, broadcast_to, cast, dtype_of, ops, promoted, shape_of
from meshjit.numpy.shaping import expand_dims, moveaxis, reshape, squeeze, swapaxes
from meshjit.trace import bind, line_of, user_source


class NotAMatrixError(ValueError, TypeError):
    """An argument is no matrix, or not square: NumPy raises a ValueError there, JAX a TypeError for some functions."""


class NarrowDtypeError(TypeError, NotImplementedError):
    """An array of numbers of 16 bits: NumPy raises a TypeError there, JAX a NotImplementedError."""


_NARROW = "linear algebra is done in 32 or 64 bits a number"


def matrices(name: str, *xs: Any, square: bool = False, narrow: bool = False) -> list[Any]:
    """The operands in one inexact dtype. NotAMatrixError for a first one that is none, NarrowDtypeError for 16 bits unless
    they are taken."""
    arrays, _ = promoted(*xs, inexact=True)
    shape = shape_of(arrays[0])
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        form = "[..., n, n]" if square else "[..., m, n]"
        raise NotAMatrixError(f"{name}: argument 0 must have shape {form}, got {shape}\n  at {line_of(user_source())}")
    if dtype_of(arrays[0]).itemsize < 4 and not narrow:
        raise NarrowDtypeError(
            f"{name} takes float32, float64 or complex arrays, got {dtype_of(arrays[0])}: {_NARROW}\n"
            f"  at {line_of(user_source())}\n  fix: convert it first, with .astype('float32')"
        )
    return arrays


def transposed(x: Any) -> Any:
    return swapaxes(x, -1, -2)


def adjoint(x: Any) -> Any:
    return ufuncs.conj(transposed(x)) if dtype_of(x).kind == "c" else transposed(x)


def symmetrized(x: Any) -> Any:
    """(A + A*) / 2."""
    return ufuncs.multiply(ufuncs.add(x, adjoint(x)), 0.5)


def cholesky(x: Any, symmetrize: bool) -> Any:
    (x,) = matrices("cholesky", x, square=True)
    return bind(ops("cholesky"), symmetrized(x) if symmetrize else x)


def eigh(x: Any, lower: bool, symmetrize: bool) -> tuple[Any, Any]:
    """(eigenvectors, eigenvalues)."""
    (x,) = matrices("eigh", x, square=True)
    if symmetrize:
        return bind(ops("eigh"), symmetrized(x))
    return bind(ops("eigh"), tril(x if lower else adjoint(x)))  # what is not read may be anything, also nan


def eig(x: Any, left: bool, right: bool) -> list[Any]:
    """[eigenvalues, left eigenvectors if wanted, right ones if wanted]."""
    (x,) = matrices("eig", x, square=True)
    results = bind(ops("eig"), x, left=left, right=right)
    return list(results) if left or right else [results]


def qr(x: Any, full_matrices: bool) -> tuple[Any, Any]:
    (x,) = matrices("qr", x)
    return bind(ops("qr"), x, full_matrices=full_matrices)


def qr_pivoted(x: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """(Q, R, the order of the columns)."""
    (x,) = matrices("qr", x)
    return bind(ops("qr_pivoted"), x, full_matrices=full_matrices)


def lu(x: Any) -> tuple[Any, Any, Any]:
    """(L and U in one matrix, exchanges, order of the rows)."""
    (x,) = matrices("lu", x)
    return bind(ops("lu"), x)


# -- triangular systems


def triangular_solve(
    name: str, a: Any, b: Any, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Any:
    """x with op(A) x = b, or x op(A) = b. `b` is a matrix or, with one dim less than `a`, a vector. Numbers of 16 bits are solved
    for in float32."""
    a, b = matrices(name, a, b, square=True, narrow=True)
    if (narrow := dtype_of(a)).itemsize < 4:
        wide = (cast(a, np.float32), cast(b, np.float32))
        return cast(triangular_solve(name, *wide, left_side, lower, transpose_a, conjugate_a, unit_diagonal), narrow)
    shape, rhs_shape = shape_of(a), shape_of(b)
    is_vector = len(rhs_shape) == len(shape) - 1
    b = expand_dims(b, -1 if left_side else -2) if is_vector else b
    wide = shape_of(b)
    if len(wide) != len(shape) or wide[:-2] != shape[:-2] or wide[-2 if left_side else -1] != shape[-1]:
        side = "columns" if left_side else "rows"
        raise ValueError(
            f"{name}: matrices {shape} and right-hand side {rhs_shape} do not fit: dims before the matrices must be equal, "
            f"and {side} have {shape[-1]} elements\n  at {line_of(user_source())}"
        )
    conjugate_a = conjugate_a and dtype_of(a).kind == "c"
    if conjugate_a and not transpose_a:
        a = ufuncs.conj(a)
    how = "none" if not transpose_a else "adjoint" if conjugate_a else "transpose"
    x = bind(
        ops("triangular_solve"), a, b,
        left_side=bool(left_side), lower=bool(lower), unit_diagonal=bool(unit_diagonal), transpose_a=how,
    )  # fmt: skip
    return squeeze(x, -1 if left_side else -2) if is_vector else x


# -- general systems: A is factored once, forwards and backwards


def solve(name: str, a: Any, b: Any) -> Any:
    """x with A x = b; `b` is a vector if it has one dim, else matrices; dims before the matrices are broadcast."""
    a, b = matrices(name, a, b, square=True)
    shape, rhs_shape = shape_of(a), shape_of(b)
    is_vector = len(rhs_shape) == 1
    b = expand_dims(b, -1) if is_vector else b
    if not rhs_shape or shape_of(b)[-2] != shape[-1]:
        raise ValueError(
            f"{name}: matrices {shape} and right-hand side {rhs_shape} do not fit: columns have {shape[-1]} elements\n"
            f"  at {line_of(user_source())}\n  fix: a batch of vectors is solved as b[..., None]"
        )
    factors, _, order = bind(ops("lu"), _constant(a))
    x = _many(a, factors, order, b) if len(shape) == 2 else _batched(a, factors, order, b)
    return squeeze(x, -1) if is_vector else x


def _constant(x: Any) -> Any:
    """No derivative flows through: that of a solution follows from the matrix itself."""
    return x if isinstance(x, np.ndarray) else bind(ops("stop_gradient"), x)


def _many(a: Any, factors: Any, order: Any, b: Any) -> Any:
    """One matrix: all right-hand sides of a batch are its columns."""
    wide = moveaxis(b, -2, 0)
    rows, *rest = shape_of(wide)
    x = lu_solve(a, factors, order, reshape(wide, (rows, math.prod(rest))))
    return moveaxis(reshape(x, shape_of(wide)), 0, -2)


def _batched(a: Any, factors: Any, order: Any, b: Any) -> Any:
    batch = broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    a, factors, b = (broadcast_to(x, (*batch, *shape_of(x)[-2:])) for x in (a, factors, b))
    return lu_solve(a, factors, broadcast_to(order, (*batch, shape_of(order)[-1])), b)


def lu_solve(a: Any, factors: Any, order: Any, b: Any, transpose_a: str = "none") -> Any:
    return bind(ops("lu_solve"), a, factors, order, b, transpose_a=transpose_a)


# -- Householder reflections, and what is reduced by them


def geqrf(a: Any) -> tuple[Any, Any]:
    """(R and the reflections below it, their scales)."""
    (a,) = matrices("qr", a)
    return bind(ops("geqrf"), a)


def householder_product(a: Any, taus: Any) -> Any:
    a, taus = matrices("householder_product", a, taus)
    return bind(ops("householder_product"), a, taus)


def ormqr(a: Any, taus: Any, c: Any, left: bool, transpose: bool) -> Any:
    return bind(ops("ormqr"), *matrices("ormqr", a, taus, c), left=bool(left), transpose=bool(transpose))


def hessenberg(a: Any) -> tuple[Any, Any]:
    """(H and the reflections below it, their scales)."""
    (a,) = matrices("hessenberg", a, square=True)
    return bind(ops("hessenberg"), a)


def tridiagonal(a: Any, lower: bool) -> tuple[Any, Any, Any, Any]:
    (a,) = matrices("tridiagonal", a, square=True)
    return bind(ops("tridiagonal"), a, lower=bool(lower))


def schur(a: Any, vectors: bool = True) -> list[Any]:
    """[T, Z if wanted]."""
    (a,) = matrices("schur", a, square=True)
    results = bind(ops("schur"), a, vectors=bool(vectors))
    return list(results) if vectors else [results]


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, perturb_singular: bool = False) -> Any:
    b, dl, d, du = matrices("tridiagonal_solve", b, dl, d, du)
    return bind(ops("tridiagonal_solve"), dl, d, du, b, perturb_singular=bool(perturb_singular))
