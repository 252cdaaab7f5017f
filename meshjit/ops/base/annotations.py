"""Identities that say something about a value: its placement or whose it is, that its gradient stops, that it stays apart, its
memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.site import batched
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.batching import align_to_first
from meshjit.ops.base.families import (
    SAMPLE_DTYPES,
    SAMPLE_SHAPES,
    elementwise,
    elementwise_rule,
    factor_names,
    require,
    require_param,
)
from meshjit.ops.base.shape import require_one
from sharding.memory import DEVICE, HOST, KINDS
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, placement_of

_SAME: dict[str, Any] = {"arity": 1, "accepts": "any", "emit": lambda e, operands, ins, outs, params: operands}


def _itself(x: Any) -> Any:
    return x


# -- sharding_constraint: the user pinned this value here (spec), and so its cotangent


def _constraint_type(in_types: Types, params: Params, name: str = "sharding_constraint") -> Types:
    type, spec = require_one(name, in_types), params["spec"]
    fits = isinstance(spec, PartitionSpec) and len(spec) <= type.rank
    require(fits, name, f"param spec is {spec!r}: operand {type} has {type.rank} dims")
    placement_of(spec, type.rank)  # raises where an axis is used twice
    return (type,)


def _constraint_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """The batch dim is left to the compiler, unless vmap said over which axes it is spread."""
    (x,), dim = operands, dims[0] or 0
    entries = [*params["spec"], *(None for _ in range(x.rank - 1 - len(params["spec"])))]
    entries.insert(dim, params.get("spread", PartitionSpec.UNCONSTRAINED))
    return [held(x, params["spec"].update(partitions=entries))], [dim]


def held(x: Var, spec: PartitionSpec) -> Var:
    """The value where the spec says; as addends, if it says so."""
    return leave_unreduced(x, spec=spec) if spec.unreduced else sharding_constraint(x, spec=spec)


def _constraint_transpose(cts: Sequence[Var], operands: Any, in_types: Types, params: Params) -> list[Var]:
    """The cotangent of an unreduced value is reduced, and the other way round."""
    return [held(cts[0], params["spec"].dual)]


def _constraint_samples() -> list[Sample]:
    specs = [("f32", (8, 6), ("x", None)), ("f32", (5,), ()), ("c64", (4, 6), (("x", "y"),)), ("bool", (), ())]
    specs.append(("i32", (3, 4, 5), (PartitionSpec.UNCONSTRAINED, "y")))
    return [Sample((TensorType(shape, DTYPES[d]),), {"spec": PartitionSpec(*spec)}) for d, shape, spec in specs]


sharding_constraint = Op(
    name="sharding_constraint",
    type_rule=_constraint_type,
    factor_rule=elementwise_rule,
    evaluate=lambda x, spec: x,
    emit=_SAME["emit"],
    samples=_constraint_samples,
    linear=((0,),),
    transpose=_constraint_transpose,
    batch=_constraint_batch,
    seed=lambda params: params["spec"],
)


# -- leave_unreduced: over the spec's axes `unreduced` each device holds an addend of this value, here and where it goes


def _unreduced_samples() -> list[Sample]:
    x, y = PartitionSpec(None, "y", unreduced={"x"}), PartitionSpec(unreduced={"x", "y"})
    return [Sample((TensorType((4, 6), DTYPES[d]),), {"spec": spec}) for d in ("f32", "i32", "c64") for spec in (x, y)]


def _unreduced_type(in_types: Types, params: Params) -> Types:
    (type,) = types = _constraint_type(in_types, params, "leave_unreduced")
    require(type.dtype != np.bool_, "leave_unreduced", f"bools are not added up, and operand 0 is {type}")
    return types


def _pinned_sum(params: Params) -> Any:
    return (params["spec"],), (params["spec"],), frozenset()


leave_unreduced = Op(
    name="leave_unreduced",
    type_rule=_unreduced_type,
    factor_rule=elementwise_rule,
    evaluate=lambda x, spec: x,
    emit=_SAME["emit"],
    samples=_unreduced_samples,
    linear=((0,),),
    transpose=_constraint_transpose,
    batch=_constraint_batch,
    seed=lambda params: params["spec"],
    pinned=_pinned_sum,
)


# -- stop_gradient, stop_cotangent, copy

_TANGENT: Absent = Absent(
    "its operand is a tangent, which would get no cotangent\n  fix: in a rule of custom_jvp, apply it to values, not to tangents"
)

stop_gradient = elementwise("stop_gradient", _itself, linear=((0,),), stops=True, transpose=_TANGENT, widen=False, **_SAME)

# stop_gradient of what may be a tangent itself. That gets no cotangent from here, but by a select beside it, see `guarding.py`.
stop_cotangent = elementwise(
    "stop_cotangent",
    _itself,
    linear=((0,),),
    stops=True,
    transpose=lambda cts, operands, in_types, params: [None],
    widen=False,
    **_SAME,
)

copy = elementwise(
    "copy",
    _itself,
    linear=((0,),),
    transpose=lambda cts, operands, in_types, params: [copy(cts[0])],
    widen=False,
    **_SAME,
)


# -- materialize: the operand is in memory before the result is read. XLA fuses nothing across a call that it does not inline

materialize = elementwise(
    "materialize",
    _itself,
    arity=1,
    accepts="any",
    emit=lambda e, operands, ins, outs, params: [e.call("materialize", "return %x : {type}", operands[0])],
    linear=((0,),),
    transpose=lambda cts, operands, in_types, params: [materialize(cts[0])],
    widen=False,
)


# -- in_memory: the same value in another memory, or where it lies already (source): the device's own, or its host's


def _memory_type(in_types: Types, params: Params) -> Types:
    types = (require_one("in_memory", in_types),)
    for name in ("memory", "source"):
        require_param(params[name] in KINDS, "in_memory", name, params[name], f"there are {', '.join(KINDS)}")
    return types


def _emit_memory(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Where the compiler knows one memory alone, nothing."""
    return [e.in_memory(operands[0], params["memory"])] if e.target.has_host_memory else operands


