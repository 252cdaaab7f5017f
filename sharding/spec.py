"""PartitionSpec: what users write of one array; its checks, and its way to and from a Placement (see placement.py)."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast, overload

from sharding.axes import (
    AxisRef,
    SubAxis,
    check_ref,
    name_of,
    overlap,
)
from sharding.mesh import BaseMesh
from sharding.placement import (
    PARTIAL_KINDS as PARTIAL_KINDS,
    Placement as Placement,
    ShardingError as ShardingError,
    shard_bounds as shard_bounds,
    used_size as used_size,
)


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
    empty one is None) or P.UNCONSTRAINED. Missing trailing entries mean None. Reads as a tuple: len, index, slice, +. Equals
    specs alone, as in JAX, whatever their priorities are (see `with_priorities`). A SubAxis may stand for a name; results whose
    dims are sharded over part of an axis have such specs.
    `unreduced`: explicit axes over which each device holds an addend; `reduced`: those over which its cotangent is to be such a
    sum. TypeError for any other entry; ValueError for an axis that is more than one of these.
    """

    UNCONSTRAINED: Final = UNCONSTRAINED
    __slots__ = ("_entries", "_priorities", "reduced", "unreduced")
    _entries: tuple[Entry, ...]
    _priorities: tuple[int, ...]
    unreduced: frozenset[str]
    reduced: frozenset[str]

    def __init__(
        self, *entries: object, unreduced: Iterable[str] = frozenset(), reduced: Iterable[str] = frozenset()
    ) -> None:
        checked = tuple(_checked_entry(i, entry, entries) for i, entry in enumerate(entries))
        object.__setattr__(self, "_entries", checked)
        object.__setattr__(self, "_priorities", ())
        object.__setattr__(self, "unreduced", _axis_set(unreduced, "unreduced"))
        object.__setattr__(self, "reduced", _axis_set(reduced, "reduced"))
        if self.unreduced or self.reduced:
            _check_sums(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("PartitionSpec is immutable")

    def with_priorities(self, *priorities: int) -> PartitionSpec:
        """The same placement, its entries with priorities: 0, the default, counts first, then 1, and so on.

        They matter where annotations disagree about values that nobody annotated: entries of a lower priority spread
        only where those of higher ones leave room. As `p0`, `p1` of Shardy (docs/sharding_representation.md).
        ValueError for a negative one, or more of them than entries.
        """
        if any(p < 0 for p in priorities) or len(priorities) > len(self._entries):
            raise ValueError(
                f"priorities {priorities} of {self!r}: give at most one number from 0 on for each of its {len(self)} entries"
            )
        spec = PartitionSpec(*self._entries)
        object.__setattr__(spec, "_priorities", tuple(int(p) for p in priorities) if any(priorities) else ())
        return spec

    def update(self, **changes: Any) -> PartitionSpec:
        """The spec with other `partitions`, `unreduced` or `reduced`."""
        entries = changes.pop("partitions", self._entries)
        return PartitionSpec(*entries, **{"unreduced": self.unreduced, "reduced": self.reduced, **changes})

    @property
    def dual(self) -> PartitionSpec:
        """The spec of a cotangent: that of an unreduced value is reduced, and the other way round."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced) if self.unreduced or self.reduced else self

    @property
    def priorities(self) -> tuple[int, ...]:
        """One number per entry; () where all are 0."""
        missing = len(self._entries) - len(self._priorities)
        return (*self._priorities, *(0,) * missing) if self._priorities else ()

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
            return self is other or (
                self._entries == other._entries and self.unreduced == other.unreduced and self.reduced == other.reduced
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        if not (self.unreduced or self.reduced):
            return f"P{self._entries!r}"
        return f"P({', '.join([*map(repr, self._entries), *_sums_text(self)])})"

    def __reduce__(self) -> Any:
        if self.unreduced or self.reduced:
            return (_with_sums, (self._entries, self.unreduced, self.reduced))
        return (_with_priorities, (self._entries, self._priorities)) if self._priorities else (PartitionSpec, self._entries)


P = PartitionSpec


def _with_priorities(entries: tuple[Entry, ...], priorities: tuple[int, ...]) -> PartitionSpec:
    return PartitionSpec(*entries).with_priorities(*priorities)


def _with_sums(entries: tuple[Entry, ...], unreduced: frozenset[str], reduced: frozenset[str]) -> PartitionSpec:
    return PartitionSpec(*entries, unreduced=unreduced, reduced=reduced)


def _sums_text(spec: PartitionSpec) -> list[str]:
    sums = (("unreduced", spec.unreduced), ("reduced", spec.reduced))
    return [f"{name}={{{', '.join(map(repr, sorted(axes)))}}}" for name, axes in sums if axes]


def _axis_set(axes: Iterable[str], name: str) -> frozenset[str]:
    axes = axes if isinstance(axes, str) else tuple(axes)
    if isinstance(axes, str) or not all(isinstance(axis, str) for axis in axes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"PartitionSpec: {name} must be a set of axis names, got {axes!r}")
    return frozenset(axes)


def _check_sums(spec: PartitionSpec) -> None:
    sharded = {name_of(ref) for entry in spec for ref in entry_axes(entry)}
    pairs = ((sharded, "an entry", spec.unreduced, "unreduced"), (sharded, "an entry", spec.reduced, "reduced"))
    for some, what, others, where in (*pairs, (spec.unreduced, "unreduced", spec.reduced, "reduced")):
        both = sorted(some & others)
        if both:
            raise ValueError(f"{spec!r}: axis {both[0]!r} is in {what} and in {where}; a value is one of these over an axis")


def padded(spec: PartitionSpec, rank: int) -> PartitionSpec:
    """The spec with an entry per dim."""
    if spec.unreduced or spec.reduced:
        return spec.update(partitions=(*spec, *[None] * (rank - len(spec))))
    return PartitionSpec(*spec, *[None] * (rank - len(spec))).with_priorities(*spec.priorities)


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
        f"names or PartitionSpec.UNCONSTRAINED{_entry_fix(entry)}"
    )


def _entry_fix(entry: object) -> str:
    """For what stands in place of a whole spec: `AUTO`, of which this module knows the name alone."""
    is_auto = "AUTO" in (getattr(entry, "__name__", ""), type(entry).__name__)
    return "\n  fix: AUTO in place of the spec; PartitionSpec.UNCONSTRAINED for one dim" if is_auto else ""


def entry_axes(entry: Entry) -> tuple[AxisRef, ...]:
    """The axes of one entry, major to minor; () for None and UNCONSTRAINED."""
    if entry is None or isinstance(entry, UnconstrainedType):
        return ()
    if isinstance(entry, str | SubAxis):
        return (entry,)
    return entry


def placement_of(spec: Iterable[Entry], rank: int) -> Placement:
    """The placement that `spec` asks for on a value of `rank`: missing and UNCONSTRAINED entries shard nothing yet. Over axes
    that the spec has as unreduced the value is a partial sum.

    ShardingError when there are more entries than dims, or an axis is used twice.
    """
    dims = tuple(entry_axes(entry) for entry in spec)
    if len(dims) > rank:
        raise ShardingError(f"spec {tuple(spec)} has {len(dims)} entries but the value has {rank} dims")
    partial = tuple((axis, "sum") for axis in sorted(spec.unreduced)) if isinstance(spec, PartitionSpec) else ()
    return Placement((*dims, *((),) * (rank - len(dims))), partial)


def open_dims(spec: Iterable[Entry], rank: int) -> tuple[bool, ...]:
    """For every dim whether the compiler may choose it: True where the entry is UNCONSTRAINED."""
    marks = tuple(isinstance(entry, UnconstrainedType) for entry in spec)
    return (*marks, *(False,) * (rank - len(marks)))


def completed(spec: PartitionSpec, placement: Placement) -> Placement:
    """The spec's placement, its UNCONSTRAINED dims as in `placement`, as far as axes are still free."""
    whole = placement_of(spec, placement.rank)
    for dim, is_open in enumerate(open_dims(spec, placement.rank)):
        used = {str(axis) for axis in whole.axes()}
        if is_open and not used & {str(axis) for axis in placement.dims[dim]}:
            whole = whole.with_dim(dim, placement.dims[dim])
    return whole


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
