"""`top_k`: the k greatest elements of the last dim, greatest first, and their places (i32).

Order is the total order of IEEE 754, as in XLA (CHLO's top_k): -nan < -inf < … < -0.0 < 0.0 < … < inf < nan. Of equal
elements the first place comes first. A dim that is sharded, and of which few elements are wanted, is never gathered:
every device sends the best k of its shard, and the best of those win. Of many rows each device decides some, for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.batching import move
from meshjit.ops.base.bits import bitcast_convert, xor
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, full_like, scalar, spread, zeros
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param
from meshjit.ops.base.shape import expand, require_one, reshape, transpose
from meshjit.ops.collective.collectives import all_gather
from meshjit.ops.collective.dealing import are_dealt, deal, hand_out
from meshjit.ops.index.take import take_along
from meshjit.ops.slicing.halos import cut, shard_axes
from meshjit.ops.sort.sort import sort
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_I32 = np.dtype(np.int32)


def _type(in_types: Types, params: Params) -> Types:
    type, k = require_one("top_k", in_types), params["k"]
    require(type.rank > 0, "top_k", f"operand {type} has no last dim")
    require(DTYPE_CLASSES["ordered"](type.dtype), "top_k", f"takes ordered operands, was given {type}")
    require_param(0 <= k <= type.shape[-1], "top_k", "k", k, f"operand {type} has {type.shape[-1]} elements in its last dim")
    values = type.with_shape((*type.shape[:-1], k))
    return values, values.with_dtype(_I32)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a n -> a k, a k | permute n, replicate k`.

    Where much of the dim is wanted and there are lines to deal out, n is replicated, which means that its shards move to
    another dim: candidates of all shards would be as much as the operand.
    """
    (operand,), k = in_types, params["k"]
    names = factor_names(operand.rank + 1)
    own_dims, result = tuple((n,) for n in names[:-1]), tuple((n,) for n in (*names[:-2], names[-1]))
    is_vector = operand.size <= operand.shape[-1]
    kind = "permute" if is_vector or 32 * k <= operand.shape[-1] else "replicate"
    sizes = dict(zip(names, (*operand.shape, k), strict=True))
    return FactorRule((own_dims,), (result, result), {names[-2]: kind, names[-1]: "replicate"}, sizes)


