"""Calls of functions of the host's, in the middle of a program: pure_callback, io_callback, debug_callback.

Params: host, the function, which says what the results are; `ordered` (but for pure ones), whether the calls happen one after
another; `device` (but for debugging), the id of the device that calls, or None; `vmap_method` (of pure ones), as JAX's. In a
Program of whole arrays the function is called once, with whole arrays: partitioning lets one device call it, the first if
nobody says which, and sends its results to the others. In code for single devices (`manual`) every device calls it.
`debug_callback_shards` is called by every device with its own shards, wherever its operands lie.

Source: JAX's "External callbacks".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.core.effects import Effect
from meshjit.core.host import Call, HostFunction, host_function
from meshjit.core.local import LocalEquation
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.batching import batch_size, insert, move
from meshjit.ops.base.bits import bitcast_convert
from meshjit.ops.base.comparison import compare
from meshjit.ops.base.constants import scalar, zeros
from meshjit.ops.base.conversion import complex_, convert, imag, real
from meshjit.ops.base.families import factor_names, require
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import all_reduce
from meshjit.ops.control.case import case
from meshjit.ops.control.nested import whole_rule
from meshjit.ops.control.scan import scan
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


def _type(name: str) -> Callable[[Types, Params], Types]:
    def rule(in_types: Types, params: Params) -> Types:
        host = params["host"]
        require(isinstance(host, HostFunction), name, f"param host is {host!r}")
        require(len(in_types) == host.operands, name, f"{host.name} takes {host.operands} operands, was given {len(in_types)}")
        return host.results

    return rule


def _evaluate(*arrays: Any, host: HostFunction, **params: Any) -> tuple[Any, ...]:
    return host(arrays)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params, pure: bool = False) -> Sequence[str]:
    return e.call_host(params["host"], operands, params.get("ordered", False), pure)


def _emitted(op: Op, operands: Sequence[Var], params: Params) -> list[Var]:
    return list(current_builder().emit(op, operands, params))


# -- one device calls


def one_calls(op: Callable[[], Op]) -> Callable[[LocalEquation], list[Var]]:
    """The device at `position` calls; the others go the other way, and get the results as sums of bits. In code for the devices
    of some axes each of these calls: one device of the other axes."""

    def partition(local: LocalEquation) -> list[Var]:
        axes, params = local.axes, local.params
        position = _position(params, local.mesh, axes, str(local.eqn.source))
        if local.mesh.axes_size(axes) == 1:
            return _emitted(op(), local.operands, params)
        calls = compare(local.index(axes), scalar(position, np.int32), direction="EQ")
        types = [v.type for v in local.operands]
        branches = (_silent(types, [v.type for v in local.eqn.outputs]), _calling(op(), types, params))
        results = current_builder().emit(case, [convert(calls, dtype=DTYPES["i32"]), *local.operands], {"branches": branches})
        return [_of_one(v, axes) for v in results]

    return partition


def _position(params: Params, mesh: BaseMesh, axes: Sequence[str], where: str) -> int:
    """Which device calls, counted along these axes of the mesh."""
    if params.get("device") is None:
        return 0
    ids = [getattr(device, "id", None) for device in getattr(mesh, "flat_devices", ())]
    if params["device"] not in ids:
        raise NotImplementedError(
            f"Sharding provided to {params['host'].name} at {where} specifies device {params['device']} that is not in the device"
            f" assignment ({ids})\n  fix: a device of the mesh, or no sharding"
        )
    places = dict(zip(mesh.axis_names, np.unravel_index(ids.index(params["device"]), mesh.axis_sizes), strict=True))
    return int(np.ravel_multi_index([places[a] for a in axes], [mesh.shape[a] for a in axes]))


def _of_one(value: Var, axes: tuple[str, ...]) -> Var:
    """The value of the one device that has it, where the others have zeros: a sum of bits, which keeps the sign of 0."""
    if value.dtype == np.bool_:
        return all_reduce(value, axes=axes, kind="or")
    if value.dtype.kind == "c":
        return complex_(_of_one(real(value), axes), _of_one(imag(value), axes))
    bits = np.dtype(f"uint{8 * value.dtype.itemsize}")
    return bitcast_convert(all_reduce(bitcast_convert(value, dtype=bits), axes=axes, kind="sum"), dtype=value.dtype)


def _silent(types: Sequence[TensorType], results: Sequence[TensorType]) -> Program:
    """The branch of a device that does not call."""
    with Builder("silent") as builder:
        for type in types:
            builder.input(type)
        return builder.build([zeros(type) for type in results])


def _calling(op: Op, types: Sequence[TensorType], params: Params) -> Program:
    with Builder("calling") as builder:
        return builder.build(_emitted(op, [builder.input(type) for type in types], params))


# -- batches


def each_member(op: Op, operands: Sequence[Var], dims: Sequence[int | None], params: Params, unroll: bool = False) -> Any:
    """One call per member, in the order of the members."""
    size = batch_size(operands, dims)
    order = sorted(range(len(operands)), key=lambda i: dims[i] is not None)  # those that all members share come first
    placed = [operands[i] if dims[i] is None else move(operands[i], dims[i] or 0, 0) for i in order]
    consts = sum(d is None for d in dims)
    with Builder("member") as builder:
        inputs = [builder.input(v.type if k < consts else v.type.with_shape(v.shape[1:])) for k, v in enumerate(placed)]
        back = [inputs[order.index(i)] for i in range(len(operands))]
        body = builder.build(_emitted(op, back, params))
    loop = {"body": body, "length": size, "reverse": False, "unroll": max(1, size) if unroll else 1}
    results = current_builder().emit(scan, placed, {**loop, "num_consts": consts, "num_carry": 0})
    return list(results), [0] * len(results)


def _batched_each(op: Callable[[], Op]) -> Callable[..., Any]:
    return lambda operands, dims, params: each_member(op(), operands, dims, params)


def batched_by_method(
    op: Op, whole: Callable[[int], Params], operands: Sequence[Var], dims: Sequence[int | None], params: Params
) -> Any:
    """As `vmap_method` has it; `whole(size)` are the params of one call for all members."""
    method, size = params["vmap_method"], batch_size(operands, dims)
    if method is None:
        raise NotImplementedError(
            f"vmap of {op.name}: nobody has said how the function takes many members at once\n"
            "  fix: vmap_method='sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all' or 'legacy_vectorized'"
        )
    if method.startswith("sequential"):
        return each_member(op, operands, dims, params, method == "sequential_unrolled")
    shared = {
        "expand_dims": lambda x: reshape(x, shape=(1, *x.shape)),
        "broadcast_all": lambda x: insert(x, 0, size),
        "legacy_vectorized": lambda x: x,
    }[method]
    placed = [shared(x) if d is None else move(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    results = _emitted(op, placed, whole(size))
    return results, [0] * len(results)


def _batch_pure(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    host = params["host"]

    def whole(size: int) -> Params:
        return {**params, "host": host.with_results([t.with_shape((size, *t.shape)) for t in host.results])}

    return batched_by_method(pure_callback, whole, operands, dims, params)


# -- shards


@dataclass(frozen=True)
class _Trimmed:
    """The call without the padding of shards: the last operands say which of its shards a device has along each (operand,
    dim, extent of the whole) of `uneven`."""

    call: Call
    uneven: tuple[tuple[int, int, int], ...]

    def __call__(self, arrays: Sequence[Any]) -> Sequence[Any]:
        count = len(arrays) - len(self.uneven)
        shards = list(arrays[:count])
        for (i, dim, extent), index in zip(self.uneven, arrays[count:], strict=True):
            size = arrays[i].shape[dim]
            end = min(size, max(0, extent - int(index) * size))
            shards[i] = shards[i][(slice(None),) * dim + (slice(end),)]
        return self.call(shards)


def _partition_shards(local: LocalEquation) -> list[Var]:
    uneven: list[tuple[int, int, int]] = []
    indices: list[Var] = []
    for i, (var, here) in enumerate(zip(local.eqn.inputs, local.operand_placements, strict=True)):
        for dim, axes in enumerate(here.dims):
            if axes and var.shape[dim] % local.mesh.axes_size(axes):
                uneven.append((i, dim, var.shape[dim]))
                indices.append(local.index(axes))
    if not uneven:
        return _emitted(debug_callback_shards, local.operands, local.params)
    host = local.params["host"]
    trimmed = host_function(_Trimmed(host.call, tuple(uneven)), host.name, host.operands + len(uneven), host.results)
    return _emitted(debug_callback_shards, [*local.operands, *indices], {**local.params, "host": trimmed})


def free_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Every operand is placed as it likes: `a b, c -> | sum a b c`, of which no result remains."""
    names = iter(factor_names(sum(t.rank for t in in_types)))
    dims = tuple(tuple((next(names),) for _ in t.shape) for t in in_types)
    return FactorRule(dims, (), {f: "sum" for dim in dims for (f,) in dim}).with_sizes([t.shape for t in in_types], [])


