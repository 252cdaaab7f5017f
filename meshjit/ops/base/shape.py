"""The same elements in another shape: broadcast_in_dim, transpose, reshape. (Reverse, pad and slices: slicing/.)

All pass placements through: a sharded dim stays sharded, and a dim that a reshape splits or merges is cut by factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.base.reblocking import reblock, reshape_rule
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def out_shape_localized(params: Params, in_types: Types, out_types: Types) -> Params:
    """For ops whose param `shape` is the result's shape."""
    return {**params, "shape": out_types[0].shape}


def require_one(op: str, in_types: Types) -> TensorType:
    require(len(in_types) == 1, op, f"takes 1 operand, was given {len(in_types)}")
    return in_types[0]


# -- broadcast_in_dim: operand dim i becomes result dim dimensions[i]; an extent of 1 is repeated


def _broadcast_type(in_types: Types, params: Params) -> Types:
    type, shape, dims = require_one("broadcast_in_dim", in_types), params["shape"], params["dimensions"]
    if len(dims) != type.rank:  # texts cost more than the checks
        require_param(False, "broadcast_in_dim", "dimensions", dims, f"operand {type} needs {type.rank} entries")
    fits = list(dims) == sorted(set(dims)) and all(0 <= d < len(shape) for d in dims)
    require_param(fits, "broadcast_in_dim", "dimensions", dims, f"they must rise and be dims of {shape}")
    for dim, (extent, target) in enumerate(zip(type.shape, dims, strict=True)):
        if extent not in (1, shape[target]):
            why = f"dim {dim} of operand {type} has extent {extent}, which cannot become {shape[target]}"
            require_param(False, "broadcast_in_dim", "shape", shape, why)
    return (type.with_shape(shape),)


