"""Orthogonal factors over the last two dims: `qr`, and `eigh` of Hermitian matrices.

XLA expands both on every backend (Householder reflections; Jacobi rotations), so nothing but XLA is needed. Dims before
the matrix cost no communication; matrix dims are whole on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.arg_reduction import argmax
from meshjit.ops.arithmetic import abs_, add, divide, multiply, scale, subtract
from meshjit.ops.bits import and_
from meshjit.ops.comparison import compare, is_finite, select
from meshjit.ops.constants import full_like, iota, zeros_like
from meshjit.ops.conversion import complex_, imag, real
from meshjit.ops.families import part_dtype
from meshjit.ops.matrices import (
    adjoint,
    adjoint_of,
    batch_names,
    conj,
    diagonal_part,
    emit_empty,
    emit_triangle,
    matmul,
    matrix,
    require_flag,
    require_matrix,
    triangle,
)
from meshjit.ops.ordering import concatenate
from meshjit.ops.reduction import reduce_and, reduce_sum, restore
from meshjit.ops.shape import require_one
from meshjit.ops.triangular import triangular_solve
from meshjit.ops.windows import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


# -- qr(a): (Q, R) with Q of min(m, n) orthonormal columns, or of m with full_matrices


def _qr_type(in_types: Types, params: Params) -> Types:
    type = require_one("qr", in_types)
    require_matrix("qr", type)
    require_flag("qr", params, "full_matrices")
    *batch, rows, columns = type.shape
    kept = rows if params["full_matrices"] else min(rows, columns)
    return (type.with_shape((*batch, rows, kept)), type.with_shape((*batch, kept, columns)))


def _qr_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i k, a k j | replicate i j k`."""
    batch = batch_names(in_types[0].rank - 2)
    i, j, k = ("i",), ("j",), ("k",)
    kinds = dict.fromkeys("ijk", "replicate")
    rule = FactorRule(((*batch, i, j),), ((*batch, i, k), (*batch, k, j)), kinds)
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _qr(a: Array, full_matrices: bool) -> tuple[Array, Array]:
    q, r = np.linalg.qr(a, mode="complete" if full_matrices else "reduced")
    return q.astype(a.dtype), r.astype(a.dtype)


def _qr_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    type, (q_type, r_type) = ins[0], outs
    *batch, rows, columns = type.shape
    if 0 in type.shape:
        return [_emit_eye(e, q_type), emit_empty(e, [r_type])[0]]
    steps = min(rows, columns)
    scales = type.with_shape((*batch, steps))
    packed, factors = e.op("custom_call", operands, [type, scales], 'call_target_name = "Qr"')
    kept = type.with_shape((*batch, rows, steps))
    vectors = _emit_corner(e, packed, type, kept)
    if q_type != kept:
        zero = e.constant(np.zeros((), type.dtype))
        edges = [f"edge_padding_{side} = array<i64: {', '.join(map(str, (*[0] * (len(batch) + 1), n)))}>"
                 for side, n in (("low", 0), ("high", rows - steps))]  # fmt: skip
        inner = f"interior_padding = array<i64: {', '.join(['0'] * type.rank)}>"
        vectors = e.op("pad", [vectors, zero], [q_type], ", ".join([*edges, inner]))[0]
    name = 'call_target_name = "ProductOfElementaryHouseholderReflectors"'
    q = e.op("custom_call", [vectors, factors], [q_type], name)[0]
    return [q, emit_triangle(e, _emit_corner(e, packed, type, r_type), r_type, lower=False)]


def _emit_corner(e: Any, x: str, type: TensorType, corner: TensorType) -> str:
    if type == corner:
        return x
    zeros, limit, ones = (", ".join(map(str, n)) for n in ([0] * type.rank, corner.shape, [1] * type.rank))
    attributes = f"start_indices = array<i64: {zeros}>, limit_indices = array<i64: {limit}>, strides = array<i64: {ones}>"
    return e.op("slice", [x], [corner], attributes)[0]


def _emit_eye(e: Any, type: TensorType) -> str:
    """Of a matrix without columns the full Q is the identity."""
    return e.constant(np.broadcast_to(np.eye(*type.shape[-2:], dtype=type.dtype), type.shape).copy())


