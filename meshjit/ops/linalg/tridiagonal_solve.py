"""`tridiagonal_solve`: systems of equations of matrices with three diagonals.

On CPU LAPACK does it, exchanging rows, elsewhere a loop without exchanges (Thomas's algorithm). Dims before the matrix cost no
communication, nor do the columns of a right-hand side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, add_tangents, divide, multiply, negate, subtract
from meshjit.ops.base.batching import align, move
from meshjit.ops.base.constants import full_like, scalar, zeros, zeros_like
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import restore
from meshjit.ops.base.shape import expand, reshape
from meshjit.ops.control.repeating import repeat
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.linalg.lu import factored
from meshjit.ops.linalg.matrices import batch_names, emit_empty, matrix, require_flag, require_matrix
from meshjit.ops.linalg.routines import call, has_routines, is_good, nan_unless, on_gpu, refuse
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_NAME, _INT = "tridiagonal_solve", DTYPES["i32"]


# -- tridiagonal_solve(dl, d, du, b): x with A x = b, where A[i, i - 1] = dl[i], A[i, i] = d[i], A[i, i + 1] = du[i]; dl[0]
# and du[n - 1] are not read. perturb_singular: pivots that vanish are replaced by small ones, instead of nan.


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 4, _NAME, f"takes 4 operands, was given {len(in_types)}")
    *diagonals, b = in_types
    require_matrix(_NAME, b, "right-hand side")
    require_flag(_NAME, params, "perturb_singular")
    expected = b.with_shape(b.shape[:-1])
    for name, type in zip(("dl", "d", "du"), diagonals, strict=True):
        require(type == expected, _NAME, f"right-hand side {b} needs diagonals {expected}, {name} is {type}")
    return (b,)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i, a i, a i, a i k -> a i k | replicate i`."""
    batch = batch_names(in_types[3].rank - 2)
    line, b = (*batch, ("i",)), (*batch, ("i",), ("k",))
    rule = FactorRule((line, line, line, b), (b,), {"i": "replicate"})
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _evaluate(dl: Array, d: Array, du: Array, b: Array, perturb_singular: bool) -> Array:
    """By the factors of the whole matrix."""
    if not b.size:
        return b
    n = d.shape[-1]
    below, above = np.eye(n, k=-1), np.eye(n, k=1)
    a = dl[..., None] * below + d[..., None] * np.eye(n) + du[..., None] * above
    factors, _, order = factored(a.astype(np.result_type(b.dtype, np.float64)))
    upper, diagonal = np.triu(factors), np.arange(n)
    pivots = factors[..., diagonal, diagonal]
    least = np.finfo(b.dtype).eps * np.abs(upper).max((-1, -2))[..., None]
    small = np.abs(pivots) < least if perturb_singular else pivots == 0
    factors[..., diagonal, diagonal] = np.where(small, least if perturb_singular else np.nan, pivots)
    x = np.take_along_axis(b, order[..., None], -2).astype(factors.dtype)
    for i in range(n):
        x[..., i, :] -= (factors[..., i, :i, None] * x[..., :i, :]).sum(-2)
    for i in reversed(range(n)):
        x[..., i, :] -= (factors[..., i, i + 1 :, None] * x[..., i + 1 :, :]).sum(-2)
        x[..., i, :] /= factors[..., i, i, None]
    bad = small.any(-1) & (not perturb_singular)
    return np.where(bad[..., None, None], np.nan, x).astype(b.dtype)


_LEAST = 3  # unknowns that cuSPARSE's gtsv2 takes


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if 0 in outs[0].shape:
        return emit_empty(e, outs)
    batch = ins[3].rank - 2
    if params["perturb_singular"]:
        if not has_routines(e, ins[3], "solve_perturbed"):
            refuse(e, "tridiagonal_solve with perturb_singular=True", is_on_gpus=True)
        return call(e, "solve_perturbed", operands, outs, batch=batch)
    is_cusparse = on_gpu(e, "gtsv", ins[3].dtype)
    if not has_routines(e, ins[3], "gtsv") or (is_cusparse and ins[3].shape[-2] < _LEAST):
        return e.program(_loops(*ins), operands)
    if is_cusparse:  # it does not say whether it managed
        return call(e, "gtsv", operands, outs, in_place={0: 3}, batch=batch)
    info = TensorType(ins[3].shape[:-2], _INT)
    *_, x, info_name = call(e, "gtsv", operands, (*ins, info), in_place={i: i for i in range(4)}, batch=batch)
    return e.program(_checked(info, outs[0]), [info_name, x])


@functools.lru_cache(maxsize=64)
def _checked(info: TensorType, type: TensorType) -> Program:
    with Builder("checked") as builder:
        flag = builder.input(info)
        return builder.build([nan_unless(is_good(flag), builder.input(type))])


