"""`lu`: factors of a general matrix with row exchanges, over the last two dims.

On CPU LAPACK's getrf does it. Elsewhere it is emitted as a Program of other ops: panels of columns are eliminated one column
after another in a loop, what stands right of a panel by one triangular solve and one product. Batch dims cost no
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
from meshjit.ops.base.arithmetic import abs_, add, divide, multiply, subtract
from meshjit.ops.base.batching import move
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, iota, scalar, spread, zeros, zeros_like
from meshjit.ops.base.conversion import imag, real
from meshjit.ops.base.reduction import reduce_sum, restore
from meshjit.ops.base.shape import broadcast_in_dim, expand, require_one, squeeze
from meshjit.ops.control.repeating import repeat
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.index.gather import gather
from meshjit.ops.linalg.column_work import by_columns
from meshjit.ops.linalg.matrices import (
    batch_names,
    matmul,
    matrix,
    require_matrix,
    triangle,
)
from meshjit.ops.linalg.routines import INFO, factor_general, has_routines, kernel, order_of_pivots
from meshjit.ops.linalg.triangular import triangular_solve
from meshjit.ops.reduce.arg_reduction import argmax
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_INT = DTYPES["i32"]

# Columns that are factored before the rest of the matrix is brought up to date, where there is no LAPACK. f32[1024, 1024] takes
# 106, 63, 43, 81 and 125 ms with 8, 16, 32, 64 and 128 on a core of two; f32[2048, 2048] 455, 337 and 371 ms with 32, 64 and 128.
_PANEL = 64


# -- lu(a): (L and U in one matrix, the row each step exchanged its own with, the order of the rows that L U has)


def _lu_type(in_types: Types, params: Params) -> Types:
    type = require_one("lu", in_types)
    require_matrix("lu", type)
    *batch, rows, columns = type.shape
    return (type, TensorType((*batch, min(rows, columns)), _INT), TensorType((*batch, rows), _INT))


def _lu_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a i j -> a i j, a j, a i | replicate i j` of a tall matrix."""
    batch = batch_names(in_types[0].rank - 2)
    dims = (*batch, ("i",), ("j",))
    short = ("i",) if in_types[0].shape[-2] <= in_types[0].shape[-1] else ("j",)
    kinds = {"i": "replicate", "j": "replicate"}
    rule = FactorRule((dims,), (dims, (*batch, short), (*batch, ("i",))), kinds)
    return rule.with_sizes([in_types[0].shape], [t.shape for t in out_types])


def _size(a: Array) -> Array:
    """By which rows are chosen: of complex numbers the sum of the parts' sizes, as LAPACK does."""
    return np.abs(a.real) + np.abs(a.imag) if a.dtype.kind == "c" else np.abs(a)


def factored(a: Array) -> tuple[Array, Array, Array]:
    *batch, rows, columns = a.shape
    a = np.array(a)
    order = np.array(np.broadcast_to(np.arange(rows, dtype=_INT), (*batch, rows)))
    pivots = np.zeros((*batch, min(rows, columns)), _INT)
    with np.errstate(all="ignore"):
        for k in range(min(rows, columns)) if a.size else ():
            pivots[..., k] = chosen = k + np.argmax(_size(a[..., k:, k]), axis=-1)
            for values in (a, order[..., None]):
                mine = values[..., k, :].copy()
                theirs = np.take_along_axis(values, chosen[..., None, None], -2)
                np.put_along_axis(values, np.broadcast_to(chosen[..., None, None], theirs.shape), mine[..., None, :], -2)
                values[..., k, :] = theirs[..., 0, :]
            pivot = a[..., k, k, None]
            a[..., k + 1 :, k] = np.where(pivot == 0, a[..., k + 1 :, k], a[..., k + 1 :, k] / pivot)
            a[..., k + 1 :, k + 1 :] -= a[..., k + 1 :, k, None] * a[..., None, k, k + 1 :]
    return a, pivots, order