def _broadcast_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b -> c a b` for new leading dims; an extent of 1 that is repeated has no factor: `1 b -> a b`."""
    shape = out_types[0].shape
    names = factor_names(len(shape))
    pairs = zip(in_types[0].shape, params["dimensions"], strict=True)
    operand = tuple((names[d],) if extent == shape[d] else () for extent, d in pairs)
    return FactorRule((operand,), (tuple((n,) for n in names),), {}, dict(zip(names, shape, strict=True)))


def _broadcast(a: Array, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Array:
    kept = [1] * len(shape)
    for extent, d in zip(a.shape, dimensions, strict=True):
        kept[d] = extent
    return np.broadcast_to(a.reshape(kept), shape)


def _broadcast_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.op("broadcast_in_dim", operands, outs, f"broadcast_dimensions = {integers(params['dimensions'])}")


def _broadcast_transpose(cotangents, operands, in_types, params):
    """Sum over what was repeated."""
    shape, dims = in_types[0].shape, params["dimensions"]
    kept = [d for extent, d in zip(shape, dims, strict=True) if extent == params["shape"][d]]
    axes = tuple(d for d in range(len(params["shape"])) if d not in kept)
    total = ops.reduce_sum(cotangents[0], axes=axes) if axes else cotangents[0]
    return [total if total.shape == shape else reshape(total, shape=shape)]


def _broadcast_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    x = ops.move(operands[0], dims[0] or 0, 0)
    shape, dimensions = (x.shape[0], *params["shape"]), (0, *(d + 1 for d in params["dimensions"]))
    return [broadcast_in_dim(x, shape=shape, dimensions=dimensions)], [0]


def _broadcast_samples() -> list[Sample]:
    calls = [
        ((4, 3), (4, 3), (0, 1)),
        ((3,), (5, 3), (1,)),
        ((5,), (5, 3), (0,)),
        ((), (2, 3), ()),
        ((), (), ()),
        ((1, 3), (4, 3), (0, 1)),
        ((4, 1), (2, 4, 1, 3), (1, 2)),
        ((1,), (6,), (0,)),
        ((2,), (0, 2), (1,)),
    ]
    types = [(TensorType(a, DTYPES[d]), s, dims) for a, s, dims in calls for d in ("f32", "c64", "bool", "i4")]
    return [Sample((t,), {"shape": s, "dimensions": dims}) for t, s, dims in types]


broadcast_in_dim = Op(
    name="broadcast_in_dim",
    type_rule=_broadcast_type,
    factor_rule=_broadcast_rule,
    evaluate=_broadcast,
    emit=_broadcast_emit,
    samples=_broadcast_samples,
    linear=((0,),),
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    localize=out_shape_localized,
)


# -- transpose: result dim i is operand dim permutation[i]


def _transpose_type(in_types: Types, params: Params) -> Types:
    type, order = require_one("transpose", in_types), params["permutation"]
    if sorted(order) != list(range(type.rank)):
        require_param(False, "transpose", "permutation", order, f"operand {type} has {type.rank} dims; name each once")
    return (type.with_shape(tuple(type.shape[d] for d in order)),)


def _transpose_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    dims = tuple((name,) for name in factor_names(in_types[0].rank))
    rule = FactorRule((dims,), (tuple(dims[d] for d in params["permutation"]),))
    return rule.with_sizes([in_types[0].shape], [out_types[0].shape])


def _transpose_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    moved = [d for d in params["permutation"] if ins[0].shape[d] != 1]
    if moved == sorted(moved):
        # XLA rewrites these as reshapes before it reads shardings, and then takes what a loop gets of them for replicated.
        return e.op("reshape", operands, outs)
    return e.op("transpose", operands, outs, f"permutation = {integers(params['permutation'])}")


def _transpose_transpose(cotangents, operands, in_types, params):
    return [transpose(cotangents[0], permutation=tuple(int(d) for d in np.argsort(params["permutation"])))]


def _transpose_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    batch = dims[0] or 0
    return [transpose(operands[0], permutation=(batch, *(ops.shifted(d, batch) for d in params["permutation"])))], [0]


def _transpose_samples() -> list[Sample]:
    calls = [
        ((4, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((5,), (0,)),
        ((), ()),
        ((0, 3), (1, 0)),
        ((2, 3, 4, 5), (0, 2, 1, 3)),
    ]
    types = [(TensorType(shape, DTYPES[d]), order) for shape, order in calls for d in ("f32", "c64", "bool", "i4", "f8e8m0fnu")]
    return [Sample((type,), {"permutation": order}) for type, order in types]


transpose = Op(
    name="transpose",
    type_rule=_transpose_type,
    factor_rule=_transpose_rule,
    evaluate=lambda a, permutation: np.transpose(a, permutation),
    emit=_transpose_emit,
    samples=_transpose_samples,
    linear=((0,),),
    transpose=_transpose_transpose,
    batch=_transpose_batch,
)


# -- reshape: the elements in row-major order under other dims


def _reshape_type(in_types: Types, params: Params) -> Types:
    type, shape = require_one("reshape", in_types), params["shape"]
    require_zero("reshape", type)
    count = math.prod(shape)
    if count != type.size or any(n < 0 for n in shape):
        require_param(False, "reshape", "shape", shape, f"it holds {count} elements, operand {type} has {type.size}")
    return (type.with_shape(shape),)


def _reshape_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    x = ops.move(operands[0], dims[0] or 0, 0)
    return [reshape(x, shape=(x.shape[0], *params["shape"]))], [0]


def _reshape_samples() -> list[Sample]:
    calls = [
        ((8, 16), (128,)),
        ((12,), (3, 1, 4)),
        ((4, 6), (6, 4)),
        ((2, 6, 5), (2, 2, 3, 5)),
        ((4, 6, 5), (6, 4, 5)),
        ((2, 3, 4), (3, 2, 4)),
        ((8, 9, 5), (12, 6, 5)),
        ((1, 5), (5, 1, 1)),
        ((), (1, 1)),
        ((1,), ()),
        ((3, 0, 2), (3, 4, 0)),
        ((5, 3), (5, 3)),
        ((6, 10), (2, 30)),
    ]
    types = [(TensorType(a, DTYPES[d]), b) for a, b in calls for d in ("f32", "c64", "bool", "i4")]
    return [Sample((type,), {"shape": shape}) for type, shape in types]


reshape = Op(
    name="reshape",
    type_rule=_reshape_type,
    factor_rule=lambda in_types, out_types, params: reshape_rule(in_types[0].shape, out_types[0].shape),
    whole="a block of any but the first of some dims that are merged, or split at other borders, is in pieces all over them",
    evaluate=lambda a, shape: np.reshape(a, shape),
    emit=lambda e, operands, ins, outs, params: e.op("reshape", operands, outs),
    samples=_reshape_samples,
    linear=((0,),),
    transpose=lambda cts, operands, in_types, params: [reshape(cts[0], shape=in_types[0].shape)],
    batch=_reshape_batch,
    localize=out_shape_localized,
    partition=reblock,
    touches="nothing",
)


def squeeze(var: Var, *axes: int) -> Var:
    """`var` without these dims, which have extent 1."""
    return reshape(var, shape=tuple(n for d, n in enumerate(var.shape) if d not in axes))


def expand(var: Var, *axes: int) -> Var:
    """`var` with dims of extent 1 at these places of the result, in rising order."""
    shape = list(var.shape)
    for axis in axes:
        shape.insert(axis, 1)
    return reshape(var, shape=tuple(shape))
