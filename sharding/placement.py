"""Placement: what the compiler uses. Per dim the mesh axes that shard it, and the axes over which the value is partial.

Partial: every device holds an addend (or, for max, one candidate of the maximum, and so on), and the value is their
reduction. Over every axis that is neither in a dim nor partial the value is replicated.

Any extent may be sharded over any axes. A dim of extent n over s shards has local extent c = ceil(n / s); shard i holds
elements [i*c, (i+1)*c) of the dim, and what lies past n is padding with unspecified contents: 10 over 4 is 3, 3, 3, 1
of local extent 3, and 4 over 8 is four shards of one element and four of padding.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from sharding.axes import AxisRef, SubAxis, canonical_axes, first_overlap, name_of, parse_ref, span
from sharding.extent import extent_text, parse_extent
from sharding.mesh import BaseMesh

PARTIAL_KINDS: Final = ("sum", "max", "min", "prod", "and", "or")


class ShardingError(ValueError):
    """A placement that cannot be: says which argument, both numbers or axes, why, and a fix."""


@dataclasses.dataclass(frozen=True, eq=False, init=False, slots=True)
class Placement:
    """Axes per dim, major to minor; partial axes with their kind, sorted; replicated over the rest. Hashable; equal ones are one
    object, so that passes compare and look up placements in no time.

    ShardingError when an axis (or a part of one) is used twice, when a kind is not one of PARTIAL_KINDS, or when two
    kinds meet: max over x of a sum over y is not the sum over y of a max over x, so such a value has no one meaning.
    """

    dims: tuple[tuple[AxisRef, ...], ...]
    partial: tuple[tuple[AxisRef, str], ...] = ()

    def __new__(cls, dims: tuple[tuple[AxisRef, ...], ...], partial: tuple[tuple[AxisRef, str], ...] = ()) -> Placement:
        partial = tuple(sorted(partial, key=_partial_order)) if len(partial) > 1 else partial
        known = _every.get((dims, partial))
        if known is not None:
            return known
        placement = object.__new__(cls)
        object.__setattr__(placement, "dims", dims)
        object.__setattr__(placement, "partial", partial)
        placement._check()
        return _every.setdefault((dims, partial), placement)  # another thread may have made it meanwhile

    def _check(self) -> None:
        if self.partial:
            self._check_kinds()
        axes = self.axes()
        clash = first_overlap(axes) if len({*axes}) < len(axes) or SubAxis in map(type, axes) else None
        if clash is not None:
            raise ShardingError(f"placement {self} uses an axis twice: {clash[0]} and {clash[1]} overlap")

    def _check_kinds(self) -> None:
        kinds = {kind for _, kind in self.partial}
        unknown = kinds.difference(PARTIAL_KINDS)
        if unknown:
            raise ShardingError(f"unknown partial kind {min(unknown)!r}; the kinds are {', '.join(PARTIAL_KINDS)}")
        if len(kinds) > 1:
            raise ShardingError(f"placement {self} mixes partial kinds, which do not commute: reduce one of them first")

    def __reduce__(self) -> tuple[type[Placement], tuple[object, object]]:
        return Placement, (self.dims, self.partial)

    @staticmethod
    def replicated(rank: int) -> Placement:
        return _replicated(rank)

    @property
    def rank(self) -> int:
        return len(self.dims)

    def axes(self) -> tuple[AxisRef, ...]:
        """All axes in use: those of the dims in order, then the partial ones."""
        dim_axes = [axis for axes in self.dims for axis in axes]
        return (*dim_axes, *[axis for axis, _ in self.partial]) if self.partial else tuple(dim_axes)

    @property
    def partial_axes(self) -> tuple[AxisRef, ...]:
        return tuple(axis for axis, _ in self.partial)

    @property
    def partial_kind(self) -> str | None:
        """The one kind of the partial axes; None when there are none."""
        return self.partial[0][1] if self.partial else None

    @property
    def is_replicated(self) -> bool:
        """Every device holds the whole, reduced value."""
        return not self.partial and not any(self.dims)

    def shards(self, dim: int, mesh: BaseMesh) -> int:
        """Into how many shards `dim` is cut."""
        axes = self.dims[dim]
        return mesh.axes_size(axes) if axes else 1

    def local_shape(self, shape: Sequence[int], mesh: BaseMesh) -> tuple[int, ...]:
        """Shape of one device's shard, padding included: ceil(extent / shards) per dim."""
        self._check_rank(shape)
        sides = zip(shape, self.dims, strict=True)
        return tuple([-(-extent // mesh.axes_size(axes)) if axes else extent for extent, axes in sides])

    def is_even(self, dim: int, extent: int, mesh: BaseMesh) -> bool:
        """Whether the shards of `dim` hold no padding."""
        return extent % self.shards(dim, mesh) == 0

    def with_dim(self, dim: int, axes: Sequence[AxisRef]) -> Placement:
        """The same with `dim` sharded over `axes` instead."""
        return placed((*self.dims[:dim], tuple(axes), *self.dims[dim + 1 :]), self.partial)

    def stacked(self) -> Placement:
        """Of slices → of what they are cut from, whose dim 0 is whole."""
        return placed(((), *self.dims), self.partial)

    def without_partial(self) -> Placement:
        return placed(self.dims) if self.partial else self

    def _check_rank(self, shape: Sequence[int]) -> None:
        if len(shape) != self.rank:
            raise ShardingError(f"placement {self} has {self.rank} dims but the shape {tuple(shape)} has {len(shape)}")

    def __str__(self) -> str:
        dims = ", ".join("*".join(map(str, axes)) or "-" for axes in self.dims)
        return f"[{dims}] partial {self._partial_text()}" if self.partial else f"[{dims}]"

    def _partial_text(self) -> str:
        return f"{self.partial_kind}({', '.join(str(axis) for axis in self.partial_axes)})"

    def annotate(self, shape: Sequence[int]) -> str:
        """As in printed types, between the brackets: ``8@data, 512@model*x:(2)2, 3`` or ``8, 4 | sum(model)``."""
        self._check_rank(shape)
        pairs = zip(shape, self.dims, strict=True)
        text = ", ".join(f"{extent_text(n)}@{'*'.join(map(str, axes))}" if axes else extent_text(n) for n, axes in pairs)
        return f"{text} | {self._partial_text()}".lstrip() if self.partial else text

    @staticmethod
    def parse(text: str) -> Placement:
        """The inverse of str(); ValueError for other text."""
        match = re.fullmatch(r"\s*\[(.*)\]\s*(?:partial\s+(.*))?", text, re.DOTALL)
        if match is None:
            raise ValueError(f"not a placement: {text!r}; write one such as [data, model*x:(2)2, -] partial sum(y)")
        dims, partial = match.groups()
        parts = [part.strip() for part in dims.split(",")] if dims.strip() else []
        return Placement(tuple(() if part == "-" else _parse_axes(part) for part in parts), _parse_partial(partial))

    @staticmethod
    def parse_annotation(text: str) -> tuple[tuple[int, ...], Placement]:
        """The inverse of annotate(): shape and placement; ValueError for other text."""
        body, _, partial = text.partition("|")
        shape: list[int] = []
        dims: list[tuple[AxisRef, ...]] = []
        for part in body.split(",") if body.strip() else []:
            extent, _, axes = part.strip().partition("@")
            try:
                shape.append(parse_extent(extent))
            except ValueError:
                raise ValueError(
                    f"not a placed shape: {text!r}; write one such as 8@data, 512@model, 3 | sum(x)"
                ) from None
            dims.append(_parse_axes(axes) if axes else ())
        return tuple(shape), Placement(tuple(dims), _parse_partial(partial.strip() or None))


_every: Final[dict[object, Placement]] = {}  # that was ever made: few, as they are made of names of axes alone


@functools.lru_cache(maxsize=65536)
def placed(dims: tuple[tuple[AxisRef, ...], ...], partial: tuple[tuple[AxisRef, str], ...] = ()) -> Placement:
    """The Placement, looked up in C."""
    return Placement(dims, partial)


@functools.lru_cache(maxsize=64)
def _replicated(rank: int) -> Placement:
    return placed(((),) * rank)


def _partial_order(entry: tuple[AxisRef, str]) -> tuple[str, str, int]:
    axis, kind = entry
    return (kind, name_of(axis), axis.pre if isinstance(axis, SubAxis) else 0)


def _parse_axes(text: str) -> tuple[AxisRef, ...]:
    return tuple(parse_ref(part) for part in text.split("*"))


def _parse_partial(text: str | None) -> tuple[tuple[AxisRef, str], ...]:
    if text is None:
        return ()
    match = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
    if match is None:
        raise ValueError(f"not a partial part: {text!r}; write kind(axes), such as sum(model, x:(2)2)")
    return tuple((parse_ref(part), match[1]) for part in match[2].split(","))


def shard_bounds(extent: int, shards: int, index: int) -> tuple[int, int]:
    """[start, stop) of the logical elements that shard `index` of `shards` holds; empty where it is all padding."""
    local = -(-extent // shards)
    return min(index * local, extent), min((index + 1) * local, extent)


def used_size(placement: Placement, mesh: BaseMesh) -> int:
    """Over how many devices the value is spread (dims and partial axes together)."""
    return math.prod(span(ref, mesh.shape).size for ref in placement.axes())


def normalized(placement: Placement, mesh: BaseMesh) -> Placement:
    """The one way to write what `placement` means on this mesh: no axes of size 1, parts of axes joined."""
    sizes = mesh.shape
    if all(isinstance(axis, str) and sizes[axis] > 1 for axis in placement.axes()):
        return placement

    def dim(axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        return canonical_axes([axis for axis in axes if mesh.axis_size(axis) > 1], sizes)

    kind = placement.partial_kind
    partial = tuple((axis, kind) for axis in dim(placement.partial_axes)) if kind else ()
    return Placement(tuple(dim(axes) for axes in placement.dims), partial)
