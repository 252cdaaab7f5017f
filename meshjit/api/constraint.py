"""with_sharding_constraint: pin where an intermediate lives."""

from __future__ import annotations

from typing import Any

from meshjit.api.bringing import brought, named_memory
from meshjit.api.layouts import Format, place_of
from meshjit.api.out_sharding import held
from meshjit.api.shardings import check_key_specs
from meshjit.core.explicit import explicit_part
from meshjit.core.op import REGISTRY
from meshjit.core.promotion import is_python_number
from meshjit.core.site import Site
from meshjit.runtime.array import Array
from meshjit.runtime.placing import device_put
from meshjit.runtime.shardings import mesh_of
from meshjit.trace import Argument, Tracer, active_trace, argument_of, as_operand, bind, line_of, staging, user_source
from meshjit.trace.explicit import governing, is_explicit
from meshjit.trace.members import device_axis_names
from meshjit.trace.meshes import is_without_devices, spec_in_words_of, with_devices_of
from meshjit.trees import WORDS as tree
from sharding.axes import name_of
from sharding.memory import DEVICE
from sharding.mesh import AbstractMesh, Mesh, current_mesh, named_mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding, refuse_auto
from sharding.spec import PartitionSpec, ShardingError, check_spec, entry_axes, open_dims, padded, spec_text


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """`jax.lax.with_sharding_constraint`: the arrays of a tree, placed as `shardings` (a pytree prefix) say.

    NamedSharding anywhere, PartitionSpec under a mesh context; dims marked P.UNCONSTRAINED are left to the compiler.
    Outside of jit the arrays are moved at once.
    """
    return _everywhere(x, shardings, "with_sharding_constraint")


def reshard(xs: Any, out_shardings: Any) -> Any:
    """`jax.sharding.reshard`: the arrays of a tree under other shardings, a pytree prefix, by the cheapest collectives.

    In explicit axes this is what changes the placement in a value's type."""
    return _everywhere(xs, out_shardings, "reshard")


def put_traced(x: Any, place: Any) -> Any:
    """A traced value as a sharding says, in the memory that it names, or on a device. What has to be sent is sent between the
    devices' own memories. Inside of jit one device says nothing: the function runs where its arguments are."""
    sharding = place if isinstance(place, Sharding) else SingleDeviceSharding(place)
    if (moved := _moved(x, sharding)) is not None:
        return moved
    if sharding is not place:
        return x
    memory = named_memory(sharding)
    x = brought(x, memory) if memory == DEVICE else x
    return brought(reshard(x, sharding), memory)


def _moved(x: Tracer, sharding: Sharding) -> Tracer | None:
    """Outside of jit: the value on other devices, to which it is moved when the Program runs. None where it stays on its own."""
    trace, mesh = active_trace(), mesh_of(sharding)
    if trace is None or trace.values is None or trace.specs is not None:
        return None
    if named_memory(sharding) != DEVICE or not isinstance(mesh, Mesh) or mesh.explicit_axes:
        return None
    return bind(REGISTRY["put"], x, to=Site.of(sharding), back=Site.of())


def _is_apart(a: Any, b: Any) -> bool:
    """Whether both are meshes with devices, of other ones or in another order."""
    return isinstance(a, Mesh) and isinstance(b, Mesh) and a.flat_devices != b.flat_devices


def _everywhere(x: Any, shardings: Any, what: str) -> Any:
    leaves, structure = tree.flatten(x)
    if _is_leaf(shardings):
        spread = [shardings] * len(leaves)
    else:
        spread = tree.flatten_prefix(shardings, structure, "shardings", is_leaf=_is_leaf)
    names = tree.path_names(x, "x")
    check_key_specs(spread, structure, [getattr(v, "ndim", 0) for v in leaves], lambda i: f"{what} of {names[i]}")
    pairs = zip(leaves, spread, names, strict=True)
    return tree.unflatten(structure, [_constrained(v, s, f"{what} of {n}") for v, s, n in pairs])


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, Sharding | PartitionSpec | Format)