def _memory_back(cts: Sequence[Var], operands: Any, in_types: Types, params: Params) -> list[Var]:
    return [in_memory(cts[0], memory=params["source"], source=params["memory"])]


_MEMORY_PARAMS = ({"memory": HOST, "source": DEVICE}, {"memory": DEVICE, "source": HOST}, {"memory": HOST, "source": HOST})

in_memory = elementwise(
    "in_memory",
    lambda x, memory, source: x,
    arity=1,
    accepts="any",
    type_rule=_memory_type,
    emit=_emit_memory,
    linear=((0,),),
    transpose=_memory_back,
    sample_params=_MEMORY_PARAMS,
    widen=False,
    memory=lambda params: params["memory"],
)


# -- put: outside of jit the user moved this value to other devices (to), and so its cotangent back (back). See core/site.py


def _put_back(cts: Sequence[Var], operands: Any, in_types: Types, params: Params) -> list[Var]:
    return [put(cts[0], to=params["back"], back=params["to"])]


def _put_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    dim = dims[0] or 0
    return [put(operands[0], **{name: batched(site, dim) for name, site in params.items()})], [dim]


def _put_samples() -> list[Sample]:
    types = [TensorType(shape, DTYPES[d]) for d in SAMPLE_DTYPES for shape in SAMPLE_SHAPES]
    return [Sample((t,), {"to": 1, "back": 2}) for t in types]


put = Op(
    name="put",
    type_rule=lambda in_types, params: (require_one("put", in_types),),
    factor_rule=elementwise_rule,
    evaluate=lambda x, to, back: x,
    emit=_SAME["emit"],
    samples=_put_samples,
    linear=((0,),),
    transpose=_put_back,
    batch=_put_batch,
)


# -- optimization_barrier: nothing is merged or moved across it; all operands are there before any result is


def _barrier_type(in_types: Types, params: Params) -> Types:
    require(bool(in_types), "optimization_barrier", "takes one or more operands, was given none")
    return in_types


def _barrier_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Every operand is placed as it likes: `a b, c -> a b, c`."""
    names = iter(factor_names(sum(t.rank for t in in_types)))
    dims = tuple(tuple((next(names),) for _ in t.shape) for t in in_types)
    return FactorRule(dims, dims).with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def _barrier_outputs(operands: Sequence[Var]) -> list[Var]:
    outputs = optimization_barrier(*operands)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _barrier_transpose(cotangents, operands, in_types, params):
    outputs = _barrier_outputs(cotangents)
    return [out if x is None else None for x, out in zip(operands, outputs, strict=True)]


def _barrier_prune(params: Params, used: Sequence[bool], dce: Any) -> tuple[list[int], list[int], Params]:
    """Without results that nobody reads."""
    kept = [i for i, flag in enumerate(used) if flag]
    return kept, kept, params


def _barrier_samples() -> list[Sample]:
    types = [TensorType(shape, DTYPES[d]) for d in SAMPLE_DTYPES for shape in SAMPLE_SHAPES]
    return [Sample((t,), {}) for t in types] + [
        Sample((types[0], types[5], types[2]), {}),
        Sample((types[12], types[1]), {}),
    ]


optimization_barrier = Op(
    name="optimization_barrier",
    type_rule=_barrier_type,
    factor_rule=_barrier_rule,
    evaluate=lambda *arrays: arrays,
    emit=lambda e, operands, ins, outs, params: e.op("optimization_barrier", operands, outs),
    samples=_barrier_samples,
    linear=lambda in_types, params: (tuple(range(len(in_types))),),
    transpose=_barrier_transpose,
    batch=lambda operands, dims, params: (_barrier_outputs(operands), list(dims)),
    prune=_barrier_prune,
    copies=True,
    in_place=lambda in_types: range(len(in_types)),
)


# -- shard_alike: both operands as they are, in one placement


def _alike_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "shard_alike", f"takes two operands, was given {len(in_types)}")
    a, b = in_types
    require(a.shape == b.shape, "shard_alike", f"operands are {a} and {b}; they must be of one shape")
    return in_types


def _alike_transpose(cotangents, operands, in_types, params):
    return [out if x is None else None for x, out in zip(operands, shard_alike(*cotangents), strict=True)]


def _alike_batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    values, dim = align_to_first(operands, dims)
    return shard_alike(*values), [dim, dim]


def _alike_samples() -> list[Sample]:
    pairs = [("f32", "i32", (4, 6)), ("bf16", "bool", (5,)), ("c64", "c64", ()), ("f32", "f32", (3, 4, 5))]
    return [Sample((TensorType(shape, DTYPES[a]), TensorType(shape, DTYPES[b])), {}) for a, b, shape in pairs]


shard_alike = Op(
    name="shard_alike",
    type_rule=_alike_type,
    factor_rule=elementwise_rule,
    evaluate=lambda x, y: (x, y),
    emit=_SAME["emit"],
    samples=_alike_samples,
    linear=((0, 1),),
    transpose=_alike_transpose,
    batch=_alike_batch,
)
