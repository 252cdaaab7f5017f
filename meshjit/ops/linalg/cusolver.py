"""Decompositions whose routines cuSOLVER has in another form than LAPACK, for GPUs.

Source: NVIDIA, cuSOLVER API (gesvd, gesvdj, gesvdjBatched, Xgeev). gesvd takes matrices of no fewer rows than columns; gesvdj, by
Jacobi's rotations, gives V instead of V*, and of small matrices square U and V. Xgeev gives the eigenvectors of real matrices as
LAPACK does, the real and the imaginary parts of a pair in two columns, and no left ones.
"""

from __future__ import annotations

import functools
from typing import Any

from meshjit.core.op import Types
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, divide, multiply, negate
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import zeros_like
from meshjit.ops.base.conversion import complex_, imag, real
from meshjit.ops.base.reduction import reduce_sum, restore
from meshjit.ops.base.transcendental import sqrt
from meshjit.ops.linalg.eigh import eye_like
from meshjit.ops.linalg.lu import lu
from meshjit.ops.linalg.lu_solve import lu_solve
from meshjit.ops.linalg.matrices import adjoint
from meshjit.ops.linalg.routines import call, info_type, without_bad
from meshjit.ops.slicing.roll import roll
from meshjit.ops.slicing.slices import cut

_ROTATED = 1024  # rows and columns up to which Jacobi's rotations are quicker (NVIDIA, GTC 2019, S9226)
_FULL = 32  # up to which they are made for a whole batch at once, and give square U and V


def singular(e: Any, a: str, type: TensorType, outs: Types) -> list[str]:
    """[U, s, V*, info, finite], with as many columns and rows as there are values; or [s, info, finite] if `outs` is s alone."""
    *batch, rows, columns = type.shape
    values, is_alone = outs[0 if len(outs) == 1 else 1], len(outs) == 1
    a, good = without_bad(e, a)
    if max(rows, columns) <= _ROTATED:
        left, s, right, info = _by_rotations(e, a, type, values, is_alone)
    elif rows >= columns:
        left, s, right, info = _by_steps(e, a, type, values, is_alone)
    else:
        turned = type.with_shape((*batch, columns, rows))
        (a,) = e.program(_adjoints(type), [a])
        right, s, left, info = _by_steps(e, a, turned, values, is_alone)
        left, right = ("", "") if is_alone else e.program(_adjoints(e.types[left], e.types[right]), [left, right])
    return [s, info, good] if is_alone else [left, s, right, info, good]


def _by_rotations(e: Any, a: str, type: TensorType, values: TensorType, is_alone: bool) -> tuple[str, str, str, str]:
    """gesvdj: (U, s, V*, info). It writes U and V even where nobody asks for them."""
    *batch, rows, columns = type.shape
    is_full, least = min(rows, columns) <= _FULL, min(rows, columns)
    u = type.with_shape((*batch, rows, rows if is_full else least))
    v = type.with_shape((*batch, columns, columns if is_full else least))
    options = f"compute_uv = {str(not is_alone).lower()}, full_matrices = {str(is_full).lower()}"
    _, s, left, right, info = call(e, "gesvdj", [a], (type, values, u, v, info_type(type)), options, in_place={0: 0})
    if is_alone:
        return "", s, "", info
    left, right = e.program(_first_columns(u, v, least), [left, right])
    return left, s, right, info


def _by_steps(e: Any, a: str, type: TensorType, values: TensorType, is_alone: bool) -> tuple[str, str, str, str]:
    """gesvd, of no fewer rows than columns: (U, s, V*, info)."""
    *batch, rows, columns = type.shape
    none = TensorType((), type.dtype)
    u, vh = (none, none) if is_alone else (type, type.with_shape((*batch, columns, columns)))
    options = f"compute_uv = {str(not is_alone).lower()}, full_matrices = false, transposed = false"
    results = (type, values, u, vh, info_type(type))
    _, s, left, right, info = call(e, "gesvd", [a], results, options, in_place={0: 0})
    return left, s, right, info


@functools.lru_cache(maxsize=64)
def _adjoints(*types: TensorType) -> Program:
    with Builder("adjoints") as builder:
        return builder.build([adjoint(builder.input(type)) for type in types])


@functools.lru_cache(maxsize=64)
def _first_columns(u: TensorType, v: TensorType, count: int) -> Program:
    """Of U and V as many columns as there are values; of V as V*."""
    with Builder("columns") as builder:
        left, right = (cut(x, x.rank - 1, 0, count) for x in (builder.input(u), builder.input(v)))
        return builder.build([left, adjoint(right)])


def eigen_general(e: Any, a: str, type: TensorType, outs: Types, left: bool, right: bool) -> list[str]:
    """[eigenvalues, left eigenvectors if asked for, right ones if asked for, info, finite]. Left ones are the columns of V⁻*."""
    values, vectors = outs[0], type.with_dtype(outs[0].dtype)
    a, good = without_bad(e, a)
    options = f"left = false, right = {str(left or right).lower()}"
    _, w, _, packed, info = call(e, "geev", [a], (type, values, type, type, info_type(type)), options, in_place={0: 0})
    if not left and not right:
        return [w, info, good]
    v = packed if type.dtype.kind == "c" else e.program(_pairs(values, type), [w, packed])[0]
    lower = e.program(_left(vectors), [v]) if left else []
    return [w, *lower, *([v] if right else []), info, good]


@functools.lru_cache(maxsize=64)
def _pairs(values: TensorType, type: TensorType) -> Program:
    """Eigenvectors of a real matrix. Complex values come in pairs, the one with the positive imaginary part first: its vector is
    its column and i times the next one; the second's is the conjugate."""
    with Builder("pairs") as builder:
        w, packed = builder.input(values), builder.input(type)
        zero, last = zeros_like(imag(w)), type.rank - 1
        signs = [compare(imag(w), zero, direction=direction) for direction in ("GT", "LT")]
        first, second = (restore(sign, packed.shape, (packed.rank - 2,)) for sign in signs)
        before, behind = (roll(packed, shift=shift, dimension=last) for shift in (1, -1))
        below = select(second, negate(packed), zeros_like(packed))
        return builder.build([complex_(select(second, before, packed), select(first, behind, below))])


@functools.lru_cache(maxsize=64)
def _left(type: TensorType) -> Program:
    """From the right eigenvectors V the left ones: the columns of V⁻*, each of length 1."""
    with Builder("left") as builder:
        v = builder.input(type)
        factors, _, order = lu(v)
        u = adjoint(lu_solve(v, factors, order, eye_like(v), transpose_a="none"))
        squares = multiply(real(u), real(u)), multiply(imag(u), imag(u))
        length = sqrt(reduce_sum(add(*squares), axes=(u.rank - 2,)))
        length = restore(length, u.shape, (u.rank - 2,))
        return builder.build([divide(u, complex_(length, zeros_like(length)))])
