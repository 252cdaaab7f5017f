"""What in_shardings, out_shardings, the mesh context and committed arguments say together: a mesh and a spec per leaf."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from meshjit.runtime.shardings import ONE_DEVICE_AXES, merged, mesh_of, one_device_mesh, spec_on
from meshjit.trace.meshes import with_devices_of
from meshjit.tree_views import key_types
from meshjit.trees import WORDS as tree
from sharding.current import set_mesh
from sharding.memory import DEVICE, memory_of
from sharding.mesh import AbstractMesh, Mesh, current_mesh, entered_mesh
from sharding.named import AUTO, UNSPECIFIED, NamedSharding, Sharding, SingleDeviceSharding, is_auto
from sharding.spec import PartitionSpec, ShardingError, check_spec


def is_sharding_leaf(value: Any) -> bool:
    """None, UNSPECIFIED, AUTO, specs and shardings are leaves of a tree of shardings."""
    return isinstance(value, (PartitionSpec, Sharding)) or value is None or value is UNSPECIFIED or is_auto(value)


def check_shardings(shardings: Any, what: str) -> None:
    """TypeError, with its path, for a leaf of in_shardings or out_shardings that is no sharding."""
    leaves = tree.leaves_with_path(shardings, is_sharding_leaf)
    for path, leaf in leaves:
        if not is_sharding_leaf(leaf):
            raise TypeError(
                f"{what}{tree.keystr(path)} is {leaf!r} of type {type(leaf).__name__}\n"
                f"  fix: {_sharding_fix(leaf)}"
            )


def _sharding_fix(leaf: Any) -> str:
    if hasattr(leaf, "process_index"):
        return "use SingleDeviceSharding(device)"
    if hasattr(leaf, "axis_names"):
        return "use NamedSharding(mesh, PartitionSpec(...))"
    if isinstance(leaf, str):
        return f'use PartitionSpec("{leaf}") under a mesh, or NamedSharding(mesh, PartitionSpec("{leaf}"))'
    return "use a NamedSharding, a PartitionSpec (under a mesh), None or AUTO"


def broadcast(prefix: Any, full_tree: Any, what: str) -> list[Any]:
    """One sharding per leaf of `full_tree` (a treedef), from a pytree prefix of it."""
    if is_sharding_leaf(prefix):
        return [prefix] * full_tree.num_leaves
    return tree.flatten_prefix(prefix, full_tree, what, is_leaf=is_sharding_leaf)


def cut(sharding: Any, rank: int) -> Any:
    """The sharding of keys, of that of their words, which have one dim more."""
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > rank:
        return sharding.with_spec(PartitionSpec(*sharding.spec[:rank]))
    return sharding


def check_key_specs(specs: Sequence[Any], treedef: Any, ranks: Sequence[int], where: Callable[[int], str]) -> None:
    """ShardingError for a spec that is longer than the rank of the keys that it places. `ranks` are those of their words."""
    for i, (spec, dtype, rank) in enumerate(zip(specs, key_types(treedef), ranks, strict=True)):
        spec = getattr(spec, "spec", spec)
        if dtype is not None and isinstance(spec, PartitionSpec) and len(spec) >= rank:
            raise ShardingError(
                f"{where(i)}: {spec} has {len(spec)} entries for keys of {rank - 1} dims, {dtype}\n"
                "  fix: leave out entries of the spec; the words of a key stay together"
            )


def replicated_nones(shardings: Any) -> Any:
    """What pjit's shardings mean within `with mesh:`, where None, also as a leaf or prefix of a tree, is replicated on it."""
    mesh = entered_mesh()
    if mesh is None or shardings is UNSPECIFIED:
        return shardings
    whole = NamedSharding(mesh, PartitionSpec())
    return tree.map(lambda s: whole if s is None else s, shardings, is_leaf=is_sharding_leaf)


