"""roll: the elements of one dim moved on by `shift` places, the last ones to the front (numpy.roll).

Params: dimension and shift. Along a sharded dim shards send on what crosses their border, in a ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.families import factor_names, require_param
from meshjit.ops.shape import require_one
from meshjit.ops.windows import between, positions, ring, shard_axes, window
from sharding.rule import FactorRule

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation


def _type(in_types: Types, params: Params) -> Types:
    type, dim = require_one("roll", in_types), params["dimension"]
    require_param(0 <= dim < type.rank, "roll", "dimension", dim, f"operand {type} has {type.rank} dims")
    return (type,)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    rule = FactorRule((dims,), (dims,), {names[params["dimension"]]: "permute"})
    return rule.with_sizes([in_types[0].shape])


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


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    from meshjit.ops.batching import shifted

    dim = dims[0] or 0
    return [roll(operands[0], shift=params["shift"], dimension=shifted(params["dimension"], dim))], [dim]


def _partition(local: LocalEquation) -> list[Var]:
    """Where the extent divides, every shard is two parts of two neighbours, the same two for all."""
    from meshjit.ops.comparison import select

    (var,), dim = local.operands, local.params["dimension"]
    axes, extent, shard = shard_axes(local, factor_names(var.rank)[dim]), local.eqn.inputs[0].shape[dim], var.shape[dim]
    shift = local.params["shift"] % extent if extent else 0
    if not axes or not shift:
        return [roll(var, shift=shift, dimension=dim)]
    count = local.mesh.axes_size(axes)
    if count * shard == extent:
        return [ring(local, var, dim, axes, -shift)]
    starts = [i * shard - shift for i in range(count)]
    behind = window(local, var, dim, extent, axes, starts, shard)
    before = window(local, var, dim, extent, axes, [start + extent for start in starts], shard)
    return [select(between(positions(local, var.shape, dim, axes), 0, shift), before, behind)]


def _samples() -> list[Sample]:
    calls = [((8, 3), 1, 0), ((5, 4), -1, 1), ((10,), 4, 0), ((12,), 5, 0), ((0, 2), 1, 0), ((3,), 9, 0), ((16,), -7, 0)]
    types = [(TensorType(shape, DTYPES[d]), n, dim) for shape, n, dim in calls for d in ("f32", "c64", "bool")]
    return [Sample((type,), {"shift": n, "dimension": dim}) for type, n, dim in types]


roll = Op(
    name="roll",
    type_rule=_type,
    factor_rule=_rule,
    evaluate=lambda x, shift, dimension: np.roll(x, shift, dimension),
    emit=_emit,
    samples=_samples,
    linear=((0,),),
    transpose=lambda cts, operands, ins, params: [roll(cts[0], shift=-params["shift"], dimension=params["dimension"])],
    batch=_batch,
    partition=_partition,
)
