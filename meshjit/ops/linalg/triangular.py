"""Triangular matrices: `cholesky` factors and `triangular_solve`, over the last two dims.

Dims before the matrix cost no communication, nor do the columns of a right-hand side; matrix dims are whole on every
device, because every element of the result depends on a whole triangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, add_tangents, negate, scale, subtract
from meshjit.ops.base.batching import align, move
from meshjit.ops.base.constants import zeros_like
from meshjit.ops.base.conversion import complex_, real
from meshjit.ops.base.families import require, require_param
from meshjit.ops.base.shape import require_one, reshape
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import (
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
    transposed,
    triangle,
)
from meshjit.ops.linalg.routines import factor_positive, has_routines, solve_triangular
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


# -- cholesky: lower L with A = L L*, of which only the lower triangle is read; nan where A is not positive definite


def _cholesky_type(in_types: Types, params: Params) -> Types:
    type = require_one("cholesky", in_types)
    require_matrix("cholesky", type, square=True)
    return (type,)


def _cholesky_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i j | replicate i j`."""
    dims = (*batch_names(in_types[0].rank - 2), ("i",), ("j",))
    rule = FactorRule((dims,), (dims,), {"i": "replicate", "j": "replicate"})
    return rule.with_sizes([in_types[0].shape], [out_types[0].shape])


def _cholesky(a: Array) -> Array:
    """One matrix after another: NumPy refuses all of a stack for one that has no factor."""
    out = np.empty_like(a)
    for index in np.ndindex(a.shape[:-2]):
        try:
            out[index] = np.linalg.cholesky(a[index])
        except np.linalg.LinAlgError:
            out[index] = np.nan
    return np.tril(out)


def _cholesky_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in outs[0].shape:
        return emit_empty(e, outs)
    if has_routines(e, ins[0], "potrf"):
        return [factor_positive(e, operands[0], outs[0])]
    factor = e.op("cholesky", operands, outs, "lower = true")[0]
    return [emit_triangle(e, factor, outs[0], lower=True)]


def _cholesky_jvp(primals, tangents, outs, params):
    """dL = L tri(L⁻¹ dA L⁻*), where tri takes the lower triangle and half of the diagonal (Murray, arXiv 1602.07527)."""
    (tangent,), (factor,) = tangents, outs
    if tangent is None:
        return [None]
    lower = triangle(tangent, lower=True, strict=True)
    diagonal = diagonal_part(tangent)
    if tangent.dtype.kind == "c":  # the imaginary part of the diagonal is not read
        diagonal = complex_(real(diagonal), zeros_like(real(diagonal)))
    hermitian = add(add(lower, adjoint(lower)), diagonal)
    how = {"lower": True, "unit_diagonal": False}
    right = triangular_solve(factor, hermitian, left_side=False, transpose_a="adjoint", **how)
    both = triangular_solve(factor, right, left_side=True, transpose_a="none", **how)
    half = subtract(triangle(both, lower=True), scale(diagonal_part(both), 0.5))
    return [matmul(factor, half)]


def _cholesky_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return [cholesky(move(operands[0], dims[0] or 0, 0))], [0]