# -- the ops


def _debug_effect(params: Params) -> Effect:
    return Effect.DEBUG | Effect.ORDERED if params["ordered"] else Effect.DEBUG


def _pinned(params: Params) -> tuple[list[PartitionSpec], list[PartitionSpec], frozenset[str]]:
    host = params["host"]
    return [PartitionSpec()] * host.operands, [PartitionSpec()] * len(host.results), frozenset()


def _no_samples() -> list[Sample]:
    """A function means nothing for operands of other extents, so tests over the registry have nothing to ask."""
    return []


pure_callback = Op(
    name="pure_callback",
    type_rule=_type("pure_callback"),
    factor_rule=whole_rule,
    evaluate=_evaluate,
    emit=functools.partial(_emit, pure=True),
    samples=_no_samples,
    batch=_batch_pure,
    jvp=Absent("pure_callback: nothing is known of the function's derivative. custom_jvp or custom_vjp say it", error=ValueError),
    partition=one_calls(lambda: pure_callback),
    pinned=_pinned,
)

io_callback = Op(
    name="io_callback",
    type_rule=_type("io_callback"),
    factor_rule=whole_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_no_samples,
    batch=_batched_each(lambda: io_callback),
    jvp=Absent("io_callback: effects have no derivative. With stop_gradient on its operands it needs none", error=ValueError),
    partition=one_calls(lambda: io_callback),
    pinned=_pinned,
    effects=lambda params: Effect.IO | Effect.ORDERED if params["ordered"] else Effect.IO,
)

