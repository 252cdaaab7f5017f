"""Constraints of one function on several meshes: specs that name the axes of one, in the words of another.

Meshes of the same devices in the same order go together: P("p") on p=2, q=4 is P("x:(1)2") on x=4, y=2.
"""

from __future__ import annotations

from typing import Any

from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_programs, run_regions, with_regions_changed
from meshjit.core.rename_axes import can_rename
from meshjit.core.site import Site
from meshjit.trace.source import line_of
from meshjit.trace.tracer import Tracer
from sharding.mesh import AbstractMesh, BaseMesh, Mesh
from sharding.named import NamedSharding
from sharding.placement import Placement
from sharding.spec import PartitionSpec, ShardingError, padded, placement_of
from sharding.translate import translate


class Meshes(tuple[Mesh, ...]):
    """Those of a function outside of jit whose values move from one to another: each of other devices."""

    def of(self, mesh: Any) -> Any:
        """The one of the same devices in the same order; None where there is none."""
        return next((own for own in self if isinstance(mesh, Mesh) and own.flat_devices == mesh.flat_devices), None)


def is_on(value: Any, mesh: Mesh) -> bool:
    """Whether somebody put an array on the devices of a mesh; of a traced value, whether its function moves values there."""
    if isinstance(value, Tracer):
        return mesh in getattr(value.tracing, "others", ()) or mesh == getattr(value.tracing, "mesh", None)
    return getattr(value, "committed", False) and _is_of_devices(value.sharding, mesh)


def moves_to(eqn: Eqn, mesh: Mesh) -> bool:
    """Whether an equation puts a value on the devices of a mesh, or back there."""
    sites = [site for site in eqn.params.values() if isinstance(site, Site)]
    return any(_is_of_devices(site.known(), mesh) for site in sites)


def _is_of_devices(sharding: Any, mesh: Mesh) -> bool:
    return isinstance(sharding, NamedSharding) and Meshes((mesh,)).of(sharding.mesh) is not None


def spec_in_words_of(target: Any, mesh: Any, spec: PartitionSpec, rank: int) -> PartitionSpec | None:
    """`spec` of `mesh` with the axes of `wanted`; None where these have other devices, or cannot say it."""
    if target == mesh or is_without_devices(mesh, target) or is_without_devices(target, mesh):
        return spec
    if not isinstance(mesh, Mesh) or not isinstance(target, Mesh) or mesh.flat_devices != target.flat_devices:
        return None
    full = padded(spec, rank)
    closed = PartitionSpec(*(None if e is PartitionSpec.UNCONSTRAINED else e for e in full))
    placement = translate(placement_of(closed, rank), mesh, target)
    if placement is None:
        return None
    entries = (e if e is PartitionSpec.UNCONSTRAINED else axes or None for e, axes in zip(full, placement.dims, strict=True))
    return PartitionSpec(*entries).with_priorities(*full.priorities)


def in_words_of(target: Any, mesh: Any, program: Program) -> Program | None:
    """The Program with every spec in it, of `mesh`, said with the axes of `wanted`; None where one cannot be."""
    if target is None or mesh is None or target == mesh or _differ_in_types_alone(target, mesh):
        return program
    try:
        return _translated(program, target, mesh)
    except _CannotSay:
        return None


def _differ_in_types_alone(target: Any, mesh: Any) -> bool:
    """Whether two meshes are one but for what their axes are: explicit, or automatic inside of `auto_axes`."""
    if is_without_devices(mesh, target) or is_without_devices(target, mesh):
        return True
    both_real = isinstance(target, Mesh) and isinstance(mesh, Mesh) and target.flat_devices == mesh.flat_devices
    return both_real and target.shape_tuple == mesh.shape_tuple


def is_without_devices(mesh: Any, other: Any) -> bool:
    """Whether `mesh` is `other` but for the devices: what `get_abstract_mesh()` gives beside the mesh itself, and what code for
    single devices has of the mesh of the code around it, where fewer axes are Manual."""
    return isinstance(mesh, AbstractMesh) and isinstance(other, BaseMesh) and mesh.shape_tuple == other.shape_tuple


def with_devices_of(mesh: BaseMesh, other: BaseMesh) -> Mesh | None:
    """A mesh without devices on those of `other`, which is that Mesh itself where the axes are the same; None where it has
    another number of them."""
    if not isinstance(mesh, AbstractMesh) or not isinstance(other, Mesh) or mesh.device_count != other.device_count:
        return None
    if is_without_devices(mesh, other):
        return other
    return Mesh(other.devices.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)