def positive_definite(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    root = matrix(generator, type).astype(np.complex128 if type.dtype.kind == "c" else np.float64)
    return root @ adjoint_of(root) + 2 * np.eye(type.shape[-1])


def _cholesky_samples() -> list[Sample]:
    calls = [((4, 4), "f32"), ((4, 4), "c128"), ((5, 3, 3), "c64"), ((2, 3, 2, 2), "f64"), ((1, 1), "c64"), ((8, 6, 6), "f32")]
    calls += [((3, 0, 0), "f32"), ((0, 2, 2), "c64")]
    return [Sample((TensorType(shape, DTYPES[d]),), {}, positive_definite) for shape, d in calls]


cholesky = Op(
    name="cholesky",
    type_rule=_cholesky_type,
    factor_rule=_cholesky_rule,
    whole="each column needs all those before it",
    evaluate=_cholesky,
    emit=_cholesky_emit,
    samples=_cholesky_samples,
    batch=_cholesky_batch,
    jvp=_cholesky_jvp,
    passes=lambda in_types, params: 8.0,
    column_work=by_columns(1.0, 0.16),
)


# -- triangular_solve(a, b): x with op(A) x = b, or x op(A) = b (left_side False). Only one triangle of A is read, and its
# diagonal, or ones with unit_diagonal. op by transpose_a: "none", "transpose", "adjoint".

TRANSPOSES = {"none": "NO_TRANSPOSE", "transpose": "TRANSPOSE", "adjoint": "ADJOINT"}


def _solve_type(in_types: Types, params: Params) -> Types:
    name = "triangular_solve"
    require(len(in_types) == 2, name, f"takes 2 operands, was given {len(in_types)}")
    a, b = in_types
    require_flag(name, params, "left_side", "lower", "unit_diagonal")
    how = params["transpose_a"]
    require_param(how in TRANSPOSES, name, "transpose_a", repr(how), f"write one of {', '.join(TRANSPOSES)}")
    require_matrix(name, a, "matrix", square=True)
    require_matrix(name, b, "right-hand side")
    require(a.dtype == b.dtype, name, f"operand dtypes differ: {a} and {b}")
    require(a.shape[:-2] == b.shape[:-2], name, f"dims before the matrices differ: {a} and {b}")
    side = -2 if params["left_side"] else -1
    fits = b.shape[side] == a.shape[-1]
    require(fits, name, f"dim {b.rank + side} of right-hand side {b} has extent {b.shape[side]}, matrix {a} needs {a.shape[-1]}")
    return (b,)


def _solve_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j, a j k -> a j k | replicate i j`; from the right `a i j, a k i -> a k i`."""
    batch = batch_names(in_types[0].rank - 2)
    b = (*batch, ("j",), ("k",)) if params["left_side"] else (*batch, ("k",), ("j",))
    kinds = {"i": "replicate", "j": "replicate"}
    rule = FactorRule(((*batch, ("i",), ("j",)), b), (b,), kinds)
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _solve(a: Array, b: Array, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> Array:
    """By substitution: the first unknown of every line, then what is left without it."""
    a = np.tril(a) if lower else np.triu(a)
    if transpose_a != "none":
        a, lower = np.swapaxes(a, -1, -2), not lower
        a = np.conj(a) if transpose_a == "adjoint" else a
    if not left_side:
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    n = a.shape[-1]
    x = np.array(b)
    with np.errstate(all="ignore"):
        for i in range(n) if lower else reversed(range(n)):
            if not unit_diagonal:
                x[..., i, :] /= a[..., i, i, None]
            rest = slice(i + 1, n) if lower else slice(0, i)
            x[..., rest, :] -= a[..., rest, i, None] * x[..., None, i, :]
    return x if left_side else np.swapaxes(x, -1, -2)


def _solve_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in outs[0].shape:
        return emit_empty(e, outs)
    if has_routines(e, ins[0], "trsm"):
        return [solve_triangular(e, operands[0], operands[1], params)]
    flags = ", ".join(f"{name} = {str(params[name]).lower()}" for name in ("left_side", "lower", "unit_diagonal"))
    how = TRANSPOSES[params["transpose_a"]]
    return e.op("triangular_solve", operands, outs, f"{flags}, transpose_a = #stablehlo<transpose {how}>")


def _solve_jvp(primals, tangents, outs, params):
    """dx = op(A)⁻¹ (db - op(dA) x), of the triangle of dA that is read."""
    (a, _), (da, db), (x,) = primals, tangents, outs
    change = None
    if da is not None:
        da = triangle(da, params["lower"], strict=params["unit_diagonal"])
        da = {"none": lambda m: m, "transpose": transposed, "adjoint": adjoint}[params["transpose_a"]](da)
        change = negate(matmul(da, x) if params["left_side"] else matmul(x, da))
    right = add_tangents(db, change)
    return [None if right is None else triangular_solve(a, right, **params)]


_OTHER = {"none": "transpose", "transpose": "none", "adjoint": "none"}


def _solve_transpose(cotangents, operands, in_types, params):
    a = conj(operands[0]) if params["transpose_a"] == "adjoint" else operands[0]
    return [None, triangular_solve(a, cotangents[0], **{**params, "transpose_a": _OTHER[params["transpose_a"]]})]


def _solve_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Many right-hand sides of one matrix are its columns; otherwise the batch dim goes in front."""
    (a, b), (i, j) = operands, dims
    if i is not None or j is None:
        return [triangular_solve(*align(operands, dims), **params)], [0]
    side = b.rank - 3 + (1 if params["left_side"] else 0)  # the columns' (rows') place among the dims of one member
    wide = move(b, j, side)
    merged = (*wide.shape[:side], wide.shape[side] * wide.shape[side + 1], *wide.shape[side + 2 :])
    x = triangular_solve(a, reshape(wide, shape=merged), **params)
    return [reshape(x, shape=wide.shape)], [side]


def _solve_fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Matrices with a diagonal far from zero, right-hand sides of any numbers."""
    array = matrix(generator, type)
    return array + 4 * np.eye(*type.shape[-2:], dtype=array.dtype) if index == 0 else array


def _solve_samples() -> list[Sample]:
    calls = [((4, 4), (4, 3)), ((3, 3), (3, 8)), ((5, 2, 2), (5, 2, 4)), ((1, 1), (1, 5)), ((2, 3, 2, 2), (2, 3, 2, 1))]
    calls += [((3, 0, 0), (3, 0, 2)), ((2, 2), (2, 0)), ((6, 3, 3), (6, 3, 3))]
    samples: list[Sample] = []
    for number, (a, b) in enumerate(calls):
        for left in (True, False):
            for how in TRANSPOSES if number == 0 else [list(TRANSPOSES)[(number + left) % 3]]:
                lower, unit = (number + left) % 2 == 0, number % 3 == 1
                params = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": how}
                shape = b if left else (*b[:-2], b[-1], b[-2])
                for d in [("f32", "c64"), ("c64",), ("f32",), ("c128",), ("f64",)][min(number, 4)]:
                    samples.append(Sample((TensorType(a, DTYPES[d]), TensorType(shape, DTYPES[d])), params, _solve_fill))
    return samples


triangular_solve = Op(
    name="triangular_solve",
    type_rule=_solve_type,
    factor_rule=_solve_rule,
    whole="each unknown needs those before it; right-hand sides are independent",
    evaluate=_solve,
    emit=_solve_emit,
    samples=_solve_samples,
    batch=_solve_batch,
    linear=((1,),),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    passes=lambda in_types, params: 3.0,
    column_work=by_columns(0.8, 0.2),
)
