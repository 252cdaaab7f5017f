"""Axes with names and sizes, and the arithmetic on them that needs no device; what all meshes are."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from sharding.axes import NAME, AxisRef, atoms, canonical_axes, check_ref, cut_points, first_overlap, overlap
from sharding.axis_types import AxisType, AxisTypes, checked_types
from sharding.drawing import mesh_html

Int64Array: TypeAlias = NDArray[np.int64]


class BaseMesh(AxisTypes):
    """Axis names and sizes, and the arithmetic on them that needs no device. Immutable."""

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]

    def _set_axes(self, sizes: tuple[int, ...], names: object, axis_types: object) -> None:
        self.axis_sizes = sizes
        self.axis_names = _checked_names(names, sizes)
        self.axis_types = checked_types(axis_types, self.axis_names, type(self).__name__)

    @functools.cached_property
    def shape(self) -> dict[str, int]:
        """Axis name -> size, major axis first."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        return tuple(self.shape.items())

    @property
    def size(self) -> int:
        """Number of devices; 0 for a mesh without axes, as in JAX."""
        return math.prod(self.axis_sizes) if self.axis_sizes else 0

    @property
    def empty(self) -> bool:
        return self.size == 0

    @property
    def device_count(self) -> int:
        """Number of flat positions: `size`, but 1 for a mesh without axes (one device, nothing to name)."""
        return math.prod(self.axis_sizes)

    def axis_size(self, ref: AxisRef) -> int:
        """Size of an axis or a part of one; ValueError if the mesh has no such axis."""
        sizes = self.shape
        if isinstance(ref, str) and ref in sizes:
            return sizes[ref]
        check_ref(ref, sizes)
        return sizes[ref] if isinstance(ref, str) else ref.size

    def axes_size(self, refs: Iterable[AxisRef]) -> int:
        """Product of the sizes: the number of shards that `refs` make together."""
        size, sizes = 1, self.shape
        for ref in refs:
            size *= (sizes.get(ref) if isinstance(ref, str) else None) or self.axis_size(ref)
        return size

    def overlap(self, a: AxisRef, b: AxisRef) -> bool:
        """Whether the two refs share a part of an axis, so that no array may use both."""
        return overlap(a, b)

    def replica_groups(self, refs: Sequence[AxisRef]) -> Int64Array:
        """The groups of a collective over `refs`: (groups, group_size) flat positions.

        Within a group the position is the linear index along `refs`, major to minor, so the order of `refs` matters;
        groups are ordered by their first member. On x=2, y=2: ("y",) -> [[0, 1], [2, 3]], ("y", "x") -> [[0, 2, 1, 3]].
        """
        return _replica_groups(self.shape_tuple, tuple(refs))

    def axes_index(self, refs: Sequence[AxisRef]) -> Int64Array:
        """(devices,): the linear index of every flat position along `refs`, major to minor."""
        groups = self.replica_groups(refs)
        index = np.empty(self.device_count, np.int64)
        index[groups] = np.arange(groups.shape[1])
        return index

    def text(self, shows_automatic: bool = True) -> str:
        """`Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))`, the types of axes that are all Auto only if asked for."""
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items()) or "()"
        if shows_automatic or any(kind is not AxisType.Auto for kind in self.axis_types):
            axes += f", axis_types={self.axis_types}"
        return f"{type(self).__name__}({axes}{self._device_text()})"

    def _device_text(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        """In a notebook: the axes, and the devices where there are some."""
        return mesh_html(self, tuple(getattr(self, "flat_devices", ())))

    def __str__(self) -> str:
        return self.text(shows_automatic=False)

    def __repr__(self) -> str:
        return self.text()


def _checked_names(names: object, sizes: tuple[int, ...]) -> tuple[str, ...]:
    entries = (names,) if isinstance(names, str) else tuple(cast(Iterable[object], names))
    checked: list[str] = []
    for name in entries:
        if not isinstance(name, str):
            raise TypeError(f"mesh axis names must be str, got {name!r} of type {type(name).__name__}")
        if NAME.fullmatch(name) is None or name == "-":
            raise ValueError(
                f"{name!r} is no usable mesh axis name: it may hold no space, quote, bracket or any of , * @ | :"
            )
        checked.append(name)
    if len(checked) != len(sizes):
        raise ValueError(f"a mesh of {len(sizes)} dims {sizes} needs {len(sizes)} axis names, got {tuple(checked)}")
    twice = sorted({name for name in checked if checked.count(name) > 1})
    if twice:
        raise ValueError(f"mesh axis names must differ, but {twice[0]!r} appears twice in {tuple(checked)}")
    return tuple(checked)


@functools.lru_cache(maxsize=4096)
def _replica_groups(axes: tuple[tuple[str, int], ...], refs: tuple[AxisRef, ...]) -> Int64Array:
    sizes = dict(axes)
    for ref in refs:
        check_ref(ref, sizes)
    clash = first_overlap(refs)
    if clash is not None:
        raise ValueError(f"a group over {[str(ref) for ref in refs]} uses {clash[0]} and {clash[1]}, which overlap")
    refs = canonical_axes(refs, sizes)
    cuts = cut_points(refs, sizes)
    grid = [piece for name, _ in axes for piece in atoms(name, cuts, sizes)]
    chosen = [piece for ref in refs for piece in atoms(ref, cuts, sizes)]
    order = [i for i, piece in enumerate(grid) if piece not in chosen] + [grid.index(piece) for piece in chosen]
    positions = np.arange(math.prod(sizes.values()), dtype=np.int64).reshape([piece.size for piece in grid])
    groups = positions.transpose(order).reshape(-1, math.prod(piece.size for piece in chosen))
    groups.flags.writeable = False
    return groups