def _lu_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if has_routines(e, ins[0], "getrf"):
        factors, chosen = factor_general(e, operands[0], ins[0])
        (pivots,) = e.program(_pivots_program(e.types[chosen]), [chosen])
        rows = ins[0].shape[-2]
        if kernel(e, "order_of_pivots", INFO):
            return [factors, pivots, order_of_pivots(e, pivots, rows)]
        return [factors, pivots, *e.program(_order_program(e.types[pivots], rows), [pivots])]
    return e.program(_lu_program(ins[0]), operands)


@functools.lru_cache(maxsize=64)
def _pivots_program(type: TensorType) -> Program:
    """LAPACK's exchanges, which count from 1, to such that count from 0."""
    with Builder("pivots") as builder:
        one = builder.input(type)
        return builder.build([subtract(one, full_like(one, 1))])


@functools.lru_cache(maxsize=64)
def _order_program(type: TensorType, rows: int) -> Program:
    """The order of the rows after these exchanges."""
    with Builder("order") as builder:
        return builder.build([order_of(builder.input(type), rows)])


# Exchanges of one kernel. With 4 to 128 the order of 1,024 rows takes nothing beside the 24 ms of the factors; the text has 1.2
# kB for each exchange, and takes 0.4 s to compile with 32, and 0.8 with 128.
_TOGETHER = 32


def order_of(pivots: Var, rows: int) -> Var:
    """i32 [..., rows]: which row is in place i after row k was exchanged with row pivots[..., k], k rising.

    Found for every place by itself, going back through the exchanges: elementwise, so that some at a time are one kernel."""
    dim, steps = pivots.rank - 1, pivots.shape[-1]
    shape = (*pivots.shape[:-1], rows)

    def back(place: Var, own: Var, other: Var) -> Var:
        own, other = spread(own, shape), restore(squeeze(other, dim), shape, (dim,))
        is_own, is_other = (compare(place, x, direction="EQ") for x in (own, other))
        return select(is_own, other, select(is_other, own, place))

    def some(start: Var, pivots: Var, place: Var, count: int) -> Var:
        chosen = _taken(pivots, start, dim, count)
        for k in reversed(range(count)):
            place = back(place, add(start, full_like(start, k)), cut(chosen, dim, k, k + 1))
        return place

    place = iota(dtype=_INT, shape=shape, dimension=dim)
    last = steps // _TOGETHER * _TOGETHER
    if steps > last:
        place = some(scalar(last, _INT), pivots, place, steps - last)
    if last:

        def body(i: Var, pivots: Var, place: Var) -> list[Var]:
            return [pivots, some(subtract(full_like(i, last - _TOGETHER), i), pivots, place, _TOGETHER)]

        _, place = repeat([pivots, place], last, _TOGETHER, body)
    return place


@functools.lru_cache(maxsize=64)
def _lu_program(type: TensorType) -> Program:
    with Builder("lu") as builder:
        return builder.build(_blocked(builder.input(type)))


def _blocked(a: Var) -> list[Var]:
    """Whole panels in a loop, so that large matrices compile as fast as small ones; then what is left of the columns."""
    rows, columns = a.shape[-2:]
    steps = min(rows, columns)
    order = iota(dtype=_INT, shape=a.shape[:-1], dimension=a.rank - 2)
    pivots = zeros(TensorType((*a.shape[:-2], steps), _INT))
    if 0 in a.shape:
        return [a, pivots, order]
    state = [a, pivots, order]
    whole = steps // _PANEL
    if whole > 1:
        state = repeat(state, whole * _PANEL, _PANEL, lambda start, *state: _panel(start, *state, width=_PANEL))
    elif whole == 1:
        state = _panel(scalar(0, _INT), *state, width=_PANEL)
    if steps % _PANEL:
        state = _panel(scalar(whole * _PANEL, _INT), *state, width=steps % _PANEL)
    return state


def _panel(start: Var, a: Var, pivots: Var, order: Var, width: int) -> list[Var]:
    """`width` columns from `start` on factored, and the columns right of them without these unknowns."""
    row, column = a.rank - 2, a.rank - 1
    panel, chosen, own = _columns(start, _taken(a, start, column, width))
    pivots = _put(pivots, chosen, start, row)
    order = squeeze(rows_in_order(expand(order, column), own), column)
    a = _put(rows_in_order(a, own), panel, start, column)
    return [_beyond(start, a, panel) if a.shape[-1] > width else a, pivots, order]


