"""Householder reflections as LAPACK stores them, over the last two dims: `geqrf`, `householder_product`, `ormqr`.

Reflection i is 1 - t vv*, t being element i of `taus`, v zeros, then 1, then the elements below it in column i of the
matrix. Dims before the matrix cost no communication; matrix dims are whole
on every device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, ColumnWork, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.families import require
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import adjoint, batch_names, conj, emit_empty, matmul, matrix, require_flag, require_matrix
from meshjit.ops.linalg.qr import emit_eye, emit_q, packed_reflections
from meshjit.ops.linalg.routines import batch_type, call, has_routines, product_of_reflections
from meshjit.ops.linalg.whole import batched, each, whole_rule
from meshjit.ops.slicing.halos import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_NO_JVP = Absent("reflections are an intermediate of qr, which has derivatives itself; JAX has none either")


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return whole_rule(in_types[0].rank - 2, in_types, out_types)


def reflection(column: Array, tau: Any, i: int) -> Array:
    """1 - tau v v* of the column that holds v below element i."""
    v = np.where(np.arange(len(column)) < i, 0, column)
    v[i] = 1
    return np.eye(len(v), dtype=v.dtype) - tau * np.outer(v, v.conj())


def _product(a: Array, taus: Array) -> Array:
    """All columns of the product."""
    q = np.eye(len(a), dtype=np.result_type(a.dtype, np.float64))
    for i, tau in enumerate(taus):
        q = q @ reflection(a[:, i].astype(q.dtype), tau, i)
    return q


def _require_taus(name: str, a: TensorType, taus: TensorType) -> None:
    require(taus.dtype == a.dtype, name, f"operand dtypes differ: {a} and {taus}")
    fits = taus.rank == a.rank - 1 and taus.shape[:-1] == a.shape[:-2] and taus.shape[-1] <= min(a.shape[-2:])
    require(fits, name, f"matrix {a} takes at most one scale per column and dims before them as it has, was given {taus}")


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Vectors and scales as factoring any matrix gives them, so that the product is orthogonal: |v|² t = 2 Re t."""
    return matrix(generator, type) / (1 if index != 1 else 4)


# -- geqrf(a [m, n]): (R on and above the diagonal, below it the reflections whose product is Q; their scales), Q R = a


def _packed_type(in_types: Types, params: Params) -> Types:
    type = require_one("geqrf", in_types)
    require_matrix("geqrf", type)
    return (type, batch_type(type, min(type.shape[-2:])))


def _packed_evaluate(a: Array) -> tuple[Array, Array]:
    packed, taus = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2).astype(a.dtype), taus.astype(a.dtype)


def _packed_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in outs[0].shape:
        return emit_empty(e, outs)
    return packed_reflections(e, operands[0], ins[0])


def _packed_samples() -> list[Sample]:
    calls = [((4, 4), "f32"), ((5, 3), "c64"), ((3, 5), "f64"), ((2, 3, 4, 2), "c128"), ((1, 1), "f32")]
    calls += [((2, 0, 3), "f32"), ((3, 0), "c64"), ((0, 2, 2), "f32")]
    return [Sample((TensorType(shape, DTYPES[d]),), {}, lambda g, i, t: matrix(g, t)) for shape, d in calls]


geqrf = Op(
    name="geqrf",
    type_rule=_packed_type,
    factor_rule=_rule,
    whole="every reflection mixes whole columns",
    evaluate=_packed_evaluate,
    emit=_packed_emit,
    samples=_packed_samples,
    batch=batched(lambda: geqrf),
    jvp=_NO_JVP,
    passes=lambda in_types, params: 15.0,
    column_work=by_columns(3.0, 0.8),
)


# -- householder_product(a [m, n], taus [k]): the first n columns of the product of k reflections, m ≥ n ≥ k


