"""The moves of resharding. Each takes a Placement to a Placement and is at most one collective.

    Slice(dim, axes)                       dim gets `axes` as its minor-most axes       local
    AllGather(dim, axes)                   dim loses its minor-most axes `axes`         all_gather
    AllToAll(split_dim, concat_dim, axes)  `axes` move: minor-most of concat_dim        all_to_all
                                           become minor-most of split_dim
    ReduceScatter(dim, axes, kind)         partial `axes` become minor-most of dim      reduce_scatter
    AllReduce(axes, kind)                  partial `axes` are reduced                   all_reduce
    Permute(source, target)                other axes, same shard counts                collective_permute

`axes` are major to minor, and a collective's groups are ``mesh.replica_groups(axes)``: member j has index j along
`axes`.

Padding. A dim of extent n over s shards has local extent ceil(n / s), and shard i starts at i * ceil(n / s). So
adding or removing axes of size b behind axes of size a moves no element between the outer shards exactly if the
boundaries nest: ceil(n / a) == b * ceil(n / (a * b)). For a == 1, where the dim is whole on every device, they always do,
with padding up to b * ceil(n / b). `nests` tests this; steps whose boundaries do not nest are illegal: 10 over 4
is 3, 3, 3, 1 and over 4 * 2 it is 2, 2, 2, 2, 2, 0, 0, 0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from sharding.axes import AxisRef, SubAxis, canonical_axes, name_of, overlap
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.spec import Placement, ShardingError


def nests(extent: int, outer: int, inner: int) -> bool:
    """Whether `outer * inner` shards of `extent` are the `outer` shards, each cut into `inner` (or outer is 1)."""
    return outer == 1 or -(-extent // outer) == inner * -(-extent // (outer * inner))


@dataclasses.dataclass(frozen=True)
class Slice:
    """Keep the own block of `dim`. Local extents: L before, l = ceil(n / shards) after, b = size of `axes`.

    Pad dim to b * l, then take [i * l, (i + 1) * l) with i = mesh.axes_index(axes). Padding is needed only if the dim was
    unsharded: otherwise L == b * l.
    """

    dim: int
    axes: tuple[AxisRef, ...]
    collective: ClassVar[str | None] = None

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        return placement.with_dim(self.dim, _joined(placement.dims[self.dim], self.axes, mesh))

    def __str__(self) -> str:
        return f"slice({self.dim}, {_text(self.axes)})"


@dataclasses.dataclass(frozen=True)
class AllGather:
    """Concatenate the group's blocks along `dim`, in group order; then trim `dim` to its new local extent ceil(n / shards).

    Trimming is needed only if `dim` ends up unsharded (then to n)."""

    dim: int
    axes: tuple[AxisRef, ...]
    collective: ClassVar[str | None] = "all_gather"

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        return placement.with_dim(self.dim, _without_minor(placement.dims[self.dim], self.axes, self))

    def __str__(self) -> str:
        return f"all_gather({self.dim}, {_text(self.axes)})"


@dataclasses.dataclass(frozen=True)
class AllToAll:
    """Exchange blocks: `split_dim` is cut among the group, `concat_dim` comes together. b = size of `axes`.

    Pad split_dim to b * l, where l is its new local extent (only if it was unsharded). Cut it into b blocks and send block j
    to member j of the group. Concatenate the blocks that arrive along concat_dim, in group order. Trim concat_dim to its
    new local extent (only if it ends up unsharded).
    """

    split_dim: int
    concat_dim: int
    axes: tuple[AxisRef, ...]
    collective: ClassVar[str | None] = "all_to_all"

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        rest = _without_minor(placement.dims[self.concat_dim], self.axes, self)
        gathered = placement.with_dim(self.concat_dim, rest)
        return gathered.with_dim(self.split_dim, _joined(placement.dims[self.split_dim], self.axes, mesh))

    def __str__(self) -> str:
        return f"all_to_all(split {self.split_dim}, concat {self.concat_dim}, {_text(self.axes)})"


@dataclasses.dataclass(frozen=True)
class ReduceScatter:
    """Pad dim to b * l as Slice does; reduce over the group; member j keeps block j of dim. Padding holds anything."""

    dim: int
    axes: tuple[AxisRef, ...]
    kind: str
    collective: ClassVar[str | None] = "reduce_scatter"

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        reduced = _without_partial(placement, self.axes, self.kind, self, mesh)
        return reduced.with_dim(self.dim, _joined(placement.dims[self.dim], self.axes, mesh))

    def __str__(self) -> str:
        return f"reduce_scatter({self.dim}, {_text(self.axes)}, {self.kind})"


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """Reduce over the group, elementwise; every member gets the result. Shapes stay as they are."""

    axes: tuple[AxisRef, ...]
    kind: str
    collective: ClassVar[str | None] = "all_reduce"

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        return _without_partial(placement, self.axes, self.kind, self, mesh)

    def __str__(self) -> str:
        return f"all_reduce({_text(self.axes)}, {self.kind})"


@dataclasses.dataclass(frozen=True)
class Permute:
    """Send whole shards to other devices: every dim keeps its shard count, but over other axes. No padding changes.

    Legal for every extent. `source` and `target` are partial over the same axes: addends stay where they are.
    """

    source: Placement
    target: Placement
    collective: ClassVar[str | None] = "collective_permute"

    def apply(self, placement: Placement, mesh: BaseMesh | None = None) -> Placement:
        if placement != self.source:
            raise ShardingError(f"{self} starts from {self.source}, not from {placement}")
        return self.target

    def pairs(self, mesh: BaseMesh) -> Pairs:
        """(source, target) flat positions, each once on either side. A device that already holds its shard keeps it."""
        return _pairs(self.source, self.target, mesh.axis_names, mesh.axis_sizes)

    def __str__(self) -> str:
        return f"permute({self.source} -> {self.target})"


Step: TypeAlias = Slice | AllGather | AllToAll | ReduceScatter | AllReduce | Permute


def step_axes(step: Step) -> tuple[AxisRef, ...]:
    """The axes over which a step's groups run; of a Permute those whose place changes."""
    if not isinstance(step, Permute):
        return step.axes
    kept = {(dim, position, axis) for dim, position, axis in _places(step.source)} & set(_places(step.target))
    moved = [place for place in (*_places(step.source), *_places(step.target)) if place not in kept]
    return tuple(dict.fromkeys(axis for _, _, axis in moved))


