"""`qr`: orthogonal and triangular factors over the last two dims.

On CPU LAPACK does it, elsewhere XLA expands it, in both cases by Householder reflections. Dims before the matrix cost no
communication; matrix dims are whole on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.constants import zeros_like
from meshjit.ops.base.conversion import complex_, imag
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import (
    adjoint,
    batch_names,
    diagonal_part,
    emit_empty,
    emit_triangle,
    matmul,
    matrix,
    require_flag,
    require_matrix,
    triangle,
)
from meshjit.ops.linalg.routines import batch_type, has_routines, product_of_reflections, reflections
from meshjit.ops.linalg.triangular import triangular_solve
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


# -- qr(a): (Q, R) with Q of min(m, n) orthonormal columns, or of m with full_matrices


def _qr_type(in_types: Types, params: Params) -> Types:
    return qr_type("qr", in_types, params)


def qr_type(name: str, in_types: Types, params: Params) -> Types:
    type = require_one(name, in_types)
    require_matrix(name, type)
    require_flag(name, params, "full_matrices")
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


def qr_evaluate(a: Array, full_matrices: bool) -> tuple[Array, Array]:
    q, r = np.linalg.qr(a, mode="complete" if full_matrices else "reduced")
    return q.astype(a.dtype), r.astype(a.dtype)


def _qr_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    type, (q_type, r_type) = ins[0], outs
    if 0 in type.shape:
        return [emit_eye(e, q_type), emit_empty(e, (r_type,))[0]]
    packed, factors = packed_reflections(e, operands[0], type)
    by_lapack = has_routines(e, type, "orgqr")
    r = emit_triangle(e, emit_corner(e, packed, type, r_type), r_type, lower=False)
    return [emit_q(e, packed, factors, type, q_type, by_lapack), r]


def packed_reflections(e: Any, a: str, type: TensorType) -> Sequence[str]:
    """(R above, Householder vectors below the diagonal; their scales): Q R = A."""
    if has_routines(e, type, "geqrf"):
        return reflections(e, a, type)
    scales = batch_type(type, min(type.shape[-2:]))
    return e.op("custom_call", [a], [type, scales], 'call_target_name = "Qr"')


def emit_q(e: Any, packed: str, factors: str, type: TensorType, q_type: TensorType, by_lapack: bool) -> str:
    """Q from the reflections below the diagonal of `packed`; columns beyond those of A have none."""
    *batch, rows, columns = type.shape
    steps = min(rows, columns)
    kept = type.with_shape((*batch, rows, steps))
    vectors = emit_corner(e, packed, type, kept)
    if q_type != kept:
        zero = e.constant(np.zeros((), type.dtype))
        edges = [f"edge_padding_{side} = array<i64: {', '.join(map(str, (*[0] * (len(batch) + 1), n)))}>"
                 for side, n in (("low", 0), ("high", rows - steps))]  # fmt: skip
        inner = f"interior_padding = array<i64: {', '.join(['0'] * type.rank)}>"
        vectors = e.op("pad", [vectors, zero], [q_type], ", ".join([*edges, inner]))[0]
    if by_lapack:
        return product_of_reflections(e, vectors, factors)
    name = 'call_target_name = "ProductOfElementaryHouseholderReflectors"'
    return e.op("custom_call", [vectors, factors], [q_type], name)[0]


def emit_corner(e: Any, x: str, type: TensorType, corner: TensorType) -> str:
    if type == corner:
        return x
    zeros, limit, ones = (", ".join(map(str, n)) for n in ([0] * type.rank, corner.shape, [1] * type.rank))
    attributes = f"start_indices = array<i64: {zeros}>, limit_indices = array<i64: {limit}>, strides = array<i64: {ones}>"
    return e.op("slice", [x], [corner], attributes)[0]


def emit_eye(e: Any, type: TensorType) -> str:
    """Of a matrix without columns the full Q is the identity."""
    row, column = (e.op("iota", [], [type.with_dtype(np.int32)], f"iota_dimension = {type.rank - d} : i64")[0] for d in (2, 1))
    test = "comparison_direction = #stablehlo<comparison_direction EQ>"
    (same,) = e.op("compare", [row, column], [type.with_dtype(np.bool_)], test)
    return e.op("convert", [same], [type])[0]


def qr_jvp(primals, tangents, outs, params):
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
    rotation = subtract(low, adjoint(low))
    if rotation.dtype.kind == "c":  # R keeps a real diagonal, so that Q turns with the diagonal's phase
        phase = imag(diagonal_part(inside))
        rotation = add(rotation, complex_(zeros_like(phase), phase))
    d_q = add(matmul(q, subtract(rotation, inside)), moved)
    d_r = matmul(subtract(inside, rotation), cut(r, column, 0, steps))
    if columns > steps:
        beside = subtract(cut(tangent, column, steps, columns), matmul(d_q, cut(r, column, steps, columns)))
        d_r = concatenate(d_r, matmul(adjoint(q), beside), dimension=column)
    return [d_q, d_r]


def _qr_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return list(qr(move(operands[0], dims[0] or 0, 0), **params)), [0, 0]


def _qr_samples() -> list[Sample]:
    calls = [((4, 4), "f32"), ((5, 3), "c64"), ((5, 3), "f64"), ((3, 5), "f32"), ((2, 3, 4, 2), "c128"), ((1, 1), "f32")]
    calls += [((2, 0, 3), "f32"), ((3, 0), "c64"), ((0, 2, 2), "f32")]
    pairs = [(TensorType(shape, DTYPES[d]), full) for shape, d in calls for full in (False, True)]
    return [Sample((type,), {"full_matrices": full}, lambda g, i, t: matrix(g, t)) for type, full in pairs]


qr = Op(
    name="qr",
    type_rule=_qr_type,
    factor_rule=_qr_rule,
    whole="every reflection mixes whole columns",
    evaluate=qr_evaluate,
    emit=_qr_emit,
    samples=_qr_samples,
    batch=_qr_batch,
    jvp=qr_jvp,
    passes=lambda in_types, params: 36.0,
    column_work=by_columns(6.0, 1.6),
)
