"""What may be wrong with a call of shard_map, and what it then says: the mesh, the specs, extents, and results that vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshjit.core.explicit import typed
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.core.varying import NOWHERE, REDUCED, UNREDUCED, Axes, with_mark
from meshjit.runtime.array import Array
from meshjit.trace import Argument, Traced, line_of, user_source
from meshjit.trace.members import device_axis_names
from meshjit.trees import WORDS as tree
from sharding.axes import name_of
from sharding.axis_types import AxisType
from sharding.mesh import AbstractMesh, BaseMesh, Mesh, current_mesh
from sharding.named import NamedSharding, refuse_auto
from sharding.spec import PartitionSpec, entry_axes, padded, placement_of

Names = frozenset[str]


def is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


def named(spec: PartitionSpec, rank: int) -> list[tuple[str, ...]]:
    """The mesh axes of every dim, major to minor."""
    return [tuple(map(name_of, axes)) for axes in placement_of(padded(spec, rank), rank).dims]


def names_in(spec: PartitionSpec) -> Names:
    return frozenset(name for axes in named(spec, len(spec)) for name in axes)


# -- the mesh


def mesh_of_call(mesh: Any, name: str) -> BaseMesh:
    """The mesh that was given, with devices if the context has the same with devices; by default the context's."""
    context = current_mesh()
    if mesh is None:
        if context is None or context.empty:
            raise ValueError(
                f"shard_map of {name}: there is no mesh, and none in the context\n  at {line_of(user_source())}\n"
                "  fix: shard_map(..., mesh=mesh), or call it inside of set_mesh(mesh)"
            )
        return context
    if not isinstance(mesh, BaseMesh):
        raise TypeError(f"shard_map of {name}: mesh must be a Mesh or an AbstractMesh, got {type(mesh).__name__} {mesh!r:.60}")
    if mesh.empty:
        raise ValueError(f"shard_map of {name}: the mesh has no axes: {mesh}")
    if isinstance(mesh, AbstractMesh) and isinstance(context, Mesh) and mesh.shape_tuple == context.shape_tuple:
        return context
    return mesh


def mesh_of_arguments(mesh: AbstractMesh, name: str, leaves: Sequence[Any]) -> Mesh:
    """Outside of jit, a mesh without devices on those of the arrays: ValueError where none is on a mesh, or one on another."""
    shardings = [x.sharding for x in leaves if isinstance(x, Array)]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]
    other = next((m for m in meshes if m.shape_tuple != mesh.shape_tuple), None)
    if other is not None:
        raise ValueError(
            f"shard_map of {name}: the mesh is {mesh}, and an argument is on {other}\n  at {line_of(user_source())}\n"
            "  fix: mesh=x.sharding.mesh, or meshjit.device_put(x, NamedSharding(...)) with a mesh of these axes"
        )
    if not meshes:
        raise ValueError(
            f"shard_map of {name}: the mesh has no devices, {mesh}, and no argument is on some of such a mesh\n"
            f"  at {line_of(user_source())}\n"
            "  fix: pass a Mesh, or call it inside of set_mesh(mesh), or with arrays whose shardings are NamedShardings"
        )
    return meshes[0] if meshes[0].axis_types == mesh.axis_types else meshes[0].update(axis_types=mesh.axis_types)


def manual_axes(axis_names: Names, mesh: BaseMesh) -> Names:
    """The axes that the function is written for; all if none are named."""
    strange = sorted(axis_names - set(mesh.axis_names))
    if strange:
        raise ValueError(f"shard_map: axis_names has {', '.join(map(repr, strange))}, the mesh has {mesh.axis_names}")
    outer = device_axis_names()
    twice = sorted(axis_names & set(outer))
    if twice:
        raise ValueError(
            f"shard_map: axis_names has {twice[0]!r}, along which the code around it is for single devices already\n"
            f"  at {line_of(user_source())}\n  fix: axis_names among {tuple(n for n in mesh.axis_names if n not in outer)}"
        )
    return axis_names or frozenset(mesh.axis_names) - set(outer)


# -- specs


def check_inferable(mesh: BaseMesh, names: Names) -> None:
    """TypeError where arguments do not say by their types where they are along all of these axes."""
    if names <= set(mesh.explicit_axes):
        return
    around = [name for name in device_axis_names() if name in mesh.axis_names]
    types = ", ".join(f"{name} {kind.name}" for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True))
    why = f", and the code around is for single devices along {', '.join(around)}" if around else ""
    raise TypeError(
        f"shard_map: there are no in_specs, and the mesh axes are {types}{why}\n  at {line_of(user_source())}\n"
        "  in_specs are read off the arguments only where all axes that the function is written for are Explicit\n"
        "  fix: shard_map(..., in_specs=...)"
    )