def operand_shape(step: Step, before: Placement, shape: Sequence[int], mesh: BaseMesh) -> tuple[int, ...]:
    """The local shape that a step's collective is given, of a value of global `shape` placed as `before`: where a dim is
    scattered, grown to as many blocks as there are devices in the group."""
    local = list(before.local_shape(shape, mesh))
    dim = step.split_dim if isinstance(step, AllToAll) else step.dim if isinstance(step, ReduceScatter) else None
    if dim is not None:
        local[dim] = mesh.axes_size(step_axes(step)) * step.apply(before, mesh).local_shape(shape, mesh)[dim]
    return tuple(local)


def _places(placement: Placement) -> list[tuple[int, int, AxisRef]]:
    return [(dim, at, axis) for dim, axes in enumerate(placement.dims) for at, axis in enumerate(axes)]


def _text(axes: Sequence[AxisRef]) -> str:
    return "*".join(map(str, axes))


# --- axes at the minor end --------------------------------------------------------------------------------------------


def _joined(axes: Sequence[AxisRef], added: Sequence[AxisRef], mesh: BaseMesh | None) -> tuple[AxisRef, ...]:
    """`axes` with `added` behind them; with the mesh at hand x:(1)2, x:(2)2 becomes x."""
    both = (*axes, *added)
    return both if mesh is None else canonical_axes(both, mesh.shape)