def _qr_jvp(primals, tangents, outs, params):
    """dQ = Q W + (1 - Q Q*) dA R⁻¹ with W antihermitian, its lower part that of Q* dA R⁻¹; dR = Q* dA - W R."""
    (tangent,), (q, r) = tangents, outs
    if tangent is None:
        return [None, None]
    rows, columns = tangent.shape[-2:]
    if params["full_matrices"] and rows > columns:
        reason = "with full_matrices the columns of Q beyond those of a tall A are any: use full_matrices=False"
        return Absent(reason, "qr", "jvp")()
    column, steps = tangent.rank - 1, min(rows, columns)
    square = {"left_side": False, "lower": False, "unit_diagonal": False, "transpose_a": "none"}
    moved = triangular_solve(cut(r, column, 0, steps), cut(tangent, column, 0, steps), **square)
    inside = matmul(adjoint(q), moved)
    low = triangle(inside, lower=True, strict=True)
    turn = subtract(low, adjoint(low))
    if turn.dtype.kind == "c":  # R keeps a real diagonal, so that Q turns with the diagonal's phase
        phase = imag(diagonal_part(inside))
        turn = add(turn, complex_(zeros_like(phase), phase))
    d_q = add(matmul(q, subtract(turn, inside)), moved)
    d_r = matmul(subtract(inside, turn), cut(r, column, 0, steps))
    if columns > steps:
        beside = subtract(cut(tangent, column, steps, columns), matmul(d_q, cut(r, column, steps, columns)))
        d_r = concatenate(d_r, matmul(adjoint(q), beside), dimension=column)
    return [d_q, d_r]


def _qr_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    from meshjit.ops.batching import move

    return list(qr(move(operands[0], dims[0] or 0, 0), **params)), [0, 0]


def _qr_samples() -> list[Sample]:
    shapes = [(4, 4), (5, 3), (3, 5), (5, 3, 3), (2, 3, 4, 2), (1, 1), (2, 0, 3), (3, 0), (0, 2, 2)]
    return [
        Sample((TensorType(s, DTYPES[d]),), {"full_matrices": full}, lambda g, i, t: matrix(g, t))
        for s in shapes
        for d in (("f32", "c64", "f64") if len(s) == 2 else ("c64",))
        for full in (False, True)
    ]


qr = Op(
    name="qr",
    type_rule=_qr_type,
    factor_rule=_qr_rule,
    whole="every reflection mixes whole columns",
    evaluate=_qr,
    emit=_qr_emit,
    samples=_qr_samples,
    batch=_qr_batch,
    jvp=_qr_jvp,
    passes=lambda in_types, params: 4.0 * min(in_types[0].shape[-2:]),
)


# -- eigh(a): (eigenvectors as columns, eigenvalues rising) of the Hermitian matrix whose lower triangle A holds. The
# largest element of every eigenvector is real and positive (the first of them), so that all backends give the same.


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
    bad = ~np.isfinite(a).all((-1, -2))  # NumPy refuses all of a stack for one of these
    values, vectors = np.linalg.eigh(np.where(bad[..., None, None], 0, a))
    values, vectors = np.where(bad[..., None], np.nan, values), np.where(bad[..., None, None], np.nan, vectors)
    if a.size:
        top = np.take_along_axis(vectors, np.argmax(np.abs(vectors), -2)[..., None, :], -2)
        with np.errstate(all="ignore"):
            vectors = vectors * (np.conj(top) / np.abs(top))
    return vectors.astype(a.dtype), values.astype(part_dtype(a.dtype))


def _eigh_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    a, finite = e.program(_prepared_program(ins[0]), operands)
    is_wide = part_dtype(ins[0].dtype) == np.float64
    config = f'backend_config = "1,1,100,{"1e-14" if is_wide else "1e-6"}"'
    found = e.op("custom_call", [a], outs, f'call_target_name = "Eigh", {config}')
    return e.program(_polish_program(outs, is_wide), [a, finite, *found])


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
        found = [multiply(vectors, _phase(vectors)), values]
        masks = [restore(finite, x.shape, tuple(range(finite.rank, x.rank))) for x in found]
        return builder.build([select(m, x, full_like(x, np.nan)) for m, x in zip(masks, found, strict=True)])


