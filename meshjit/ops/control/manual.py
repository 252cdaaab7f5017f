"""manual: a Program that every device of a mesh runs on its own shards, inside of a Program of whole arrays.

    %y = manual(%x) {mesh=(('data', 4),), in_specs=(P('data', None),), out_specs=(P(None),), body=program f(%x: f32[2, 6]) …}

Params: mesh, its axes and sizes, major to minor; in_specs and out_specs, one for every operand and result; body, whose inputs
and outputs are shards and which may hold collectives over the mesh. Shards are even, as in JAX: the type rule refuses extents
that are no multiple. Along axes that a spec does not name all devices get the same, and have to give the same. A program may be
for a mesh of further axes: along these the body is repeated, and not planned.

It means `simulate` of the body. Partitioning brings the operands to in_specs and writes the body in the op's place. Derivatives
and batches go into the body. Backwards, what all devices got is what they give back together, so their cotangents are added up;
and of what all devices gave, each takes its part of the cotangent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.evaluate import evaluate
from meshjit.core.local import LocalEquation
from meshjit.core.op import MissingRule, Op, Params, Sample, Types
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.region import Region, with_regions_changed
from meshjit.core.simulate import simulate
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import divide, multiply
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.families import require
from meshjit.ops.base.shape import reshape
from meshjit.ops.base.transcendental import tanh
from meshjit.ops.collective.collectives import all_reduce, collective_permute
from meshjit.ops.control.call import call_prune
from meshjit.ops.control.nested import Flags, chosen, reached, whole_rule
from sharding.axes import AxisRef
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.spec import PartitionSpec, placement_of

Array = np.ndarray[Any, Any]
Specs = Sequence[PartitionSpec]
Axes = tuple[tuple[str, int], ...]


@functools.lru_cache(maxsize=64)
def _mesh(axes: Axes) -> AbstractMesh:
    return AbstractMesh([size for _, size in axes], [name for name, _ in axes])


def _dims(spec: PartitionSpec, rank: int) -> tuple[tuple[AxisRef, ...], ...]:
    """The axes of every dim."""
    return placement_of(spec, rank).dims


def _unnamed(spec: PartitionSpec, axes: Axes) -> tuple[str, ...]:
    """The axes along which all devices hold the same."""
    named = {name for dim in _dims(spec, len(spec)) for name in dim}
    return tuple(name for name, _ in axes if name not in named)


def _type(in_types: Types, params: Params) -> Types:
    body, in_specs, out_specs, mesh = (params[name] for name in ("body", "in_specs", "out_specs", "mesh"))
    require(len(in_types) == len(in_specs) == len(body.inputs), "manual", f"{len(in_types)} operands, {len(in_specs)} in_specs")
    require(len(out_specs) == len(body.outputs), "manual", f"{len(body.outputs)} results, {len(out_specs)} out_specs")
    for i, (type, spec, inner) in enumerate(zip(in_types, in_specs, body.inputs, strict=True)):
        counts = [_mesh(mesh).axes_size(axes) for axes in _dims(spec, type.rank)]
        for d, (extent, count) in enumerate(zip(type.shape, counts, strict=True)):
            why = f"dim {d} of operand {i}, {type}, is no multiple of the {count} devices that {spec} spreads it over"
            require(extent % count == 0, "manual", why)
        shard = type.with_shape(tuple([n // count for n, count in zip(type.shape, counts, strict=True)]))
        require(shard == inner.type, "manual", f"shards of operand {i} are {shard}, the body takes {inner.type}")
    return tuple([_whole(v.type, spec, mesh) for v, spec in zip(body.outputs, out_specs, strict=True)])


def _whole(shard: TensorType, spec: PartitionSpec, axes: Axes) -> TensorType:
    counts = [_mesh(axes).axes_size(dim) for dim in _dims(spec, shard.rank)]
    return shard.with_shape(tuple([n * count for n, count in zip(shard.shape, counts, strict=True)]))


# -- meaning


def _evaluate(*arrays: Array, mesh: Axes, in_specs: Specs, out_specs: Specs, body: Program) -> tuple[Array, ...]:
    if not mesh:
        return tuple(evaluate(body, arrays))
    shards = [
        [x[index] for index in _places(spec, v.shape, mesh)] for x, spec, v in zip(arrays, in_specs, body.inputs, strict=True)
    ]
    results = simulate(body, _mesh(mesh), shards)
    return tuple([_joined(r, s, mesh) for r, s in zip(results, out_specs, strict=True)])


def _places(spec: PartitionSpec, shard: Sequence[int], axes: Axes) -> list[tuple[slice, ...]]:
    """Which part of the whole array each device holds."""
    mesh = _mesh(axes)
    index = [mesh.axes_index(dim) for dim in _dims(spec, len(shard))]
    starts = [[int(at[d]) * n for at, n in zip(index, shard, strict=True)] for d in range(mesh.size)]
    return [tuple([slice(a, a + n) for a, n in zip(start, shard, strict=True)]) for start in starts]


def _joined(shards: Sequence[Array], spec: PartitionSpec, axes: Axes) -> Array:
    counts = [_mesh(axes).axes_size(dim) for dim in _dims(spec, shards[0].ndim)]
    whole = np.empty([n * count for n, count in zip(shards[0].shape, counts, strict=True)], shards[0].dtype)
    places = _places(spec, shards[0].shape, axes)
    for place, shard in zip(places, shards, strict=True):
        whole[place] = shard
    if any(whole[place].tobytes() != shard.tobytes() for place, shard in zip(places, shards, strict=True)):
        raise ValueError(f"manual: devices give different results along {_unnamed(spec, axes)}, which {spec} does not name")
    return whole


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if params["mesh"]:
        raise MissingRule("manual has no emit rule: partitioning writes its body in its place")
    return e.program(params["body"], operands)


def _partition(local: LocalEquation) -> list[Var]:
    axes, body, mesh = local.params["mesh"], local.params["body"], local.mesh
    if any(mesh.shape.get(name) != size for name, size in axes):
        raise ValueError(f"manual: its body is for a mesh {dict(axes)}, the program is for one of {mesh.shape}")
    if axes and axes != mesh.shape_tuple:
        body = _on_larger_mesh(body, _positions(axes, mesh))
    return current_builder().inline(body, local.operands)


def _positions(axes: Axes, mesh: BaseMesh) -> list[list[int]]:
    """For every group of devices that differ along these axes alone, their positions in the order of a mesh of these axes."""
    return [[int(position) for position in group] for group in mesh.replica_groups([name for name, _ in axes])]


def _on_larger_mesh(body: Program, groups: Sequence[Sequence[int]]) -> Program:
    """The body with permutes within every group: their params count devices, while those of other collectives name axes."""

    def moved(eqn: Eqn) -> Eqn:
        if eqn.op is not collective_permute:
            return with_regions_changed(eqn, lambda nested: _on_larger_mesh(nested, groups))
        pairs = [(group[source], group[target]) for group in groups for source, target in eqn.params["pairs"]]
        return eqn.with_params({"pairs": tuple(sorted(pairs))})

    return replace(body, eqns=tuple([moved(eqn) for eqn in body.eqns]))


# -- derivatives


def _manual(params: Params, operands: Sequence[Var], body: Program, in_specs: Specs, out_specs: Specs) -> list[Var]:
    """The op on another body."""
    settings = {"mesh": params["mesh"], "in_specs": tuple(in_specs), "out_specs": tuple(out_specs), "body": body}
    return list(current_builder().emit(manual, operands, settings))


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    body, in_specs, out_specs = (params[name] for name in ("body", "in_specs", "out_specs"))
    flags, directions, count = [t is not None for t in tangents], [t for t in tangents if t is not None], len(body.outputs)
    if derivative.splits:
        results, pushed, out_flags = _in_two(primals, directions, flags, params, derivative.parts(body, flags))
    else:
        joint, out_flags = derivative.joint(body, flags)
        specs = (*in_specs, *chosen(in_specs, flags)), (*out_specs, *chosen(out_specs, out_flags))
        results = _manual(params, [*primals, *directions], joint, *specs)
        pushed = results[count:]
    rest = iter(pushed)
    return results[:count], [next(rest) if flag else None for flag in out_flags]


def _in_two(
    primals: Sequence[Var], directions: Sequence[Var], flags: Flags, params: Params, part: Any
) -> tuple[list[Var], list[Var], Flags]:
    """The values, and then the tangents. A residual that is no operand goes from one to the other with a dim in front, of
    one element for every device, since nothing says what devices have in common of it."""
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    count, every = len(out_specs), PartitionSpec(tuple(name for name, _ in params["mesh"]))
    residuals = part.forward.outputs[count:]
    numbers = [part.forward.inputs.index(r) if r in part.forward.inputs else None for r in residuals]
    own = [r for r, number in zip(residuals, numbers, strict=True) if number is None]
    results = _manual(params, primals, _stacking(part.forward, count, own), in_specs, [*out_specs, *(every for _ in own)])
    rest = iter(results[count:])
    operands = [next(rest) if number is None else primals[number] for number in numbers]
    specs = [every if number is None else in_specs[number] for number in numbers]
    tangent = _unstacking(part.tangent, [number is None for number in numbers])
    pushed = _manual(
        params, [*operands, *directions], tangent, [*specs, *chosen(in_specs, flags)], chosen(out_specs, part.flags)
    )  # fmt: skip
    return results, pushed, part.flags


def _stacking(forward: Program, count: int, own: Sequence[Var]) -> Program:
    with Builder(forward.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in forward.inputs]
        results = builder.inline(forward.with_outputs([*forward.outputs[:count], *own]), inputs)
        return builder.build([*results[:count], *(reshape(v, shape=(1, *v.shape)) for v in results[count:])])


def _unstacking(tangent: Program, stacked: Flags) -> Program:
    """The first inputs that are marked come with a dim in front."""
    with Builder(tangent.name) as builder:
        inputs: list[Var] = []
        for i, v in enumerate(tangent.inputs):
            if i < len(stacked) and stacked[i]:
                inputs.append(reshape(builder.input(v.type.with_shape((1, *v.shape))), shape=v.shape))
            else:
                inputs.append(builder.input(v.type))
        return builder.build(builder.inline(tangent, inputs))


def _transpose(
    cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params, backward: Any
) -> list[Var | None]:
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    linear, takes = [x is None for x in operands], [ct is not None for ct in cotangents]
    primals, directions = [x for x in operands if x is not None], [ct for ct in cotangents if ct is not None]
    known_specs, ct_specs = chosen(in_specs, [not flag for flag in linear]), chosen(out_specs, takes)
    specs = chosen(in_specs, linear)
    body = _shared(backward(params["body"], linear), len(primals), ct_specs, specs, params["mesh"])
    rest = iter(_manual(params, [*primals, *directions], body, [*known_specs, *ct_specs], specs))
    return [next(rest) if flag else None for flag in linear]


def _shared(back: Program, count: int, ct_specs: Specs, specs: Specs, axes: Axes) -> Program:
    """Each device takes its part of a cotangent that all get, and adds up the cotangents of what all got."""
    with Builder(back.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in back.inputs]
        for i, spec in enumerate(ct_specs, count):
            size = _mesh(axes).axes_size(_unnamed(spec, axes))
            if size > 1:
                inputs[i] = divide(inputs[i], full_like(inputs[i], size))
        outputs = builder.inline(back, inputs)
        for i, spec in enumerate(specs):
            if unnamed := _unnamed(spec, axes):
                outputs[i] = all_reduce(outputs[i], axes=unnamed, kind="sum")
        return builder.build(outputs)


# -- batch, prune


def _batch(
    operands: Sequence[Var], dims: Sequence[int | None], params: Params, batched: Callable[..., Program]
) -> tuple[list[Var], list[int | None]]:
    """The body, batched: every device has its shards of all members."""
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    flags = reached(params["body"], [d is not None for d in dims])
    places: list[int | None] = [0 if flag else None for flag in flags]
    in_specs, out_specs = (
        [_with_dim(spec, dim) for spec, dim in zip(params[name], side, strict=True)]
        for name, side in (("in_specs", dims), ("out_specs", places))
    )
    return _manual(params, operands, batched(params["body"], dims, size, places), in_specs, out_specs), places


def _with_dim(spec: PartitionSpec, dim: int | None) -> PartitionSpec:
    if dim is None:
        return spec
    entries = [*spec, *(None for _ in range(dim - len(spec)))]
    return PartitionSpec(*entries[:dim], None, *entries[dim:])


def _prune(params: Params, used: Flags, dce: Callable[[Program], Program]) -> tuple[list[int], list[int], Params]:
    operands, results, pruned = call_prune(params, used, dce)
    sides = ("in_specs", operands), ("out_specs", results)
    return operands, results, {**pruned, **{name: tuple([params[name][i] for i in side]) for name, side in sides}}


def _samples() -> Iterator[Sample]:
    """Of a mesh without axes, which is any device by itself: other bodies are for one mesh each."""
    for dtype in ("f32", "c64"):
        types = (TensorType.parse(f"{dtype}[6,4]"), TensorType.parse(f"{dtype}[6,4]"))
        with Builder("inner") as builder:
            a, b = (builder.input(t) for t in types)
            body = builder.build([multiply(tanh(a), b), a])
        specs = (PartitionSpec(), PartitionSpec())
        yield Sample(types, {"mesh": (), "in_specs": specs, "out_specs": specs, "body": body}, "unit")


manual = Op(
    name="manual",
    type_rule=_type,
    factor_rule=whole_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=_transpose,
    partition=_partition,
    pinned=lambda params: (params["in_specs"], params["out_specs"]),
    regions=lambda params: (
        Region(params["body"], tuple(range(len(params["in_specs"]))), tuple(range(len(params["out_specs"]))), role="device"),
    ),
    prune=_prune,
)