def check_count(title: str, prefix: Any, args: tuple[Any, ...], what: str) -> None:
    """ValueError for a tuple that does not have one entry per argument, or another container in its place."""
    if is_sharding_leaf(prefix) or (type(prefix) in (tuple, list) and len(prefix) == len(args)):
        return
    arguments = f"{len(args)} positional argument{'' if len(args) == 1 else 's'} (static ones do not count)"
    size = f"has {len(prefix)} entries" if type(prefix) in (tuple, list) else f"is a {type(prefix).__name__}"
    fix = f"{what}=({', '.join(['...'] * len(args))}{',' if len(args) == 1 else ''}), or one entry for all"
    if len(args) == 1 and type(prefix) not in (tuple, list):
        fix = f"{what}=(that {type(prefix).__name__},), a tuple with an entry per argument"
    raise ValueError(f"{title}: {what} {size}, but the call has {arguments}\n  fix: {fix}")


def keywords_not_placed(title: str, names: Sequence[str]) -> ValueError:
    """The error for a call by keyword of a function that has in_shardings."""
    return ValueError(
        f"{title}: in_shardings place positional arguments, but this call passes {', '.join(names)} by keyword\n"
        "  fix: pass every argument by position"
    )


_ONE_MESH = "move one of them first with meshjit.device_put, or use the same mesh for both"
_AXES_ALONE = "write a PartitionSpec alone instead of a NamedSharding, and use one mesh that has the axes it names"


class MeshFinder:
    """Collects what names a mesh, and says who disagrees."""

    def __init__(self, title: str, fix: str = _ONE_MESH) -> None:
        self.title, self.fix = title, fix
        self.mesh: Any = None
        self.by = ""

    def see(self, mesh: Any, by: str) -> None:
        if mesh is None or mesh.empty:
            return
        if self.mesh is None:
            self.mesh, self.by = mesh, by
            return
        both = _merged(self.mesh, mesh)
        if both is None:
            raise ShardingError(
                f"{self.title}: {self.by} is on {_describe(self.mesh)}, but {by} is on {_describe(mesh)}\n"
                f"  {_why_apart(self.mesh, mesh)}\n"
                f"  fix: {_AXES_ALONE if isinstance(mesh, AbstractMesh) or isinstance(self.mesh, AbstractMesh) else self.fix}"
            )
        if both is not self.mesh:
            self.mesh, self.by = both, by

    def see_captured(self, mesh: Any) -> None:
        """Of an array that goes where the others are."""
        if self.mesh is None or _merged(self.mesh, mesh) is not None:
            self.see(mesh, "a captured array")


def _merged(a: Any, b: Any) -> Any:
    if isinstance(a, Mesh) and isinstance(b, Mesh):
        return merged(a, b)
    return a if a == b else with_devices_of(a, b) or with_devices_of(b, a)


def _why_apart(a: Any, b: Any) -> str:
    is_order = isinstance(a, Mesh) and isinstance(b, Mesh) and {*a.flat_devices} == {*b.flat_devices}
    return f"one compiled function runs on {'its devices in one order' if is_order else 'one set of devices'}"


def _describe(mesh: Any) -> str:
    if isinstance(mesh, Mesh) and mesh.axis_names == ONE_DEVICE_AXES:
        return f"device {mesh.flat_devices[0]}"
    if isinstance(mesh, Mesh):
        ids, platform = [d.id for d in mesh.flat_devices], mesh.flat_devices[0].platform
        kind = "devices" if platform == "cpu" else f"{platform} devices"
        return f"{mesh} of {kind} {ids}" if len(ids) <= 16 else f"{mesh} of {kind} {ids[:4]}..."
    return str(mesh)


def find_mesh(
    title: str,
    shardings: Iterable[tuple[str, Any]],
    committed: Iterable[tuple[str, Sharding]],
    traced_mesh: Any,
    inside: str,
    automatic_mesh: Any = None,
    captured: Sequence[Sharding] = (),
) -> Any:
    """The mesh of a call: of its shardings, constraints, committed arguments, else of the first captured array that lies on
    devices of the context, else of the context, which also has the devices of a mesh without; None if nobody says. Captured
    arrays that lie elsewhere are moved there.

    `inside` says who named `traced_mesh`; `automatic_mesh` is what `auto` was given, or made."""
    finder = MeshFinder(title)
    finder.see(traced_mesh, inside)  # first: its axes stand in the Program
    finder.see(automatic_mesh, "meshjit.auto")
    for name, sharding in shardings:
        if isinstance(sharding, NamedSharding):
            finder.see(sharding.mesh, name)
        elif isinstance(sharding, SingleDeviceSharding):
            finder.see(mesh_of(sharding), name)
        elif isinstance(sharding, AUTO):
            finder.see(sharding.mesh, name)
    for name, sharding in committed:
        finder.see(mesh_of(sharding), name)
    context = current_mesh()
    for mesh in map(mesh_of, captured):
        if finder.mesh is not None or not isinstance(context, Mesh) or _merged(context, mesh) is not None:
            finder.see_captured(mesh)
    if finder.mesh is None or (context is not None and with_devices_of(finder.mesh, context) is not None):
        finder.see(context, "the mesh context")
    if finder.mesh is None:
        _check_choice(title, shardings)
    return finder.mesh


