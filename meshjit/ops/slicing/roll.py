"""Elements of one dim moved on by `shift` places. Params: dimension and shift.

roll moves the last ones to the front (numpy.roll), shift drops them and leaves zeros in front. Along a sharded dim
shards send on what crosses their border: roll in a ring, shift in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import Access, Moved, Same
from meshjit.core.local import LocalEquation
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.batching import shifted
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import emit_splat, zeros_like
from meshjit.ops.base.families import factor_names, require_param, require_zero
from meshjit.ops.base.shape import require_one
from meshjit.ops.slicing.halos import between, fetch_run, neighbours, positions, shard_axes
from sharding.rule import FactorRule


def _type(name: str) -> Any:
    def type_rule(in_types: Types, params: Params) -> Types:
        type, dim = require_one(name, in_types), params["dimension"]
        require_zero(name, type)
        require_param(0 <= dim < type.rank, name, "dimension", dim, f"operand {type} has {type.rank} dims")
        return (type,)

    return type_rule


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    rule = FactorRule((dims,), (dims,), {names[params["dimension"]]: "permute"})
    return rule.with_sizes([in_types[0].shape])


def _access(in_ring: bool) -> Any:
    def access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
        dim, by = params["dimension"], -params["shift"]
        return (Access((tuple(Moved(d, by, in_ring) if by and d == dim else Same(d) for d in range(in_types[0].rank)),)),)

    return access


def _rolled(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    (x,) = operands
    return x if params["dimension"] in dims else roll(x, **params)


# -- roll


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """The end before the beginning."""
    (type,), dim = ins, params["dimension"]
    extent = type.shape[dim]
    border = -params["shift"] % extent if extent else 0
    if not border:
        return operands
    parts = []
    for low, high in ((border, extent), (0, border)):
        start = [low if d == dim else 0 for d in range(type.rank)]
        limit = [high if d == dim else n for d, n in enumerate(type.shape)]
        text = f"start_indices = {integers(start)}, limit_indices = {integers(limit)}, strides = {integers([1] * type.rank)}"
        part = type.with_shape(tuple(b - a for a, b in zip(start, limit, strict=True)))
        parts.append(e.op("slice", operands, [part], text)[0])
    return e.op("concatenate", parts, outs, f"dimension = {dim} : i64")


def _batch(op: Callable[[], Op]) -> Any:
    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        dim = dims[0] or 0
        return [op()(operands[0], shift=params["shift"], dimension=shifted(params["dimension"], dim))], [dim]

    return batch


def _back(op: Callable[[], Op]) -> Any:
    def transpose(cotangents, operands, in_types, params):
        return [op()(cotangents[0], shift=-params["shift"], dimension=params["dimension"])]

    return transpose


def _breaks_lines(in_types: Types, params: Params) -> bool:
    return params["dimension"] == in_types[0].rank - 1


def _partition(local: LocalEquation) -> list[Var]:
    """Where the extent divides, every shard is two parts of two neighbours, the same two for all."""
    (var,), dim = local.operands, local.params["dimension"]
    axes, extent, shard = shard_axes(local, factor_names(var.rank)[dim]), local.eqn.inputs[0].shape[dim], var.shape[dim]
    shift = local.params["shift"] % extent if extent else 0
    if not axes or not shift:
        return [roll(var, shift=shift, dimension=dim)]
    count = local.mesh.axes_size(axes)
    if count * shard == extent:
        return [neighbours(local, var, dim, axes, -shift, in_ring=True)]
    starts = [i * shard - shift for i in range(count)]
    behind = fetch_run(local, var, dim, extent - shift, axes, starts, shard)
    before = fetch_run(local, var, dim, extent, axes, [start + extent for start in starts], shard)
    return [select(between(positions(local, var.shape, dim, axes), 0, shift), before, behind)]


def _samples() -> list[Sample]:
    calls = [((8, 3), 1, 0), ((5, 4), -1, 1), ((10,), 4, 0), ((12,), 5, 0), ((0, 2), 1, 0), ((3,), 9, 0), ((16,), -7, 0)]
    types = [(TensorType(shape, DTYPES[d]), n, dim) for shape, n, dim in calls for d in ("f32", "c64", "bool", "i4")]
    return [Sample((type,), {"shift": n, "dimension": dim}) for type, n, dim in types]


roll = Op(
    name="roll",
    type_rule=_type("roll"),
    factor_rule=_rule,
    access=_access(in_ring=True),
    aligned=_rolled,
    evaluate=lambda x, shift, dimension: np.roll(x, shift, dimension),
    emit=_emit,
    samples=_samples,
    linear=((0,),),
    transpose=_back(lambda: roll),
    batch=_batch(lambda: roll),
    partition=_partition,
    breaks_lines=_breaks_lines,
)


# -- shift


def _shifted(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    (x,) = operands
    if params["dimension"] not in dims:
        return shift(x, **params)
    mask = inside(0, x.shape)
    return x if mask is None else select(mask, x, zeros_like(x))


def _shift(x: np.ndarray[Any, Any], shift: int, dimension: int) -> np.ndarray[Any, Any]:
    out, extent = np.zeros_like(x), x.shape[dimension]
    before = (slice(None),) * dimension
    kept = max(extent - abs(shift), 0)
    begin, source = max(shift, 0), max(-shift, 0)
    if kept:
        out[(*before, slice(begin, begin + kept))] = x[(*before, slice(source, source + kept))]
    return out


def _shift_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """A pad on one side that is cut off on the other."""
    (type,), dim, extent = outs, params["dimension"], outs[0].shape[params["dimension"]]
    if abs(params["shift"]) >= extent:
        return [emit_splat(e, type, 0)]
    sides = [[sign * params["shift"] if d == dim else 0 for d in range(type.rank)] for sign in (1, -1)]
    low, high = map(integers, sides)
    text = f"edge_padding_low = {low}, edge_padding_high = {high}, interior_padding = {integers([0] * type.rank)}"
    return e.op("pad", [*operands, e.constant(np.zeros((), type.dtype))], outs, text)


def _shift_partition(local: LocalEquation) -> list[Var]:
    """Where the extent divides, what comes from nowhere is zero already."""
    (var,), dim, amount = local.operands, local.params["dimension"], local.params["shift"]
    axes, extent, shard = shard_axes(local, factor_names(var.rank)[dim]), local.eqn.inputs[0].shape[dim], var.shape[dim]
    if not axes or not extent:
        return [shift(var, shift=amount, dimension=dim)]
    count = local.mesh.axes_size(axes)
    if count * shard == extent:
        return [neighbours(local, var, dim, axes, -amount, in_ring=False)]
    run = fetch_run(local, var, dim, extent, axes, [i * shard - amount for i in range(count)], shard)
    inside = between(positions(local, var.shape, dim, axes), max(amount, 0), extent + min(amount, 0))
    return [select(inside, run, zeros_like(run))]


shift = Op(
    name="shift",
    joins=True,
    type_rule=_type("shift"),
    factor_rule=_rule,
    access=_access(in_ring=False),
    aligned=_shifted,
    evaluate=_shift,
    emit=_shift_emit,
    samples=_samples,
    linear=((0,),),
    transpose=_back(lambda: shift),
    batch=_batch(lambda: shift),
    partition=_shift_partition,
)
