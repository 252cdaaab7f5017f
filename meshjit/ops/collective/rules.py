"""What all collectives share: their type checks, groups, batching, and the rules that none of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, MissingRule, Op, Params, Types
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.families import factor_names, require, require_param
from sharding.axes import AxisRef, SubAxis
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
Values = list[tuple[Array, ...]]  # per device, by flat position: the operands or results

_LOCAL_ONLY = "it exists in the Programs of single devices only: what partitioning makes, and bodies of `manual`"


def axis_refs(axes: Sequence[Any]) -> tuple[AxisRef, ...]:
    """Axes as params hold them (after parsing, a part of an axis is a plain tuple) as axes of a mesh."""
    return tuple(axis if isinstance(axis, str) else SubAxis(*axis) for axis in axes)


def collective(name: str, moves: Sequence[str] = (), **rules: Any) -> Op:
    """`moves`: the params that name dims along which it moves elements between devices; in a body that is planned these are
    whole, and all others may be sharded over further axes."""

    def no_meaning(*args: Any, **kwargs: Any) -> Any:
        raise MissingRule(f"{name} has no evaluate rule: {_LOCAL_ONLY}")

    def factor_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
        rank, whole = out_types[0].rank, {params[param] for param in moves}
        names = factor_names(rank)
        operand, result = (tuple((f"{side}{d}",) if d in whole else (names[d],) for d in range(rank)) for side in ("in", "out"))
        kinds = {f"{side}{d}": "replicate" for d in sorted(whole) for side in ("in", "out")}
        rule = FactorRule((operand,) * len(in_types), (result,), kinds)
        return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])

    linear = rules.setdefault("linear", ((0,),))
    if linear:
        rules.setdefault("jvp", Absent("psum and pmean have a derivative, pmax and pmin have none"))
    rules.setdefault("partition", lambda local: [op(*local.operands, **local.params)])
    op = Op(name=name, factor_rule=factor_rule, evaluate=no_meaning, **rules)
    return op


def batched(op: Op, operands: Sequence[Var], dims: Sequence[int | None], params: Params, *names: str) -> Any:
    """The collective with a batch dim beside the dims that its params name; the batch stays where it is."""
    (x,), (batch,) = operands, dims
    assert batch is not None
    moved = {name: params[name] + (batch <= params[name]) for name in names}
    return [op(x, **{**params, **moved})], [batch]


def of_sums(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    """A reduction is linear if it is a sum."""
    return ((0,),) if params["kind"] == "sum" else ()


def one_operand(op: str, in_types: Types) -> TensorType:
    require(len(in_types) == 1, op, f"takes 1 operand, was given {len(in_types)}")
    return in_types[0]


def check_dim(op: str, type: TensorType, name: str, dim: int, size: int = 1) -> None:
    require_param(0 <= dim < type.rank, op, name, dim, f"operand {type} has {type.rank} dims")
    why = f"extent {type.shape[dim]} of operand {type} is no multiple of the group's size {size}"
    require_param(type.shape[dim] % size == 0, op, name, dim, why)


def scaled(type: TensorType, dim: int, times: int = 1, over: int = 1) -> TensorType:
    return type.with_shape(tuple(n * times // over if d == dim else n for d, n in enumerate(type.shape)))


def groups_of(mesh: BaseMesh, params: Params) -> Any:
    """Flat positions of the devices that exchange values: along param axes, or in param groups of the linear indices there."""
    along = mesh.replica_groups(axis_refs(params["axes"]))
    return [[line[i] for i in group] for line in along.tolist() for group in params["groups"]] if "groups" in params else along


def emit_groups(e: Any, params: Params) -> str:
    """The attribute of a collective that says them; -1 is nobody, where they are of several sizes."""

    def table() -> Any:
        groups = groups_of(e.mesh, params)
        columns = max(map(len, groups))
        return [[*group, *[-1] * (columns - len(group))] for group in groups] if "groups" in params else groups

    return e.collective((axis_refs(params["axes"]), params.get("groups")), table)


def by_group(values: Values, mesh: BaseMesh, params: Params, exchange: Any) -> Values:
    """`exchange(arrays of one group in order)` gives the results of its members, in order."""
    results: Values = [()] * len(values)
    for group in groups_of(mesh, params):
        for position, result in zip(group, exchange([values[p][0] for p in group]), strict=True):
            results[position] = (np.asarray(result),)
    return results


# Samples are for a mesh x=4, y=2; this is y and the minor half of x.
SUB_AXES = ("y", ("x", 2, 2))
