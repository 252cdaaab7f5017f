"""Elements of a dim in another order or behind one another: reverse, concatenate.

The dim may be sharded: its factor is `permute`, and shards exchange what the others need (see halos.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from meshjit.core.access import Access, Same, moved
from meshjit.core.local import LocalEquation
from meshjit.core.op import Inside, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.batching import align_to_first, shifted
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, zeros
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.base.shape import require_one
from meshjit.ops.slicing.halos import cut, fetch_run, positions, shard_axes
from sharding.rule import FactorRule

_SAMPLE_DTYPES = ("f32", "c64", "bool", "i2")


# -- reverse: the elements of these dims in opposite order


def _reverse_type(in_types: Types, params: Params) -> Types:
    type, dims = require_one("reverse", in_types), params["dimensions"]
    require_zero("reverse", type)
    fits = len(set(dims)) == len(dims) and all(0 <= d < type.rank for d in dims)
    require_param(fits, "reverse", "dimensions", dims, f"name each dim of {type} at most once")
    return (type,)


def _reverse_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    kinds = {names[d]: "permute" for d in params["dimensions"]}
    return FactorRule((dims,), (dims,), kinds).with_sizes([in_types[0].shape], [out_types[0].shape])


def _reverse_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.op("reverse", operands, outs, f"dimensions = {integers(params['dimensions'])}")


def _reverse_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    dim = dims[0] or 0
    return [reverse(operands[0], dimensions=tuple(shifted(d, dim) for d in params["dimensions"]))], [dim]


def _reverse_partition(local: LocalEquation) -> list[Var]:
    """Shard i's elements are those of the mirrored window, in opposite order."""
    (var,) = local.operands
    for dim in local.params["dimensions"]:
        axes = shard_axes(local, factor_names(var.rank)[dim])
        if axes:
            extent, width = local.eqn.inputs[0].shape[dim], var.shape[dim]
            starts = [extent - (i + 1) * width for i in range(local.mesh.axes_size(axes))]
            var = fetch_run(local, var, dim, extent, axes, starts, width)
    return [reverse(var, dimensions=local.params["dimensions"])]


def _reverse_samples() -> list[Sample]:
    calls = [((8, 3), (0,)), ((5, 4), (1, 0)), ((7,), ()), ((), ()), ((0, 2), (0, 1)), ((10,), (0,))]
    types = [(TensorType(shape, DTYPES[d]), dims) for shape, dims in calls for d in _SAMPLE_DTYPES]
    return [Sample((type,), {"dimensions": dims}) for type, dims in types]


reverse = Op(
    name="reverse",
    type_rule=_reverse_type,
    factor_rule=_reverse_rule,
    evaluate=lambda x, dimensions: np.flip(x, dimensions),
    emit=_reverse_emit,
    samples=_reverse_samples,
    linear=((0,),),
    transpose=lambda cts, operands, in_types, params: [reverse(cts[0], **params)],
    batch=_reverse_batch,
    partition=_reverse_partition,
)


# -- concatenate: operands one after another along one dim


def _concatenate_type(in_types: Types, params: Params) -> Types:
    dim = params["dimension"]
    require(bool(in_types), "concatenate", "takes one or more operands, was given none")
    first = in_types[0]
    require_zero("concatenate", first)
    require_param(0 <= dim < first.rank, "concatenate", "dimension", dim, f"operand {first} has {first.rank} dims")
    for type in in_types:
        fits = type.dtype == first.dtype and _without(type.shape, dim) == _without(first.shape, dim)
        require(fits, "concatenate", f"operands {first} and {type} differ in more than dim {dim}")
    return (
        first.with_shape(
            tuple(sum(t.shape[dim] for t in in_types) if d == dim else n for d, n in enumerate(first.shape))
        ),
    )


def _without(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _concatenate_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(out_types[0].rank)
    dims, kinds = tuple((n,) for n in names), {names[params["dimension"]]: "permute"}
    if len(in_types) == 1:
        kinds = {}
    return FactorRule((dims,) * len(in_types), (dims,), kinds, dict(zip(names, out_types[0].shape, strict=True)))


def _concatenate_access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    dim, whole = params["dimension"], out_types[0].shape[params["dimension"]]
    extents = [type.shape[dim] for type in in_types]
    begins = accumulate(extents, initial=0)
    along = [moved(dim, -begin, n, whole) for n, begin in zip(extents, begins, strict=False)]
    return (Access(tuple(tuple(a if d == dim else Same(d) for d in range(out_types[0].rank)) for a in along)),)


def _concatenate_aligned(operands: Sequence[Var], dims: Collection[int], inside: Inside, params: Params) -> Var:
    """Each operand where it has elements; the last one elsewhere."""
    if params["dimension"] not in dims:
        return concatenate(*operands, **params)
    total = operands[-1]
    for i, x in reversed(list(enumerate(operands[:-1]))):
        mask = inside(i, x.shape)
        total = x if mask is None else select(mask, x, total)
    return total


def _concatenate_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.op("concatenate", operands, outs, f"dimension = {params['dimension']} : i64")


def _concatenate_transpose(cotangents, operands, in_types, params):
    """Every operand's own part of the cotangent."""
    dim, begin, results = params["dimension"], 0, []
    for x, type in zip(operands, in_types, strict=True):
        end = begin + type.shape[dim]
        results.append(cut(cotangents[0], dim, begin, end) if x is None else None)
        begin = end
    return results


def _concatenate_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    aligned, dim = align_to_first(operands, dims)
    return [concatenate(*aligned, dimension=shifted(params["dimension"], dim))], [dim]


def _concatenate_partition(local: LocalEquation) -> list[Var]:
    """Each device takes from every operand the part that falls into its window of the result."""
    dim, (type,) = local.params["dimension"], local.result_types
    axes = shard_axes(local, factor_names(type.rank)[dim])
    if not axes or len(local.operands) == 1:
        return [concatenate(*local.operands, dimension=dim)]
    places, begin, result = positions(local, type.shape, dim, axes), 0, None
    for var, whole in zip(local.operands, local.eqn.inputs, strict=True):
        extent = whole.shape[dim]
        if not extent:
            continue
        starts = [i * type.shape[dim] - begin for i in range(local.mesh.axes_size(axes))]
        part = fetch_run(local, var, dim, extent, axes, starts, type.shape[dim])
        is_here = compare(places, full_like(places, begin), direction="GE")
        result = part if result is None else select(is_here, part, result)
        begin += extent
    return [zeros(type) if result is None else result]


def _concatenate_samples() -> list[Sample]:
    calls = [
        (((4, 3), (2, 3)), 0),
        (((2, 5), (2, 1), (2, 4)), 1),
        (((7,),), 0),
        (((3,), (0,), (8,)), 0),
        (((0, 2), (0, 2)), 0),
        (((1,), (9,)), 0),
    ]
    types = [(tuple(TensorType(s, DTYPES[d]) for s in shapes), dim) for shapes, dim in calls for d in _SAMPLE_DTYPES]
    return [Sample(types, {"dimension": dim}) for types, dim in types]


concatenate = Op(
    name="concatenate",
    type_rule=_concatenate_type,
    factor_rule=_concatenate_rule,
    access=_concatenate_access,
    aligned=_concatenate_aligned,
    evaluate=lambda *arrays, dimension: np.concatenate(arrays, dimension),
    emit=_concatenate_emit,
    samples=_concatenate_samples,
    linear=lambda in_types, params: (tuple(range(len(in_types))),),
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    partition=_concatenate_partition,
)