def check_specs(specs: Any, names: Names, what: str, mesh: BaseMesh) -> None:
    """TypeError, with its path, for a leaf that is no spec; ValueError for one that names another axis. None stands for an
    argument that is handed over as it is, and for a result that is None."""
    for path, spec in tree.leaves_with_path(specs, lambda x: x is None or is_spec(x)):
        where = what + tree.keystr(path)
        if spec is None:
            continue
        refuse_auto(spec, f"shard_map: {where}")
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map: {where} is {spec!r} of type {type(spec).__name__}, not a PartitionSpec\n"
                "  fix: P() for what is the same on all devices, None for what is no array"
            )
        if PartitionSpec.UNCONSTRAINED in tuple(spec):
            raise ValueError(f"shard_map: {where} is {spec}; shards are at known places, so no dim is UNCONSTRAINED")
        for name in sorted(names_in(spec) - names):
            raise ValueError(
                f"shard_map: {where} {spec} names {name!r}, but the axes that the function is written for are"
                f" {tuple(sorted(names))}\n  at {line_of(user_source())}\n"
                f"  fix: leave {name!r} out, or name it in axis_names, too"
            )
        if spec.unreduced or spec.reduced:
            _check_sums(spec, where, names, mesh)


def _check_sums(spec: PartitionSpec, where: str, names: Names, mesh: BaseMesh) -> None:
    """NotImplementedError where other axes are automatic, as in JAX; ValueError for axes that are not Explicit."""
    rest = [name for name in mesh.axis_names if name not in names]
    if rest:
        raise NotImplementedError(
            f"shard_map: {where} {spec}: sums are left unreduced only where the function is written for all axes of the mesh,"
            f" not for {', '.join(map(repr, rest))}\n  at {line_of(user_source())}\n  fix: leave axis_names out"
        )
    for name in sorted(spec.unreduced | spec.reduced):
        if mesh.types_by_name.get(name) not in (AxisType.Explicit, AxisType.Manual):
            kind = f"of type {mesh.types_by_name[name]!r}" if name in mesh.shape else f"not in the mesh {mesh.axis_names}"
            raise ValueError(
                f"shard_map: {where} {spec}: axis {name!r} is {kind}\n  at {line_of(user_source())}\n"
                "  fix: make_mesh(..., axis_types=AxisType.Explicit)"
            )


def check_placed(
    name: str, mesh: BaseMesh, names: Names, arguments: Sequence[Argument | None], specs: Sequence[PartitionSpec | None]
) -> None:
    """ValueError where an argument's type says that it is elsewhere than in_specs say, if all axes are Explicit."""
    if names != {*mesh.explicit_axes} or names != {*mesh.axis_names}:
        return
    for argument, spec in zip(arguments, specs, strict=True):
        if argument is None or spec is None:
            continue
        own = argument.sharding.spec if argument.sharding is not None else PartitionSpec()
        here, there = (_over(names, padded(s, argument.type.rank), mesh) for s in (own, spec))
        if here != there:
            raise ValueError(
                f"shard_map of {name}: in_specs {there} are not where argument {argument} is, which is {here}, and the axes are"
                f" Explicit: nothing is moved without being asked for\n  at {line_of(user_source())}\n"
                "  fix: leave in_specs out, which then are those of the arguments;"
                f" or meshjit.sharding.reshard({argument.name}, {there})"
            )


def _over(axes: Names, spec: PartitionSpec, mesh: BaseMesh) -> PartitionSpec:
    """The part of a spec that is over these axes; those of size 1 are over none."""
    kept = {name for name in axes if mesh.shape[name] > 1}
    entries = [tuple(a for a in map(name_of, entry_axes(entry)) if a in kept) or None for entry in spec]
    return PartitionSpec(*entries, unreduced=spec.unreduced & kept, reduced=spec.reduced & kept)


def check_shards(name: str, mesh: BaseMesh, arguments: Sequence[Argument | None], specs: Sequence[PartitionSpec | None]) -> None:
    """ValueError where a spec is longer than the rank, or an extent is no multiple of its devices."""
    for argument, spec in zip(arguments, specs, strict=True):
        if argument is None or spec is None:
            continue
        _check_rank(name, f"in_specs {spec} for argument {argument.name} {argument.type}", spec, argument.type)
        for dim, axes in enumerate(named(spec, argument.type.rank)):
            count, extent = mesh.axes_size(axes), argument.type.shape[dim]
            if extent % count:
                raise ValueError(
                    f"shard_map of {name}: dim {dim} of argument {argument.name} {argument.type} has extent {extent}, no multiple"
                    f" of the {count} devices of {'axis' if len(axes) == 1 else 'axes'} {', '.join(map(repr, axes))}"
                    f" that in_specs {spec} spread it over\n  at {line_of(user_source())}\n"
                    f"  fix: pad it to {-(-extent // count) * count} (jnp.pad), and mask what is behind; under jit alone any"
                    " extent may be sharded"
                )


