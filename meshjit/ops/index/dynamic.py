"""Parts of a dim whose place is computed: dynamic_slice, dynamic_update_slice.

Starts are integer scalars, one per dim, and are clamped so that the part lies inside. Sharded dims: dynamic_partition.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.access import Access, Same, Start, moved
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.batching import align, align_to_first, batch_size, insert, move
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import scalar, zeros
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.base.shape import expand
from meshjit.ops.index.dynamic_partition import is_nearly_all, partition_slice, partition_update
from meshjit.ops.index.take import gather_windows, scatter_windows
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import reduction_of
from sharding.rule import FactorRule

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
    require_zero("dynamic_slice", type)
    _check_starts("dynamic_slice", type, in_types[1:])
    fits = len(sizes) == type.rank and all(0 <= m <= n for m, n in zip(sizes, type.shape, strict=True))
    require_param(fits, "dynamic_slice", "slice_sizes", sizes, f"no part of operand {type} is that large")
    return (type.with_shape(tuple(sizes)),)


def _slice_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, [], [] -> a d | sum b`: of b each device gives what it holds. `a b, [], [] -> a b | permute b` where d would be
    nearly all of b: shards exchange borders."""
    type, out = in_types[0], out_types[0]
    names = factor_names(2 * type.rank)
    kinds, sizes = dict[str, str](), dict(zip(names, type.shape, strict=False))
    results = list[tuple[str, ...]]()
    for name, part, n, m in zip(names, names[type.rank :], type.shape, out.shape, strict=False):
        is_cut = n != m and not is_nearly_all(n, m)
        results.append((part if is_cut else name,))
        if is_cut:
            kinds[name], sizes[part] = reduction_of(type.dtype), m
        elif n != m:
            kinds[name] = "permute"
    operand = tuple((name,) for name in names[: type.rank])
    return FactorRule((operand, *((),) * (len(in_types) - 1)), (tuple(results),), kinds, sizes)


def _slice_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    columns = enumerate(zip(in_types[0].shape, out_types[0].shape, strict=True))
    places = tuple(moved(d, Start(1 + d, n - m) if n != m else 0, n, m) for d, (n, m) in columns)
    return (Access((places, *((),) * (len(in_types) - 1))),)


def _slice_aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    x = operands[0]
    sizes = tuple(x.shape[d] if d in dims else n for d, n in enumerate(params["slice_sizes"]))
    return x if sizes == x.shape else dynamic_slice(x, *_other_starts(operands[1:], dims), slice_sizes=sizes)


def _other_starts(starts: Sequence[Var], dims: Collection[int]) -> list[Var]:
    return [scalar(0, start.dtype) if d in dims else start for d, start in enumerate(starts)]


def _slice_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    starts = [_clamped(e, s, n - m) for s, n, m in zip(operands[1:], ins[0].shape, outs[0].shape, strict=True)]
    return e.op("dynamic_slice", [operands[0], *starts], outs, f"slice_sizes = {integers(params['slice_sizes'])}")


def _clamped(e: Any, start: str, last: int) -> str:
    """The start, clamped to 0 … `last`. HLO clamps starts by itself, but where a slice is cut from a slice XLA merges the two
    into one, and adds their starts before it clamps (docs/xla.md, slice_of_slice)."""
    type = e.types[start]
    last = min(last, np.iinfo(type.dtype).max)
    number = 0 if last == 0 else e.scalars.get(start)
    if number is None:
        bounds = [e.constant(np.array(n, type.dtype)) for n in (0, last)]
        return e.op("clamp", [bounds[0], start, bounds[1]], [type])[0]
    inside = min(max(number, 0), last)
    return start if e.scalars.get(start) == inside else e.constant(np.array(inside, type.dtype))


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
    starts = stacked_starts(operands[1:], dims[1:])
    return [gather_windows(operands[0], dims[0], starts, params["slice_sizes"])], [0]


def stacked_starts(starts: Sequence[Var], dims: Sequence[int | None]) -> Var:
    """Starts per member, some shared, as one [batch, rank]."""
    return concatenate(*(expand(s, 1) for s in align(starts, dims)), dimension=1)


_PARTS: Final = (
    ((8, 6), (3, 6)), ((10,), (4,)), ((5, 4), (5, 4)), ((9, 3), (1, 2)), ((), ()), ((6,), (0,)),
    ((8, 8), (7, 3)), ((16, 2), (13, 2)), ((13,), (10,)),
)  # fmt: skip
_DTYPES: Final = (("f32", "i32"), ("c64", "u8"), ("bool", "i64"), ("u4", "i32"))  # of an array, and of starts


