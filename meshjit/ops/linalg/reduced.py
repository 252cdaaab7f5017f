"""Matrices reduced by Householder reflections from both sides, over the last two dims: `hessenberg`, `tridiagonal`. On CPU alone.

Reflections are stored as `ops/linalg/reflections.py` says. Dims before the matrix cost no communication; matrix dims are whole
on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import emit_splat, zeros
from meshjit.ops.base.conversion import convert, real
from meshjit.ops.base.families import part_dtype
from meshjit.ops.base.shape import require_one, reshape
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import emit_empty, matrix, require_flag, require_matrix
from meshjit.ops.linalg.reflections import reflection
from meshjit.ops.linalg.routines import batch_type, call, has_routines, info_type, is_good, nan_unless, refuse
from meshjit.ops.linalg.whole import batched, each, whole_rule
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return whole_rule(in_types[0].rank - 2, in_types, out_types)


# -- hessenberg(a [n, n]): (H with nothing below its first subdiagonal but the reflections, scales [n - 1]), Q* A Q = H


def _reduced_jvp(name: str) -> Absent:
    return Absent(f"{name} is an intermediate of eigenvalues, which have derivatives themselves; JAX has none either")


def _hessenberg_type(in_types: Types, params: Params) -> Types:
    type = require_one("hessenberg", in_types)
    require_matrix("hessenberg", type, square=True)
    return (type, batch_type(type, max(0, type.shape[-1] - 1)))


def larfg(x: Array) -> tuple[Array, Any]:
    """(x as its reflection stores it: the element that is left, then v; the scale), as LAPACK's larfg."""
    x, size = np.array(x), np.linalg.norm(x)
    if np.linalg.norm(x[1:]) == 0 and x[0].imag == 0:
        return x, x.dtype.type(0)
    beta = -np.copysign(size, x[0].real)
    tau = (beta - x[0]) / beta
    x[1:] /= x[0] - beta
    x[0] = beta
    return x, tau


def _hessenberg_evaluate(a: Array) -> tuple[Array, Array]:
    def one(a: Array) -> tuple[Array, Array]:
        n = len(a)
        a, taus = a.astype(np.result_type(a.dtype, np.float64)), np.zeros(max(0, n - 1), a.dtype)
        for i in range(n - 1):
            kept, tau = larfg(a[i + 1 :, i])
            taus[i] = tau
            column = np.concatenate([np.zeros(i + 1, a.dtype), kept])
            h = reflection(column, tau, i + 1)
            a[:, i + 1 :] = a[:, i + 1 :] @ h[i + 1 :, i + 1 :]
            a[i + 1 :, i + 1 :] = h.conj().T[i + 1 :, i + 1 :] @ a[i + 1 :, i + 1 :]
            a[i + 1 :, i] = kept
        return a, taus

    if 0 in a.shape:
        return a, np.zeros((*a.shape[:-2], max(0, a.shape[-1] - 1)), a.dtype)
    packed, taus = each(one, a.shape[:-2], a)
    return packed.astype(a.dtype), taus


def _hessenberg_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    if ins[0].shape[-1] == 1:
        return [operands[0], emit_splat(e, outs[1], 0)]
    if not has_routines(e, ins[0], "gehrd"):
        refuse(e, "hessenberg")
    options = f"low = 1 : i32, high = {ins[0].shape[-1]} : i32"
    results = call(e, "gehrd", operands, (*outs, info_type(ins[0])), options, in_place={0: 0})
    return e.program(checked(outs, info_type(ins[0])), results)


@functools.lru_cache(maxsize=64)
def checked(types: Types, info: TensorType) -> Program:
    """Results behind which LAPACK's info stands; nan of the matrices that it did not manage."""
    with Builder("checked") as builder:
        results = [builder.input(type) for type in types]
        good = is_good(builder.input(info))
        return builder.build([nan_unless(good, x) for x in results])


def _square_samples(params: Sequence[Params], fill: Any = None) -> list[Sample]:
    calls = [((4, 4), "f32"), ((5, 3, 3), "f64"), ((4, 4), "c64"), ((2, 3, 3, 3), "c128"), ((1, 1), "f32"), ((2, 2), "c128")]
    calls += [((2, 1, 1), "c64"), ((0, 3, 3), "f32"), ((2, 0, 0), "f64")]
    return [
        Sample((TensorType(shape, DTYPES[d]),), how, fill or (lambda g, i, t: matrix(g, t)))
        for number, (shape, d) in enumerate(calls)
        for how in (params if number < 4 else params[number % len(params) :][:1])
    ]


