"""copy_part: some places of one dim replaced by elements of another value, or of the same, from other places of the dim.

Params: places [start, limit) of `dimension` become the elements `shift` before them. This is how borders are set to other
places of an array, `x.at[0].set(v[-2])`. Along a sharded dim the shards that have what is wanted send it to those that want
it, and no more than the part is written. Planning writes it (`transform/copy_parts.py`); users' programs slice and update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.batching import align_to_first, shifted
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import iota, scalar, spread, zeros
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.slicing.halos import between, cut, fetch_run, shard_axes, table
from meshjit.ops.slicing.slices import pad
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_NAMES = ("shift", "dimension", "start", "limit")


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2 and in_types[0] == in_types[1], "copy_part", "takes two operands of one type")
    type, (amount, dim, start, limit) = in_types[0], (params[name] for name in _NAMES)
    require_zero("copy_part", type)
    require_param(0 <= dim < type.rank, "copy_part", "dimension", dim, f"operand {type} has {type.rank} dims")
    low, high = min(start, start - amount), max(limit, limit - amount)
    fits = 0 <= low and start <= limit and high <= type.shape[dim]
    require_param(fits, "copy_part", "start", start, f"places {start} to {limit} of {type} have no elements {amount} before")
    return (type,)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    return FactorRule((dims, dims), (dims,), {names[params["dimension"]]: "permute"}).with_sizes([t.shape for t in in_types])


def _evaluate(x: Array, v: Array, shift: int, dimension: int, start: int, limit: int) -> Array:
    out, before = x.copy(), (slice(None),) * dimension
    out[(*before, slice(start, limit))] = v[(*before, slice(start - shift, limit - shift))]
    return out


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    (type,), (amount, dim, start, limit) = outs, (params[name] for name in _NAMES)
    begin = [start - amount if d == dim else 0 for d in range(type.rank)]
    end = [limit - amount if d == dim else n for d, n in enumerate(type.shape)]
    text = f"start_indices = {integers(begin)}, limit_indices = {integers(end)}, strides = {integers([1] * type.rank)}"
    part = type.with_shape(tuple(b - a for a, b in zip(begin, end, strict=True)))
    (taken,) = e.op("slice", operands[1:], [part], text)
    starts = [e.constant(np.array(start if d == dim else 0, np.int64)) for d in range(type.rank)]
    return e.op("dynamic_update_slice", [operands[0], taken, *starts], outs)


def _transpose(cotangents, operands, in_types, params):
    """The operand's cotangent has zeros in the part, the other's is the part, at the places that it was taken from."""
    (ct,), (x, v), (amount, dim, start, limit) = cotangents, operands, (params[name] for name in _NAMES)
    low, high = ([n if d == dim else 0 for d in range(ct.rank)] for n in (start - amount, ct.shape[dim] - limit + amount))
    part = cut(ct, dim, start, limit)
    taken = pad(part, scalar(0, ct.dtype), low=tuple(low), high=tuple(high), interior=(0,) * ct.rank) if v is None else None
    return [copy_part(ct, zeros(ct.type), **{**params, "shift": 0}) if x is None else None, taken]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (x, v), dim = align_to_first(operands, dims)
    return [copy_part(x, v, **{**params, "dimension": shifted(params["dimension"], dim)})], [dim]


def _partition(local: LocalEquation) -> list[Var]:
    """Each shard reads the run in which the part may lie, and fetches for it what the part has there."""
    (x, v), (amount, dim, start, limit) = local.operands, (local.params[name] for name in _NAMES)
    axes, shard = shard_axes(local, factor_names(x.rank)[dim]), x.shape[dim]
    width = min(limit - start, shard)
    if not width or 0 in x.shape:
        return [x]
    count = local.mesh.axes_size(axes) if axes else 1
    begins = [min(max(start - i * shard, 0), shard - width) for i in range(count)]
    firsts = [i * shard + begin - amount for i, begin in enumerate(begins)]
    if not axes:
        return [_put(x, cut(v, dim, firsts[0], firsts[0] + width), dim, scalar(begins[0], np.int32))]
    run = fetch_run(local, v, dim, limit - amount, axes, firsts, width, first=start - amount)
    begin = table(local, axes, begins)
    here = ops.dynamic_slice(x, *_starts(x, dim, begin), slice_sizes=run.shape)
    place = table(local, axes, [first + amount for first in firsts])
    places = add(iota(dtype=place.dtype, shape=run.shape, dimension=dim), spread(place, run.shape))
    return [_put(x, select(between(places, start, limit), run, here), dim, begin)]


def _put(x: Var, part: Var, dim: int, begin: Var) -> Var:
    return ops.dynamic_update_slice(x, part, *_starts(x, dim, begin))


def _starts(x: Var, dim: int, begin: Var) -> list[Var]:
    return [begin if d == dim else scalar(0, begin.dtype) for d in range(x.rank)]


def _samples() -> list[Sample]:
    calls = [
        ((8, 3), 6, 0, 6, 7),
        ((5, 4), -1, 1, 0, 2),
        ((10,), 0, 0, 3, 5),
        ((16,), -13, 0, 1, 3),
        ((9,), 3, 0, 3, 9),
        ((0, 2), 0, 0, 0, 0),
        ((9,), 3, 0, 4, 4),
    ]
    types = [(TensorType(shape, DTYPES[d]), rest) for shape, *rest in calls for d in ("f32", "c64", "bool", "i4")]
    return [Sample((type, type), dict(zip(_NAMES, rest, strict=True))) for type, rest in types]


copy_part = Op(
    name="copy_part",
    joins=True,
    type_rule=_type,
    factor_rule=_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    linear=((0, 1),),
    transpose=_transpose,
    batch=_batch,
    partition=_partition,
    in_place=lambda in_types: (0,),
)