def _slice_samples() -> list[Sample]:
    samples = []
    for shape, sizes in _PARTS:
        for dtype, index in _DTYPES:
            types = (TensorType(shape, DTYPES[dtype]), *(TensorType((), DTYPES[index]) for _ in shape))
            samples.append(Sample(types, {"slice_sizes": sizes}, _index_fill(1)))
    return samples


dynamic_slice = Op(
    name="dynamic_slice",
    type_rule=_slice_type,
    factor_rule=_slice_rule,
    access=_slice_access,
    aligned=_slice_aligned,
    evaluate=lambda x, *starts, slice_sizes: x[_places(x.shape, slice_sizes, starts)],
    emit=_slice_emit,
    samples=_slice_samples,
    linear=((0,),),
    transpose=_slice_transpose,
    batch=_slice_batch,
    partition=partition_slice,
    passes=lambda in_types, params: 1.0,
    touches="part",
    copies=True,
)


# -- dynamic_update_slice


def _update_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) >= 2, "dynamic_update_slice", f"takes operand, update and starts, was given {len(in_types)}")
    type, update = in_types[:2]
    require_zero("dynamic_update_slice", type)
    _check_starts("dynamic_update_slice", type, in_types[2:])
    fits = update.rank == type.rank and update.dtype == type.dtype
    fits = fits and all(m <= n for m, n in zip(update.shape, type.shape, strict=True))
    require(fits, "dynamic_update_slice", f"update {update} is no part of operand {type}")
    return (type,)


def _update_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, a d, [], [] -> a b | replicate d`: each device writes what it holds of the part. `a b, a b, [], [] -> a b |
    permute b` where the part is nearly all of b: shards exchange borders."""
    type, update = in_types[:2]
    names = factor_names(2 * type.rank)
    kinds, sizes = dict[str, str](), dict(zip(names, type.shape, strict=False))
    parts = list[tuple[str, ...]]()
    for name, part, n, m in zip(names, names[type.rank :], type.shape, update.shape, strict=False):
        is_cut = n != m and not is_nearly_all(n, m)
        parts.append((part if is_cut else name,))
        if is_cut:
            kinds[part], sizes[part] = "replicate", m
        elif n != m:
            kinds[name] = "permute"
    dims = tuple((name,) for name in names[: type.rank])
    return FactorRule((dims, tuple(parts), *((),) * (len(in_types) - 2)), (dims,), kinds, sizes)


def _update_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    columns = enumerate(zip(in_types[0].shape, in_types[1].shape, strict=True))
    places = tuple(moved(d, Start(2 + d, n - m, sign=-1) if n != m else 0, m, n) for d, (n, m) in columns)
    return (Access((tuple(map(Same, range(in_types[0].rank))), places, *((),) * (len(in_types) - 2))),)


def _update_aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    """Along `dims` a choice by place, along others an update still."""
    (x, update), starts, mask = operands[:2], _other_starts(operands[2:], dims), inside(1, operands[1].shape)
    if mask is not None:
        here = x if x.shape == update.shape else dynamic_slice(x, *starts, slice_sizes=update.shape)
        update = select(mask, update, here)
    return update if x.shape == update.shape else dynamic_update_slice(x, update, *starts)


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
    starts = list(operands[2:])
    if not _shared_starts(operands, dims, 2):
        size = batch_size(operands, dims)
        x, update = (
            insert(v, 0, size) if d is None else move(v, d, 0) for v, d in zip(operands[:2], dims[:2], strict=True)
        )
        return [scatter_windows(x, update, stacked_starts(starts, dims[2:]))], [0]
    (x, update), dim = align_to_first(operands[:2], dims[:2])
    starts.insert(dim, scalar(0, starts[0].dtype if starts else I32))
    return [dynamic_update_slice(x, update, *starts)], [dim]


def _update_samples() -> list[Sample]:
    samples = []
    for shape, part in _PARTS:
        for dtype, index in _DTYPES:
            starts = (TensorType((), DTYPES[index]) for _ in shape)
            types = (TensorType(shape, DTYPES[dtype]), TensorType(part, DTYPES[dtype]), *starts)
            samples.append(Sample(types, {}, _index_fill(2)))
    return samples


dynamic_update_slice = Op(
    name="dynamic_update_slice",
    joins=True,
    type_rule=_update_type,
    factor_rule=_update_rule,
    access=_update_access,
    aligned=_update_aligned,
    whole="where the update goes is known only when it runs: one of less than three quarters of a dim may go to one device whole",
    evaluate=_updated,
    emit=lambda e, operands, ins, outs, params: e.op("dynamic_update_slice", operands, outs),
    samples=_update_samples,
    linear=((0, 1),),
    transpose=_update_transpose,
    batch=_update_batch,
    partition=partition_update,
    in_place=lambda in_types: (0,),
)
