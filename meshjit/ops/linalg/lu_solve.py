"""`lu_solve`: systems of equations with the factors that `lu` gives, over the last two dims.

Dims before the matrix cost no communication, nor do the columns of a right-hand side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add_tangents, negate
from meshjit.ops.base.batching import align, move
from meshjit.ops.base.constants import iota
from meshjit.ops.base.families import require, require_param
from meshjit.ops.base.shape import reshape
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.lu import factored, rows_in_order
from meshjit.ops.linalg.matrices import adjoint, batch_names, conj, emit_empty, matmul, matrix, require_matrix, transposed
from meshjit.ops.linalg.triangular import TRANSPOSES, triangular_solve
from meshjit.ops.sort.sort import sort
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_INT = DTYPES["i32"]


# -- lu_solve(a, factors, order, b): x with op(A) x = b; `factors` and `order` are what lu(a) gives. A alone decides the
# derivative, so that factoring it needs none: dx = op(A)⁻¹ (db - op(dA) x).


def _solve_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 4, "lu_solve", f"takes 4 operands, was given {len(in_types)}")
    a, factors, order, b = in_types
    how = params["transpose_a"]
    require_param(how in TRANSPOSES, "lu_solve", "transpose_a", repr(how), f"write one of {', '.join(TRANSPOSES)}")
    require_matrix("lu_solve", a, "matrix", square=True)
    require_matrix("lu_solve", b, "right-hand side")
    expected = (a, TensorType(a.shape[:-1], _INT))
    fit = (factors, order) == expected
    require(fit, "lu_solve", f"{a} has factors {expected[0]} and {expected[1]}, not {factors} and {order}")
    require(a.dtype == b.dtype, "lu_solve", f"operand dtypes differ: {a} and {b}")
    fits = b.shape[:-1] == a.shape[:-1]
    require(fits, "lu_solve", f"right-hand side {b} does not fit matrix {a}: all dims but the last must be equal")
    return (b,)


def _solve_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j, a i j, a i, a i k -> a i k | replicate i j`."""
    batch = batch_names(in_types[0].rank - 2)
    a, b = (*batch, ("i",), ("j",)), (*batch, ("i",), ("k",))
    rule = FactorRule((a, a, (*batch, ("i",)), b), (b,), {"i": "replicate", "j": "replicate"})
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _solve(a: Array, factors: Array, order: Array, b: Array, transpose_a: str) -> Array:
    """One matrix after another: NumPy refuses all of a stack for a singular one."""
    a = np.swapaxes(a, -1, -2) if transpose_a != "none" else a
    a = np.conj(a) if transpose_a == "adjoint" else a
    out = np.empty_like(b)
    for index in np.ndindex(a.shape[:-2]):
        try:
            out[index] = np.linalg.solve(a[index], b[index])
        except np.linalg.LinAlgError:
            out[index] = np.nan
    return out


def _solve_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in outs[0].shape:
        return emit_empty(e, outs)
    return e.program(_solve_program(ins[1:], params["transpose_a"]), operands[1:])


@functools.lru_cache(maxsize=64)
def _solve_program(types: Types, transpose_a: str) -> Program:
    """Rows of A in `order` are L U: A x = b is L U x = b in this order, and Aᵀ x = b is Uᵀ Lᵀ (x in this order) = b."""

    def over(factors: Var, b: Var, lower: bool) -> Var:
        return triangular_solve(factors, b, left_side=True, lower=lower, unit_diagonal=lower, transpose_a=transpose_a)

    with Builder("lu_solve") as builder:
        factors, order, b = (builder.input(type) for type in types)
        if transpose_a == "none":
            return builder.build([over(factors, over(factors, rows_in_order(b, order), True), False)])
        places = iota(dtype=_INT, shape=order.shape, dimension=order.rank - 1)
        _, back = sort(order, places, dimension=order.rank - 1, num_keys=1, is_stable=False)
        return builder.build([rows_in_order(over(factors, over(factors, b, False), True), back)])


def _solve_jvp(primals, tangents, outs, params):
    a, factors, order, _ = primals
    da, _, _, db = tangents
    change = None
    if da is not None:
        da = {"none": lambda m: m, "transpose": transposed, "adjoint": adjoint}[params["transpose_a"]](da)
        change = negate(matmul(da, outs[0]))
    right = add_tangents(db, change)
    return [None if right is None else lu_solve(a, factors, order, right, **params)]


def _solve_transpose(cotangents, operands, in_types, params):
    a, factors, order, _ = operands
    how = {"none": "transpose", "transpose": "none", "adjoint": "none"}[params["transpose_a"]]
    if params["transpose_a"] == "adjoint":
        a, factors = conj(a), conj(factors)
    return [None, None, None, lu_solve(a, factors, order, cotangents[0], transpose_a=how)]


def _solve_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Many right-hand sides of one matrix are its columns."""
    *factored, b = operands
    if dims[-1] is None or any(d is not None for d in dims[:-1]):
        return [lu_solve(*align(operands, dims), **params)], [0]
    wide = move(b, dims[-1], b.rank - 2)
    merged = (*wide.shape[:-2], wide.shape[-2] * wide.shape[-1])
    return [reshape(lu_solve(*factored, reshape(wide, shape=merged), **params), shape=wide.shape)], [b.rank - 2]


def _solve_fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """A matrix that is the same for all operands of one shape, with its factors; a complex one has the real one's order."""
    if index == 3:
        return matrix(generator, type)
    shape = type.shape if index < 2 else (*type.shape, type.shape[-1])
    rows = np.random.default_rng(shape[-1]).normal(size=shape)
    a = np.asarray(rows * (1 + 0.5j) if type.dtype.kind == "c" else rows)
    return (a, *factored(a))[0 if index == 0 else 1 if index == 1 else 3]


def _solve_samples() -> list[Sample]:
    calls = [((3, 3), 2), ((5, 3, 3), 4), ((1, 1), 5), ((2, 3, 2, 2), 1), ((2, 0, 0), 2), ((3, 3), 0)]
    samples: list[Sample] = []
    for number, (shape, columns) in enumerate(calls):
        for how in TRANSPOSES if number < 2 else [list(TRANSPOSES)[number % 3]]:
            a = TensorType(shape, DTYPES["c128" if number == 1 else "f64"])
            b = a.with_shape((*shape[:-1], columns))
            samples.append(Sample((a, a, TensorType(shape[:-1], _INT), b), {"transpose_a": how}, _solve_fill))
    return samples


lu_solve = Op(
    name="lu_solve",
    type_rule=_solve_type,
    factor_rule=_solve_rule,
    whole="each unknown needs those before it; right-hand sides are independent",
    evaluate=_solve,
    emit=_solve_emit,
    samples=_solve_samples,
    batch=_solve_batch,
    linear=((3,),),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    passes=lambda in_types, params: 6.0,
    column_work=by_columns(1.6, 0.4),
)