@functools.lru_cache(maxsize=64)
def _loops(dl: TensorType, d: TensorType, du: TensorType, b: TensorType) -> Program:
    """Forwards without the unknown below, backwards what is left; one unknown at a time, all columns together."""
    with Builder("solve") as builder:
        dl_, d_, du_, b_ = (builder.input(t) for t in (dl, d, du, b))
        lines = [expand(x, x.rank) for x in (dl_, d_, du_)]
        n = b.shape[-2]
        first = (zeros(lines[0].type.with_shape((*b.shape[:-2], 1, 1))), zeros(b.with_shape((*b.shape[:-2], 1, b.shape[-1]))))
        state = [*lines, b_, zeros_like(lines[2]), zeros_like(b_), *first]
        _, _, _, _, ratios, parts, _, _ = repeat(state, n, 1, _forwards)
        return builder.build([repeat([ratios, parts, zeros_like(b_), first[1]], n, 1, _backwards)[2]])


def _forwards(i: Var, dl: Var, d: Var, du: Var, b: Var, ratios: Var, parts: Var, ratio: Var, part: Var) -> list[Var]:
    low, middle, high, right = (_row(x, i) for x in (dl, d, du, b))
    pivot = subtract(middle, multiply(low, ratio))
    ratio = divide(high, pivot)
    part = divide(subtract(right, multiply(_wide(low, right), part)), _wide(pivot, right))
    return [dl, d, du, b, _put(ratios, ratio, i), _put(parts, part, i), ratio, part]


def _backwards(k: Var, ratios: Var, parts: Var, x: Var, last: Var) -> list[Var]:
    i = subtract(full_like(k, x.shape[-2] - 1), k)
    part = _row(parts, i)
    last = subtract(part, multiply(_wide(_row(ratios, i), part), last))
    return [ratios, parts, _put(x, last, i), last]


def _wide(var: Var, like: Var) -> Var:
    """[..., 1, 1] spread over the columns."""
    return _columns(reshape(var, shape=var.shape[:-1]), like)


def _row(var: Var, i: Var) -> Var:
    starts = [i if d == var.rank - 2 else scalar(0, _INT) for d in range(var.rank)]
    return dynamic_slice(var, *starts, slice_sizes=(*var.shape[:-2], 1, var.shape[-1]))


def _put(var: Var, part: Var, i: Var) -> Var:
    return dynamic_update_slice(var, part, *[i if d == var.rank - 2 else scalar(0, _INT) for d in range(var.rank)])


def _columns(line: Var, like: Var) -> Var:
    """A diagonal spread over the columns of a right-hand side."""
    return restore(line, like.shape, (like.rank - 1,))


def _moved(x: Var, dim: int, down: bool) -> Var:
    """Each element in the next (`down`) or previous place of a dim; a zero comes in."""
    n = x.shape[dim]
    zero = zeros_like(cut(x, dim, 0, 1))
    parts = (zero, cut(x, dim, 0, n - 1)) if down else (cut(x, dim, 1, n), zero)
    return concatenate(*parts, dimension=dim)


def _jvp(primals, tangents, outs, params):
    """dx = A⁻¹ (db - dA x)."""
    (*diagonals, _), (*changes, db), (x,) = primals, tangents, outs
    if not x.type.shape[-2]:
        return [zeros_like(x)]
    row = x.rank - 2
    moved = (lambda: _moved(x, row, True), lambda: x, lambda: _moved(x, row, False))
    terms = [multiply(_columns(t, x), near()) for t, near in zip(changes, moved, strict=True) if t is not None]
    right = add_tangents(db, negate(functools.reduce(add, terms)) if terms else None)
    return [None if right is None else tridiagonal_solve(*diagonals, right, **params)]


def _transpose(cotangents, operands, in_types, params):
    """Of the transposed matrix the diagonals below and above change places, each moved by one."""
    dl, d, du, _ = operands
    if d.shape[-1]:
        dl, du = _moved(du, d.rank - 1, True), _moved(dl, d.rank - 1, False)
    return [None, None, None, tridiagonal_solve(dl, d, du, cotangents[0], **params)]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Many right-hand sides of one matrix are its columns; otherwise the batch dim goes in front."""
    if any(dim is not None for dim in dims[:3]):
        return [tridiagonal_solve(*align(operands, dims), **params)], [0]
    b, place = operands[3], dims[3] or 0
    wide = move(b, place, b.rank - 2)
    merged = (*wide.shape[:-2], wide.shape[-2] * wide.shape[-1])
    x = tridiagonal_solve(*operands[:3], reshape(wide, shape=merged), **params)
    return [reshape(x, shape=wide.shape)], [b.rank - 2]


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    return matrix(generator, type) + (4 if index == 1 else 0)


def _samples() -> list[Sample]:
    calls = [((4, 3), "f32"), ((5, 4, 2), "f64"), ((3, 8), "c64"), ((2, 3, 4, 1), "c128"), ((1, 5), "f32"), ((2, 2), "f64")]
    calls += [((3, 0, 2), "f32"), ((3, 0), "f32"), ((0, 2, 2), "c64")]
    return [
        Sample((*[TensorType(shape[:-1], DTYPES[d])] * 3, TensorType(shape, DTYPES[d])), {"perturb_singular": False}, _fill)
        for shape, d in calls
    ]


tridiagonal_solve = Op(
    name=_NAME,
    type_rule=_type,
    factor_rule=_rule,
    whole="each unknown needs those before it; right-hand sides are independent",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    linear=((3,),),
    jvp=_jvp,
    transpose=_transpose,
    passes=lambda in_types, params: 2.0,
)
