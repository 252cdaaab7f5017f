"""`pinv`: the pseudo-inverse over the last two dims. Param rtol: singular values up to rtol times the largest are zeros.

It has a derivative of its own, because that of singular vectors has none where singular values are equal.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, divide, multiply, scale, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, zeros_like
from meshjit.ops.base.families import require_param
from meshjit.ops.base.reduction import reduce_max, restore
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.eigh import as_dtype
from meshjit.ops.linalg.matrices import adjoint, batch_names, emit_empty, matmul, matrix, require_matrix
from meshjit.ops.linalg.svd import svd
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _type(in_types: Types, params: Params) -> Types:
    type, rtol = require_one("pinv", in_types), params["rtol"]
    require_matrix("pinv", type)
    require_param(isinstance(rtol, float) and rtol >= 0, "pinv", "rtol", rtol, "a float of at least 0 is needed")
    *batch, rows, columns = type.shape
    return (type.with_shape((*batch, columns, rows)),)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a j i | replicate i j`."""
    batch, i, j = batch_names(in_types[0].rank - 2), ("i",), ("j",)
    rule = FactorRule(((*batch, i, j),), ((*batch, j, i),), {"i": "replicate", "j": "replicate"})
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _evaluate(a: Array, rtol: float) -> Array:
    *batch, rows, columns = a.shape
    if not a.size:
        return np.zeros((*batch, columns, rows), a.dtype)
    bad = np.asarray(~np.isfinite(a).all((-1, -2)))[..., None, None]  # NumPy refuses all of a stack for one of these
    return np.where(bad, np.nan, np.linalg.pinv(np.where(bad, 0, a), rtol)).astype(a.dtype)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    return e.program(_program(ins[0], params["rtol"]), operands)


@functools.lru_cache(maxsize=64)
def _program(type: TensorType, rtol: float) -> Program:
    """V (1/s) U*, without what is divided by zeros."""
    with Builder("pinv") as builder:
        u, s, vh = svd(builder.input(type), vectors=True)
        largest = restore(reduce_max(s, axes=(s.rank - 1,)), s.shape, (s.rank - 1,))
        counts = compare(s, scale(largest, rtol), direction="GT")
        inverse = select(counts, divide(full_like(s, 1), select(counts, s, full_like(s, 1))), zeros_like(s))
        weights = as_dtype(restore(inverse, vh.shape, (vh.rank - 1,)), vh)
        return builder.build([matmul(adjoint(multiply(vh, weights)), adjoint(u))])


def _jvp(primals, tangents, outs, params):
    """dP = -P dA P + P P* dA* (1 - A P) + (1 - P A) dA* P* P (Golub and Pereyra, 1973), for a rank that stays."""
    (a,), (tangent,), (p,) = primals, tangents, outs
    if tangent is None or 0 in a.shape:
        return [tangent if tangent is None else adjoint(tangent)]
    first = _product(p, adjoint(p), adjoint(tangent))
    second = _product(adjoint(tangent), adjoint(p), p)
    first = subtract(first, _product(first, a, p))
    second = subtract(second, _product(p, a, second))
    return [subtract(add(first, second), _product(p, tangent, p))]


def _product(x: Var, y: Var, z: Var) -> Var:
    """x y z by way of the smaller of x y and y z: of A f32[2, n] nothing is ever n by n."""
    if x.shape[-2] * y.shape[-1] <= y.shape[-2] * z.shape[-1]:
        return matmul(matmul(x, y), z)
    return matmul(x, matmul(y, z))


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return [pinv(move(operands[0], dims[0] or 0, 0), **params)], [0]


def _samples() -> list[Sample]:
    calls = [((3, 4), "c128"), ((6, 3, 2), "f64"), ((2, 0, 3), "f32")]
    return [Sample((TensorType(s, DTYPES[d]),), {"rtol": 1e-6}, lambda g, i, t: matrix(g, t)) for s, d in calls]


pinv = Op(
    name="pinv",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    whole="every rotation mixes whole rows and columns",
    passes=lambda in_types, params: 125.0,
    column_work=by_columns(28.0, 17.0),
)
