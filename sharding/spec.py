"""PartitionSpec, what users write, and Placement, what the compiler uses.

A Placement says of a value of rank r: for each dim the mesh axes that shard it, major to minor; and the axes over which
the value is *partial*: every device holds an addend (or, for max, one candidate of the maximum, and so on), and the
value is their reduction. Over every other axis it is replicated.

Any extent may be sharded over any axes. A dim of extent n over s shards has local extent c = ceil(n / s); shard i holds
elements [i*c, (i+1)*c) of the dim, and what lies past n is padding with unspecified contents: 10 over 4 is 3, 3, 3, 1
of local extent 3, and 4 over 8 is four shards of one element and four of padding.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast, overload

from sharding.axes import (
    AxisRef,
    SubAxis,
    check_ref,
    first_overlap,
    name_of,
    overlap,
    parse_ref,
    span,
)
from sharding.mesh import BaseMesh

PARTIAL_KINDS: Final = ("sum", "max", "min", "prod", "and", "or")


class ShardingError(ValueError):
    """A placement that cannot be: says which argument, both numbers or axes, why, and a fix."""


class UnconstrainedType:
    """Type of P.UNCONSTRAINED: the compiler may choose this dim."""

    _instance: UnconstrainedType | None = None

    def __new__(cls) -> UnconstrainedType:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> tuple[type[UnconstrainedType], tuple[()]]:
        return (UnconstrainedType, ())


UNCONSTRAINED: Final = UnconstrainedType()
Entry: TypeAlias = AxisRef | tuple[AxisRef, ...] | UnconstrainedType | None


class PartitionSpec:
    """How each dim of an array is sharded: PartitionSpec("data", None, ("x", "y")), the spec of ``jax.sharding``.

    An entry is None (not sharded), an axis name, a tuple of names (major to minor; a tuple of one is that name, an
    empty one is None) or P.UNCONSTRAINED. Missing trailing entries mean None. Reads as a tuple: len, index, slice, +,
    ==, hash. A SubAxis may stand for a name; results whose dims are sharded over part of an axis have such specs.
    TypeError for any other entry.
    """

    UNCONSTRAINED: Final = UNCONSTRAINED
    __slots__ = ("_entries",)
    _entries: tuple[Entry, ...]

    def __init__(self, *entries: object) -> None:
        object.__setattr__(
            self, "_entries", tuple(_checked_entry(i, entry, entries) for i, entry in enumerate(entries))
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("PartitionSpec is immutable")

    @property
    def partitions(self) -> tuple[Entry, ...]:
        return self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> PartitionSpec: ...
    def __getitem__(self, index: int | slice) -> Entry | PartitionSpec:
        if isinstance(index, slice):
            return PartitionSpec(*self._entries[index])
        return self._entries[index]

    def index(self, entry: object) -> int:
        return self._entries.index(cast(Entry, entry))

    def count(self, entry: object) -> int:
        return self._entries.count(cast(Entry, entry))

    def __add__(self, other: Iterable[object]) -> PartitionSpec:
        return PartitionSpec(*self._entries, *other)

    def __radd__(self, other: Iterable[object]) -> PartitionSpec:
        return PartitionSpec(*other, *self._entries)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpec):
            return self._entries == other._entries
        if not isinstance(other, tuple):
            return NotImplemented
        return self._entries == tuple(_collapsed(cast(object, entry)) for entry in cast(tuple[Any, ...], other))

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"PartitionSpec{self._entries!r}"

    def __reduce__(self) -> tuple[type[PartitionSpec], tuple[Entry, ...]]:
        return (PartitionSpec, self._entries)


P = PartitionSpec


def _collapsed(entry: object) -> object:
    """A tuple of one is its member, and an empty one None; the rest as it is."""
    if isinstance(entry, list):
        entry = tuple(cast(list[object], entry))
    if isinstance(entry, tuple) and not isinstance(entry, SubAxis):
        members = cast(tuple[object, ...], entry)
        return members[0] if len(members) == 1 else members or None
    return entry


def _checked_entry(position: int, entry: object, entries: tuple[object, ...]) -> Entry:
    single = _collapsed(entry)
    if single is None or isinstance(single, str | SubAxis | UnconstrainedType):
        return single
    if isinstance(single, tuple) and all(isinstance(name, str | SubAxis) for name in cast(tuple[object, ...], single)):
        return cast(tuple[AxisRef, ...], single)
    raise TypeError(
        f"PartitionSpec entry {position} of {entries!r} is {entry!r}; an entry is None, an axis name, a tuple of axis "
        f"names or PartitionSpec.UNCONSTRAINED"
    )


def entry_axes(entry: Entry) -> tuple[AxisRef, ...]:
    """The axes of one entry, major to minor; () for None and UNCONSTRAINED."""
    if entry is None or isinstance(entry, UnconstrainedType):
        return ()
    if isinstance(entry, str | SubAxis):
        return (entry,)
    return entry


# --- placements -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Placement:
    """Axes per dim, major to minor; partial axes with their kind, sorted; replicated over the rest. Hashable.

    ShardingError when an axis (or a part of one) is used twice, when a kind is not one of PARTIAL_KINDS, or when two
    kinds meet: max over x of a sum over y is not the sum over y of a max over x, so such a value has no one meaning.
    """

    dims: tuple[tuple[AxisRef, ...], ...]
    partial: tuple[tuple[AxisRef, str], ...] = ()

    def __post_init__(self) -> None:
        if self.partial:
            object.__setattr__(self, "partial", tuple(sorted(self.partial, key=_partial_order)))
            self._check_kinds()
        clash = first_overlap(self.axes())
        if clash is not None:
            raise ShardingError(f"placement {self} uses an axis twice: {clash[0]} and {clash[1]} overlap")

    def _check_kinds(self) -> None:
        kinds = {kind for _, kind in self.partial}
        unknown = kinds.difference(PARTIAL_KINDS)
        if unknown:
            raise ShardingError(f"unknown partial kind {min(unknown)!r}; the kinds are {', '.join(PARTIAL_KINDS)}")
        if len(kinds) > 1:
            raise ShardingError(f"placement {self} mixes partial kinds, which do not commute: reduce one of them first")

    @staticmethod
    def replicated(rank: int) -> Placement:
        return _replicated(rank)

    @property
    def rank(self) -> int:
        return len(self.dims)

    def axes(self) -> tuple[AxisRef, ...]:
        """All axes in use: those of the dims in order, then the partial ones."""
        return (*itertools.chain.from_iterable(self.dims), *(axis for axis, _ in self.partial))

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
        return tuple(-(-extent // self.shards(dim, mesh)) for dim, extent in enumerate(shape))

    def is_even(self, dim: int, extent: int, mesh: BaseMesh) -> bool:
        """Whether the shards of `dim` hold no padding."""
        return extent % self.shards(dim, mesh) == 0

    def with_dim(self, dim: int, axes: Sequence[AxisRef]) -> Placement:
        """The same with `dim` sharded over `axes` instead."""
        return Placement((*self.dims[:dim], tuple(axes), *self.dims[dim + 1 :]), self.partial)

    def without_partial(self) -> Placement:
        return Placement(self.dims) if self.partial else self

    def with_partial(self, axes: Iterable[AxisRef], kind: str) -> Placement:
        """The same, partial over `axes` besides."""
        return Placement(self.dims, (*self.partial, *((axis, kind) for axis in axes)))

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
        text = ", ".join(f"{extent}@{'*'.join(map(str, axes))}" if axes else str(extent) for extent, axes in pairs)
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
            if not extent.isdecimal():
                raise ValueError(f"not a placed shape: {text!r}; write one such as 8@data, 512@model, 3 | sum(x)")
            shape.append(int(extent))
            dims.append(_parse_axes(axes) if axes else ())
        return tuple(shape), Placement(tuple(dims), _parse_partial(partial.strip() or None))


@functools.lru_cache(maxsize=64)
def _replicated(rank: int) -> Placement:
    return Placement(((),) * rank)


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


def placement_of(spec: Iterable[Entry], rank: int) -> Placement:
    """The placement that `spec` asks for on a value of `rank`: missing and UNCONSTRAINED entries shard nothing yet.

    ShardingError when there are more entries than dims, or an axis is used twice.
    """
    dims = tuple(entry_axes(entry) for entry in spec)
    if len(dims) > rank:
        raise ShardingError(f"spec {tuple(spec)} has {len(dims)} entries but the value has {rank} dims")
    return Placement((*dims, *((),) * (rank - len(dims))))


def open_dims(spec: Iterable[Entry], rank: int) -> tuple[bool, ...]:
    """For every dim whether the compiler may choose it: True where the entry is UNCONSTRAINED."""
    marks = tuple(isinstance(entry, UnconstrainedType) for entry in spec)
    return (*marks, *(False,) * (rank - len(marks)))


def spec_of(placement: Placement) -> PartitionSpec:
    """The spec that users see for `placement`, without trailing Nones; partial axes are not part of a spec."""
    entries: list[Entry] = [axes or None for axes in placement.dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


# --- checking what users wrote ----------------------------------------------------------------------------------------


def spec_text(entries: Iterable[Entry]) -> str:
    """A spec as users write it: P("data", ("x", "y"), None)."""
    return f"P({', '.join(_entry_text(entry) for entry in entries)})"


def _entry_text(entry: Entry) -> str:
    if isinstance(entry, tuple) and not isinstance(entry, SubAxis):
        return f"({', '.join(_entry_text(axis) for axis in entry)})"
    if isinstance(entry, str):
        return f'"{entry}"'
    return "P.UNCONSTRAINED" if isinstance(entry, UnconstrainedType) else str(entry)


def check_spec(
    spec: PartitionSpec, shape: Sequence[int] | None, mesh: BaseMesh, where: str, asked_by: str | None = None
) -> None:
    """ShardingError when `spec` cannot place an array of `shape` on `mesh`.

    That is: an unknown axis, an axis used twice, more entries than dims (the latter unless shape is None). An extent
    that the shards do not divide is no error. `where` names the culprit (``argument params['w1'] f32[10, 512]``),
    `asked_by` who wrote the spec (``in_shardings['w1'] at train.py:31``). Fixes suggested have been checked
    themselves.
    """
    problem = _unknown_axis(spec, mesh) or _repeated_axis(spec, mesh) or _extra_entries(spec, shape)
    if problem is None:
        return
    message, candidates = problem
    fixes = [fix for fix in candidates if _fits(fix, shape, mesh)]
    text = f"{where}: {message}"
    if asked_by is not None:
        text += f"\n  asked for by {asked_by}"
    if fixes:
        text += f"\n  fix: {' or '.join(spec_text(fix) for fix in fixes)}"
    raise ShardingError(text)


_Problem: TypeAlias = tuple[str, list[tuple[Entry, ...]]]


def _fits(entries: tuple[Entry, ...], shape: Sequence[int] | None, mesh: BaseMesh) -> bool:
    spec = PartitionSpec(*entries)
    return not (_unknown_axis(spec, mesh) or _repeated_axis(spec, mesh) or _extra_entries(spec, shape))


def _unknown_axis(spec: PartitionSpec, mesh: BaseMesh) -> _Problem | None:
    for ref in itertools.chain.from_iterable(map(entry_axes, spec)):
        name = name_of(ref)
        if name not in mesh.shape:
            have = ", ".join(f'"{axis}": {size}' for axis, size in mesh.shape.items()) or "none"
            near = difflib.get_close_matches(name, mesh.axis_names, n=1, cutoff=0.5)
            without = _rewritten(spec, ref, None)
            fixes = [_rewritten(spec, ref, near[0]), without] if near else [without]
            return f'axis "{name}" in {spec_text(spec)} is not in the mesh, whose axes are {have}', fixes
        try:
            check_ref(ref, mesh.shape)
        except ValueError as error:
            return f"{error} in {spec_text(spec)}", [_rewritten(spec, ref, name)]
    return None


def _rewritten(spec: PartitionSpec, old: AxisRef, new: AxisRef | None) -> tuple[Entry, ...]:
    def swap(entry: Entry) -> Entry:
        if isinstance(entry, UnconstrainedType) or entry is None:
            return entry
        kept = tuple(new if ref == old else ref for ref in entry_axes(entry))
        return cast(Entry, _collapsed(tuple(ref for ref in kept if ref is not None)))

    return tuple(swap(entry) for entry in spec)


def _repeated_axis(spec: PartitionSpec, mesh: BaseMesh) -> _Problem | None:
    used = [(position, ref) for position, entry in enumerate(spec) for ref in entry_axes(entry)]
    for (_, first), (_, second) in itertools.combinations(used, 2):
        if overlap(first, second):
            name = name_of(second)
            message = f'axis "{name}" of size {mesh.shape[name]} is used twice in {spec_text(spec)}'
            holders = [position for position, ref in used if overlap(ref, first)]
            fixes = [_only_at(spec, first, keep) for keep in dict.fromkeys(holders)]
            return message, fixes
    return None


def _only_at(spec: PartitionSpec, axis: AxisRef, keep: int) -> tuple[Entry, ...]:
    """`spec` with `axis` once in entry `keep` and nowhere else."""
    entries: list[Entry] = []
    for position, entry in enumerate(spec):
        seen = False
        kept: list[AxisRef] = []
        for ref in entry_axes(entry):
            clashes = overlap(ref, axis)
            if not clashes or (position == keep and not seen):
                kept.append(ref)
            seen = seen or clashes
        entries.append(entry if isinstance(entry, UnconstrainedType) else cast(Entry, _collapsed(tuple(kept))))
    return tuple(entries)


def _extra_entries(spec: PartitionSpec, shape: Sequence[int] | None) -> _Problem | None:
    if shape is None or len(spec) <= len(shape):
        return None
    message = f"{spec_text(spec)} has {len(spec)} entries but the array has {len(shape)} dims {tuple(shape)}"
    return message, [spec.partitions[: len(shape)]]


def shard_bounds(extent: int, shards: int, index: int) -> tuple[int, int]:
    """[start, stop) of the logical elements that shard `index` of `shards` holds; empty where it is all padding."""
    local = -(-extent // shards)
    return min(index * local, extent), min((index + 1) * local, extent)


def used_size(placement: Placement, mesh: BaseMesh) -> int:
    """Over how many devices the value is spread (dims and partial axes together)."""
    return math.prod(span(ref, mesh.shape).size for ref in placement.axes())
