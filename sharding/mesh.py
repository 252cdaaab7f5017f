"""Meshes: named axes over an array of devices, with or without the devices.

A device's *flat position* is its row-major position in the mesh; all groups and indices below speak of flat positions,
never of device ids. Names and behaviour follow ``jax.sharding.Mesh`` and ``AbstractMesh``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sharding.axes import AxisRef, SubAxis, check_ref
from sharding.axis_types import AxisType
from sharding.base_mesh import BaseMesh as BaseMesh
from sharding.figures import Figures

ObjectArray: TypeAlias = NDArray[np.object_]

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisRef",
    "AxisType",
    "BaseMesh",
    "Mesh",
    "SubAxis",
    "canonical",
    "current_mesh",
]


@dataclasses.dataclass(frozen=True, slots=True)
class AbstractDevice:
    """What the devices of an AbstractMesh are: AbstractDevice("TPU v5 lite", 1, "tpu") (``jax.sharding.AbstractDevice``).
    figures: what they can do, where a file says so and the kind does not."""

    device_kind: str
    num_cores: int | None
    platform: str
    figures: Figures | None = None

    def __repr__(self) -> str:
        return f"AbstractDevice({self.text()})"

    def text(self) -> str:
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"


class AbstractMesh(BaseMesh):
    """A mesh without devices: AbstractMesh((4, 2), ("data", "model")). Equal when sizes, names, types and `abstract_device`
    are: the kind of device that programs are planned for, where one is given."""

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> None:
        sizes = tuple(int(size) for size in axis_sizes)
        if any(size < 1 for size in sizes):
            raise ValueError(f"mesh axis sizes must be 1 or more, got {sizes}")
        self._set_axes(sizes, axis_names, axis_types)
        self.abstract_device = abstract_device

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(
        self,
        axis_sizes: Sequence[int] | None = None,
        axis_names: str | Sequence[str] | None = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
        **device: Any,
    ) -> AbstractMesh:
        """The mesh with something replaced; what is None, or an `abstract_device` that is not given, stays."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **{"abstract_device": self.abstract_device, **device},
        )

    def update_axis_types(self, name_to_type: Mapping[str, AxisType]) -> AbstractMesh:
        """The mesh whose axes in `name_to_type` are of these types."""
        return self.update(axis_types=self.types_with(name_to_type))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @functools.cached_property
    def _key(self) -> tuple[object, ...]:
        return self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device

    def _device_text(self) -> str:
        return "" if self.abstract_device is None else f", {self.abstract_device.text()}"


def _check_distinct(devices: ObjectArray, names: tuple[str, ...]) -> None:
    """ValueError where one device stands at two places: it would hold two shards of one array."""
    seen: dict[int, int] = {}  # by id: devices need not be hashable
    for position, device in enumerate(devices.flat):
        first = seen.setdefault(id(device), position)
        if first != position:
            places = [
                ", ".join(f"{name}={i}" for name, i in zip(names, np.unravel_index(p, devices.shape), strict=True))
                for p in (first, position)
            ]
            raise ValueError(
                f"Mesh: {device} stands at two places, {places[0]} and {places[1]}; each device holds one shard of an array\n"
                "  fix: list every device once; an AbstractMesh stands for devices that are not there"
            )


