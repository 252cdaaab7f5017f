"""Shardings: a mesh and a spec, or one device; where each device's shard lies in the array. As in ``jax.sharding``.

Differs from JAX in one point: an extent that the shards do not divide is legal (see sharding.spec). `shard_shape`
then is the padded local shape, and `devices_indices_map` gives logical slices: those of the last devices are shorter
or empty.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from sharding.drawing import spec_html
from sharding.memory import checked_memory, memory_of
from sharding.mesh import AbstractMesh, BaseMesh, Mesh, is_addressable
from sharding.spec import Entry, PartitionSpec, Placement, ShardingError, check_spec, placement_of, shard_bounds

Index: TypeAlias = tuple[slice, ...]


class Sharding:
    """Base of NamedSharding and SingleDeviceSharding. Immutable and hashable."""

    memory_kind: str | None = None

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        """The devices by flat position."""
        raise NotImplementedError

    def placement(self, rank: int) -> Placement:
        """The placement of an array of `rank`; ShardingError when the spec has more entries than that."""
        raise NotImplementedError

    def _shard_index(self, dim_axes: tuple[Any, ...]) -> tuple[int, list[int]]:
        """(number of shards, the shard that each flat position holds) of a dim sharded over `dim_axes`."""
        raise NotImplementedError

    @functools.cached_property
    def device_set(self) -> frozenset[Any]:
        return frozenset(self._device_assignment)

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @functools.cached_property
    def addressable_devices(self) -> frozenset[Any]:
        """The devices that belong to this process."""
        return frozenset(self._addressable_device_assignment)

    @property
    def _addressable_device_assignment(self) -> tuple[Any, ...]:
        """Those of this process, in the order of the mesh; orbax asks for it."""
        return tuple(device for device in self._device_assignment if is_addressable(device))

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    @property
    def is_fully_addressable(self) -> bool:
        return len(self.addressable_devices) == len(self.device_set)

    def holds_all_here(self, global_shape: Sequence[int]) -> bool:
        """Whether this process's devices hold every element of an array between them, of each shard a copy."""
        if self.is_fully_replicated or not self.has_addressable_devices:
            return self.has_addressable_devices
        if self._checked_placement(global_shape).partial_axes:
            return self.is_fully_addressable
        everywhere, here = self.devices_indices_map(global_shape), self.addressable_devices_indices_map(global_shape)
        return _blocks(everywhere.values(), global_shape) == _blocks(here.values(), global_shape)

    def with_memory_kind(self, kind: str | None) -> Any:
        """The same shards in another memory of the same devices."""
        raise NotImplementedError

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        raise NotImplementedError

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of every device's shard, padding included: ceil(extent / shards) per dim."""
        dims = self._checked_placement(global_shape).dims
        return tuple(-(-n // self._shard_index(axes)[0]) for n, axes in zip(global_shape, dims, strict=True))

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """Device -> the slices of the logical array that its shard holds; slice(None) for a dim that is not sharded."""
        dims = self._checked_placement(global_shape).dims
        per_dim = [self._dim_slices(extent, axes) for extent, axes in zip(global_shape, dims, strict=True)]
        return {device: tuple(dim[i] for dim in per_dim) for i, device in enumerate(self._device_assignment)}

    def _dim_slices(self, extent: int, axes: tuple[Any, ...]) -> list[slice]:
        shards, index = self._shard_index(axes)
        if shards == 1:
            return [slice(None)] * len(index)
        slices = [slice(*shard_bounds(extent, shards, shard)) for shard in range(shards)]
        return [slices[shard] for shard in index]

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """devices_indices_map of this process's devices."""
        every = self.devices_indices_map(global_shape)
        return {device: index for device, index in every.items() if device in self.addressable_devices}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same shards of a rank-`ndim` array on the same devices, however the axes are called."""
        if self is other or self == other:
            return True
        if memory_of(self) != memory_of(other):
            return False
        if self._device_assignment != other._device_assignment:
            return False
        sides = ((*p.dims, p.partial_axes) for p in (self.placement(ndim), other.placement(ndim)))
        return all(self._shard_index(mine) == other._shard_index(theirs) for mine, theirs in zip(*sides, strict=True))

    def _checked_placement(self, global_shape: Sequence[int]) -> Placement:
        return self.placement(len(global_shape))


def _blocks(indices: Iterable[Index], shape: Sequence[int]) -> set[tuple[tuple[int, int, int], ...]]:
    """The different slices of an array of this shape that have elements."""
    bounds = {tuple(part.indices(n) for part, n in zip(index, shape, strict=True)) for index in indices}
    return {block for block in bounds if all(start < stop for start, stop, _ in block)}


class NamedSharding(Sharding):
    """NamedSharding(mesh, P("data", None)): the spec's axes are those of the mesh.

    ShardingError at once for an axis that the mesh lacks or that is used twice. `memory_kind`: see `sharding.memory`;
    None is "device" where the mesh has devices. On an AbstractMesh everything works that needs no devices.
    """

    def __init__(self, mesh: BaseMesh, spec: PartitionSpec | tuple[Entry, ...], memory_kind: str | None = None) -> None:
        if not isinstance(mesh, BaseMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"NamedSharding: mesh must be a Mesh or AbstractMesh, got {type(mesh).__name__}")
        refuse_auto(spec, "NamedSharding")
        if not isinstance(spec, PartitionSpec | tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"NamedSharding: spec must be a PartitionSpec, got {spec!r} of type {type(spec).__name__}")
        self.mesh: Final = mesh
        self.spec: Final = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        self.memory_kind = checked_memory(memory_kind, mesh.flat_devices if isinstance(mesh, Mesh) else None)
        check_spec(self.spec, None, mesh, "NamedSharding")
        if self.spec.unreduced or self.spec.reduced:
            _check_sums(self.spec, mesh)

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        if not isinstance(self.mesh, Mesh):
            raise ShardingError(f"{self!r} has no devices: its mesh is abstract\n  fix: use a Mesh of devices")
        return self.mesh.flat_devices

    @property
    def is_fully_replicated(self) -> bool:
        placement = self.placement(len(self.spec))
        return all(self._shard_index(axes)[0] == 1 for axes in (*placement.dims, placement.partial_axes))

    @property
    def num_devices(self) -> int:
        return self.mesh.device_count

    def placement(self, rank: int) -> Placement:
        if len(self.spec) > rank:
            check_spec(self.spec, (0,) * rank, self.mesh, f"an array of rank {rank}")
        return placement_of(self.spec, rank)

    def _checked_placement(self, global_shape: Sequence[int]) -> Placement:
        check_spec(self.spec, global_shape, self.mesh, f"an array of shape {tuple(global_shape)}")
        return placement_of(self.spec, len(global_shape))

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        return self._checked_placement(global_shape).local_shape(global_shape, self.mesh)

    def _shard_index(self, dim_axes: tuple[Any, ...]) -> tuple[int, list[int]]:
        return self.mesh.axes_size(dim_axes), self.mesh.axes_index(dim_axes).tolist()

    def addends(self) -> list[int]:
        """Which addend of the value each flat position holds, over the axes over which it is unreduced."""
        return self._shard_index(self.placement(len(self.spec)).partial_axes)[1]

    def with_spec(self, spec: PartitionSpec | Sequence[Entry]) -> NamedSharding:
        """The same mesh and memory with another spec; a sequence has its entries."""
        return NamedSharding(self.mesh, spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec), self.memory_kind)

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """ShardingError where the spec has more entries than a shape has dims."""
        check_spec(self.spec, aval_shape, self.mesh, f"an array of shape {tuple(aval_shape)}")

    def with_memory_kind(self, kind: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, kind)

    def update(self, **changes: Any) -> NamedSharding:
        """The same with another `mesh`, `spec` or `memory_kind`."""
        fields: dict[str, Any] = {"mesh": self.mesh, "spec": self.spec, "memory_kind": self.memory_kind}
        return NamedSharding(**fields | changes)

    def _repr_html_(self) -> str:
        """In a notebook: the spec, and the mesh."""
        return f"<div>{spec_html(self.mesh, self.spec)} on</div>{self.mesh._repr_html_()}"  # pyright: ignore[reportPrivateUsage]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, NamedSharding) and (
            (self.spec, self.memory_kind) == (other.spec, other.memory_kind) and self.mesh == other.mesh
        )

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.mesh, self.spec, self.memory_kind))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh.text()}, spec={self.spec!r}{memory})"


def _check_sums(spec: PartitionSpec, mesh: BaseMesh) -> None:
    for name, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for axis in sorted(axes):
            if axis not in mesh.shape:
                raise ShardingError(f"NamedSharding: {spec!r} is {name} over {axis!r}; the mesh has axes {mesh.axis_names}")
            if axis not in mesh.explicit_axes:
                raise ShardingError(
                    f"NamedSharding: {spec!r} is {name} over {axis!r}, an axis of type {mesh.types_by_name[axis]!r}\n"
                    "  fix: an Explicit axis; over automatic ones the compiler decides where sums are finished"
                )


class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    def __init__(self, device: Any, *, memory_kind: str | None = None) -> None:
        """TypeError for what is no device."""
        refuse_auto(device, "device")
        if not hasattr(device, "process_index"):
            raise TypeError(
                f"{device!r} of type {type(device).__name__} is neither a device nor a sharding\n"
                "  fix: use one of meshjit.devices(), or a sharding"
            )
        self.device: Final = device
        self.memory_kind = checked_memory(memory_kind, (device,))

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        return (self.device,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def placement(self, rank: int) -> Placement:
        return Placement.replicated(rank)

    def _shard_index(self, dim_axes: tuple[Any, ...]) -> tuple[int, list[int]]:
        return 1, [0]

    def with_memory_kind(self, kind: str | None) -> SingleDeviceSharding:
        return SingleDeviceSharding(self.device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and (self.device, self.memory_kind) == (
            other.device,
            other.memory_kind,
        )

    def __hash__(self) -> int:
        return hash((SingleDeviceSharding, self.device, self.memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self.memory_kind})"


def make_single_device_sharding(device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    """`jax.sharding.make_single_device_sharding`."""
    return SingleDeviceSharding(device, memory_kind=memory_kind)


class AUTO:
    """In a sharding's place: let the automatic planner choose. The class itself and AUTO(mesh) both mean it."""

    def __init__(self, mesh: BaseMesh | None = None) -> None:
        self.mesh: Final = mesh

    def __repr__(self) -> str:
        return "AUTO" if self.mesh is None else f"AUTO({self.mesh!r})"


def is_auto(sharding: object) -> bool:
    """Whether `sharding` is AUTO or AUTO(mesh)."""
    return sharding is AUTO or isinstance(sharding, AUTO)


def refuse_auto(sharding: object, where: str) -> None:
    """TypeError for AUTO in a place where nothing can be chosen."""
    if is_auto(sharding):
        raise TypeError(
            f"{where}: AUTO lets the planner choose where arguments and results of jit live; here nothing can be chosen\n"
            "  fix: a NamedSharding, or a PartitionSpec under a mesh; AUTO in in_shardings or out_shardings of jit"
        )


class UnspecifiedValue:
    """Type of UNSPECIFIED: nothing was said; take what the argument has, or what propagation finds."""

    def __repr__(self) -> str:
        return "UNSPECIFIED"

    def __reduce__(self) -> str:
        return "UNSPECIFIED"


UNSPECIFIED: Final = UnspecifiedValue()


class TooFewDevices(ValueError):
    """A mesh needs more devices than there are."""

    def __init__(self, shape: tuple[int, ...], needed: int, present: int) -> None:
        super().__init__(f"make_mesh: a mesh of {shape} needs {needed} devices, there are {present}")
        self.needed = needed


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], devices: Sequence[Any], axis_types: Any = None
) -> Mesh:
    """A Mesh of the first prod(axis_shapes) of `devices`, in their order; ValueError when there are too few, or for what is no
    int among the extents."""
    wrong = [size for size in axis_shapes if not hasattr(size, "__index__")]
    if wrong:
        raise ValueError(f"make_mesh: axis_shapes are ints, got {wrong[0]!r} in {tuple(axis_shapes)}")
    abstract = AbstractMesh(axis_shapes, axis_names)
    if len(devices) < abstract.device_count:
        raise TooFewDevices(tuple(axis_shapes), abstract.device_count, len(devices))
    chosen = np.empty(abstract.device_count, dtype=object)
    chosen[:] = list(devices[: abstract.device_count])
    return Mesh(chosen.reshape(abstract.axis_sizes), axis_names, axis_types)
