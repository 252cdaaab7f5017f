"""Collectives: ops of the Programs of single devices. Partitioning writes them, and bodies of `manual` hold them.

Their derivatives see the values of all devices as one: a sum that every device gets hands every device the sum of the
cotangents, and what one device sends another goes back.

Mesh axes in params are tuples of names and of parts of axes; a part prints and parses as the tuple (name, pre, size).
`size` is the product of the axes' sizes: type rules do not see the mesh. Members of a group are in the order of their
linear index along the axes, major to minor. `groups`, where there are any, are lists of such indices, and exchange among
themselves.

    all_reduce(x) {axes, kind}                             kind: sum prod max min and or
    all_gather(x) {axes, size, dim}                        concatenated along dim
    reduce_scatter(x) {axes, size, dim, kind}              reduced; member i keeps the i-th part of dim
    all_to_all(x) {axes, size, split_dim, concat_dim}      member i sends its j-th part to member j
    collective_permute(x) {pairs}                          (source, target) flat mesh positions; zeros where no target
    axis_index() {axes}                                    i32[]: this device's linear index along the axes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Absent, Params, Sample, Types
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import emit_splat
from meshjit.ops.base.families import DTYPE_CLASSES, require, require_param
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.collective.float_order import emit_floats, emit_keys, key_type, loses_nan
from meshjit.ops.collective.rules import (
    SUB_AXES,
    Array,
    Values,
    axis_refs,
    batched,
    by_group,
    check_dim,
    collective,
    emit_groups,
    groups_of,
    of_sums,
    one_operand,
    scaled,
)
from sharding.axes import AxisRef, span
from sharding.mesh import BaseMesh

_REDUCERS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _check_kind(op: str, type: TensorType, kind: str) -> None:
    require_param(kind in _REDUCERS, op, "kind", repr(kind), f"write one of {', '.join(_REDUCERS)}")
    if kind in ("and", "or"):
        require_param(type.dtype.kind in "biu", op, "kind", kind, f"{type} is neither bool nor integer")
    else:
        fits = DTYPE_CLASSES["number" if kind in ("sum", "prod") else "ordered"](type.dtype)
        require_param(fits, op, "kind", kind, f"{type} cannot be reduced so")


def _reduced(arrays: Sequence[Array], kind: str) -> Array:
    """In the arrays' own dtype, one after another."""
    total = arrays[0]
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            total = _REDUCERS[kind](total, array)
    return total.astype(arrays[0].dtype, copy=False)


# -- all_gather


def _all_gather_type(in_types: Types, params: Params) -> Types:
    type = one_operand("all_gather", in_types)
    check_dim("all_gather", type, "dim", params["dim"])
    return (scaled(type, params["dim"], times=params["size"]),)


def _all_gather_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if _is_empty(ins[0], params):
        return operands
    groups = emit_groups(e, params)
    return e.op("all_gather", operands, outs, f"all_gather_dim = {params['dim']} : i64, {groups}")


def _is_empty(type: TensorType, params: Params) -> bool:
    """Whether there are no elements along the dim: the result is the operand, and StableHLO has no such collective."""
    return type.shape[params["dim"]] == 0


def _all_gather_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    def exchange(arrays: list[Array]) -> list[Array]:
        return [np.concatenate(arrays, params["dim"])] * len(arrays)

    return by_group(values, mesh, params, exchange)


def _all_gather_samples() -> list[Sample]:
    calls = [(("x",), 4, 0), (("x", "y"), 8, 1), (SUB_AXES, 4, 1), (("y",), 2, 0)]
    types = [TensorType((3, 2), DTYPES[d]) for d in ("f32", "bool", "bf16", "i4", "u2", "f8e8m0fnu")]
    return [Sample((t,), {"axes": a, "size": n, "dim": d}) for t in types for a, n, d in calls]


all_gather = collective(
    "all_gather",
    moves=("dim",),
    type_rule=_all_gather_type,
    emit=_all_gather_emit,
    simulate=_all_gather_simulate,
    transpose=lambda cts, operands, in_types, params: [reduce_scatter(cts[0], **params, kind="sum")],
    batch=lambda operands, dims, params: batched(all_gather, operands, dims, params, "dim"),
    samples=_all_gather_samples,
)


# -- all_to_all


def _all_to_all_type(in_types: Types, params: Params) -> Types:
    type = one_operand("all_to_all", in_types)
    check_dim("all_to_all", type, "split_dim", params["split_dim"], params["size"])
    check_dim("all_to_all", type, "concat_dim", params["concat_dim"])
    split = scaled(type, params["split_dim"], over=params["size"])
    return (scaled(split, params["concat_dim"], times=params["size"]),)


