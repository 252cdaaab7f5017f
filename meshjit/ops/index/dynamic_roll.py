"""dynamic_roll: a dim is a ring, and the result begins at a place of it that is computed. Param: dimension.

The place is an integer scalar, and is clamped to 0 … extent. `dynamic_slice(concatenate(x, x), place)` gives the same.

Along a sharded dim every device needs parts of two shards. They are equally far away for all devices, but how far is known only
when the program runs. So shards move on by 1, 2, 4, … devices; a device keeps what it receives where the distance has that
binary digit:

    x of 80 elements over 8 devices, from place 57 on: 5 shards and 7 elements further
    by 1     shards 1 2 3 4 5 6 7 0      5 is 101 in binary
    by 2     sent, and not taken
    by 4     shards 5 6 7 0 1 2 3 4
    by 1     shards 6 7 0 1 2 3 4 5      the second part; [7:17] of both together

Few devices gather the dim, and so do any whose shards are uneven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.access import Access, Moved, Same, Start
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add, divide, multiply, remainder, subtract
from meshjit.ops.base.batching import shifted
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import clamp, compare, select
from meshjit.ops.base.constants import first_place, place_dtype, scalar, spread
from meshjit.ops.base.conversion import convert, in_dtype
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.collective.collectives import all_gather
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut, neighbours, shard_axes
from sharding.rule import FactorRule

I32 = np.dtype(np.int32)


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "dynamic_roll", f"takes an operand and a place, was given {len(in_types)} operands")
    (type, place), dim = in_types, params["dimension"]
    require_zero("dynamic_roll", type)
    require(place.shape == () and place.dtype.kind in "iu", "dynamic_roll", f"the place {place} is no integer scalar")
    require_param(0 <= dim < type.rank, "dynamic_roll", "dimension", dim, f"operand {type} has {type.rank} dims")
    return (type,)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, [] -> a b | permute b`."""
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    return FactorRule((dims, ()), (dims,), {names[params["dimension"]]: "permute"}).with_sizes([in_types[0].shape, ()])


def _access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    dim, shape = params["dimension"], in_types[0].shape
    places = tuple(Moved(d, Start(1, n), in_ring=True) if d == dim else Same(d) for d, n in enumerate(shape))
    return (Access((places, ())),)


def _rolled(x: np.ndarray[Any, Any], place: np.ndarray[Any, Any], dimension: int) -> np.ndarray[Any, Any]:
    return np.roll(x, -min(max(int(place), 0), x.shape[dimension]), dimension)


def _taken(x: Var, place: Var, dim: int, size: int) -> Var:
    starts = [place if d == dim else scalar(0, place.dtype) for d in range(x.rank)]
    return dynamic_slice(x, *starts, slice_sizes=tuple(size if d == dim else n for d, n in enumerate(x.shape)))


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    (type, place), dim = ins, params["dimension"]
    double = type.with_shape(tuple(2 * n if d == dim else n for d, n in enumerate(type.shape)))
    (twice,) = concatenate.emit(e, [operands[0]] * 2, [type] * 2, [double], {"dimension": dim})
    zero = e.constant(np.zeros((), place.dtype))
    starts = [operands[1] if d == dim else zero for d in range(type.rank)]
    return dynamic_slice.emit(e, [twice, *starts], [double, *[place] * type.rank], outs, {"slice_sizes": type.shape})


def _transpose(cotangents, operands, in_types, params):
    """Back by as much: from the extent less the place on."""
    (ct,), extent = cotangents, in_types[0].shape[params["dimension"]]
    place = _clamped(operands[1], extent)
    return [dynamic_roll(ct, subtract(scalar(extent, place.dtype), place), **params), None]


