"""Placements and specs on a mesh as the shardings that users see, and shardings as specs on another mesh of the same devices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from meshjit.runtime import client
from meshjit.runtime.array import LeafKey
from meshjit.runtime.placing import same_place
from sharding.axis_types import AxisType
from sharding.memory import DEVICE, memory_of
from sharding.mesh import Mesh
from sharding.named import NamedSharding, Sharding, SingleDeviceSharding
from sharding.spec import PartitionSpec, Placement, padded, spec_of
from sharding.translate import translate

ONE_DEVICE_AXES = ("_",)


@functools.cache
def one_device_mesh(device: Any) -> Mesh:
    """The mesh of computations that nobody gave a mesh: one device, one axis that nobody can name."""
    return Mesh([device], ONE_DEVICE_AXES)


def default_mesh() -> Mesh:
    return one_device_mesh(client.default_device())


def mesh_of(sharding: Sharding) -> Any:
    """The mesh of a sharding; an AbstractMesh where that is what it was made with."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh
    return one_device_mesh(next(iter(sharding.device_set)))


def merged(a: Mesh, b: Mesh) -> Mesh | None:
    """The mesh for values of two meshes: the first, if both are of the same devices in one order, unless users cannot name
    its axes."""
    if a.flat_devices != b.flat_devices:
        return None
    return b if a.axis_names == ONE_DEVICE_AXES else a


@functools.lru_cache(maxsize=65536)
def fits(key: LeafKey, target: Sharding) -> bool:
    """Whether an array with this key already lies as `target` says, on the same devices in the same order."""
    assert key.sharding is not None
    rank = key.type.rank
    return same_place(key.sharding, target, rank)


def cuts_alike(source: Sharding, target: Sharding, rank: int) -> bool:
    """Whether `target` is `source` on devices of its own: the same parts, in the order of its devices, or the whole on each."""
    here, there = mesh_of(source), mesh_of(target)
    if source.is_fully_replicated and target.is_fully_replicated:
        return memory_of(source) == memory_of(target)
    if not isinstance(source, NamedSharding) or not isinstance(here, Mesh) or not isinstance(there, Mesh):
        return False
    if here.size != there.size:
        return False
    alike = Mesh(np.reshape(np.array(there.flat_devices, object), here.axis_sizes), here.axis_names, here.axis_types)
    return same_place(NamedSharding(alike, source.spec, source.memory_kind), target, rank)


def spelling_of(key: LeafKey) -> Sharding | None:
    """The sharding of a committed array, as it was written."""
    return key.sharding if key.committed else None


def sharding_of(
    placement: Placement,
    mesh: Mesh,
    annotation: PartitionSpec | None,
    written: PartitionSpec | None = None,
    memory: str = DEVICE,
) -> Sharding:
    """What users see of a placement: the spec that they gave, if they gave a whole one, else as it is `written` elsewhere."""
    if mesh.size == 1 and mesh.axis_names == ONE_DEVICE_AXES:
        return SingleDeviceSharding(mesh.flat_devices[0], memory_kind=memory)
    whole = annotation is not None and PartitionSpec.UNCONSTRAINED not in annotation
    if not whole:
        sums = annotation
        annotation = spec_of(placement) if written is None else written
        if sums is not None and all(axis in mesh.explicit_axes for axes in placement.dims for axis in axes):
            annotation = padded(annotation, len(placement.dims))  # as the value's type has it
        if sums is not None and (sums.unreduced or sums.reduced):
            annotation = annotation.update(unreduced=sums.unreduced, reduced=sums.reduced)
    assert annotation is not None
    return NamedSharding(_explicit_over(annotation.unreduced | annotation.reduced, mesh), annotation, memory)


def _explicit_over(axes: frozenset[str], mesh: Mesh) -> Mesh:
    """The mesh with these axes Explicit, as those of unfinished sums are outside of `auto_axes`, too."""
    if axes <= {*mesh.explicit_axes}:
        return mesh
    return mesh.update(axis_types=mesh.types_with(dict.fromkeys(axes, AxisType.Explicit)))


def whole_spec(sharding: Sharding, rank: int) -> PartitionSpec:
    """A sharding's spec with one entry per dim."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else PartitionSpec()
    return padded(spec, rank)


def spec_on(mesh: Any, sharding: Sharding, rank: int) -> PartitionSpec | None:
    """A sharding's spec on `mesh`, with an entry per dim; None if it is of other devices, or `mesh` cannot say it."""
    if isinstance(sharding, NamedSharding) and sharding.mesh == mesh:
        return whole_spec(sharding, rank)
    if not isinstance(sharding, NamedSharding) or not isinstance(mesh, Mesh) or not isinstance(sharding.mesh, Mesh):
        return None
    if sharding.mesh.flat_devices != mesh.flat_devices:
        return None
    placement = translate(sharding.placement(rank), sharding.mesh, mesh)
    return None if placement is None else _spec_with_sums(placement)


def _spec_with_sums(placement: Placement) -> PartitionSpec | None:
    """None where a part of an axis would be unreduced, which no spec can say."""
    entries = PartitionSpec(*(axes or None for axes in placement.dims))
    if not placement.partial:
        return entries
    whole = all(isinstance(axis, str) for axis in placement.partial_axes)
    return entries.update(unreduced=map(str, placement.partial_axes)) if whole else None