def _product_type(in_types: Types, params: Params) -> Types:
    name = "householder_product"
    require(len(in_types) == 2, name, f"takes 2 operands, was given {len(in_types)}")
    require_matrix(name, in_types[0])
    require(in_types[0].shape[-2] >= in_types[0].shape[-1], name, f"matrix {in_types[0]} has more columns than rows")
    _require_taus(name, *in_types)
    return (in_types[0],)


def _product_evaluate(a: Array, taus: Array) -> Array:
    if 0 in a.shape:
        return np.zeros_like(a)
    return each(lambda a, taus: (_product(a, taus)[:, : a.shape[1]],), a.shape[:-2], a, taus)[0].astype(a.dtype)


def _product_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[1].shape:
        return [emit_eye(e, outs[0])]
    if has_routines(e, ins[0], "orgqr"):
        return [product_of_reflections(e, *operands)]
    return e.op("custom_call", operands, outs, 'call_target_name = "ProductOfElementaryHouseholderReflectors"')


def _product_samples() -> list[Sample]:
    calls = [((4, 4), 4, "f32"), ((5, 3), 3, "c64"), ((5, 3), 2, "f64"), ((2, 3, 4, 2), 2, "c128"), ((5, 1, 1), 1, "f32")]
    calls += [((3, 2), 0, "f32"), ((2, 3, 0), 0, "c64"), ((0, 2, 2), 1, "f32")]
    return [_sample(shape, k, d, {}) for shape, k, d in calls]


def _sample(shape: tuple[int, ...], k: int, dtype: str, params: Params, *more: tuple[int, ...]) -> Sample:
    shapes = (shape, (*shape[:-2], k), *more)
    return Sample(tuple(TensorType(s, DTYPES[dtype]) for s in shapes), params, _fill)


householder_product = Op(
    name="householder_product",
    type_rule=_product_type,
    factor_rule=_rule,
    whole="every reflection mixes whole columns",
    evaluate=_product_evaluate,
    emit=_product_emit,
    samples=_product_samples,
    batch=batched(lambda: householder_product),
    jvp=_NO_JVP,
    passes=lambda in_types, params: 15.0,
    column_work=lambda in_types, params: ColumnWork(0.8 * in_types[1].shape[-1], 3.0 * math.prod(in_types[0].shape[-2:])),
)


# -- ormqr(a [m, n], taus [k], c): Q c, or c Q (left False), Q being the whole product [m, m]; with `transpose` of Q*


def _multiply_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 3, "ormqr", f"takes 3 operands, was given {len(in_types)}")
    a, taus, c = in_types
    require_matrix("ormqr", a)
    require_matrix("ormqr", c, "matrix c")
    require_flag("ormqr", params, "left", "transpose")
    _require_taus("ormqr", a, taus)
    alike = a.dtype == c.dtype and a.shape[:-2] == c.shape[:-2]
    require(alike, "ormqr", f"dtypes, or dims before the matrices, differ: {a} and {c}")
    side = -2 if params["left"] else -1
    word = "rows" if params["left"] else "columns"
    require(c.shape[side] == a.shape[-2], "ormqr", f"c {c} has {c.shape[side]} {word}, reflections of {a} need {a.shape[-2]}")
    return (c,)