def _without_minor(axes: tuple[AxisRef, ...], taken: Sequence[AxisRef], step: Step) -> tuple[AxisRef, ...]:
    """`axes` without `taken`, its minor-most part; an axis may be split: x without x:(2)2 is x:(1)2."""
    rest = list(axes)
    for axis in reversed(taken):
        if not rest:
            raise ShardingError(f"{step}: {axis} is not among the minor-most of the axes {_text(axes) or '-'}")
        last = rest.pop()
        if last == axis:
            continue
        if not isinstance(axis, SubAxis) or name_of(last) != axis.name or axis.pre == 1:
            raise ShardingError(f"{step}: {axis} is not among the minor-most of the axes {_text(axes) or '-'}")
        low = 1 if isinstance(last, str) else last.pre
        if isinstance(last, SubAxis) and last.pre * last.size != axis.pre * axis.size or axis.pre % low:
            raise ShardingError(f"{step}: {axis} is not among the minor-most of the axes {_text(axes) or '-'}")
        if axis.pre > low:
            rest.append(SubAxis(axis.name, low, axis.pre // low))
    return tuple(rest)


def _without_partial(
    placement: Placement, axes: Sequence[AxisRef], kind: str, step: Step, mesh: BaseMesh | None
) -> Placement:
    """`placement` no longer partial over `axes`; the parts of a partial axis that are not reduced stay."""
    rest = list(placement.partial)
    for axis in axes:
        holder = next((entry for entry in rest if overlap(entry[0], axis)), None)
        if holder is None or holder[1] != kind:
            raise ShardingError(f"{step}: the value is not partial {kind} over {axis}, but {placement}")
        rest.remove(holder)
        rest += [(piece, kind) for piece in _cut_out(holder[0], axis, step, mesh)]
    merged = canonical_axes([axis for axis, _ in sorted(rest, key=_by_place)], mesh.shape) if mesh else None
    partial = tuple(rest) if merged is None else tuple((axis, kind) for axis in merged)
    return Placement(placement.dims, partial)


def _by_place(entry: tuple[AxisRef, str]) -> tuple[str, int]:
    axis = entry[0]
    return name_of(axis), axis.pre if isinstance(axis, SubAxis) else 0


def _cut_out(whole: AxisRef, piece: AxisRef, step: Step, mesh: BaseMesh | None) -> list[SubAxis]:
    """What is left of `whole` without its part `piece`, at most one part on each side."""
    if whole == piece:
        return []
    if not isinstance(piece, SubAxis) or (isinstance(whole, str) and mesh is None):
        raise ShardingError(f"{step}: {piece} is no part of {whole}, or how large the axis is was not given")
    outer = whole if isinstance(whole, SubAxis) else SubAxis(whole, 1, mesh.shape[whole] if mesh else 0)
    if piece.pre % outer.pre or (outer.pre * outer.size) % (piece.pre * piece.size):
        raise ShardingError(f"{step}: {piece} is no part of {whole}")
    before = SubAxis(outer.name, outer.pre, piece.pre // outer.pre)
    end = piece.pre * piece.size
    behind = SubAxis(outer.name, end, outer.pre * outer.size // end)
    return [part for part in (before, behind) if part.size > 1]


# --- which device sends to which --------------------------------------------------------------------------------------


class Pairs(tuple[tuple[int, int], ...]):
    """(source, target) of all devices. There are as many as devices, so their hash is worked out once."""

    @functools.cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


@functools.lru_cache(maxsize=32)
def _pairs(source: Placement, target: Placement, names: tuple[str, ...], sizes: tuple[int, ...]) -> Pairs:
    mesh = AbstractMesh(sizes, names)
    return Pairs(_permutation(_shard_keys(source, mesh), _shard_keys(target, mesh)))


def _shard_keys(placement: Placement, mesh: BaseMesh) -> list[tuple[int, ...]]:
    """For every flat position what it holds: the block of every dim, and which addend."""
    columns = [mesh.axes_index(axes).tolist() for axes in (*placement.dims, placement.partial_axes)]
    return list(zip(*columns, strict=True))


def _permutation(have: list[tuple[int, ...]], want: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """A bijection source -> target with have[source] == want[target], the identity wherever that fits."""
    senders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for position, key in enumerate(have):
        if key != want[position]:
            senders[key].append(position)
    for queue in senders.values():
        queue.reverse()
    return [(at if have[at] == key else senders[key].pop(), at) for at, key in enumerate(want)]