class Mesh(BaseMesh, contextlib.ContextDecorator):
    """Devices under named axes: Mesh(devices, ("data", "model")); as a context manager or a decorator, the current mesh of the
    thread. The same devices and axes give the same object, as long as somebody holds it.

    devices: object ndarray or nested sequence of opaque objects with an `id`, and a `process_index` where there are
    several processes. axis_names: one per dim of `devices`. ValueError when the counts differ or a name or a device appears
    twice, TypeError when a name is no str.
    """

    devices: ObjectArray
    _known: ClassVar[weakref.WeakValueDictionary[Any, Mesh]] = weakref.WeakValueDictionary()

    def __new__(
        cls, devices: object, axis_names: str | Sequence[str], axis_types: AxisType | Sequence[AxisType] | None = None
    ) -> Mesh:
        mesh = super().__new__(cls)
        mesh.devices = np.array(devices, dtype=object)
        mesh.devices.flags.writeable = False
        names = (axis_names,) if isinstance(axis_names, str) else axis_names
        if mesh.devices.ndim != len(names):
            raise ValueError(
                f"Mesh: devices have {mesh.devices.ndim} dims {mesh.devices.shape} but there are {len(names)} axis "
                f"names {tuple(names)}; give one name per dim"
            )
        if not mesh.devices.size:
            raise ValueError(f"Mesh: there are no devices, their shape is {mesh.devices.shape} for axes {tuple(names)}")
        mesh._set_axes(mesh.devices.shape, names, axis_types)
        key = cls, mesh.axis_names, mesh.axis_sizes, mesh.axis_types, tuple(map(id, mesh.devices.flat))
        known = cls._known.get(key)  # which keeps its devices, so that their ids are theirs
        if known is None:
            _check_distinct(mesh.devices, tuple(names))
            known = cls._known[key] = mesh
        return known

    def __deepcopy__(self, memo: object) -> Mesh:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.devices, self.axis_names, self.axis_types)

    @functools.cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The same axes, and what the first device says it is."""
        device = next(iter(self.devices.flat), None)
        kind = getattr(device, "device_kind", None)
        cores = getattr(device, "num_cores", getattr(device, "core_count", None))
        described = None if kind is None else AbstractDevice(str(kind), cores, str(getattr(device, "platform", "cpu")))
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=described)

    @functools.cached_property
    def flat_devices(self) -> tuple[Any, ...]:
        """The devices by flat position."""
        return tuple(self.devices.flat)

    def update(
        self,
        devices: object = None,
        axis_names: str | Sequence[str] | None = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> Mesh:
        """The mesh with something replaced; what is None stays."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @property
    def device_ids(self) -> NDArray[np.int64]:
        ids = np.array([device.id for device in self.flat_devices], np.int64)
        return ids.reshape(self.devices.shape)

    @property
    def is_multi_process(self) -> bool:
        return len({getattr(device, "process_index", 0) for device in self.flat_devices}) > 1

    @functools.cached_property
    def local_devices(self) -> list[Any]:
        """Devices of this process: those whose process_index is their client's; all of them if they have no client."""
        return [device for device in self.flat_devices if is_addressable(device)]

    @property
    def local_mesh(self) -> Mesh:
        """The block of the mesh that has the devices of this process (`jax.sharding.Mesh.local_mesh`). ValueError where the
        smallest block around them has others, too."""
        local = np.array([is_addressable(device) for device in self.flat_devices]).reshape(self.devices.shape)
        places = [np.flatnonzero(local.any(tuple(i for i in range(local.ndim) if i != dim))) for dim in range(local.ndim)]
        block = tuple([slice(int(at[0]), int(at[-1]) + 1) if at.size else slice(0) for at in places])
        if not local.any() or not local[block].all():
            raise ValueError(
                f"local_mesh: the {int(local.sum())} devices of this process are no block of the mesh, of axes {self.shape}\n"
                "  fix: a mesh in which they stand together, as make_mesh has them; local_devices lists them"
            )
        return Mesh(self.devices[block], self.axis_names, self.axis_types)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mesh) and (
            (self.axis_names, self.axis_sizes, self.axis_types)
            == (other.axis_names, other.axis_sizes, other.axis_types)
            and self.flat_devices == other.flat_devices
        )

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.axis_names, self.axis_sizes, self.axis_types, self.flat_devices))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={self.axis_types})"

    def __enter__(self) -> Mesh:
        STATE.outer.append((STATE.current, STATE.named))
        STATE.entered.append(self)
        make_current(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATE.entered.pop()
        current, STATE.named = STATE.outer.pop()
        make_current(current)


def canonical(ref: AxisRef, mesh: BaseMesh) -> AxisRef:
    """`ref` as it is written everywhere: a sub-axis that covers its whole axis is the plain name. Checks it, too."""
    check_ref(ref, mesh.shape)
    if isinstance(ref, SubAxis) and ref.size == mesh.shape[ref.name]:
        return ref.name
    return ref


def is_addressable(device: Any) -> bool:
    """Whether this process owns `device`; yes for devices that know no client."""
    client = getattr(device, "client", None)
    return client is None or device.process_index == client.process_index()


# --- the current mesh -------------------------------------------------------------------------------------------------


class _State(threading.local):
    """The current mesh of a thread, the one that `set_mesh` named, each `with mesh:` that is open, and what was current outside
    of it."""

    def __init__(self) -> None:
        self.current: BaseMesh | None = None
        self.named: BaseMesh | None = None
        self.entered: list[Mesh] = []
        self.outer: list[tuple[BaseMesh | None, BaseMesh | None]] = []


STATE = _State()
on_current_mesh: list[Callable[[], None]] = []  # called in the thread whose current mesh was set


def current_mesh() -> BaseMesh | None:
    """The mesh of the innermost `with mesh:` or `set_mesh` in this thread, or None."""
    return STATE.current


def named_mesh() -> BaseMesh | None:
    """The mesh that `set_mesh` (or `use_abstract_mesh`) named last in this thread, whatever `with mesh:` says, or None."""
    return STATE.named


def entered_mesh() -> Mesh | None:
    """The mesh of the innermost `with mesh:` in this thread, whatever `set_mesh` says, or None."""
    return STATE.entered[-1] if STATE.entered else None


def mesh_context() -> tuple[BaseMesh | None, BaseMesh | None, Mesh | None]:
    """All that this thread's contexts say of meshes, to find by what was made under them."""
    return STATE.current, STATE.named, entered_mesh()


def make_current(mesh: BaseMesh | None) -> None:
    STATE.current = mesh
    for tell in on_current_mesh:
        tell()


def make_named(mesh: BaseMesh | None) -> None:
    STATE.named = mesh
    make_current(mesh)
