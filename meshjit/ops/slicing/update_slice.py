"""update_slice: a block at a known place of the operand replaced (`x.at[1:-1].set(y)`). Param: start, one entry per dim.

It is for blocks that are most of the operand in every dim: operand and update are spread alike, and the rows of the
update that belong to a neighbour's part are exchanged. A smaller block is a dynamic_update_slice, whose update every
device has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from meshjit.core.access import Access, Same, moved
from meshjit.core.local import LocalEquation
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.batching import align_to_first
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import iota, zeros_like
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.slicing.halos import between, fetch_run, positions, shard_axes
from meshjit.ops.slicing.slices import slice_
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def is_most(shape: Sequence[int], block: Sequence[int]) -> bool:
    """Whether a block of this shape is more than half of every dim."""
    return all(2 * m > n for n, m in zip(shape, block, strict=True))


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "update_slice", f"takes operand and update, was given {len(in_types)} operands")
    (type, update), start = in_types, params["start"]
    require_zero("update_slice", type)
    require(update.dtype == type.dtype, "update_slice", f"operand dtypes differ: {type} and {update}")
    require_param(len(start) == type.rank == update.rank, "update_slice", "start", start, f"{type} has {type.rank} dims")
    fits = all(0 <= a <= n - m for a, n, m in zip(start, type.shape, update.shape, strict=True))
    require_param(fits, "update_slice", "start", start, f"update {update} does not lie in {type} there")
    return (type,)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, a b -> a b | permute b`: a is replaced whole, of b a part."""
    type, update = in_types
    names = factor_names(type.rank)
    dims = tuple((n,) for n in names)
    pairs = zip(names, type.shape, update.shape, strict=True)
    kinds = {name: "permute" for name, n, m in pairs if n != m}
    return FactorRule((dims, dims), (dims,), kinds, dict(zip(names, type.shape, strict=True)))


def _access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    (type, update), columns = in_types, enumerate(params["start"])
    places = tuple(moved(d, -start, update.shape[d], type.shape[d]) for d, start in columns)
    return (Access((tuple(map(Same, range(type.rank))), places)),)


def _aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    """Along `dims` a choice by place, along others an update still."""
    (x, update), mask = operands, inside(1, operands[1].shape)
    start = tuple(0 if d in dims else begin for d, begin in enumerate(params["start"]))
    if mask is not None:
        here = x if x.shape == update.shape else _block(x, start, update.shape)
        update = select(mask, update, here)
    return update if x.shape == update.shape else update_slice(x, update, start=start)


def _evaluate(x: Array, update: Array, start: Sequence[int]) -> Array:
    out = x.copy()
    out[tuple(slice(a, a + n) for a, n in zip(start, update.shape, strict=True))] = update
    return out


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    starts = [e.constant(np.array(n, np.int32)) for n in params["start"]]
    return e.op("dynamic_update_slice", [*operands, *starts], outs)


def _block(x: Var, start: Sequence[int], shape: Sequence[int]) -> Var:
    limit = tuple(a + n for a, n in zip(start, shape, strict=True))
    return slice_(x, start=tuple(start), limit=limit, strides=(1,) * x.rank)


def _transpose(cotangents, operands, in_types, params):
    """The operand's cotangent has zeros in the block; the update's is the block."""
    (ct,), (x, update), start = cotangents, operands, params["start"]
    rest = _emptied(ct, start, in_types[1].shape) if x is None else None
    return [rest, _block(ct, start, in_types[1].shape) if update is None else None]


def _emptied(ct: Var, start: Sequence[int], shape: Sequence[int]) -> Var:
    """Zeros in the block: a choice by place, for which nothing is exchanged."""
    inside = None
    for dim, (begin, m) in enumerate(zip(start, shape, strict=True)):
        if m != ct.shape[dim]:
            mask = between(iota(dtype=np.dtype(np.int32), shape=ct.shape, dimension=dim), begin, begin + m)
            inside = mask if inside is None else and_(inside, mask)
    return zeros_like(ct) if inside is None else select(inside, zeros_like(ct), ct)


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (x, update), dim = align_to_first(operands, dims)
    start = params["start"]
    return [update_slice(x, update, start=(*start[:dim], 0, *start[dim:]))], [dim]


def _partition(local: LocalEquation) -> list[Var]:
    """Along sharded dims each device fetches what of the update lies in its shard, and keeps the rest of the shard."""
    (x, update), types, start = local.operands, local.eqn.input_types, list(local.params["start"])
    if 0 in update.shape or 0 in x.shape:
        return [x]
    inside = None
    for dim, name in enumerate(factor_names(x.rank)):
        axes, extent = shard_axes(local, name), types[1].shape[dim]
        if axes and extent != types[0].shape[dim]:
            shard, begin = x.shape[dim], start[dim]
            starts = [i * shard - begin for i in range(local.mesh.axes_size(axes))]
            update, start[dim] = fetch_run(local, update, dim, extent, axes, starts, shard), 0
            mask = between(positions(local, x.shape, dim, axes), begin, begin + extent)
            inside = mask if inside is None else and_(inside, mask)
    if inside is not None:
        update = select(_block(inside, start, update.shape), update, _block(x, start, update.shape))
    return [update_slice(x, update, start=tuple(start))]


def _samples() -> list[Sample]:
    calls = [
        ((8, 6), (6, 6), (1, 0)),
        ((10, 5), (8, 3), (1, 1)),
        ((9,), (5,), (4,)),
        ((16,), (14,), (1,)),
        ((5, 3), (5, 3), (0, 0)),
        ((), (), ()),
        ((7,), (6,), (0,)),
        ((0, 2), (0, 2), (0, 0)),
        ((3, 2), (0, 2), (1, 0)),
    ]
    types = [(TensorType(s, DTYPES[d]), TensorType(m, DTYPES[d]), a) for s, m, a in calls for d in ("f32", "c64", "bool", "i4")]
    return [Sample((type, update), {"start": start}) for type, update, start in types]


update_slice = Op(
    name="update_slice",
    joins=True,
    type_rule=_type,
    factor_rule=_rule,
    access=_access,
    aligned=_aligned,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    linear=((0, 1),),
    transpose=_transpose,
    batch=_batch,
    partition=_partition,
)