def _all_to_all_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """XLA:CPU slices the operand, one slice per device. If it simplifies some of the slices, their layouts may differ, and it
    refuses its own program. It simplifies nothing through a barrier (docs/xla.md, pieces_of_all_to_all)."""
    groups = emit_groups(e, params)
    dims = f"split_dimension = {params['split_dim']} : i64, concat_dimension = {params['concat_dim']} : i64"
    if e.target.needs_barrier_before_all_to_all:
        operands = e.op("optimization_barrier", operands, ins)
    return e.op("all_to_all", operands, outs, f"{dims}, split_count = {params['size']} : i64, {groups}")


def _all_to_all_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    def exchange(arrays: list[Array]) -> list[Array]:
        parts = [np.split(array, len(arrays), params["split_dim"]) for array in arrays]
        return [np.concatenate(column, params["concat_dim"]) for column in zip(*parts, strict=True)]

    return by_group(values, mesh, params, exchange)


def _all_to_all_transpose(cotangents, operands, in_types, params):
    back = {**params, "split_dim": params["concat_dim"], "concat_dim": params["split_dim"]}
    return [all_to_all(cotangents[0], **back)]


def _all_to_all_samples() -> list[Sample]:
    calls = [(("x",), 4, 0, 1), (("y", "x"), 8, 1, 0), (SUB_AXES, 4, 1, 1), (("y",), 2, 0, 2)]
    types = [TensorType((4, 8, 3), DTYPES[d]) for d in ("f32", "i32", "bool", "u4", "i2")]
    return [
        Sample((t,), {"axes": a, "size": n, "split_dim": s, "concat_dim": c}) for t in types for a, n, s, c in calls
    ]


all_to_all = collective(
    "all_to_all",
    moves=("split_dim", "concat_dim"),
    type_rule=_all_to_all_type,
    emit=_all_to_all_emit,
    simulate=_all_to_all_simulate,
    transpose=_all_to_all_transpose,
    batch=lambda operands, dims, params: batched(all_to_all, operands, dims, params, "split_dim", "concat_dim"),
    samples=_all_to_all_samples,
)


# -- all_reduce


def _all_reduce_type(in_types: Types, params: Params) -> Types:
    type = one_operand("all_reduce", in_types)
    _check_kind("all_reduce", type, params["kind"])
    return (type,)


def _must_gather(e: Any, type: TensorType, kind: str) -> bool:
    """Whether collectives of this kind are missing: `and` and `or` of integers (of bools all devices have them)."""
    return e.target.lacks_bitwise_collectives and kind in ("and", "or") and type.dtype != np.bool_


def _emit_expanded(e: Any, x: str, type: TensorType) -> tuple[str, TensorType]:
    """The value with a dim of extent 1 in front, for the members of a group."""
    expanded = type.with_shape((1, *type.shape))
    return e.op("reshape", [x], [expanded])[0], expanded


def _emit_reduced(e: Any, x: str, out: TensorType, kind: str) -> Sequence[str]:
    """The members in front reduced here."""
    start = e.constant(np.asarray(identity_element(kind, out.dtype)))
    return e.op("reduce", [x, start], [out], "dimensions = array<i64: 0>", [e.reducer(kind, out.dtype)])


def _all_reduce_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if _must_gather(e, ins[0], params["kind"]):
        expanded, type = _emit_expanded(e, operands[0], ins[0])
        size = len(groups_of(e.mesh, params)[0])
        gathered = scaled(type, 0, times=size)
        members = _all_gather_emit(e, [expanded], (type,), (gathered,), {**params, "dim": 0})
        return _emit_reduced(e, members[0], outs[0], params["kind"])
    groups = emit_groups(e, params)
    return _emit_collective(e, "all_reduce", operands[0], outs[0], params["kind"], groups)


def _emit_collective(e: Any, name: str, x: str, out: TensorType, kind: str, attributes: str) -> Sequence[str]:
    """A collective that reduces."""
    if not loses_nan(e, out, kind):
        return e.op(name, [x], [out], attributes, [e.reducer(kind, out.dtype)])
    keys = key_type(out)
    reduced = e.op(name, [emit_keys(e, x, e.types[x], kind)], [keys], attributes, [e.reducer(kind, keys.dtype)])
    return [emit_floats(e, reduced[0], out)]


