"""manual: a Program that every device of a mesh runs on its own shards, inside of a Program of whole arrays.

    %y = manual(%x) {mesh=(('data', 4),), in_specs=(P('data', None),), out_specs=(P(None),), checked=True,
                     body=program f(%x: f32[2, 6]) …}

Params: mesh, its axes and sizes, major to minor; in_specs and out_specs, one for every operand and result; body, whose inputs
and outputs are shards and which may hold collectives over the mesh. Shards are even, as in JAX: the type rule refuses extents
that are no multiple. Along axes that a spec does not name all devices get the same, and have to give the same. A program may be
for a mesh of further axes: along these the body is repeated, and not planned.

It means `simulate` of the body; inside of another body, on the devices of both meshes. Partitioning brings the operands to
in_specs and writes the body in the op's place. What devices hold along unreduced axes of a spec are addends. Derivatives and
batches go into the body. Where it is not `checked` which values vary (`core/varying.py`), then backwards what all devices got
is what they give back together, so their cotangents are added up, and of what all devices gave, each takes its part of the
cotangent. Where it is, the body says so itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import MissingRule, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Region, with_regions_changed
from meshjit.core.simulate import simulate
from meshjit.core.types import TensorType
from meshjit.core.varying import NOWHERE, REDUCED, UNREDUCED, differing, marked, named_in, varying_outputs, varying_values
from meshjit.ops.base.arithmetic import divide, multiply
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.families import require
from meshjit.ops.base.shape import reshape
from meshjit.ops.base.transcendental import tanh
from meshjit.ops.collective.collectives import all_reduce
from meshjit.ops.collective.rules import Values
from meshjit.ops.control.call import call_prune
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, whole_rule
from meshjit.ops.control.spread_members import free_axes, with_own_members
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
    """The axes along which all devices hold the same, and their cotangents are no addends."""
    named = {name for dim in _dims(spec, len(spec)) for name in dim} | spec.unreduced | spec.reduced
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


_ALONE = AbstractMesh((1,), ("alone",))  # of a body that is in no other


def _evaluate(*arrays: Array, **params: Any) -> tuple[Array, ...]:
    (results,) = _simulate([arrays], _ALONE, params)
    return results


def _simulate(values: Values, outer: BaseMesh, params: Params) -> Values:
    """On the devices of a mesh around it, each of which is a mesh of the body's."""
    axes, body = params["mesh"], params["body"]
    both, count = _mesh((*outer.shape_tuple, *axes)), _mesh(axes).device_count
    shards = [
        [
            arrays[i][index] if addend == 0 else np.zeros_like(arrays[i][index])
            for arrays in values
            for index, addend in zip(_places(spec, v.shape, axes), _addends(spec, axes), strict=True)
        ]
        for i, (spec, v) in enumerate(zip(params["in_specs"], body.inputs, strict=True))
    ]
    columns = simulate(body, both, shards)
    return [
        tuple([_joined(c[d : d + count], s, axes) for c, s in zip(columns, params["out_specs"], strict=True)])
        for d in range(0, len(values) * count, count)
    ]


def _places(spec: PartitionSpec, shard: Sequence[int], axes: Axes) -> list[tuple[slice, ...]]:
    """Which part of the whole array each device holds."""
    mesh = _mesh(axes)
    index = [mesh.axes_index(dim) for dim in _dims(spec, len(shard))]
    starts = [[int(at[d]) * n for at, n in zip(index, shard, strict=True)] for d in range(mesh.device_count)]
    return [tuple([slice(a, a + n) for a, n in zip(start, shard, strict=True)]) for start in starts]


def _addends(spec: PartitionSpec, axes: Axes) -> list[int]:
    """Which addend of its value each device holds: one holds the value, and the others zeros."""
    return [int(i) for i in _mesh(axes).axes_index(tuple(sorted(spec.unreduced)))]


def _joined(shards: Sequence[Array], spec: PartitionSpec, axes: Axes) -> Array:
    counts = [_mesh(axes).axes_size(dim) for dim in _dims(spec, shards[0].ndim)]
    whole = np.empty([n * count for n, count in zip(shards[0].shape, counts, strict=True)], shards[0].dtype)
    places = _places(spec, shards[0].shape, axes)
    shards = _summed(shards, spec, axes) if spec.unreduced else shards
    for place, shard in zip(places, shards, strict=True):
        whole[place] = shard
    if any(whole[place].tobytes() != shard.tobytes() for place, shard in zip(places, shards, strict=True)):
        raise ValueError(f"manual: devices give different results along {_unnamed(spec, axes)}, which {spec} does not name")
    return whole


def _summed(shards: Sequence[Array], spec: PartitionSpec, axes: Axes) -> list[Array]:
    """The sum of addends on every device that holds one."""
    groups = _mesh(axes).replica_groups(tuple(sorted(spec.unreduced)))
    summed = [*shards]
    for group in groups.tolist():
        total = np.add.reduce([shards[d] for d in group], dtype=shards[0].dtype)
        for d in group:
            summed[d] = total
    return summed


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if params["mesh"]:
        raise MissingRule("manual has no emit rule: partitioning writes its body in its place")
    return e.program(params["body"], operands)


def _partition(local: LocalEquation) -> list[Var]:
    axes, mesh = local.params["mesh"], local.mesh
    if any(mesh.shape.get(name) != size for name, size in axes):
        raise ValueError(f"manual: its body is for a mesh {dict(axes)}, the program is for one of {mesh.shape}")
    return current_builder().inline(written(local.params["body"], local), local.operands)