def _check_rank(name: str, what: str, spec: PartitionSpec, type: TensorType, fix: str = "leave out entries of the spec") -> None:
    if len(spec) > type.rank:
        raise ValueError(
            f"shard_map of {name}: {what} has {len(spec)} entries for {type.rank} dims\n  at {line_of(user_source())}\n"
            f"  fix: {fix}"
        )


# -- results


def check_results(
    name: str, mesh: BaseMesh, names: Names, traced: Traced, specs: Sequence[PartitionSpec], checked: bool
) -> Program:
    """The body, its results varying over the axes that out_specs name; ValueError where one varies over more."""
    program = traced.program
    varying = traced.out_varying or [NOWHERE] * len(specs)
    for i, (var, spec, axes) in enumerate(zip(program.outputs, specs, varying, strict=True)):
        fix = "leave out entries of the spec" if var.rank else f"a dim for them to be put together along: x[None] with {spec}"
        _check_rank(name, f"out_specs {spec} for {_path(traced, i)} {var.type}", spec, var.type, fix)
        extra = (with_mark(axes, "") & names) - names_in(spec) - spec.unreduced
        if checked and extra:
            raise ValueError(_varies(name, mesh, traced, i, spec, extra))
        if checked:
            _check_results_sums(name, traced, i, spec, axes)
    if not checked:
        return program
    with Builder(name) as builder:
        outputs = [_varied(v, s, axes, builder) for v, s, axes in zip(program.outputs, specs, varying, strict=True)]
    return Program(program.name, program.inputs, (*program.eqns, *builder.eqns), tuple(outputs))


def _check_results_sums(name: str, traced: Traced, index: int, spec: PartitionSpec, axes: Axes) -> None:
    """ValueError where a result is unreduced or reduced over other axes than out_specs say."""
    var, path = traced.program.outputs[index], _path(traced, index)
    addends, plain, reduced = (with_mark(axes, mark) for mark in (UNREDUCED, "", REDUCED))
    for axis in sorted((spec.unreduced - addends - plain) | (addends - spec.unreduced) | (spec.reduced ^ reduced)):
        states = ((axis in plain, "varying"), (axis in addends, "unreduced"), (axis in reduced, "reduced"))
        state = next((text for flag, text in states if flag), "the same on all devices")
        fix = f"lax.psum({path}, {axis!r})" if state == "unreduced" else f"lax.pcast({path}, {axis!r}, to=...), or another spec"
        raise ValueError(
            f"shard_map of {name}: {path} {typed(var.type, None, axes)} is {state} along {axis!r}, and out_specs {spec} say"
            f" otherwise\n  {path}: {_origin(traced, index)}\n  fix: {fix}"
        )


def _varied(var: Var, spec: PartitionSpec, axes: Axes, builder: Builder) -> Var:
    """The result, varying over the axes that its spec names; what varies along an unreduced axis are addends."""
    missing, addends = names_in(spec) - axes, spec.unreduced & axes
    var = builder.emit(REGISTRY["pvary"], [var], {"axes": tuple(sorted(missing))})[0] if missing else var
    if addends:
        params = {"axes": tuple(sorted(addends)), "source": "", "to": UNREDUCED}
        (var,) = builder.emit(REGISTRY["pcast"], [var], params)
    return var


def _origin(traced: Traced, index: int) -> str:
    var = traced.program.outputs[index]
    maker = next((eqn for eqn in traced.program.eqns if var in eqn.outputs), None)
    return f"computed at {line_of(maker.source)}" if maker is not None else f"argument {var.hint}, as it is"


def _path(traced: Traced, index: int) -> str:
    return tree.names_in(traced.out_tree, "result")[index]


def _varies(name: str, mesh: BaseMesh, traced: Traced, index: int, spec: PartitionSpec, extra: Names) -> str:
    var = traced.program.outputs[index]
    axes = tuple(axis for axis in mesh.axis_names if axis in extra)
    origin = _origin(traced, index)
    names = repr(axes[0]) if len(axes) == 1 else repr(axes)
    return (
        f"shard_map of {name}: {_path(traced, index)} {var.type} may differ between the devices along {names}, but out_specs"
        f" {spec} promise one value for all of them\n  {_path(traced, index)}: {origin}\n"
        f"  fix: name {names} in out_specs, where shards are put together; make it one value (lax.psum, lax.pmean, lax.pmax over"
        f" {names}); or check_vma=False, if it is known to be one"
    )
