"""Parts of a dim whose place is computed: dynamic_slice, dynamic_update_slice.

Starts are integer scalars, one per dim, and are clamped so that the part lies inside. On a sharded dim they are clamped
globally first; then every device works on what it holds of the part. A slice becomes a partial sum of that (zeros
elsewhere), an update stays where it is: nothing is gathered, and no more than the part is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.arithmetic import add, multiply, subtract
from meshjit.ops.bits import and_
from meshjit.ops.comparison import clamp, select
from meshjit.ops.constants import full_like, iota, scalar, spread, zeros, zeros_like
from meshjit.ops.conversion import convert
from meshjit.ops.families import factor_names, require, require_param
from meshjit.ops.slicing import pad, reduction_of
from meshjit.ops.windows import between, shard_axes
from sharding.rule import FactorRule

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)


def _check_starts(op: str, type: TensorType, starts: Types) -> None:
    require(len(starts) == type.rank, op, f"operand {type} needs {type.rank} starts, was given {len(starts)}")
    for start in starts:
        fits = start.shape == () and start.dtype.kind in "iu" and start.dtype == starts[0].dtype
        require(fits, op, f"starts must be integer scalars of one dtype, got {', '.join(map(str, starts))}")


def _places(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    """Where the part is, after clamping."""
    begins = [min(max(int(s), 0), n - m) for s, n, m in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(begin, begin + m) for begin, m in zip(begins, sizes, strict=True))


def _index_fill(first: int) -> Any:
    """Small integers; starts (the operands from `first` on) from before the dim to beyond it."""

    def fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
        low, high = (-4, 5) if index < first else (-3, 12)
        return generator.integers(0 if type.dtype.kind in "ub" else low, high, type.shape)

    return fill


def _shared_starts(operands: Sequence[Var], dims: Sequence[int | None], count: int) -> bool:
    """Whether the starts, all operands from `count` on, are the same for all members of the batch."""
    return all(d is None for d in dims[count:])


# -- dynamic_slice


def _slice_type(in_types: Types, params: Params) -> Types:
    require(bool(in_types), "dynamic_slice", "takes an operand and its starts, was given nothing")
    type, sizes = in_types[0], params["slice_sizes"]
    _check_starts("dynamic_slice", type, in_types[1:])
    fits = len(sizes) == type.rank and all(0 <= m <= n for m, n in zip(sizes, type.shape, strict=True))
    require_param(fits, "dynamic_slice", "slice_sizes", sizes, f"no part of operand {type} is that large")
    return (type.with_shape(tuple(sizes)),)


def _slice_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, [], [] -> a c | sum b, replicate c`: of b each device gives what it holds."""
    type, out = in_types[0], out_types[0]
    names, spare = factor_names(2 * type.rank), iter(factor_names(2 * type.rank)[type.rank :])
    kinds, results = dict[str, str](), []
    sizes = dict(zip(names, type.shape, strict=False))
    for name, n, m in zip(names, type.shape, out.shape, strict=False):
        kept = name if n == m else next(spare)
        if n != m:
            kinds[name], kinds[kept], sizes[kept] = reduction_of(type.dtype), "replicate", m
        results.append((kept,))
    operand = tuple((name,) for name in names[: type.rank])
    return FactorRule((operand, *((),) * (len(in_types) - 1)), (tuple(results),), kinds, sizes)


def _slice_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.op("dynamic_slice", operands, outs, f"slice_sizes = {integers(params['slice_sizes'])}")


def _slice_transpose(cotangents, operands, in_types, params):
    """The cotangent put back into zeros."""
    starts = operands[1:]
    return [dynamic_update_slice(zeros(in_types[0]), cotangents[0], *starts), *(None for _ in starts)]


def _slice_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    if not _shared_starts(operands, dims, 1):
        return _slice_each(operands, dims, params)
    x, dim, starts = operands[0], dims[0] or 0, list(operands[1:])
    starts.insert(dim, scalar(0, starts[0].dtype if starts else I32))
    sizes = (*params["slice_sizes"][:dim], x.shape[dim], *params["slice_sizes"][dim:])
    return [dynamic_slice(x, *starts, slice_sizes=sizes)], [dim]


