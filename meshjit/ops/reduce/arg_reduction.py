"""Places of extremes: argmax, argmin. Params: axis, index_dtype. The first place wins; nan counts as the extreme.

Along a sharded dim every device finds its own extreme and its global place, all pairs are gathered (one per line and
shard), and the first best shard wins. Of many lines each device decides some, for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.batching import shifted
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import first_place, iota, scalar, spread, zeros_like
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened, zero_jvp
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.reduction import reduce_max, reduce_min, reduce_sum, restore
from meshjit.ops.base.shape import expand, require_one
from meshjit.ops.collective.collectives import all_gather
from meshjit.ops.collective.dealing import are_dealt, deal, hand_out
from meshjit.ops.slicing.halos import shard_axes
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_BOOL = np.dtype(np.bool_)


def _arg_reduction(name: str, kind: str, evaluate: Any, reduce: Op, direction: str) -> Op:
    def type_rule(in_types: Types, params: Params) -> Types:
        type, axis, index = require_one(name, in_types), params["axis"], params["index_dtype"]
        require_param(0 <= axis < type.rank, name, "axis", axis, f"operand {type} has {type.rank} dims")
        require(type.shape[axis] > 0, name, f"dim {axis} of operand {type} is empty: there is no place to give")
        require(DTYPE_CLASSES["ordered"](type.dtype), name, f"takes ordered operands, was given {type}")
        require_param(index.kind in "iu", name, "index_dtype", index, "an integer dtype is needed")
        return (TensorType((*type.shape[:axis], *type.shape[axis + 1 :]), index),)

    def run(x: Array, axis: int, index_dtype: np.dtype[Any]) -> Array:
        return np.asarray(evaluate(widened(x), axis=axis)).astype(index_dtype)

    def emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
        index = ins[0].with_dtype(params["index_dtype"])
        places = e.op("iota", [], [index], f"iota_dimension = {params['axis']} : i64")[0]
        start = e.constant(np.asarray(identity_element(kind, ins[0].dtype)))
        first = e.constant(np.zeros((), params["index_dtype"]))
        region = _comparison(e, ins[0].dtype, params["index_dtype"], direction)
        out_types = [outs[0].with_dtype(ins[0].dtype), outs[0]]
        dimensions = f"dimensions = {integers([params['axis']])}"
        return e.op("reduce", [operands[0], places, start, first], out_types, dimensions, [region])[1:]

    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        dim = dims[0] or 0
        axis = shifted(params["axis"], dim)
        return [op(operands[0], **{**params, "axis": axis})], [dim - (axis < dim)]

    def split(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> list[Var]:
        """The first line with the best value, and the place in it. Places count in the index dtype, which may wrap around."""
        (var,), axis, index = operands, params["axis"], params["index_dtype"]
        places, values = op(var, **{**params, "axis": axis + 1}), reduce(var, axes=(axis + 1,))
        line = op(values, **params)
        extent = scalar(np.asarray(var.shape[axis + 1]).astype(index)[()], index)
        return [add(multiply(line, spread(extent, line.shape)), _winner(places, values, axis, op))]

    op = Op(
        name=name,
        type_rule=type_rule,
        factor_rule=_rule,
        evaluate=run,
        emit=emit,
        samples=_samples,
        batch=batch,
        jvp=zero_jvp,
        split=split,
        partition=lambda local: [_partition(local, op, reduce, kind)],
    )
    return op


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b -> a | permute b`: the result is whole, not partial, because devices compare notes before."""
    dims, axis = tuple((n,) for n in factor_names(in_types[0].rank)), params["axis"]
    rule = FactorRule((dims,), ((*dims[:axis], *dims[axis + 1 :]),), {dims[axis][0]: "permute"})
    return rule.with_sizes([in_types[0].shape], [out_types[0].shape])


def _comparison(e: Any, dtype: np.dtype[Any], index: np.dtype[Any], direction: str) -> str:
    """The better of two (value, place) pairs: an only nan, or the greater value, or of equal ones the first place."""
    value, place, flag = TensorType((), dtype), TensorType((), index), TensorType((), _BOOL)

    def body(e: Any, names: list[str]) -> Sequence[str]:
        def test(a: str, b: str, how: str) -> str:
            return e.op("compare", [a, b], [flag], f"comparison_direction = #stablehlo<comparison_direction {how}>")[0]

        def both(op: str, a: str, b: str) -> str:
            return e.op(op, [a, b], [flag])[0]

        a, i, b, j = names
        a_nan, b_nan = test(a, a, "NE"), test(b, b, "NE")
        only_a_nan = both("and", a_nan, e.op("not", [b_nan], [flag])[0])
        better = both("or", test(a, b, direction), only_a_nan)
        equal = both("or", test(a, b, "EQ"), both("and", a_nan, b_nan))
        first = both("or", better, both("and", equal, test(i, j, "LT")))
        return [*e.op("select", [first, a, b], [value]), *e.op("select", [first, i, j], [place])]

    return e.region([value, place, value, place], body)


def _partition(local: LocalEquation, op: Op, reduce: Op, kind: str) -> Var:
    """Padding holds the identity and stands behind the elements it might equal, so it is never the first."""
    (var,), axis, index = local.operands, local.params["axis"], local.params["index_dtype"]
    axes = shard_axes(local, factor_names(var.rank)[axis])
    if not axes:
        return op(var, **local.params)
    var = local.mask(var, axis, local.eqn.inputs[0].shape[axis], axes, identity_element(kind, var.dtype))
    inside = op(var, axis=axis, index_dtype=index)
    begin = first_place(local.index(axes), local.mesh.axes_size(axes), var.shape[axis], index)
    candidates = add(inside, spread(begin, inside.shape)), reduce(var, axes=(axis,))
    if are_dealt(local, candidates, inside.type.size, axes):
        places, values = (deal(local, v, v.type.size, axes) for v in candidates)
        return hand_out(local, _winner(places, values, 1, op), inside.shape, axes)
    size = local.mesh.axes_size(axes)
    places, values = (all_gather(expand(v, 0), axes=tuple(axes), size=size, dim=0) for v in candidates)
    return _winner(places, values, 0, op)


def _winner(places: Var, values: Var, axis: int, op: Op) -> Var:
    """Along `axis` the shards stand: the place that the first of them with the best value gives."""
    winner = op(values, axis=axis, index_dtype=np.dtype(np.int32))
    shards = iota(dtype=winner.dtype, shape=places.shape, dimension=axis)
    is_winner = compare(shards, restore(winner, places.shape, (axis,)), direction="EQ")
    return reduce_sum(select(is_winner, places, zeros_like(places)), axes=(axis,))


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Few different values, so that there are ties; some nan."""
    values = generator.integers(0, 3, type.shape)
    return np.where(generator.uniform(size=type.shape) < 0.1, np.nan, values) if type.dtype.kind == "f" else values


def _samples() -> list[Sample]:
    calls = [((8, 6), 0), ((5, 3), 1), ((7,), 0), ((2, 0), 0), ((1,), 0), ((3, 40), 1)]
    types = [(TensorType(s, DTYPES[d]), a) for s, a in calls for d in ("f32", "i32", "bool", "bf16")]
    indices = [DTYPES["i32"], DTYPES["u8"], DTYPES["i64"]]
    return [Sample((t,), {"axis": a, "index_dtype": indices[i % 3]}, _fill) for i, (t, a) in enumerate(types)]


argmax = _arg_reduction("argmax", "max", np.argmax, reduce_max, "GT")
argmin = _arg_reduction("argmin", "min", np.argmin, reduce_min, "LT")
