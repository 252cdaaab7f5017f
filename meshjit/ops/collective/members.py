"""What the members of a batch know of each other: `vmap(axis_name=...)`. gather_members, scatter_members.

Both take the member's own number as their last operand, an input that vmap adds with the axis. Every member's number is
another, so where it is batched the axis is batched that was meant, and the batch rule brings the members together: these two
are the only ops whose batch is not each member by itself. Once batched nothing is left of them but reshapes and sums, and
without vmap nothing writes them. Outside of a batch there is one member, which all others are taken to equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.batching import insert, move
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim
from sharding.rule import FactorRule

NUMBER = TensorType((), DTYPES["i32"])


def _operand(op: str, in_types: Types) -> TensorType:
    require(len(in_types) == 2 and in_types[1] == NUMBER, op, f"takes a value and a number {NUMBER}, was given {in_types}")
    return in_types[0]


def _with_number(rule: FactorRule) -> FactorRule:
    return replace(rule, operands=(*rule.operands, ()))


def _samples(*shapes: tuple[int, ...], **params: Any) -> list[Sample]:
    return [Sample((TensorType(s, DTYPES[d]), NUMBER), params) for d in ("f32", "i32", "c64", "bf16") for s in shapes]


# -- gather_members: the values of all members, stacked along a new dim 0 of extent `size`


def _stacking(type: TensorType, size: int) -> dict[str, Any]:
    return {"shape": (size, *type.shape), "dimensions": tuple(range(1, type.rank + 1))}


def _gather_type(in_types: Types, params: Params) -> Types:
    type = _operand("gather_members", in_types)
    return (type.with_shape((params["size"], *type.shape)),)


def _gather_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a b, -> n a b`."""
    same = _stacking(in_types[0], params["size"])
    return _with_number(broadcast_in_dim.factor_rule(in_types[:1], out_types, same))


def _gather_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return broadcast_in_dim.emit(e, operands[:1], ins[:1], outs, _stacking(ins[0], params["size"]))


def _gather_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (x, number), (dim, own), size = operands, dims, params["size"]
    if own is None:
        return [gather_members(x, number, size=size)], [(dim or 0) + 1]
    return [insert(x, 0, size) if dim is None else move(x, dim, 0)], [None]


gather_members = Op(
    name="gather_members",
    type_rule=_gather_type,
    factor_rule=_gather_rule,
    evaluate=lambda x, number, size: np.broadcast_to(x, (size, *x.shape)),
    emit=_gather_emit,
    samples=lambda: [*_samples((4, 3), (5,), (), (0, 2), size=3), *_samples((2,), size=1), *_samples((2,), size=0)],
    linear=((0,),),
    transpose=lambda cotangents, operands, in_types, params: [scatter_members(cotangents[0], operands[1]), None],
    batch=_gather_batch,
    localize=lambda params, in_types, out_types: {**params, "size": out_types[0].shape[0]},
)


# -- scatter_members: of the sum of all members' values the slice of dim 0 whose number is the member's own


def _scatter_type(in_types: Types, params: Params) -> Types:
    type = _operand("scatter_members", in_types)
    require(type.rank > 0, "scatter_members", f"operand {type} needs a dim 0, with a slice for each member")
    return (type.with_shape(type.shape[1:]),)


def _scatter_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (x, number), (dim, own) = operands, dims
    if own is None:
        return [scatter_members(move(x, dim or 0, 1), number)], [0]
    if dim is None:
        x, dim = insert(x, 0, x.shape[0]), 0  # equal in all members
    return [reduce_sum(x, axes=(dim,))], [0]


def _scatter_transpose(cotangents, operands, in_types, params):
    return [gather_members(cotangents[0], operands[1], size=in_types[0].shape[0]), None]


scatter_members = Op(
    name="scatter_members",
    type_rule=_scatter_type,
    factor_rule=lambda ins, outs, params: _with_number(reduce_sum.factor_rule(ins[:1], outs, {"axes": (0,)})),
    evaluate=lambda x, number: reduce_sum.evaluate(x, axes=(0,)),
    emit=lambda e, operands, ins, outs, params: reduce_sum.emit(e, operands[:1], ins[:1], outs, {"axes": (0,)}),
    samples=lambda: _samples((4, 3), (5,), (3, 2, 4), (3, 0)),
    linear=((0,),),
    transpose=_scatter_transpose,
    batch=_scatter_batch,
)