def _multiply_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j, a k, a l m -> a l m | replicate i j k l`: columns of c (rows, from the right) are free."""
    batch, (i, j, k, row, column) = batch_names(in_types[0].rank - 2), (("w0",), ("w1",), ("w2",), ("i",), ("j",))
    c = (*batch, row, column) if params["left"] else (*batch, column, row)
    rule = FactorRule(((*batch, i, j), (*batch, k), c), (c,), dict.fromkeys(("w0", "w1", "w2", "i"), "replicate"))
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _multiply_evaluate(a: Array, taus: Array, c: Array, left: bool, transpose: bool) -> Array:
    def one(a: Array, taus: Array, c: Array) -> tuple[Array]:
        q = _product(a, taus)
        q = q.conj().T if transpose else q
        return (q @ c if left else c @ q,)

    return each(one, a.shape[:-2], a, taus, c)[0].astype(c.dtype) if c.size else np.zeros_like(c)


def _multiply_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    a, taus, c = ins
    if 0 in c.shape:
        return emit_empty(e, outs)
    if 0 in taus.shape:
        return [operands[2]]
    (vectors,) = e.program(_columns(a, taus.shape[-1]), operands[:1])
    if has_routines(e, a, "ormqr"):
        options = ", ".join(f"{name} = {str(params[name]).lower()}" for name in ("left", "transpose"))
        return call(e, "ormqr", [vectors, *operands[1:]], outs, options, in_place={0: 2})
    square, kept = (batch_type(a, a.shape[-2], n) for n in (a.shape[-2], taus.shape[-1]))
    q = emit_q(e, vectors, operands[1], kept, square, False)
    return e.program(_multiply_program(square, c, params["left"], params["transpose"]), [q, operands[2]])


@functools.lru_cache(maxsize=64)
def _columns(type: TensorType, count: int) -> Program:
    """The columns that hold reflections."""
    with Builder("columns") as builder:
        return builder.build([cut(builder.input(type), type.rank - 1, 0, count)])


@functools.lru_cache(maxsize=64)
def _multiply_program(q_type: TensorType, c_type: TensorType, left: bool, transpose: bool) -> Program:
    with Builder("product") as builder:
        q, c = builder.input(q_type), builder.input(c_type)
        q = adjoint(q) if transpose else q
        return builder.build([matmul(q, c) if left else matmul(c, q)])


def _multiply_jvp(primals, tangents, outs, params):
    """Linear in c."""
    if tangents[0] is not None or tangents[1] is not None:
        return _NO_JVP_OF_ORMQR()
    return [None if tangents[2] is None else ormqr(*primals[:2], tangents[2], **params)]


_NO_JVP_OF_ORMQR = Absent(_NO_JVP.reason, "ormqr", "jvp")


def _multiply_transpose(cotangents, operands, in_types, params):
    """Qᵀ is the conjugate of Q*: conj(Q* conj(t))."""
    a, taus, _ = operands
    back = ormqr(a, taus, conj(cotangents[0]), left=params["left"], transpose=not params["transpose"])
    return [None, None, conj(back)]


def _multiply_samples() -> list[Sample]:
    calls = [((4, 4), 4, 3, "f32"), ((5, 3), 3, 5, "c64"), ((5, 3), 2, 2, "f64"), ((3, 4), 2, 2, "f32")]
    calls += [((2, 3, 4, 2), 2, 3, "c128"), ((1, 1), 1, 8, "c64"), ((3, 2), 0, 2, "f32")]
    calls += [((0, 2, 2), 1, 2, "f32"), ((3, 3), 3, 0, "f64")]
    samples: list[Sample] = []
    for number, (shape, k, n, d) in enumerate(calls):
        for left in (True, False):
            for transpose in (True, False) if number < 3 else ((number + left) % 2 == 0,):
                c = (*shape[:-2], shape[-2], n) if left else (*shape[:-2], n, shape[-2])
                samples.append(_sample(shape, k, d, {"left": left, "transpose": transpose}, c))
    return samples


ormqr = Op(
    name="ormqr",
    type_rule=_multiply_type,
    factor_rule=_multiply_rule,
    whole="every reflection mixes whole columns of c; they are independent of one another",
    evaluate=_multiply_evaluate,
    emit=_multiply_emit,
    samples=_multiply_samples,
    batch=batched(lambda: ormqr),
    linear=((2,),),
    jvp=_multiply_jvp,
    transpose=_multiply_transpose,
    passes=lambda in_types, params: 8.0,
    column_work=lambda in_types, params: ColumnWork(0.8 * in_types[1].shape[-1], 2.0 * in_types[1].shape[-1]),
)
