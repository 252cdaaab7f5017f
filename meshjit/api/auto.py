"""auto: jit for a function of which nobody says where anything lives."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from meshjit.api.call import Automatic
from meshjit.api.mesh_choice import AXES
from meshjit.api.putting import make_mesh
from meshjit.api.shardings import is_sharding_leaf
from meshjit.api.wrapped import Wrapped
from meshjit.plan.automatic.limits import Limits
from meshjit.runtime import client
from meshjit.targets.files import topology_named
from meshjit.trees import USERS as tree
from sharding.axes import name_of
from sharding.figures import Figures
from sharding.mesh import AbstractDevice, AbstractMesh, BaseMesh
from sharding.named import AUTO, Sharding
from sharding.spec import PartitionSpec, entry_axes

_OWN: Final = ("self", "fun", "in_shardings", "out_shardings", "automatic", "replicates_none")
_OPTIONS: Final = tuple([n for n in inspect.signature(Wrapped.__init__).parameters if n not in _OWN])


def auto(
    fun: Callable[..., Any],
    *,
    devices: int | None = None,
    mesh: BaseMesh | None = None,
    topology: str | None = None,
    memory: float | None = None,
    effort: float | None = None,
    time_limit: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    **options: Any,
) -> Wrapped:
    """`jit(fun)` with every argument, value and result placed as is best: predicted to take least time, and held in memory.

        step = meshjit.auto(step, devices=8)
        step.trace(state, batch).plan().plan.optimum        # 1.83 ms, optimal

    devices: how many, without a mesh; its shape is then chosen, too. Where there are fewer, it can be planned and lowered, not
    run. mesh: the devices and their axes; by default, of `devices` and `topology` both left out, all devices. topology: what
    machine they are, with the shape of its mesh, such as "v5p:4x4x4" or "h100:4x8", or a file, "cluster.toml"
    (docs/automatic.md). memory: bytes that a device may hold, by default what it has. effort: how much is gone through to prove
    that no plan is cheaper, which finds better plans on the way; it is counted, so the plan is the same everywhere. 1 takes some
    30 s, 0 seeks none; by default 1, and less once the plan is within 2 % of the optimum; for steps of 3,000 equations and more a
    bound is worked out when somebody asks.
    time_limit: seconds after which the search ends in any case; none by default, for the plan may then depend on how busy the
    machine is. plan: a file that `Plan.save` wrote, which is planned by instead of searching; it is refused for another program,
    mesh or machine. in_shardings and out_shardings: as of jit, for what is to be placed otherwise: specs of the mesh's axes,
    which are x, y, … where `devices` or `topology` give it. A result with the tree and types of an argument is its next state,
    and lies as it does. `options`: the others of jit. ValueError for arguments that contradict one another, and for limits
    that nothing can keep to; TypeError for what is no number."""
    devices = None if devices is None else _whole(devices)
    _check_kinds(mesh, topology, plan, options)
    if mesh is not None and (devices is not None or topology is not None):
        other = "devices" if devices is not None else "topology"
        raise ValueError(f"auto: mesh and {other} were both given\n  fix: leave {other} out; the mesh has them")
    ins, outs = (AUTO if s is None else s for s in (in_shardings, out_shardings))
    meshes = (mesh,) if mesh is not None else _with_named_axes(devices, topology, (ins, outs))
    limits = Limits(memory, time_limit, None if plan is None else os.fspath(plan), effort).checked("auto")
    return Wrapped(fun, in_shardings=ins, out_shardings=outs, automatic=Automatic(limits, tuple(meshes)), **options)


def _check_kinds(mesh: Any, topology: Any, plan: Any, options: Mapping[str, Any]) -> None:
    """TypeError for an argument of another kind, and for an option that jit has not."""
    kinds = [
        ("mesh", mesh, BaseMesh, "a Mesh or an AbstractMesh, such as meshjit.make_mesh((4, 2), ('x', 'y'))"),
        ("topology", topology, str, 'a device, a colon and a shape, such as "v5e:4x4"; or devices=8'),
        ("plan", plan, str | os.PathLike, 'the file that plan.save wrote, such as "plan.json"'),
    ]
    for name, value, kind, fix in kinds:
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"auto: {name}={value!r} is of type {type(value).__name__}\n  fix: {fix}")
    unknown = next((name for name in options if name not in _OPTIONS), None)
    if unknown is not None:
        own = [*inspect.signature(auto).parameters][1:-1]
        near = difflib.get_close_matches(unknown, [*own, *_OPTIONS], n=1)
        fix = f"{near[0]}=…" if near else f"one of {', '.join([*own, *_OPTIONS])}"
        raise TypeError(f"auto: {unknown} is no option\n  fix: {fix}")


def _whole(devices: int) -> int:
    try:
        if isinstance(devices, bool):
            raise TypeError
        return operator.index(devices)
    except TypeError:
        raise TypeError(f"auto: devices={devices!r} is no whole number\n  fix: how many there are, such as devices=8") from None


def _with_named_axes(devices: int | None, topology: str | None, shardings: Any) -> Sequence[BaseMesh]:
    """The meshes of so many devices that have the axes of all specs among the shardings. ValueError where none has."""
    leaves = tree.leaves(shardings, is_leaf=is_sharding_leaf)
    _check_mesh_is_left_open(leaves, devices is not None or topology is not None)
    specs = [leaf for leaf in leaves if isinstance(leaf, PartitionSpec)]
    named = {name_of(axis): None for spec in specs for entry in spec for axis in entry_axes(entry)}
    meshes = meshes_of(devices, topology)
    fitting = [mesh for mesh in meshes if {*named} <= {*mesh.axis_names}]
    if fitting:
        return fitting
    known = dict.fromkeys(axis for mesh in meshes for axis in mesh.axis_names)
    missing = next((f"axis {axis!r}" for axis in named if axis not in known), f"axes {', '.join(map(repr, named))} together")
    one = f"{meshes[0]} has no" if len(meshes) == 1 else f"no mesh of {meshes[0].size} devices that is tried has"
    problem = f"in_shardings or out_shardings name {missing}, and {one} such; its axes are {', '.join(known)}"
    raise ValueError(f"auto: {problem}\n  fix: name one of these, or auto(…, mesh=mesh)")


def _check_mesh_is_left_open(leaves: Sequence[Any], is_said: bool) -> None:
    """ValueError for shardings with a mesh of their own, and for specs where nobody says of which mesh: `is_said`, how many
    devices it has."""
    for leaf in leaves:
        if isinstance(leaf, Sharding) or getattr(leaf, "mesh", None) is not None:
            problem, fix = f"{leaf} has devices of its own, and no mesh is given", "auto(…, mesh=mesh)"
            fix = f"{fix}, and leave devices and topology out" if is_said else fix
            raise ValueError(f"auto: in_shardings or out_shardings: {problem}\n  fix: {fix}")
    if not is_said and any(isinstance(leaf, PartitionSpec) for leaf in leaves):
        problem = "in_shardings and out_shardings name the axes of a mesh, and there is none"
        raise ValueError(f"auto: {problem}\n  fix: auto(…, mesh=mesh)")


def meshes_of(devices: int | None, topology: str | None) -> Sequence[BaseMesh]:
    """The meshes to choose from, of so many devices, or of a topology. ValueError where they contradict, or one is unknown."""
    if topology is None:
        here = client.devices()
        count = len(here) if devices is None else devices
        if count < 1:
            raise ValueError(f"auto: devices={count}\n  fix: at least 1")
        shapes = _shapes(count)
        if count <= len(here):
            return [make_mesh(shape, AXES[: len(shape)], devices=here[:count]) for shape in shapes]
        kind = AbstractDevice(here[0].device_kind, None, here[0].platform)
        return [AbstractMesh(shape, AXES[: len(shape)], abstract_device=kind) for shape in shapes]
    try:
        figures, shape = topology_named(topology)
    except (ValueError, OSError) as error:
        raise ValueError(f"auto: {error}") from None
    count = devices if shape is None else math.prod(shape)
    if count is None:
        raise ValueError(f"auto: topology {topology!r} does not say how many devices\n  fix: {topology}:8, or devices=8")
    kind = device_of(figures)
    if devices not in (None, count):
        raise ValueError(f"auto: topology {topology!r} has {count} devices, but devices={devices}\n  fix: leave devices out")
    shapes = [shape] if shape is not None and len(shape) > 1 else _shapes(count)
    return [AbstractMesh(each, AXES[: len(each)], abstract_device=kind) for each in shapes]


def device_of(figures: Figures) -> AbstractDevice:
    """One of a machine that need not be here."""
    return AbstractDevice(figures.kinds[0] if figures.kinds else figures.name, None, figures.platform, figures)


def _shapes(count: int) -> list[tuple[int, ...]]:
    """One axis, and every two: the second may be of nearer devices, so their order counts. Three are tried for the best two."""
    return [(count,), *[(n, count // n) for n in range(2, count) if count % n == 0]]


__all__ = ["auto", "device_of", "meshes_of"]