hessenberg = Op(
    name="hessenberg",
    type_rule=_hessenberg_type,
    factor_rule=_rule,
    whole="every reflection mixes whole rows and columns",
    evaluate=_hessenberg_evaluate,
    emit=_hessenberg_emit,
    samples=lambda: _square_samples([{}]),
    batch=batched(lambda: hessenberg),
    jvp=_reduced_jvp("hessenberg"),
    passes=lambda in_types, params: 40.0,
    column_work=by_columns(5.0, 2.0),
)


# -- tridiagonal(a [n, n], lower): (reflections beside the three diagonals, diagonal, the one below (above), scales) of the
# Hermitian matrix whose lower (upper) triangle A holds


def _tridiagonal_type(in_types: Types, params: Params) -> Types:
    type = require_one("tridiagonal", in_types)
    require_matrix("tridiagonal", type, square=True)
    require_flag("tridiagonal", params, "lower")
    n, real = type.shape[-1], part_dtype(type.dtype)
    less = max(0, n - 1)
    return (type, batch_type(type, n, dtype=real), batch_type(type, less, dtype=real), batch_type(type, less))


def _tridiagonal_evaluate(a: Array, lower: bool) -> tuple[Array, ...]:
    real, n = part_dtype(a.dtype), a.shape[-1]
    if 0 in a.shape:
        less = (*a.shape[:-2], max(0, n - 1))
        return a, np.zeros(a.shape[:-1], real), np.zeros(less, real), np.zeros(less, a.dtype)
    packed, d, e, taus = each(_lower_one if lower else _upper_one, a.shape[:-2], a)
    return packed.astype(a.dtype), d.astype(real), e.astype(real), taus.astype(a.dtype)


def _lower_one(a: Array) -> tuple[Array, ...]:
    n, stored = len(a), np.array(a, np.result_type(a.dtype, np.float64))
    whole = np.tril(stored, -1) + np.tril(stored, -1).conj().T + np.diag(np.real(np.diag(stored)))
    taus = np.zeros(n - 1, whole.dtype)
    for i in range(n - 1):
        kept, taus[i] = larfg(whole[i + 1 :, i])
        h = reflection(np.concatenate([np.zeros(i + 1), kept]), taus[i], i + 1)
        whole = h.conj().T @ whole @ h
        stored[i + 1 :, i] = kept
    d, e = np.real(np.diag(whole)), np.real(np.diag(whole, -1))
    stored[np.arange(n), np.arange(n)] = d
    return stored, d, e, taus


def _upper_one(a: Array) -> tuple[Array, ...]:
    """The same from the last column to the first: of the matrix turned by half a turn, whose lower triangle is this one's
    upper one."""
    turned, d, e, taus = _lower_one(a[::-1, ::-1])
    return turned[::-1, ::-1], d[::-1], e[::-1], taus[::-1]


def _tridiagonal_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    if not has_routines(e, ins[0], "sytrd"):
        refuse(e, "tridiagonal", is_on_gpus=True)
    if ins[0].shape[-1] == 1:
        return e.program(_single(ins[0], outs), operands)
    results = call(e, "sytrd", operands, (*outs, info_type(ins[0])), in_place={0: 0}, uplo="L" if params["lower"] else "U")
    return e.program(checked(outs, info_type(ins[0])), results)


@functools.lru_cache(maxsize=64)
def _single(type: TensorType, outs: Types) -> Program:
    """Of a matrix of one element, which has no scales."""
    with Builder("single") as builder:
        a = builder.input(type)
        part = real(a) if type.dtype.kind == "c" else a
        kept = convert(part, dtype=type.dtype) if type.dtype.kind == "c" else a
        return builder.build([kept, reshape(part, shape=outs[1].shape), zeros(outs[2]), zeros(outs[3])])


tridiagonal = Op(
    name="tridiagonal",
    type_rule=_tridiagonal_type,
    factor_rule=_rule,
    whole="every reflection mixes whole rows and columns",
    evaluate=_tridiagonal_evaluate,
    emit=_tridiagonal_emit,
    samples=lambda: _square_samples([{"lower": True}, {"lower": False}]),
    batch=batched(lambda: tridiagonal),
    jvp=_reduced_jvp("tridiagonal"),
    passes=lambda in_types, params: 30.0,
    column_work=by_columns(3.0, 1.0),
)
