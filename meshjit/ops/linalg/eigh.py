"""`eigh`: eigenvalues and eigenvectors of Hermitian matrices, over the last two dims.

On CPU LAPACK does it (divide and conquer), elsewhere XLA expands it (Jacobi rotations). Dims before the matrix cost no
communication; matrix dims are whole on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import abs_, add, divide, multiply, scale, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, is_finite, select
from meshjit.ops.base.constants import full_like, zeros_like
from meshjit.ops.base.conversion import complex_, imag, real
from meshjit.ops.base.families import part_dtype
from meshjit.ops.base.reduction import reduce_and, reduce_max, reduce_sum, restore
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import (
    adjoint,
    adjoint_of,
    batch_names,
    diagonal_part,
    emit_empty,
    matmul,
    matrix,
    require_matrix,
    triangle,
)
from meshjit.ops.linalg.phases import phase, phases, rotation
from meshjit.ops.linalg.routines import INFO, batch_type, eigen_hermitian, has_routines, is_good, nan_unless
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


# -- eigh(a): (eigenvectors as columns, eigenvalues rising) of the Hermitian matrix whose lower triangle A holds. The
# largest element of every eigenvector is real and positive (ops/linalg/phases.py), so that all backends give the same.


def _eigh_type(in_types: Types, params: Params) -> Types:
    type = require_one("eigh", in_types)
    require_matrix("eigh", type, square=True)
    return (type, TensorType(type.shape[:-1], part_dtype(type.dtype)))


def _eigh_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i j, a j | replicate i j`."""
    batch = batch_names(in_types[0].rank - 2)
    dims = (*batch, ("i",), ("j",))
    rule = FactorRule((dims,), (dims, (*batch, ("j",))), {"i": "replicate", "j": "replicate"})
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _eigh(a: Array) -> tuple[Array, Array]:
    bad = np.asarray(~np.isfinite(a).all((-1, -2)))  # NumPy refuses all of a stack for one of these
    values, vectors = np.linalg.eigh(np.where(bad[..., None, None], 0, a))
    values, vectors = np.where(bad[..., None], np.nan, values), np.where(bad[..., None, None], np.nan, vectors)
    if a.size:
        vectors = vectors * phases(vectors)
    return vectors.astype(a.dtype), values.astype(part_dtype(a.dtype))


def _eigh_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    if has_routines(e, ins[0], "syevd"):
        return e.program(_result_program(outs), eigen_hermitian(e, operands[0], outs))
    a, finite = e.program(_prepared_program(ins[0]), operands)
    is_wide = part_dtype(ins[0].dtype) == np.float64
    config = f'backend_config = "1,1,100,{"1e-14" if is_wide else "1e-6"}"'
    results = e.op("custom_call", [a], outs, f'call_target_name = "Eigh", {config}')
    return e.program(_polish_program(outs, is_wide), [a, finite, *results])


@functools.lru_cache(maxsize=64)
def _result_program(types: Types) -> Program:
    """What a routine found, with eigenvectors in their one direction; nan where it found nothing."""
    with Builder("found") as builder:
        vectors, values = (builder.input(type) for type in types)
        good = is_good(builder.input(batch_type(types[0], dtype=INFO)), builder.input(batch_type(types[0], dtype=np.bool_)))
        scales = nan_unless(good, phase(vectors, vectors.rank - 2))
        return builder.build([multiply(vectors, per_column(scales, vectors)), nan_unless(good, values)])


@functools.lru_cache(maxsize=64)
def _prepared_program(type: TensorType) -> Program:
    """The whole matrices, and which of them are finite: the others become zeros, because XLA turns all of a stack until
    the last one is done, and nan never is."""
    with Builder("prepared") as builder:
        a = hermitian(builder.input(type))
        parts = [real(a), imag(a)] if type.dtype.kind == "c" else [a]
        finite = functools.reduce(and_, [is_finite(part) for part in parts])
        finite = reduce_and(finite, axes=(type.rank - 2, type.rank - 1))
        whole = restore(finite, type.shape, (type.rank - 2, type.rank - 1))
        return builder.build([select(whole, a, zeros_like(a)), finite])


def hermitian(a: Var) -> Var:
    """The matrix whose lower triangle is that of `a`."""
    low, diagonal = triangle(a, lower=True, strict=True), diagonal_part(a)
    if a.dtype.kind == "c":
        diagonal = complex_(real(diagonal), zeros_like(real(diagonal)))
    return add(add(low, adjoint(low)), diagonal)


