"""LeafKey: everything about an argument that a compiled function depends on."""

from __future__ import annotations

from typing import Any

from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib
from sharding.memory import DEVICE, memory_of
from sharding.mesh import AbstractMesh
from sharding.named import NamedSharding, Sharding
from sharding.placement import normalized


class LeafKey:
    """Everything about an argument that a compiled function depends on. Interned: equal keys are one object."""

    __slots__ = ("type", "weak", "sharding", "committed", "normal", "_layout")

    def __init__(self, type: TensorType, weak: bool, sharding: Sharding | None, committed: bool) -> None:
        self.type, self.weak, self.sharding, self.committed = type, weak, sharding, committed
        self.normal = self._normal()
        self._layout: Any = None

    @property
    def layout(self) -> Any:
        """Marks the handles of Arrays with this key; jaxlib's C++ tells Arrays apart by it. Leads back here as `.key`."""
        if self._layout is None:
            assert self.sharding is not None
            row = self.sharding._device_assignment  # pyright: ignore[reportPrivateUsage]
            self._layout = _jaxlib.Layout(row, None if self.memory == DEVICE else self.memory)
            self._layout.key = self
        return self._layout

    @property
    def memory(self) -> str:
        """The memory that it lies in."""
        return memory_of(self.sharding)

    def _normal(self) -> Any:
        """The same for shardings that mean the same: P("x") and P("x", None), or NamedSharding and another of its mesh."""
        where = None
        if self.sharding is not None and self.committed:  # others go where the program wants them
            mesh, placement = getattr(self.sharding, "mesh", None), self.sharding.placement(self.type.rank)
            abstract = isinstance(mesh, AbstractMesh)
            row = () if abstract else self.sharding._device_assignment  # pyright: ignore[reportPrivateUsage]
            reduced = self.sharding.spec.reduced if isinstance(self.sharding, NamedSharding) else ()
            where = (row, mesh, placement if mesh is None else normalized(placement, mesh), reduced)
        return (self.type, self.weak, where, self.committed, self.memory)


_keys: dict[tuple[Any, ...], LeafKey] = {}


def leaf_key(type: TensorType, weak: bool, sharding: Sharding | None, committed: bool) -> LeafKey:
    """The one LeafKey of these fields."""
    fields = (type, weak, sharding, committed)
    key = _keys.get(fields)
    if key is None:
        key = _keys[fields] = LeafKey(*fields)
    return key