def _clamped(place: Var, extent: int) -> Var:
    """In a signed dtype that twice the extent fits."""
    wide = place if place.dtype.itemsize >= 4 else convert(place, dtype=I32)
    inside = clamp(scalar(0, wide.dtype), wide, scalar(min(extent, np.iinfo(wide.dtype).max), wide.dtype))
    return in_dtype(inside, place_dtype(2 * extent))


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Where members have places of their own, each takes a slice of two copies."""
    (x, place), (dim, own) = operands, dims
    if own is None:
        return [dynamic_roll(x, place, dimension=shifted(params["dimension"], dim or 0))], [dim]
    rank = x.rank - (dim is not None)
    joined = params["dimension"] if dim is None else shifted(params["dimension"], dim)
    zero = scalar(0, place.dtype)
    starts = [place if d == params["dimension"] else zero for d in range(rank)]
    batched = [own if d == params["dimension"] else None for d in range(rank)]
    sizes = tuple(n for d, n in enumerate(x.shape) if d != dim)
    return dynamic_slice.batch([concatenate(x, x, dimension=joined), *starts], [dim, *batched], {"slice_sizes": sizes})


def _partition(local: LocalEquation) -> list[Var]:
    (var, place), dim = local.operands, local.params["dimension"]
    axes, extent, shard = shard_axes(local, factor_names(var.rank)[dim]), local.eqn.inputs[0].shape[dim], var.shape[dim]
    if not axes or not extent:
        return [dynamic_roll(var, place, dimension=dim)]
    count, place = local.mesh.axes_size(axes), _clamped(place, extent)
    digits = (count - 1).bit_length()
    if count * shard == extent and digits + 1 < count - 1:
        return [_moved_on(local, var, dim, axes, place, digits)]
    whole = cut(all_gather(var, axes=tuple(axes), size=count, dim=dim), dim, 0, extent)
    first = first_place(local.index(axes), count, shard, place.dtype)
    begin = remainder(add(first, place), scalar(extent, place.dtype))
    return [_taken(concatenate(whole, cut(whole, dim, 0, min(shard, extent)), dimension=dim), begin, dim, shard)]


def _moved_on(local: LocalEquation, var: Var, dim: int, axes: Any, place: Var, digits: int) -> Var:
    """The part of two even shards that this device needs."""
    extent, dtype = scalar(var.shape[dim], place.dtype), place.dtype
    distance = divide(place, extent)
    rest = subtract(place, multiply(distance, extent))
    for digit in range(digits):
        bit = and_(divide(distance, scalar(1 << digit, dtype)), scalar(1, dtype))
        is_set = compare(bit, scalar(1, dtype), direction="EQ")
        further = neighbours(local, var, dim, axes, var.shape[dim] << digit, in_ring=True)
        var = select(spread(is_set, var.shape), further, var)
    following = neighbours(local, var, dim, axes, var.shape[dim], in_ring=True)
    return _taken(concatenate(var, following, dimension=dim), rest, dim, var.shape[dim])


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> np.ndarray[Any, Any]:
    """Small values; places from before the dim to beyond it."""
    low, high = (0, 5) if not index else (-3, 20)
    return generator.integers(0 if type.dtype.kind in "ub" else low, high, type.shape)


def _samples() -> list[Sample]:
    calls = [((8, 3), 0), ((5, 4), 1), ((10,), 0), ((0, 2), 0), ((16,), 0), ((1,), 0), ((3, 12), 1)]
    dtypes = [("f32", "i32"), ("c64", "u8"), ("bool", "i64"), ("i4", "i32")]
    return [
        Sample((TensorType(shape, DTYPES[d]), TensorType((), DTYPES[place])), {"dimension": dim}, _fill)
        for shape, dim in calls for d, place in dtypes
    ]  # fmt: skip


dynamic_roll = Op(
    name="dynamic_roll",
    type_rule=_type,
    factor_rule=_rule,
    access=_access,
    evaluate=_rolled,
    emit=_emit,
    samples=_samples,
    linear=((0,),),
    transpose=_transpose,
    batch=_batch,
    partition=_partition,
    passes=lambda in_types, params: 1.0,
)