@functools.lru_cache(maxsize=64)
def _polish_program(types: Types, is_wide: bool) -> Program:
    """Eigenvectors in their one direction. XLA's rotations stop at about 1e-8: in double precision one more is made."""
    with Builder("polish") as builder:
        a = builder.input(types[0])
        finite = builder.input(TensorType(types[1].shape[:-1], np.dtype(np.bool_)))
        vectors, values = (builder.input(type) for type in types)
        if is_wide:
            for _ in range(2):
                vectors, values = _rotated(a, vectors)
        results = [multiply(vectors, per_column(phase(vectors, vectors.rank - 2), vectors)), values]
        masks = [restore(finite, x.shape, tuple(range(finite.rank, x.rank))) for x in results]
        return builder.build([select(m, x, full_like(x, np.nan)) for m, x in zip(masks, results, strict=True)])


def _rotated(a: Var, v: Var) -> tuple[Var, Var]:
    """One step of first order towards A V = V D, and the eigenvalues: with S = V* A V, V (1 + E) made unitary again,
    E_ij = S_ij / (s_j - s_i). What is no more than rounding stays, and so do pairs too close to be told apart (0.1)."""
    s = matmul(adjoint(v), matmul(a, v))
    values = real_diagonal(s)
    rows, columns = (restore(values, v.shape, (axis,)) for axis in (v.rank - 1, v.rank - 2))
    gap, off = subtract(columns, rows), subtract(s, diagonal_part(s))
    noise = scale(_largest(abs_(values), gap), 4 * float(np.finfo(gap.dtype).eps))
    moves = and_(
        compare(abs_(off), noise, direction="GT"), compare(abs_(off), scale(abs_(gap), 0.1), direction="LE"),
    )  # fmt: skip
    step = select(moves, divide(off, as_dtype(select(moves, gap, full_like(gap, 1)), off)), zeros_like(off))
    v = add(v, matmul(v, step))
    return scale(matmul(v, subtract(scale(eye_like(v), 3), matmul(adjoint(v), v))), 0.5), values


def _largest(values: Var, like: Var) -> Var:
    return restore(reduce_max(values, axes=(values.rank - 1,)), like.shape, (like.rank - 2, like.rank - 1))


def eye_like(v: Var) -> Var:
    return diagonal_part(full_like(v, 1))


def real_diagonal(var: Var) -> Var:
    diagonal = reduce_sum(diagonal_part(var), axes=(var.rank - 2,))
    return real(diagonal) if var.dtype.kind == "c" else diagonal


def per_column(scales: Var, like: Var) -> Var:
    """One number per column, spread over the rows of `like`."""
    return restore(scales, like.shape, (like.rank - 2,))


def as_dtype(var: Var, like: Var) -> Var:
    """Reals as the complex numbers that `like` holds."""
    return complex_(var, zeros_like(var)) if like.dtype.kind == "c" else var


def _eigh_jvp(primals, tangents, outs, params):
    """dw = diag(V* dA V); dV = V (F ∘ V* dA V), F_ij = 1 / (w_j - w_i), 0 on the diagonal; then the phase is kept."""
    (tangent,), (v, w) = tangents, outs
    if tangent is None:
        return [None, None]
    if 0 in v.shape:
        return [zeros_like(v), zeros_like(w)]
    inside = matmul(adjoint(v), matmul(hermitian(tangent), v))
    rows, columns = (restore(w, v.shape, (axis,)) for axis in (v.rank - 1, v.rank - 2))
    eye = real(eye_like(v)) if v.dtype.kind == "c" else eye_like(v)
    factors = subtract(divide(full_like(eye, 1), add(subtract(columns, rows), eye)), eye)
    d_v = matmul(v, multiply(as_dtype(factors, v), inside))
    if v.dtype.kind == "c":
        d_v = subtract(d_v, multiply(v, per_column(rotation(v, d_v, v.rank - 2), v)))
    return [d_v, real_diagonal(inside)]


def _eigh_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return list(eigh(move(operands[0], dims[0] or 0, 0))), [0, 0]


def _eigh_samples() -> list[Sample]:
    pairs = [((4, 4), "f32"), ((4, 4), "f64"), ((5, 3, 3), "c64"), ((2, 3, 2, 2), "c128"), ((1, 1), "f64")]
    pairs += [((2, 0, 0), "f32"), ((0, 2, 2), "c64")]
    return [Sample((TensorType(s, DTYPES[d]),), {}, _eigh_fill) for s, d in pairs]


def _eigh_fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Eigenvalues apart from one another, so that eigenvectors and their derivatives are well defined."""
    a = matrix(generator, type).astype(np.complex128 if type.dtype.kind == "c" else np.float64)
    q = np.linalg.qr(a)[0] if a.size else a
    return q * (np.arange(type.shape[-1]) - 0.7) @ adjoint_of(q)


eigh = Op(
    name="eigh",
    type_rule=_eigh_type,
    factor_rule=_eigh_rule,
    whole="every rotation mixes whole rows and columns",
    evaluate=_eigh,
    emit=_eigh_emit,
    samples=_eigh_samples,
    batch=_eigh_batch,
    jvp=_eigh_jvp,
    passes=lambda in_types, params: 100.0,
    column_work=by_columns(9.0, 3.5),
)