def _slice_each(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Starts of their own for each member: a gather of windows."""
    from meshjit.ops.indexing import gather_windows

    x, starts = operands[0], stacked_starts(operands[1:], dims[1:])
    return [gather_windows(x, dims[0], starts, params["slice_sizes"])], [0]


def stacked_starts(starts: Sequence[Var], dims: Sequence[int | None]) -> Var:
    """Starts per member, some shared, as one [batch, rank]."""
    from meshjit.ops.batching import align
    from meshjit.ops.ordering import concatenate
    from meshjit.ops.shape import expand

    return concatenate(*(expand(s, 1) for s in align(starts, dims)), dimension=1)


def clamped_start(start: Var, extent: int, size: int) -> Var:
    """i32[]: where a part of this size begins in a dim of this extent."""
    wide = convert(start, dtype=I32) if start.dtype.itemsize < 4 else start
    inside = clamp(scalar(0, wide.dtype), wide, scalar(extent - size, wide.dtype))
    return inside if inside.dtype == I32 else convert(inside, dtype=I32)


def _in_shard(local: LocalEquation, start: Var, dim: int, size: int, axes: Any) -> tuple[Var, Var, int]:
    """Where a part of a sharded dim begins in this shard, counted from the shard's begin (it may lie outside); where
    the run of the shard begins that holds all of the part that the shard has; and the length of that run."""
    shard = local.operands[0].shape[dim]
    begin = clamped_start(start, local.eqn.inputs[0].shape[dim], size)
    offset = subtract(begin, multiply(local.index(axes), scalar(shard, I32)))
    length = min(size, shard)
    return offset, clamp(scalar(0, I32), offset, scalar(shard - length, I32)), length


def _slice_partition(local: LocalEquation) -> list[Var]:
    """Along each sharded dim cut the run that holds what this shard has of the part, then move it to its place."""
    var, starts = local.operands[0], list(local.operands[1:])
    sizes, moves = list(local.params["slice_sizes"]), list[tuple[int, Var]]()
    for dim, name in enumerate(factor_names(2 * var.rank)[: var.rank]):
        axes = shard_axes(local, name)
        if sizes[dim] == local.eqn.inputs[0].shape[dim]:
            sizes[dim] = var.shape[dim]
        elif axes and sizes[dim]:
            offset, begin, length = _in_shard(local, starts[dim], dim, sizes[dim], axes)
            starts[dim], sizes[dim] = begin, length
            moves.append((dim, subtract(begin, offset)))
    var = dynamic_slice(var, *_one_dtype(starts), slice_sizes=tuple(sizes))
    for dim, distance in moves:
        var = shift(var, dim, distance, local.params["slice_sizes"][dim])
    return [var]


def _one_dtype(starts: Sequence[Var]) -> list[Var]:
    return [s if all(s.dtype == other.dtype for other in starts) else convert(s, dtype=I32) for s in starts]


def shift(var: Var, dim: int, distance: Var, size: int) -> Var:
    """Element j of the result, of `size` along `dim`, is element j - distance of `var`, or 0 where it has none."""
    low = tuple(size if d == dim else 0 for d in range(var.rank))
    padded = pad(var, scalar(0, var.dtype), low=low, high=low, interior=(0,) * var.rank)
    start = subtract(scalar(size, I32), distance)
    starts = [start if d == dim else scalar(0, I32) for d in range(var.rank)]
    return dynamic_slice(padded, *starts, slice_sizes=tuple(size if d == dim else n for d, n in enumerate(var.shape)))


def _slice_samples() -> list[Sample]:
    calls = [((8, 6), (3, 6)), ((10,), (4,)), ((5, 4), (5, 4)), ((9, 3), (1, 2)), ((), ()), ((6,), (0,)), ((8, 8), (7, 3))]
    dtypes = [("f32", "i32"), ("c64", "u8"), ("bool", "i64")]
    samples = []
    for shape, sizes in calls:
        for dtype, index in dtypes:
            types = (TensorType(shape, DTYPES[dtype]), *(TensorType((), DTYPES[index]) for _ in shape))
            samples.append(Sample(types, {"slice_sizes": sizes}, _index_fill(1)))
    return samples


dynamic_slice = Op(
    name="dynamic_slice",
    type_rule=_slice_type,
    factor_rule=_slice_rule,
    evaluate=lambda x, *starts, slice_sizes: x[_places(x.shape, slice_sizes, starts)],
    emit=_slice_emit,
    samples=_slice_samples,
    linear=((0,),),
    transpose=_slice_transpose,
    batch=_slice_batch,
    partition=_slice_partition,
)


# -- dynamic_update_slice


def _update_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) >= 2, "dynamic_update_slice", f"takes operand, update and starts, was given {len(in_types)}")
    type, update = in_types[:2]
    _check_starts("dynamic_update_slice", type, in_types[2:])
    fits = update.rank == type.rank and update.dtype == type.dtype
    fits = fits and all(m <= n for m, n in zip(update.shape, type.shape, strict=True))
    require(fits, "dynamic_update_slice", f"update {update} is no part of operand {type}")
    return (type,)


def _update_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, a c, [], [] -> a b | replicate c`: each device writes what it holds of the part."""
    type, update = in_types[:2]
    names = factor_names(2 * type.rank)
    sizes = dict(zip(names, (*type.shape, *update.shape), strict=True))
    whole, part = names[: type.rank], list(names[type.rank :])
    kinds = dict[str, str]()
    for dim, (n, m) in enumerate(zip(type.shape, update.shape, strict=True)):
        if n == m:
            del sizes[part[dim]]
            part[dim] = whole[dim]
        else:
            kinds[part[dim]] = "replicate"
    dims, parts = (tuple((n,) for n in each) for each in (whole, part))
    return FactorRule((dims, parts, *((),) * (len(in_types) - 2)), (dims,), kinds, sizes)


def _updated(x: Array, update: Array, *starts: Array) -> Array:
    out = x.copy()
    out[_places(x.shape, update.shape, starts)] = update
    return out


def _update_transpose(cotangents, operands, in_types, params):
    """The operand's cotangent has zeros in the part; the update's is the part."""
    (ct,), (x, update, *starts) = cotangents, operands
    blank = zeros(in_types[1])
    return [
        dynamic_update_slice(ct, blank, *starts) if x is None else None,
        dynamic_slice(ct, *starts, slice_sizes=in_types[1].shape) if update is None else None,
        *(None for _ in starts),
    ]


def _update_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    from meshjit.ops.batching import align_to_first, batch_size, insert, move

    starts = list(operands[2:])
    if not _shared_starts(operands, dims, 2):
        size = batch_size(operands, dims)
        x, update = (insert(v, 0, size) if d is None else move(v, d, 0) for v, d in zip(operands[:2], dims[:2], strict=True))
        return [_update_each(x, update, stacked_starts(starts, dims[2:]))], [0]
    (x, update), dim = align_to_first(operands[:2], dims[:2])
    starts.insert(dim, scalar(0, starts[0].dtype if starts else I32))
    return [dynamic_update_slice(x, update, *starts)], [dim]


def _update_each(x: Var, update: Var, starts: Var) -> Var:
    """Starts of their own for each member: a scatter of windows."""
    from meshjit.ops.indexing import scatter_windows

    return scatter_windows(x, update, starts)


def _update_partition(local: LocalEquation) -> list[Var]:
    """Along sharded dims, read the run that the part may touch, replace what belongs to the part, write the run back."""
    var, update, *starts = local.operands
    keep = None
    if 0 in update.shape:
        return [var]
    for dim, name in enumerate(factor_names(2 * var.rank)[: var.rank]):
        axes, size = shard_axes(local, name), update.shape[dim]
        if axes and local.eqn.inputs[1].shape[dim] != local.eqn.inputs[0].shape[dim]:
            offset, starts[dim], length = _in_shard(local, starts[dim], dim, size, axes)
            ahead = subtract(starts[dim], offset)
            update = shift(update, dim, subtract(scalar(0, I32), ahead), length)
            places = add(iota(dtype=I32, shape=update.shape, dimension=dim), spread(ahead, update.shape))
            keep = _both(keep, between(places, 0, size), update.shape)
    starts = _one_dtype(starts)
    if keep is not None:
        update = select(keep, update, dynamic_slice(var, *starts, slice_sizes=update.shape))
    return [dynamic_update_slice(var, update, *starts)]


def _both(first: Var | None, second: Var, shape: Sequence[int]) -> Var:
    """Two masks together; the first one may be of a larger part, of which the run begins at the same element."""
    return second if first is None else and_(first, second)


def _update_samples() -> list[Sample]:
    calls = [((8, 6), (3, 6)), ((10,), (4,)), ((5, 4), (5, 4)), ((9, 3), (1, 2)), ((), ()), ((6,), (0,)), ((8, 8), (7, 3))]
    dtypes = [("f32", "i32"), ("c64", "u8"), ("bool", "i64")]
    samples = []
    for shape, part in calls:
        for dtype, index in dtypes:
            starts = (TensorType((), DTYPES[index]) for _ in shape)
            types = (TensorType(shape, DTYPES[dtype]), TensorType(part, DTYPES[dtype]), *starts)
            samples.append(Sample(types, {}, _index_fill(2)))
    return samples


dynamic_update_slice = Op(
    name="dynamic_update_slice",
    type_rule=_update_type,
    factor_rule=_update_rule,
    evaluate=_updated,
    emit=lambda e, operands, ins, outs, params: e.op("dynamic_update_slice", operands, outs),
    samples=_update_samples,
    linear=((0, 1),),
    transpose=_update_transpose,
    batch=_update_batch,
    partition=_update_partition,
)

assert full_like and zeros_like