def total_order(array: Array) -> Array:
    """Integers in the order of the elements: the bits of floats, those behind a minus sign inverted."""
    if not is_float(array.dtype):
        return array
    bits = np.ascontiguousarray(array).view(np.dtype(f"i{array.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def least(dtype: np.dtype[Any]) -> Any:
    """The element that comes last in this order: the nan of all bits, the lowest integer, False."""
    if is_float(dtype):
        return np.full(1, -1, np.dtype(f"i{dtype.itemsize}")).view(dtype)[0]
    return dtype.type(np.iinfo(dtype).min if dtype.kind in "iu" else False)


def _evaluate(x: Array, k: int) -> tuple[Array, Array]:
    last = x.shape[-1] - 1
    places = last - np.argsort(total_order(x)[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :k]
    return np.take_along_axis(x, places, -1), places.astype(np.int32)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if not outs[0].size:
        return [emit_splat(e, t, 0) for t in outs]
    return e.op("chlo.top_k", operands, outs, f"k = {params['k']} : i64")


# -- partition


def _partition(local: LocalEquation) -> list[Var]:
    """Padding is the least element and stands behind those it might equal, so no element loses against it."""
    (var,), k = local.operands, local.params["k"]
    axes, shard, rank = shard_axes(local, factor_names(var.rank)[var.rank - 1]), var.shape[-1], var.rank
    if not axes:
        return list(top_k(var, k=k))
    if not local.result_types[0].size:
        return [zeros(t) for t in local.result_types]
    extent, size = local.eqn.inputs[0].shape[-1], local.mesh.axes_size(axes)
    if 2 * k >= shard:  # values and places of candidates would be as much as the shard
        whole = cut(_joined(var, axes, size), rank - 1, 0, extent)
        return list(top_k(whole, k=k))
    values, places = top_k(local.mask(var, rank - 1, extent, axes, least(var.dtype)), k=k)
    begin = multiply(local.index(axes), scalar(shard, _I32))
    places = add(places, spread(begin, places.shape))
    lines = math.prod(values.shape[:-1])
    if not are_dealt(local, (values, places), lines, axes):
        return _best_of(local, _joined(values, axes, size), _joined(places, axes, size), k)
    winners = _best_of(local, deal(local, values, lines, axes), deal(local, places, lines, axes), k)
    return [hand_out(local, v, values.shape, axes) for v in winners]


def _best_of(local: LocalEquation, values: Var, places: Var, k: int) -> list[Var]:
    """The first k of the candidates, which stand in the order of their places, and these."""
    if local.target.has_slow_gathers:
        return _sorted_with_places(values, places, k)
    best, winners = top_k(values, k=k)
    return [best, take_along(places, winners, best.rank - 1)]


def _sorted_with_places(values: Var, places: Var, k: int) -> list[Var]:
    """The first k of few candidates and their places, sorted together: where a gather takes elements one by one."""
    last, dtype = values.rank - 1, values.dtype
    code = _turned(bitcast_convert(values, dtype=np.dtype(f"i{dtype.itemsize}"))) if is_float(dtype) else values
    both = sort(code, places, dimension=last, num_keys=1, is_stable=True, descending=True)
    code, places = (cut(var, last, 0, k) for var in both)
    return [bitcast_convert(_turned(code), dtype=dtype) if is_float(dtype) else code, places]


def _turned(bits: Var) -> Var:
    """`total_order`, and back from it: the bits behind a minus sign inverted."""
    negative = compare(bits, zeros(bits.type), direction="LT")
    return select(negative, xor(bits, full_like(bits, np.iinfo(bits.dtype).max)), bits)


def _joined(var: Var, axes: Sequence[Any], size: int) -> Var:
    """The shards of the last dim behind one another."""
    gathered = all_gather(expand(var, 0), axes=tuple(axes), size=size, dim=0)
    last = gathered.rank - 1
    turned = transpose(gathered, permutation=(*range(1, last), 0, last))
    return reshape(turned, shape=(*var.shape[:-1], size * var.shape[-1]))


# -- derivative and batching


def _jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> Any:
    """Tangents of the values move as their elements do; places have none."""
    (tangent,) = tangents
    return [None if tangent is None else take_along(tangent, outs[1], tangent.rank - 1), None]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    return list(top_k(move(operands[0], dims[0] or 0, 0), **params)), [0, 0]


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Few different values, so that there are ties; where derivatives are not tested also zeros and nan of both signs."""
    values = generator.integers(0, 3, type.shape)
    if not is_float(type.dtype) or type.dtype.itemsize >= 4:
        return values
    special = np.array([-0.0, 0.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    chosen = special[generator.integers(0, 6, type.shape)]
    return np.where(generator.uniform(size=type.shape) < 0.3, chosen, values.astype(np.float32)).astype(type.dtype)


def _samples() -> list[Sample]:
    calls = [((8, 40), 3, ("f32", "i32", "bf16", "f8e5m2")), ((5, 3), 3, ("f32", "u8")), ((70,), 2, ("f32", "bool", "i8"))]
    calls += [((2, 3, 10), 1, ("f32", "f16")), ((4, 100), 60, ("f16", "i64")), ((1, 9), 4, ("bf16", "bool"))]
    calls += [((3, 6), 0, ("f32",)), ((0, 6), 2, ("f32",)), ((2, 0), 0, ("i32",)), ((1,), 1, ("f64",))]
    return [Sample((TensorType(s, DTYPES[d]),), {"k": k}, _fill) for s, k, dtypes in calls for d in dtypes]


top_k = Op(
    name="top_k",
    type_rule=_type,
    factor_rule=_rule,
    whole="where much of a dim is wanted, the candidates of all shards would be as much as the operand",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    partition=_partition,
    passes=lambda in_types, params: 8.0,
)
