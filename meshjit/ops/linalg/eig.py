"""`eig`: eigenvalues and eigenvectors of general square matrices, over the last two dims. On CPU alone, by LAPACK's geev.

Params left, right: which eigenvectors are wanted beside the values. Everything is complex. The values come as LAPACK finds
them, conjugate pairs of real matrices side by side; eigenvectors are columns of length 1 whose largest element is real and
positive. Dims before the matrix cost no communication; matrix dims are whole on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.annotations import stop_gradient
from meshjit.ops.base.arithmetic import add, divide, multiply, negate, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.constants import full_like, zeros_like
from meshjit.ops.base.conversion import complex_, real
from meshjit.ops.base.reduction import reduce_sum, restore
from meshjit.ops.base.shape import require_one
from meshjit.ops.linalg import cusolver
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.eigh import as_dtype, eye_like, per_column
from meshjit.ops.linalg.lu import lu
from meshjit.ops.linalg.lu_solve import lu_solve
from meshjit.ops.linalg.matrices import (
    adjoint,
    adjoint_of,
    batch_names,
    conj,
    diagonal_part,
    emit_empty,
    matmul,
    matrix,
    require_flag,
    require_matrix,
)
from meshjit.ops.linalg.phases import phase, phases, rotation
from meshjit.ops.linalg.routines import INFO, eigen_general, has_routines, is_good, nan_unless, on_gpu, refuse
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _type(in_types: Types, params: Params) -> Types:
    type = require_one("eig", in_types)
    require_matrix("eig", type, square=True)
    require_flag("eig", params, "left", "right")
    vectors = type.with_dtype(np.result_type(type.dtype, np.complex64))
    return (vectors.with_shape(type.shape[:-1]), *([vectors] * (params["left"] + params["right"])))


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a j, a i j, a i j | replicate i j`: values, left and right vectors."""
    batch = batch_names(in_types[0].rank - 2)
    dims = (*batch, ("i",), ("j",))
    results = ((*batch, ("j",)), *([dims] * (len(out_types) - 1)))
    rule = FactorRule((dims,), results, {"i": "replicate", "j": "replicate"})
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _evaluate(a: Array, left: bool, right: bool) -> tuple[Array, ...]:
    """Left vectors are the rows of the inverse of the right ones."""
    dtype = np.result_type(a.dtype, np.complex64)
    bad = np.asarray(~np.isfinite(a).all((-1, -2)))  # NumPy refuses all of a stack for one of these
    values, vectors = np.linalg.eig(np.where(bad[..., None, None], 0, a))
    sides = [vectors.astype(np.complex128)] if right else []
    sides = [_inverses(vectors), *sides] if left else sides
    sides = [x * phases(x) if x.size else x for x in sides]
    out = (np.where(bad[..., None], np.nan, values), *(np.where(bad[..., None, None], np.nan, x) for x in sides))
    return tuple(x.astype(dtype) for x in out)


def _inverses(vectors: Array) -> Array:
    """One matrix after another: NumPy refuses all of a stack for one without an inverse."""
    out = np.full(vectors.shape, np.nan, np.complex128)
    for index in np.ndindex(vectors.shape[:-2]):
        try:
            out[index] = adjoint_of(np.linalg.inv(vectors[index]))
        except np.linalg.LinAlgError:
            continue
    return out / np.linalg.norm(out, axis=-2, keepdims=True)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in ins[0].shape:
        return emit_empty(e, outs)
    if not has_routines(e, ins[0], "geev"):
        refuse(e, "eig", is_on_gpus=True)
    find = cusolver.eigen_general if on_gpu(e, "geev", ins[0].dtype) else eigen_general
    return e.program(_result_program(outs), find(e, operands[0], ins[0], outs, params["left"], params["right"]))


@functools.lru_cache(maxsize=64)
def _result_program(types: Types) -> Program:
    """What a routine found, with eigenvectors in their one direction; nan where it found nothing."""
    with Builder("found") as builder:
        values, *vectors = (builder.input(type) for type in types)
        batch = types[0].with_shape(types[0].shape[:-1])
        good = is_good(builder.input(batch.with_dtype(INFO)), builder.input(batch.with_dtype(np.bool_)))
        turned = [multiply(v, per_column(nan_unless(good, phase(v, v.rank - 2)), v)) for v in vectors]
        return builder.build([nan_unless(good, values), *turned])