def _all_reduce_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    def exchange(arrays: list[Array]) -> list[Array]:
        return [_reduced(arrays, params["kind"])] * len(arrays)

    return by_group(values, mesh, params, exchange)


def _all_reduce_samples() -> list[Sample]:
    numbers = [(d, k) for d in ("f32", "i32", "bf16", "u8") for k in ("sum", "prod", "max", "min")]
    others = [
        ("c64", "sum"),
        ("c64", "prod"),
        ("bool", "max"),
        ("i32", "and"),
        ("bool", "and"),
        ("bool", "or"),
        ("f64", "sum"),
    ]
    axes = [("x",), ("y", "x"), SUB_AXES]
    calls = [(*call, axes[i % 3]) for i, call in enumerate(numbers + others)]
    return [Sample((TensorType((3, 4), DTYPES[d]),), {"axes": a, "kind": k}) for d, k, a in calls]


all_reduce = collective(
    "all_reduce",
    type_rule=_all_reduce_type,
    emit=_all_reduce_emit,
    simulate=_all_reduce_simulate,
    varying=lambda varying, params: [varying[0] if params.get("groups") else varying[0] - set(params["axes"])],
    linear=of_sums,
    transpose=lambda cts, operands, in_types, params: [all_reduce(cts[0], **params)],
    batch=lambda operands, dims, params: batched(all_reduce, operands, dims, params),
    samples=_all_reduce_samples,
)


# -- reduce_scatter


def _reduce_scatter_type(in_types: Types, params: Params) -> Types:
    type = one_operand("reduce_scatter", in_types)
    _check_kind("reduce_scatter", type, params["kind"])
    check_dim("reduce_scatter", type, "dim", params["dim"], params["size"])
    return (scaled(type, params["dim"], over=params["size"]),)


def _reduce_scatter_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if _is_empty(ins[0], params):
        return operands
    if _must_gather(e, ins[0], params["kind"]):
        expanded, type = _emit_expanded(e, operands[0], ins[0])
        parts = {**params, "split_dim": params["dim"] + 1, "concat_dim": 0}
        members = _all_to_all_emit(e, [expanded], (type,), _all_to_all_type((type,), parts), parts)
        return _emit_reduced(e, members[0], outs[0], params["kind"])
    attributes = f"scatter_dimension = {params['dim']} : i64, {emit_groups(e, params)}"
    return _emit_collective(e, "reduce_scatter", operands[0], outs[0], params["kind"], attributes)


def _reduce_scatter_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    def exchange(arrays: list[Array]) -> list[Array]:
        return np.split(_reduced(arrays, params["kind"]), len(arrays), params["dim"])

    return by_group(values, mesh, params, exchange)


def _reduce_scatter_transpose(cotangents, operands, in_types, params):
    return [all_gather(cotangents[0], **{name: v for name, v in params.items() if name != "kind"})]


def _reduce_scatter_samples() -> list[Sample]:
    calls = [(("x",), 4, 0, "sum"), (("y", "x"), 8, 1, "max"), (SUB_AXES, 4, 1, "sum"), (("y",), 2, 0, "prod")]
    numbers = [(d, *call) for d in ("f32", "i32", "bf16") for call in calls]
    others = [
        ("i32", ("x",), 4, 1, "or"),
        ("bool", ("y",), 2, 0, "and"),
        ("u8", ("y", "x"), 8, 1, "and"),
        ("c64", ("x",), 4, 0, "sum"),
    ]
    calls = [*numbers, *others]
    return [
        Sample((TensorType((4, 16), DTYPES[t]),), {"axes": a, "size": n, "dim": d, "kind": k})
        for t, a, n, d, k in calls
    ]


reduce_scatter = collective(
    "reduce_scatter",
    moves=("dim",),
    type_rule=_reduce_scatter_type,
    emit=_reduce_scatter_emit,
    simulate=_reduce_scatter_simulate,
    linear=of_sums,
    transpose=_reduce_scatter_transpose,
    batch=lambda operands, dims, params: batched(reduce_scatter, operands, dims, params, "dim"),
    samples=_reduce_scatter_samples,
)


# -- collective_permute


def _permute_type(in_types: Types, params: Params) -> Types:
    for end, name in enumerate(("source", "target")):
        places = [pair[end] for pair in params["pairs"]]
        distinct = len(set(places)) == len(places)  # there are as many pairs as devices: no search unless one is needed
        twice = None if distinct else next(p for p in places if places.count(p) > 1)
        require(twice is None, "collective_permute", f"param pairs has {name} {twice} twice")
    return (one_operand("collective_permute", in_types),)