@contextlib.contextmanager
def mesh_to_run_on(shardings: Iterable[Any], traced_mesh: Any) -> Generator[None]:
    """The block lowers a call that is to run now. An AbstractMesh has no devices to run on. Where only the context names it, the
    block has no mesh, as in JAX; where `shardings` or the traced function name it, too, it stays."""
    leaves = [leaf for each in shardings for leaf in tree.leaves(each, is_leaf=is_sharding_leaf)]
    is_named = traced_mesh is not None or any(leaf is not None and leaf is not UNSPECIFIED for leaf in leaves)
    if is_named or not isinstance(current_mesh(), AbstractMesh):
        yield
        return
    with set_mesh(None):
        yield


def _check_choice(title: str, shardings: Iterable[tuple[str, Any]]) -> None:
    """ShardingError for AUTO where there is no mesh, and so nothing to choose."""
    name = next((name for name, sharding in shardings if is_auto(sharding)), None)
    if name is not None:
        raise ShardingError(
            f"{title}: {name} say AUTO, but there is no mesh, so nothing can be chosen\n"
            "  fix: AUTO(mesh), or call inside `with mesh:`; meshjit.auto(f) takes all devices"
        )


def device_mesh(title: str, device: Any, traced_mesh: Any, inside: str) -> Any:
    """The mesh of a call whose jit names one device: this alone, unless constraints inside name its axes."""
    finder = MeshFinder(title, "leave device= and backend= out; what is inside says where the function runs")
    finder.see(traced_mesh, inside)
    finder.see(one_device_mesh(device), "device= (or backend=) of jit")
    return finder.mesh


def spec_for(sharding: Any, shape: Sequence[int], mesh: Any, name: Callable[[], str]) -> PartitionSpec | None:
    """One leaf's spec, checked against its shape, or None where the compiler may choose."""
    rank = len(shape)
    if sharding is UNSPECIFIED or sharding is None or is_auto(sharding):
        return None
    if isinstance(sharding, SingleDeviceSharding):
        return PartitionSpec(*[None] * rank)
    if isinstance(sharding, PartitionSpec) and mesh.axis_names == ONE_DEVICE_AXES:
        raise ShardingError(
            f"{name()}: {sharding} needs a mesh, and there is none\n"
            "  fix: call inside `with mesh:`, or write NamedSharding(mesh, spec)"
        )
    if isinstance(sharding, NamedSharding) and (real := with_devices_of(sharding.mesh, mesh)) is not None:
        sharding = NamedSharding(real, sharding.spec)
    if isinstance(sharding, PartitionSpec) or sharding.mesh == mesh:
        spec = sharding if isinstance(sharding, PartitionSpec) else sharding.spec
        check_spec(spec, shape, mesh, name())
        return spec
    check_spec(sharding.spec, shape, sharding.mesh, name())
    translated = spec_on(mesh, sharding, rank)
    if translated is None:
        raise ShardingError(
            f"{name()}: {spec_of(sharding)} cannot be said with the axes of {mesh}\n"
            "  fix: build every NamedSharding of one function on the same mesh"
        )
    return translated


def spec_of(sharding: Sharding) -> str:
    """A sharding for error messages."""
    memory = memory_of(sharding)
    where = "" if memory == DEVICE else f" in {memory}"
    if isinstance(sharding, NamedSharding):
        return f"{sharding.spec} on {sharding.mesh}{where}"
    return f"device {next(iter(sharding.device_set))}{where}"
