"""What an axis of a mesh does in sharding, and which axes of a mesh do that (``jax.sharding.AxisType``)."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from typing import Any, cast


class AxisType(enum.Enum):
    """How an axis takes part in sharding (``jax.sharding.AxisType``).

    Auto: placements over it are the planner's choice. Explicit: they are part of the types of arrays (`typeof(x).sharding`), and
    every op says what becomes of them. Manual: the code is that of single devices (`shard_map`)."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class AxisTypes:
    """The part of a mesh that knows what its axes do."""

    axis_names: tuple[str, ...]
    axis_types: tuple[AxisType, ...]

    def axes_of_type(self, kind: AxisType) -> tuple[str, ...]:
        return tuple(name for name, other in zip(self.axis_names, self.axis_types, strict=True) if other is kind)

    @functools.cached_property
    def auto_axes(self) -> tuple[str, ...]:
        return self.axes_of_type(AxisType.Auto)

    @functools.cached_property
    def explicit_axes(self) -> tuple[str, ...]:
        return self.axes_of_type(AxisType.Explicit)

    @functools.cached_property
    def manual_axes(self) -> tuple[str, ...]:
        return self.axes_of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return bool(self.axis_types) and self.auto_axes == self.axis_names

    @property
    def are_all_axes_explicit(self) -> bool:
        return bool(self.axis_types) and self.explicit_axes == self.axis_names

    @property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_types) and self.manual_axes == self.axis_names

    @functools.cached_property
    def types_by_name(self) -> dict[str, AxisType]:
        return dict(zip(self.axis_names, self.axis_types, strict=True))

    def types_with(self, types: Mapping[str, AxisType]) -> tuple[AxisType, ...]:
        """The types of all axes, those in `types` replaced."""
        return tuple(types.get(name, kind) for name, kind in zip(self.axis_names, self.axis_types, strict=True))


def checked_types(axis_types: object, names: tuple[str, ...], what: str) -> tuple[AxisType, ...]:
    """One type per axis, from None (all Auto), one for all, or one for each. TypeError for what is none, ValueError for another
    number of them."""
    if axis_types is None:
        return (AxisType.Auto,) * len(names)
    entries = (axis_types,) * len(names) if isinstance(axis_types, AxisType) else tuple(cast(Iterable[Any], axis_types))
    for kind in entries:
        if not isinstance(kind, AxisType):
            raise TypeError(
                f"{what}: axis_types must be AxisType values, one per axis, got {kind!r} of type {type(kind).__name__}\n"
                "  fix: AxisType.Auto, AxisType.Explicit or AxisType.Manual"
            )
    if len(entries) != len(names):
        raise ValueError(f"{what}: axis_types must be {len(names)} AxisType values, one for each of {names}, got {axis_types!r}")
    return entries