debug_callback = Op(
    name="debug_callback",
    type_rule=_type("debug_callback"),
    factor_rule=whole_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_no_samples,
    batch=_batched_each(lambda: debug_callback),
    jvp=lambda primals, tangents, outs, params: [None] * len(outs),
    transpose=Absent("it has no results"),
    partition=one_calls(lambda: debug_callback),
    pinned=_pinned,
    effects=_debug_effect,
)

debug_callback_shards = Op(
    name="debug_callback_shards",
    type_rule=_type("debug_callback_shards"),
    factor_rule=free_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_no_samples,
    batch=_batched_each(lambda: debug_callback_shards),
    jvp=lambda primals, tangents, outs, params: [None] * len(outs),
    transpose=Absent("it has no results"),
    partition=_partition_shards,
    effects=_debug_effect,
)

# -- inspect_sharding: the function is told where planning put the operand, when the program is compiled, and never called by it

inspect_sharding = Op(
    name="inspect_sharding",
    type_rule=_type("inspect_sharding"),
    factor_rule=free_rule,
    evaluate=lambda x, host: (),
    emit=lambda e, operands, ins, outs, params: [],
    samples=_no_samples,
    batch=lambda operands, dims, params: (_emitted(inspect_sharding, operands, params), []),
    jvp=lambda primals, tangents, outs, params: [],
    transpose=Absent("it has no results"),
    partition=lambda local: [],
    effects=Effect.DEBUG,
)