def _permute_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    pairs = params["pairs"]
    if not pairs:
        return [emit_splat(e, outs[0], 0)]
    text = f"source_target_pairs = {e.alias('pairs', pairs, lambda: pairs)}"
    return e.op("collective_permute", operands, outs, text)


def _permute_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    results: Values = [(np.full_like(value[0], 0),) for value in values]  # NaN in a dtype that has no zero, as of XLA
    for source, target in params["pairs"]:
        results[target] = values[source]
    return results


def _permute_transpose(cotangents, operands, in_types, params):
    return [collective_permute(cotangents[0], pairs=tuple((target, source) for source, target in params["pairs"]))]


def _permute_samples() -> list[Sample]:
    ring = tuple((i, (i + 1) % 8) for i in range(8))
    calls = [ring, ((0, 3), (3, 1), (5, 5)), ()]
    types = [TensorType((3, 2), DTYPES[d]) for d in ("f32", "bool", "bf16", "i4", "u2", "f8e8m0fnu")]
    return [Sample((t,), {"pairs": pairs}) for t in types for pairs in calls]


collective_permute = collective(
    "collective_permute",
    joins=True,
    type_rule=_permute_type,
    emit=_permute_emit,
    simulate=_permute_simulate,
    transpose=_permute_transpose,
    batch=lambda operands, dims, params: batched(collective_permute, operands, dims, params),
    samples=_permute_samples,
)


# -- axis_index

_INDEX = TensorType((), DTYPES["i32"])
_POSITION = TensorType((), DTYPES["u32"])


def _axis_index_type(in_types: Types, params: Params) -> Types:
    require(not in_types, "axis_index", f"takes no operands, was given {len(in_types)}")
    return (_INDEX,)


def _axis_index_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """From the replica's number, which is its flat mesh position: per axis (position / stride) % size, major first.

    On x=4, y=2 the axis x has stride 2, and its minor half x:(2)2 has stride 2 and size 2, its major half stride 4. Unsigned
    until the end: XLA makes a shift of one division and a mask of one remainder, where signed ones take six steps more.
    """
    refs = axis_refs(params["axes"])
    if not refs:
        return [e.constant(np.array(0, np.int32))]
    position = e.op("replica_id", [], [_POSITION])[0]
    total = ""
    for stride, size in _merged(_strides(refs, e.mesh)):
        digit = _position_op(e, "divide", position, stride) if stride > 1 else position
        if stride * size < e.mesh.size:
            digit = _position_op(e, "remainder", digit, size)
        total = e.op("add", [_position_op(e, "multiply", total, size), digit], [_POSITION])[0] if total else digit
    return [e.op("convert", [total], [_INDEX])[0]]


def _position_op(e: Any, name: str, position: str, number: int) -> str:
    return e.op(name, [position, e.constant(np.array(number, np.uint32))], [_POSITION])[0]


def _merged(strides: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours that are one number of more digits: of (2, 4) and (1, 2), axes x and y of 4 and 2, only (1, 8) is left."""
    merged: list[tuple[int, int]] = []
    for stride, size in strides:
        if merged and merged[-1][0] == stride * size:
            size *= merged.pop()[1]
        merged.append((stride, size))
    return merged


def _strides(refs: Sequence[AxisRef], mesh: BaseMesh) -> list[tuple[int, int]]:
    """(stride in flat positions, size) of every axis or part of one."""
    strides: list[tuple[int, int]] = []
    for ref in refs:
        name, pre, size = span(ref, mesh.shape)
        minor = int(np.prod(mesh.axis_sizes[mesh.axis_names.index(name) + 1 :], dtype=np.int64))
        strides.append((minor * mesh.shape[name] // (pre * size), size))
    return strides


def _axis_index_simulate(values: Values, mesh: BaseMesh, params: Params) -> Values:
    index = mesh.axes_index(axis_refs(params["axes"]))
    return [(np.array(i, np.int32),) for i in index]


_AXES = (("x",), ("y",), ("x", "y"), ("y", "x"), SUB_AXES, (), (("x", 1, 2),))

axis_index = collective(
    "axis_index",
    type_rule=_axis_index_type,
    emit=_axis_index_emit,
    simulate=_axis_index_simulate,
    varying=lambda varying, params: [frozenset(params["axes"])],
    linear=(),
    batch=Absent("it has no operand that could be batched"),
    samples=lambda: [Sample((), {"axes": axes}) for axes in _AXES],
)
