"""Reductions over whole dims: reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or.

Params: axes, the dims that disappear. A reduced dim that is sharded leaves a partial result of the same kind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import divide, multiply
from meshjit.ops.base.batching import doubled, shifted
from meshjit.ops.base.bits import not_
from meshjit.ops.base.comparison import compare, is_nan, select
from meshjit.ops.base.constants import zeros_like
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.families import DTYPE_CLASSES, NO_GRADIENT, factor_names, require, require_param, widened
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.shape import broadcast_in_dim, require_one
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]


def _kept(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d not in axes)


def check_axes(op: str, type: TensorType, axes: Sequence[int]) -> None:
    fits = len(set(axes)) == len(axes) and all(0 <= a < type.rank for a in axes)
    if not fits:
        require_param(False, op, "axes", axes, f"name each dim of {type} at most once")


def _reduction(name: str, kind: str, evaluate: Any, accepts: str, **rules: Any) -> Op:
    def type_rule(in_types: Types, params: Params) -> Types:
        type, axes = require_one(name, in_types), params["axes"]
        check_axes(name, type, axes)
        if not DTYPE_CLASSES[accepts](type.dtype):
            require(False, name, f"takes {accepts} operands, was given {type}")
        return (type.with_shape(tuple(type.shape[d] for d in _kept(type.rank, axes))),)

    def factor_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
        dims = tuple((n,) for n in factor_names(in_types[0].rank))
        kinds = {dims[a][0]: kind for a in params["axes"]}
        rule = FactorRule((dims,), (tuple(dims[d] for d in _kept(len(dims), params["axes"])),), kinds)
        return rule.with_sizes([in_types[0].shape], [out_types[0].shape])

    def run(x: Array, axes: Sequence[int]) -> Array:
        """Floats of 8 and 16 bits are reduced in float32 and rounded once."""
        wide = widened(x)
        start = np.asarray(identity_element(kind, x.dtype)).astype(wide.dtype)[()]
        with np.errstate(all="ignore"):
            out = evaluate(wide, axis=tuple(axes), initial=start, **_accumulator(evaluate, wide))
            return np.asarray(out).astype(x.dtype, copy=False)

    def emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
        start = e.constant(np.asarray(identity_element(kind, outs[0].dtype)))
        dimensions = f"dimensions = {integers(params['axes'])}"
        return e.op("reduce", [operands[0], start], outs, dimensions, [e.reducer(kind, outs[0].dtype)])

    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        dim = dims[0] or 0
        axes = tuple(shifted(a, dim) for a in params["axes"])
        return [op(operands[0], axes=axes)], [dim - sum(a < dim for a in axes)]

    def split(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> list[Var]:
        return [op(operands[0], axes=doubled(params["axes"], dims[0]))]

    def samples() -> list[Sample]:
        calls = [
            ((8, 6), (0,)),
            ((5, 3), (1,)),
            ((3, 4, 5), (0, 2)),
            ((7,), (0,)),
            ((4, 2), (0, 1)),
            ((), ()),
            ((3, 2), ()),
        ]
        calls.append(((0, 3), (0,)))
        dtypes = [d for d in ("f32", "i32", "bool", "c64", "bf16", "u8") if DTYPE_CLASSES[accepts](DTYPES[d])]
        return [Sample((TensorType(shape, DTYPES[d]),), {"axes": axes}) for d in dtypes for shape, axes in calls]

    op = Op(
        name=name,
        type_rule=type_rule,
        factor_rule=factor_rule,
        evaluate=run,
        emit=emit,
        samples=samples,
        batch=batch,
        split=split,
        **rules,
    )
    return op


def _accumulator(evaluate: Any, array: Array) -> dict[str, Any]:
    """NumPy would add and multiply small integers in wide ones."""
    return {"dtype": array.dtype} if evaluate in (np.sum, np.prod) else {}


def restore(reduced: Var, shape: Sequence[int], axes: Sequence[int]) -> Var:
    """A reduction's result repeated along the dims that it lost."""
    return broadcast_in_dim(reduced, shape=tuple(shape), dimensions=_kept(len(shape), axes))


def _sum_transpose(cotangents, operands, in_types, params):
    return [restore(cotangents[0], in_types[0].shape, params["axes"])]


reduce_sum = _reduction("reduce_sum", "sum", np.sum, "number", linear=((0,),), transpose=_sum_transpose)


def _prod_jvp(primals, tangents, outs, params):
    """One axis after another, each by the products of all other elements: right with zeros, too."""
    x, t = primals[0], tangents[0]
    if t is None:
        return [None]
    for axis in sorted(params["axes"], reverse=True):
        t = reduce_sum(multiply(t, ops.product_of_others(x, axis)), axes=(axis,))
        x = reduce_prod(x, axes=(axis,))
    return [t]


reduce_prod = _reduction("reduce_prod", "prod", np.prod, "number", jvp=_prod_jvp)


def _choice_jvp(primals, tangents, outs, params, below):
    """The mean of the tangents of all elements that equal the result. Where that is NaN the tangent is, and every element's
    cotangent: NaN is not `below` anything."""
    (x,), (t,), (out,), axes = primals, tangents, outs, params["axes"]
    if t is None or 0 in x.shape:
        return [None]
    chosen = not_(compare(x, restore(out, x.shape, axes), direction=below))
    total = reduce_sum(select(chosen, t, zeros_like(t)), axes=axes)
    count = reduce_sum(convert(chosen, dtype=t.dtype), axes=axes)
    return [divide(total, select(is_nan(out), out, count))]


reduce_max = _reduction("reduce_max", "max", np.max, "ordered", few_bits="order", jvp=functools.partial(_choice_jvp, below="LT"))
reduce_min = _reduction("reduce_min", "min", np.min, "ordered", few_bits="order", jvp=functools.partial(_choice_jvp, below="GT"))


_NONE = Absent(NO_GRADIENT)
reduce_and = _reduction("reduce_and", "and", np.bitwise_and.reduce, "bits", jvp=_NONE)
reduce_or = _reduction("reduce_or", "or", np.bitwise_or.reduce, "bits", jvp=_NONE)