def _constrained(x: Any, sharding: Any, what: str) -> Any:
    sharding = place_of(sharding, what)
    if sharding is None:
        return x
    refuse_auto(sharding, what)
    if not isinstance(sharding, Sharding | PartitionSpec):
        raise TypeError(
            f"{what}: {sharding!r} is no sharding\n"
            "  fix: use a NamedSharding, or a PartitionSpec under a mesh"
        )
    if isinstance(sharding, NamedSharding) and (named := named_mesh()) and is_without_devices(sharding.mesh, named):
        sharding = NamedSharding(named, sharding.spec)
    argument = argument_of(x, what.partition(" of ")[2])
    mesh, full = _mesh_and_spec(sharding, argument.type.shape, what)
    with staging((x,)) as trace:
        if trace is not None and _is_apart(trace.mesh, mesh):
            moved = _moved(as_operand(x, argument), NamedSharding(mesh, full))
            if moved is not None:
                return moved
        if trace is not None:
            mesh, full = _in_axes_of(trace.mesh, mesh, full)
        if trace is not None and (trace.specs is not None or is_explicit(mesh)) and is_explicit(governing(mesh)):
            sharding = NamedSharding(mesh, full)
            if what.startswith("reshard"):
                return held(as_operand(x, argument), sharding, what)
            _check_held(argument, sharding, what)
            full = _kept(full, argument, mesh)
        if trace is not None:
            if trace.mesh is not None:
                full = spec_in_words_of(trace.mesh, mesh, full, len(full))
            if full is None or not isinstance(trace.mesh, Mesh):
                trace.require_mesh(mesh)
            return bind(REGISTRY["sharding_constraint"], as_operand(x, argument), spec=full)
    place = sharding if isinstance(sharding, Sharding) else NamedSharding(mesh, sharding)
    if isinstance(mesh, AbstractMesh):
        mesh = _on_devices_of(x, mesh, what)
        place = NamedSharding(mesh, sharding.spec if isinstance(sharding, NamedSharding) else full)
    if PartitionSpec.UNCONSTRAINED in full:
        place = NamedSharding(mesh, PartitionSpec(*(None if e is PartitionSpec.UNCONSTRAINED else e for e in full)))
    if not isinstance(x, Array):
        return device_put(x if is_python_number(x) else as_operand(x, argument), place)
    if is_explicit(mesh) and isinstance(place, NamedSharding):
        place = place.with_spec(padded(place.spec, len(full)))
    moved = device_put(x, place)
    return moved.copy() if moved.memory is x.memory else moved  # a new array, as any op's result


def _in_axes_of(target: Any, mesh: Any, spec: PartitionSpec) -> tuple[Any, PartitionSpec]:
    """A mesh without devices, and a spec of it, in the axes of a function's mesh of as many; what these cannot say, as it is."""
    counterpart = with_devices_of(mesh, target)
    spec_there = None if counterpart is None or counterpart is target else spec_in_words_of(target, counterpart, spec, len(spec))
    return (mesh, spec) if spec_there is None else (target, spec_there)


def _on_devices_of(x: Any, mesh: AbstractMesh, what: str) -> Mesh:
    """A mesh without devices, on those that an array outside of jit has. ShardingError where it is on none of as many."""
    sharding = getattr(x, "sharding", None)
    counterpart = with_devices_of(mesh, sharding.mesh) if isinstance(sharding, NamedSharding) else None
    if counterpart is None:
        where = "no array" if sharding is None else f"on {sharding}"
        raise ShardingError(
            f"{what}: {mesh} has no devices, and it is {where}\n"
            "  fix: a NamedSharding of a Mesh; or an array that lies on as many devices as the mesh has"
        )
    return counterpart


def _kept(spec: PartitionSpec, argument: Argument, mesh: Any) -> PartitionSpec:
    """On a mesh with automatic axes, too: the spec, with the explicit axes of the value in dims for which it names none."""
    if not mesh.auto_axes:
        return spec
    asked, is_free = explicit_part(spec, argument.type.rank, mesh), open_dims(spec, argument.type.rank)
    entries = [
        e if free or entry_axes(a) else (*own, *entry_axes(e)) or None
        for e, a, own, free in zip(spec, asked, argument.axes, is_free, strict=True)
    ]
    return spec.update(partitions=entries)


def _check_held(argument: Argument, sharding: NamedSharding, what: str) -> None:
    """AssertionError, as in JAX, where the type says that a value is elsewhere in explicit axes than a constraint does. Beside
    automatic axes, a dim for which it names no explicit one may be anywhere."""
    is_free = open_dims(sharding.spec, argument.type.rank)
    asked = explicit_part(sharding.spec, argument.type.rank, sharding.mesh)
    is_bound = [not free and (not sharding.mesh.auto_axes or entry_axes(e)) for e, free in zip(asked, is_free, strict=True)]
    differing = [d for d, e in enumerate(asked) if is_bound[d] and entry_axes(e) != argument.axes[d]]
    if differing:
        raise AssertionError(
            f"{what}: {argument} is not {spec_text(sharding.spec)} in dim {differing[0]},"
            " and a constraint moves nothing over explicit axes\n"
            f"  at {line_of(user_source())}\n  fix: meshjit.sharding.reshard"
        )


def _check_automatic(spec: PartitionSpec, what: str) -> None:
    """ValueError for an axis along which the code around is for single devices."""
    manual = device_axis_names()
    if manual:
        named = [name_of(axis) for entry in spec for axis in entry_axes(entry)]
        name = next((name for name in named if name in manual), None)
        if name is not None:
            raise ValueError(
                f"{what}: {spec} names {name!r}, but inside of shard_map each device along {name!r} has a value of its own\n"
                f"  fix: leave {name!r} out; constraints are for the axes that axis_names leave out"
            )


def _mesh_and_spec(sharding: Any, shape: tuple[int, ...], what: str) -> tuple[Any, PartitionSpec]:
    """The mesh, and a checked spec with an entry for every dim."""
    if isinstance(sharding, Sharding) and not isinstance(sharding, NamedSharding):
        return mesh_of(sharding), PartitionSpec(*[None] * len(shape))
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else current_mesh()
    if mesh is None:
        raise ShardingError(
            f"{what}: {sharding} needs a mesh, and there is none\n"
            "  fix: call inside `with mesh:`, or write NamedSharding(mesh, spec)"
        )
    spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    check_spec(spec, shape, mesh, what)
    _check_automatic(spec, what)
    return mesh, padded(spec, len(shape))