def _jvp(primals, tangents, outs, params):
    """With M = V⁻¹ dA V: dw = diag M, dV = V (F ∘ M), F_ij = 1 / (w_j - w_i), 0 on the diagonal, and the rows of V⁻¹ are left
    vectors, d(V⁻¹) = -(F ∘ M) V⁻¹; then lengths and phases are kept. Defined where no two eigenvalues are equal."""
    (a,), (tangent,) = primals, tangents
    if tangent is None:
        return [None] * len(outs)
    if 0 in a.shape:
        return [zeros_like(x) for x in outs]
    values = outs[0]
    v = outs[-1] if params["right"] else eig(a, left=False, right=True)[1]
    inside = _over(v, matmul(as_dtype(tangent, v) if tangent.dtype.kind != "c" else tangent, v))
    results = [_diagonal(inside)]
    if not params["left"] and not params["right"]:
        return results
    rows, columns = (restore(values, v.shape, (axis,)) for axis in (v.rank - 1, v.rank - 2))
    eye = eye_like(v)
    moves = multiply(subtract(divide(full_like(eye, 1), add(subtract(columns, rows), eye)), eye), inside)
    if params["left"]:
        u = outs[1]
        inverse = adjoint(_over(v, eye))
        scales = _overlap(inverse, u)  # what a column of V⁻* is times its left vector
        results.append(_kept(u, divide(negate(matmul(inverse, adjoint(moves))), scales)))
    if params["right"]:
        results.append(_kept(v, matmul(v, moves)))
    return results


def _over(v: Var, b: Var) -> Var:
    """V⁻¹ B; the factors need no derivative, see lu_solve."""
    factors, _, order = lu(stop_gradient(v))
    return lu_solve(v, factors, order, b, transpose_a="none")


def _diagonal(x: Var) -> Var:
    return reduce_sum(diagonal_part(x), axes=(x.rank - 2,))


def _overlap(x: Var, unit: Var) -> Var:
    """unit* x of every column, for columns `unit` of length 1; spread over the columns."""
    return restore(reduce_sum(multiply(conj(unit), x), axes=(x.rank - 2,)), x.shape, (x.rank - 2,))


def _kept(v: Var, change: Var) -> Var:
    """A change of columns that leaves their length 1 and their largest element real."""
    along = real(_overlap(change, v))
    change = subtract(change, multiply(v, complex_(along, zeros_like(along))))
    return subtract(change, multiply(v, per_column(rotation(v, change, v.rank - 2), v)))


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    outs = eig(move(operands[0], dims[0] or 0, 0), **params)
    outs = list(outs) if isinstance(outs, tuple) else [outs]
    return outs, [0] * len(outs)


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """V D V⁻¹ with V not far from the identity, eigenvalues apart from one another."""
    n = type.shape[-1]
    v = np.eye(n) + 0.2 * matrix(generator, type.with_dtype(np.result_type(type.dtype, np.float64)))
    return (v * (np.arange(n) + 1.3)) @ np.linalg.inv(v) if v.size else v


def _fill_turning(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """The same with two conjugate eigenvalues."""
    n = type.shape[-1]
    v = np.eye(n) + 0.2 * matrix(generator, type.with_dtype(np.dtype(np.float64)))
    middle = np.diag(np.arange(n) + 1.3)
    middle[0, 1], middle[1, 0], middle[1, 1] = -2, 2, 1.3
    return v @ middle @ np.linalg.inv(v)


def _samples() -> list[Sample]:
    calls = [((3, 3), "f32", _fill), ((4, 4), "f64", _fill_turning), ((5, 3, 3), "c64", _fill), ((2, 3, 2, 2), "c128", _fill)]
    calls += [((1, 1), "f64", _fill), ((2, 0, 0), "f32", _fill), ((0, 2, 2), "c64", _fill)]
    ways = [(False, True), (True, True), (False, False), (True, False)]
    return [
        Sample((TensorType(shape, DTYPES[d]),), {"left": left, "right": right}, fill)
        for number, (shape, d, fill) in enumerate(calls)
        for left, right in (ways if number == 1 else [ways[number % 4]])
    ]


eig = Op(
    name="eig",
    type_rule=_type,
    factor_rule=_rule,
    whole="every rotation mixes whole rows and columns",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    passes=lambda in_types, params: 190.0,
    column_work=by_columns(50.0, 51.0),
)
