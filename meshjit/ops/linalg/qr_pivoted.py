"""`qr_pivoted`: (Q, R, order) with Q R the columns of A in this order, over the last two dims. On CPU alone, by LAPACK's geqp3.

Every next column is the one of which most is left, so that the diagonal of R falls in size. Dims before the matrix cost no
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
from meshjit.ops.base.arithmetic import subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.constants import full_like
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.lu import rows_in_order
from meshjit.ops.linalg.matrices import batch_names, emit_empty, emit_triangle, matrix, transposed
from meshjit.ops.linalg.qr import emit_corner, emit_eye, emit_q, qr_evaluate, qr_jvp, qr_type
from meshjit.ops.linalg.routines import factor_pivoted, has_routines, refuse
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_INT = DTYPES["i32"]


def _type(in_types: Types, params: Params) -> Types:
    q, r = qr_type("qr_pivoted", in_types, params)
    return (q, r, TensorType((*r.shape[:-2], r.shape[-1]), _INT))


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i k, a k j, a j | replicate i j k`."""
    batch = batch_names(in_types[0].rank - 2)
    i, j, k = ("i",), ("j",), ("k",)
    results = ((*batch, i, k), (*batch, k, j), (*batch, j))
    rule = FactorRule(((*batch, i, j),), results, dict.fromkeys("ijk", "replicate"))
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _evaluate(a: Array, full_matrices: bool) -> tuple[Array, Array, Array]:
    *batch, rows, columns = a.shape
    order = np.array(np.broadcast_to(np.arange(columns, dtype=_INT), (*batch, columns)))
    for index in np.ndindex(*batch):
        order[index] = _order(a[index].astype(np.result_type(a.dtype, np.float64)))
    q, r = qr_evaluate(np.take_along_axis(a, order[..., None, :], -1), full_matrices)
    return q, r, order


def _order(rest: Array) -> list[int]:
    """Takes the longest column, and its direction from the others, until there is nothing left."""
    left, order = list(range(rest.shape[1])), []
    for _ in range(min(rest.shape)):
        best = max(left, key=lambda j: float(np.linalg.norm(rest[:, j])))
        left[left.index(best)] = left[0]  # LAPACK exchanges columns
        order.append(best)
        left = left[1:]
        size = np.linalg.norm(rest[:, best])
        direction = rest[:, best] / size if size else rest[:, best]
        rest = rest - np.outer(direction, direction.conj() @ rest)
    return order + left


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    type, (q_type, r_type, order_type) = ins[0], outs
    if 0 in type.shape:
        (places,) = e.op("iota", [], [order_type], f"iota_dimension = {order_type.rank - 1} : i64")
        return [emit_eye(e, q_type), emit_empty(e, (r_type,))[0], places]
    if not has_routines(e, type, "geqp3", "orgqr"):
        refuse(e, "qr_pivoted")
    packed, chosen, scales = factor_pivoted(e, operands[0], type)
    r = emit_triangle(e, emit_corner(e, packed, type, r_type), r_type, lower=False)
    return [emit_q(e, packed, scales, type, q_type, True), r, *e.program(_from_zero(order_type), [chosen])]


@functools.lru_cache(maxsize=64)
def _from_zero(type: TensorType) -> Program:
    """LAPACK counts columns from 1."""
    with Builder("order") as builder:
        order = builder.input(type)
        return builder.build([subtract(order, full_like(order, 1))])


def _jvp(primals, tangents, outs, params):
    """That of qr, of the columns in their order, which stays."""
    (tangent,), (q, r, order) = tangents, outs
    if tangent is None:
        return [None, None, None]
    moved = transposed(rows_in_order(transposed(tangent), order)) if 0 not in tangent.shape else tangent
    return [*qr_jvp(primals, [moved], (q, r), params), None]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return list(qr_pivoted(move(operands[0], dims[0] or 0, 0), **params)), [0, 0, 0]


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Columns of different lengths, not in order."""
    return matrix(generator, type) * (1 + 3 * generator.permutation(type.shape[-1]))


def _samples() -> list[Sample]:
    calls = [((4, 4), "f32"), ((5, 3), "c64"), ((5, 3), "f64"), ((3, 5), "f64"), ((2, 3, 4, 2), "c128"), ((1, 1), "f32")]
    calls += [((2, 0, 3), "f32"), ((3, 0), "c64"), ((0, 2, 2), "f32")]
    pairs = [(TensorType(shape, DTYPES[d]), full) for shape, d in calls for full in (False, True)]
    return [Sample((type,), {"full_matrices": full}, _fill) for type, full in pairs]


qr_pivoted = Op(
    name="qr_pivoted",
    type_rule=_type,
    factor_rule=_rule,
    whole="every reflection mixes whole columns",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    passes=lambda in_types, params: 45.0,
    column_work=by_columns(9.0, 3.0),
)