class _CannotSay(Exception):
    pass


def _translated(program: Program, target: Any, mesh: Any) -> Program:
    def spec_of(value: Any, rank: int) -> Any:
        if not isinstance(value, PartitionSpec):
            return value
        translated = spec_in_words_of(target, mesh, value, rank)
        if translated is None:
            raise _CannotSay
        return translated

    def translated(eqn: Eqn) -> Eqn:
        if eqn.op.pinned is not None and eqn.op.regions is not None:
            return _of_other_mesh(eqn, target, mesh)
        return with_regions_changed(eqn, lambda p: _translated(p, target, mesh))

    eqns = [translated(e) for e in program.eqns]
    changed = [
        e.with_params({name: spec_of(v, e.outputs[0].rank) for name, v in e.params.items()}) if e.op.seed else e for e in eqns
    ]
    if all(a is b for a, b in zip(changed, program.eqns, strict=True)):
        return program
    return Program(program.name, program.inputs, tuple(changed), program.outputs)


def _of_other_mesh(eqn: Eqn, target: Any, mesh: Any) -> Eqn:
    """Code for the devices of `mesh` keeps its axes, and says that they are another mesh's: `core/rename_axes` renames them when
    nothing asks any more which values vary. The target's axes have to say each of them."""
    axes = eqn.params["mesh"]
    is_marked = eqn.params.get("foreign", False)
    same_devices = isinstance(target, Mesh) and isinstance(mesh, Mesh) and mesh.flat_devices == target.flat_devices
    if not same_devices or target.explicit_axes or not can_rename(eqn):
        raise _CannotSay
    own = AbstractMesh([size for _, size in axes], [name for name, _ in axes])
    if translate(Placement(tuple([(name,) for name, _ in axes])), own, target) is None:
        raise _CannotSay
    return eqn if is_marked else eqn.with_params({**eqn.params, "foreign": True})


def require_axes(program: Program, mesh: BaseMesh) -> None:
    """ShardingError where the Program has code for the devices of axes that `mesh` has not: a
    shard_map over an AbstractMesh whose arguments are elsewhere."""
    for eqn in program.eqns:
        if eqn.op.regions is None:
            continue
        axes = dict(eqn.params["mesh"]) if eqn.op.pinned is not None else {}
        if any(mesh.shape.get(name) != size for name, size in axes.items()) and not eqn.params.get("foreign", False):
            mine = ", ".join(f"{name!r}: {size}" for name, size in axes.items())
            raise ShardingError(
                f"{program.name}: the shard_map at {line_of(eqn.source)} is over a mesh without devices, of axes {mine}, and the"
                f" arguments are on {mesh if mesh.size > 1 else 'one device'}\n"
                "  fix: shard_map(..., mesh=) of a Mesh, a call inside of set_mesh(mesh), or arguments placed on such a mesh"
            )
        for body in run_programs(eqn):
            require_axes(body, mesh)


def why_apart(a: Any, b: Any, program: Program | None = None) -> str:
    """Why two meshes cannot belong to one function; `program` is for one of them."""
    if not isinstance(a, Mesh) or not isinstance(b, Mesh):
        return "a compiled function runs on one mesh"
    mine, theirs = ([getattr(d, "id", d) for d in m.flat_devices] for m in (a, b))
    if mine == theirs and program is not None and _leaves_axes(program):
        return "shard_map over some axes of a mesh (axis_names) and code for another mesh do not go together in one function"
    if mine == theirs:
        return "they have the same devices, but what is sharded on one cannot be said with the axes of the other"
    if sorted(mine) == sorted(theirs):
        return f"a compiled function runs on its devices in one order, and these are {_some(mine)} and {_some(theirs)}"
    return f"a compiled function runs on one set of devices, and these are {_some(mine)} and {_some(theirs)}"


def _leaves_axes(program: Program) -> bool:
    """Whether there is code for the devices of some axes, where the compiler has the others."""
    here = any(eqn.op.pinned is not None and run_regions(eqn) for eqn in program.eqns)
    return here or any(_leaves_axes(p) for eqn in program.eqns for p in run_programs(eqn))


def _some(ids: list[Any]) -> str:
    return str(ids) if len(ids) <= 16 else f"[{', '.join(map(str, ids[:4]))}, ...]"