def written(body: Program, outer: LocalEquation) -> Program:
    """The body with the collectives that devices of the mesh run."""
    with Builder(body.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in body.inputs}
        for eqn in body.eqns:
            operands = tuple([env[v] for v in eqn.inputs])
            with builder.at(eqn.source):
                if eqn.op.is_local and eqn.op.partition is not None:
                    outputs = eqn.op.partition(replace(outer, eqn=eqn, operands=operands))
                else:
                    params = with_regions_changed(eqn, lambda nested: written(nested, outer)).params
                    outputs = builder.emit(eqn.op, operands, params)
            env.update(zip(eqn.outputs, outputs, strict=True))
        return builder.build([env[v] for v in body.outputs])


# -- varying axes


def _varying(varying: Sequence[frozenset[str]], params: Params) -> list[frozenset[str]]:
    """Results, which are whole along the body's axes, vary over axes of other bodies around it."""
    names = [name for name, _ in params["mesh"]]
    own = {*names, *marked(names, UNREDUCED), *marked(names, REDUCED)}
    inputs = [axes | named_in(spec) for axes, spec in zip(varying, params["in_specs"], strict=True)]
    return [axes - own for axes in varying_outputs(params["body"], inputs)]


# -- derivatives


def _manual(params: Params, operands: Sequence[Var], body: Program, in_specs: Specs, out_specs: Specs) -> list[Var]:
    """The op on another body."""
    settings = {**params, "in_specs": tuple(in_specs), "out_specs": tuple(out_specs), "body": body}
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
    one element for every device; of those alone over which it varies, where that is known."""
    in_specs, out_specs = params["in_specs"], params["out_specs"]
    count = len(out_specs)
    residuals = part.forward.outputs[count:]
    numbers = [part.forward.inputs.index(r) if r in part.forward.inputs else None for r in residuals]
    own = [r for r, number in zip(residuals, numbers, strict=True) if number is None]
    own_specs = _residual_specs(part.forward, own, params)
    results = _manual(params, primals, _stacking(part.forward, count, own), in_specs, [*out_specs, *own_specs])
    rest, rest_specs = iter(results[count:]), iter(own_specs)
    operands = [next(rest) if number is None else primals[number] for number in numbers]
    specs = [next(rest_specs) if number is None else in_specs[number] for number in numbers]
    tangent = _unstacking(part.tangent, [number is None for number in numbers])
    pushed = _manual(
        params, [*operands, *directions], tangent, [*specs, *chosen(in_specs, flags)], chosen(out_specs, part.flags)
    )  # fmt: skip
    return results, pushed, part.flags


def _residual_specs(forward: Program, residuals: Sequence[Var], params: Params) -> list[PartitionSpec]:
    """Of the dim in front."""
    names = [name for name, _ in params["mesh"]]
    if not params["checked"]:
        return [PartitionSpec(tuple(names)) for _ in residuals]
    varying = varying_values(forward, [named_in(spec) for spec in params["in_specs"]])
    return [PartitionSpec(tuple(name for name in names if name in differing(varying.get(r, NOWHERE)))) for r in residuals]


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
    known_specs, ct_specs = chosen(in_specs, [not flag for flag in linear]), [s.dual for s in chosen(out_specs, takes)]
    specs = [s.dual for s in chosen(in_specs, linear)]
    body = backward(params["body"], linear)
    if not params["checked"]:
        body = _shared(body, len(primals), ct_specs, specs, params["mesh"])
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
    """The body, batched: every device has its shards of all members; or of its own, where `spread` has axes that are free."""
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    params = {**params}
    axes, body = free_axes(params.pop("spread", None), size, params), params["body"]
    flags = [True] * len(body.outputs) if axes else batched_outputs(body, dims, size, batched)
    places: list[int | None] = [0 if flag else None for flag in flags]
    in_specs, out_specs = (
        [_with_dim(spec, dim, axes) for spec, dim in zip(params[name], side, strict=True)]
        for name, side in (("in_specs", dims), ("out_specs", places))
    )
    if axes:
        body, size = with_own_members(body, dims, axes, params["checked"]), size // _mesh(params["mesh"]).axes_size(axes)
    return _manual(params, operands, batched(body, dims, size, places), in_specs, out_specs), places


def _with_dim(spec: PartitionSpec, dim: int | None, axes: tuple[str, ...]) -> PartitionSpec:
    if dim is None:
        return spec
    entries = [*spec, *(None for _ in range(dim - len(spec)))]
    return spec.update(partitions=(*entries[:dim], axes or None, *entries[dim:]))


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
        settings = {"mesh": (), "in_specs": specs, "out_specs": specs, "checked": False, "auto": False}
        yield Sample(types, {**settings, "body": body}, "unit")


manual = Op(
    name="manual",
    type_rule=_type,
    factor_rule=whole_rule,
    evaluate=_evaluate,
    simulate=_simulate,
    varying=_varying,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=_transpose,
    partition=_partition,
    pinned=lambda params: (params["in_specs"], params["out_specs"], frozenset(name for name, _ in params["mesh"])),
    regions=lambda params: (
        Region(
            params["body"], tuple(range(len(params["in_specs"]))), tuple(range(len(params["out_specs"]))),
            role="run" if params["auto"] else "device",
        ),
    ),
    prune=_prune,
)