def _rotated(a: Var, v: Var) -> tuple[Var, Var]:
    """One step of Ogita and Aishima's refinement (2018) of A V = V D: V (1 + E), and the eigenvalues.

    With R = 1 - V* V and S = V* A V, E_ij = (S_ij + d_j R_ij) / (d_j - d_i); pairs too close for that only R_ij / 2."""
    s = matmul(adjoint(v), matmul(a, v))
    eye = _eye_like(v)
    r = subtract(eye, matmul(adjoint(v), v))
    ratio = divide(_real_diagonal(s), subtract(full_like(_real_diagonal(r), 1), _real_diagonal(r)))
    rows, columns = (restore(ratio, v.shape, (axis,)) for axis in (v.rank - 1, v.rank - 2))
    gap = subtract(columns, rows)
    off = subtract(s, diagonal_part(s))
    close = compare(abs_(gap), scale(_largest_of(abs_(off), gap), 2.0), direction="LE")
    safe = select(close, full_like(gap, 1), gap)
    step = divide(add(off, multiply(r, _as_dtype(columns, r))), _as_dtype(safe, r))
    return add(v, matmul(v, select(close, scale(r, 0.5), step))), ratio


def _largest_of(sizes: Var, like: Var) -> Var:
    from meshjit.ops.reduction import reduce_max

    axes = (sizes.rank - 2, sizes.rank - 1)
    return restore(reduce_max(sizes, axes=axes), like.shape, axes)


def _eye_like(v: Var) -> Var:
    return diagonal_part(full_like(v, 1))


def _real_diagonal(var: Var) -> Var:
    diagonal = reduce_sum(diagonal_part(var), axes=(var.rank - 2,))
    return real(diagonal) if var.dtype.kind == "c" else diagonal


def _as_dtype(var: Var, like: Var) -> Var:
    """Reals as the complex numbers that `like` holds."""
    return complex_(var, zeros_like(var)) if like.dtype.kind == "c" else var


def _phase(vectors: Var) -> Var:
    """What turns the largest element of every column to the positive reals, spread over the columns."""
    row = vectors.rank - 2
    index = np.dtype(np.int32)
    place = argmax(abs_(vectors), axis=row, index_dtype=index)
    is_top = compare(iota(dtype=index, shape=vectors.shape, dimension=row), restore(place, vectors.shape, (row,)), direction="EQ")
    top = reduce_sum(select(is_top, vectors, zeros_like(vectors)), axes=(row,))
    return restore(divide(conj(top), _as_dtype(abs_(top), top)), vectors.shape, (row,))


def _eigh_jvp(primals, tangents, outs, params):
    """dw = diag(V* dA V); dV = V (F ∘ V* dA V), F_ij = 1 / (w_j - w_i), 0 on the diagonal; then the phase is kept."""
    (tangent,), (v, w) = tangents, outs
    if tangent is None:
        return [None, None]
    if 0 in v.shape:
        return [zeros_like(v), zeros_like(w)]
    inside = matmul(adjoint(v), matmul(hermitian(tangent), v))
    rows, columns = (restore(w, v.shape, (axis,)) for axis in (v.rank - 1, v.rank - 2))
    eye = real(_eye_like(v)) if v.dtype.kind == "c" else _eye_like(v)
    factors = subtract(divide(full_like(eye, 1), add(subtract(columns, rows), eye)), eye)
    d_v = matmul(v, multiply(_as_dtype(factors, v), inside))
    if v.dtype.kind == "c":
        d_v = subtract(d_v, multiply(v, _turn(v, d_v)))
    return [d_v, _real_diagonal(inside)]


def _turn(v: Var, d_v: Var) -> Var:
    """i φ, where φ is how fast the largest element of every column leaves the reals."""
    row = v.rank - 2
    index = np.dtype(np.int32)
    place = argmax(abs_(v), axis=row, index_dtype=index)
    is_top = compare(iota(dtype=index, shape=v.shape, dimension=row), restore(place, v.shape, (row,)), direction="EQ")
    top, speed = (real(x) if x is v else imag(x) for x in (v, d_v))
    at_top = [reduce_sum(select(is_top, x, zeros_like(x)), axes=(row,)) for x in (speed, top)]
    angle = restore(divide(*at_top), v.shape, (row,))
    return complex_(zeros_like(angle), angle)


def _eigh_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    from meshjit.ops.batching import move

    return list(eigh(move(operands[0], dims[0] or 0, 0))), [0, 0]


def _eigh_samples() -> list[Sample]:
    shapes = [(4, 4), (5, 3, 3), (2, 3, 2, 2), (1, 1), (2, 0, 0), (0, 2, 2)]
    pairs = [(s, d) for s in shapes for d in (("f32", "c64", "f64", "c128") if s == (5, 3, 3) else ("f32", "c128"))]
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
    passes=lambda in_types, params: 40.0 * in_types[0].shape[-1],
)