def _beyond(start: Var, a: Var, panel: Var) -> Var:
    """The columns right of a panel: U in the panel's rows, and what is left to be factored below."""
    row, column, width = a.rank - 2, a.rank - 1, panel.shape[-1]
    end = add(start, full_like(start, width))

    def behind(var: Var, dim: int, border: Var) -> Var:
        return compare(iota(dtype=_INT, shape=var.shape, dimension=dim), spread(border, var.shape), direction="GE")

    top = _taken(a, start, row, width)
    solved = _over_lower(_taken(panel, start, row, width), top)
    right = behind(top, column, end)
    upper = select(right, solved, zeros_like(solved))
    lower = select(behind(panel, row, end), panel, zeros_like(panel))
    is_rest = and_(behind(a, row, end), behind(a, column, end))
    a = select(is_rest, subtract(a, matmul(lower, upper)), a)
    return _put(a, select(right, solved, top), start, row)


def rows_in_order(a: Var, order: Var) -> Var:
    """Row order[i] as row i, per batch member: `a` [..., n, columns], `order` i32 [..., n]."""
    batch = tuple(range(a.rank - 2))
    return gather(
        a,
        expand(order, order.rank),
        offset_dims=(a.rank - 1,),
        collapsed_slice_dims=(a.rank - 2,),
        start_index_map=(a.rank - 2,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
        slice_sizes=(*(1 for _ in batch), 1, a.shape[-1]),
        mode="promise_in_bounds",
        indices_are_sorted=False,
        fill_value=None,
    )


# -- one panel, a column at a time


def _columns(start: Var, panel: Var) -> list[Var]:
    """A panel whose first column is column `start` of the matrix, factored; which rows were chosen; the order of all."""
    *batch, rows, width = panel.shape
    chosen = zeros(TensorType((*batch, width), _INT))
    order = iota(dtype=_INT, shape=panel.shape[:-1], dimension=panel.rank - 2)
    return repeat([start, panel, chosen, order], width, 1, _eliminate)[1:]


def _eliminate(k: Var, start: Var, panel: Var, chosen: Var, order: Var) -> list[Var]:
    """Exchange row start + k with the one that has the largest element in column k, and subtract it from those below."""
    row, column, own = panel.rank - 2, panel.rank - 1, add(start, k)
    places, columns = (iota(dtype=_INT, shape=panel.shape, dimension=d) for d in (row, column))
    below = compare(places, spread(own, panel.shape), direction="GT")
    best = _largest(_taken(panel, k, column), own)
    panel, theirs = _exchanged(panel, own, best)
    pivot = _repeated(_taken(theirs, k, column), panel.shape)
    line = _repeated(_taken(panel, k, column), panel.shape)
    factor = select(compare(pivot, zeros_like(pivot), direction="EQ"), line, divide(line, pivot))
    rest = subtract(panel, multiply(factor, _repeated(theirs, panel.shape)))
    here = spread(k, panel.shape)
    panel = select(and_(below, compare(columns, here, direction="EQ")), factor, panel)
    panel = select(and_(below, compare(columns, here, direction="GT")), rest, panel)
    order = squeeze(_exchanged(expand(order, column), own, best)[0], column)
    return [start, panel, _put(chosen, expand(best, row), k, row), order]


def _largest(line: Var, first: Var) -> Var:
    """i32[batch]: the first place, from `first` on, of the largest element of `line` [..., rows, 1]."""
    line = squeeze(line, line.rank - 1)
    size = add(abs_(real(line)), abs_(imag(line))) if line.dtype.kind == "c" else abs_(line)
    places = iota(dtype=_INT, shape=size.shape, dimension=size.rank - 1)
    size = select(compare(places, spread(first, size.shape), direction="GE"), size, full_like(size, -1))
    return argmax(size, axis=size.rank - 1, index_dtype=_INT)


def _exchanged(var: Var, own: Var, other: Var) -> tuple[Var, Var]:
    """Row `own` [] and row `other` [batch] in each other's place, per batch member; and the row that is in `own` now."""
    row = var.rank - 2
    places = iota(dtype=_INT, shape=var.shape, dimension=row)
    is_other = compare(places, restore(other, var.shape, (row, row + 1)), direction="EQ")
    theirs = expand(reduce_sum(select(is_other, var, zeros_like(var)), axes=(row,)), row)
    mine = _taken(var, own, row, 1)
    var = select(is_other, _repeated(mine, var.shape), var)
    return _put(var, theirs, own, row), theirs


def _taken(var: Var, start: Var, dim: int, width: int = 1) -> Var:
    """`width` elements of a dim from `start` on."""
    starts = [start if d == dim else scalar(0, _INT) for d in range(var.rank)]
    return dynamic_slice(var, *starts, slice_sizes=tuple(width if d == dim else n for d, n in enumerate(var.shape)))


def _put(var: Var, part: Var, start: Var, dim: int) -> Var:
    """`var` with `part` from `start` on in a dim."""
    return dynamic_update_slice(var, part, *[start if d == dim else scalar(0, _INT) for d in range(var.rank)])


def _repeated(var: Var, shape: Sequence[int]) -> Var:
    return broadcast_in_dim(var, shape=tuple(shape), dimensions=tuple(range(len(shape))))


# -- derivative


def _lu_jvp(primals, tangents, outs, params):
    """dL = L low(X), dU = up(X) U with X = L⁻¹ dA U⁻¹ of the square part; what is beyond it follows."""
    (tangent,), (factors, _, order) = tangents, outs
    if tangent is None:
        return [None, None, None]
    rows, columns = tangent.shape[-2:]
    row, column, steps = tangent.rank - 2, tangent.rank - 1, min(rows, columns)
    if 0 in tangent.shape:
        return [tangent, None, None]
    tangent = rows_in_order(tangent, order)
    square, change = (cut(cut(v, row, 0, steps), column, 0, steps) for v in (factors, tangent))
    x = _over_upper(square, _over_lower(square, change))
    upper = triangle(square, lower=False)
    d_upper = matmul(triangle(x, lower=False), upper)
    low = triangle(x, lower=True, strict=True)
    d_lower = add(low, matmul(triangle(square, lower=True, strict=True), low))  # L low(X), L = its strict part + 1
    result = add(d_lower, d_upper)
    if rows > steps:
        below, change = (cut(v, row, steps, rows) for v in (factors, tangent))
        result = _joined(row, result, _over_upper(square, subtract(change, matmul(below, d_upper))))
    if columns > steps:
        beside, change = (cut(v, column, steps, columns) for v in (factors, tangent))
        result = _joined(column, result, _over_lower(square, subtract(change, matmul(d_lower, beside))))
    return [result, None, None]


def _joined(dim: int, *parts: Var) -> Var:
    return concatenate(*parts, dimension=dim)


def _over_lower(factors: Var, right: Var) -> Var:
    how = {"left_side": True, "lower": True, "unit_diagonal": True, "transpose_a": "none"}
    return triangular_solve(factors, right, **how)


def _over_upper(factors: Var, left: Var) -> Var:
    how = {"left_side": False, "lower": False, "unit_diagonal": False, "transpose_a": "none"}
    return triangular_solve(factors, left, **how)


def _lu_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return list(lu(move(operands[0], dims[0] or 0, 0))), [0, 0, 0]


def _lu_samples() -> list[Sample]:
    """Small ones, and some of more than a panel, and of more than two."""
    calls = [((4, 4), "f32"), ((5, 3, 3), "f64"), ((5, 3), "c64"), ((2, 3, 5), "c128"), ((1, 1), "f32"), ((130, 140), "f64")]
    calls += [((2, 66, 65), "f64"), ((2, 0, 3), "f32"), ((0, 2, 2), "f64")]
    return [Sample((TensorType(shape, DTYPES[d]),), {}, lambda g, i, t: matrix(g, t)) for shape, d in calls]


lu = Op(
    name="lu",
    type_rule=_lu_type,
    factor_rule=_lu_rule,
    whole="every pivot is chosen from a whole column",
    evaluate=factored,
    emit=_lu_emit,
    samples=_lu_samples,
    batch=_lu_batch,
    jvp=_lu_jvp,
    passes=lambda in_types, params: 10.0,
    column_work=by_columns(0.85, 0.5),
)
