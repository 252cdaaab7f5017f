"""Windows of a sharded dim: each device gets its own run of elements from whichever shards hold them.

This is how slices, pads, reversals, concatenations and rolls of a sharded dim are partitioned: neighbours exchange
only what the other lacks, by one permute per distance between shards. Worked example, x[1:-1] of 10 elements over 4
devices (local extent 3, of the result 2):

    device            0        1        2        3
    holds           0 1 2    3 4 5    6 7 8      9
    needs            1 2      3 4      5 6      7 8
    from distance 0  1 2      3 4        6                 kept, no exchange
    from distance -1                   5        7 8        one permute of the part [1, 3) of a shard

Positions are those of the global dim. What a window holds outside of it is unspecified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.program import Var
from meshjit.ops.collectives import collective_permute
from meshjit.ops.constants import constant, scalar, spread, zeros
from sharding.axes import AxisRef

if TYPE_CHECKING:
    from meshjit.partition.local import LocalEquation


@dataclass(frozen=True)
class _Piece:
    """Local elements [low, high) of shard `source`, which shard `target` needs."""

    source: int
    target: int
    low: int
    high: int


def window(
    local: LocalEquation, var: Var, dim: int, extent: int, axes: Sequence[AxisRef], starts: Sequence[int], width: int
) -> Var:
    """`width` elements of `dim` beginning at global position `starts[i]` on shard i.

    `var` is a shard, over `axes`, of a dim of `extent`. Starts may rise or fall with i, and lie outside the dim.
    """
    shard = var.shape[dim]
    if shard == 0 or width == 0:
        return zeros(var.type.with_shape(_with_extent(var.shape, dim, width)))
    parts: list[Var] = []
    begins = [0] * len(starts)  # where each shard's window begins in the parts put together
    gathered = 0
    for pieces in _rounds(starts, width, extent, shard):
        low, high = min(p.low for p in pieces), max(p.high for p in pieces)
        for piece in pieces:
            # Parts of neighbouring rounds meet: a shard that needs both makes the first end, and the second begin, at
            # the border of two shards. So any of its pieces tells where its window begins.
            begins[piece.target] = gathered - low + starts[piece.target] - piece.source * shard
        parts.append(_exchanged(local, cut(var, dim, low, high), axes, pieces))
        gathered += high - low
    if not parts:
        return zeros(var.type.with_shape(_with_extent(var.shape, dim, width)))
    return cut_at(local, parts, dim, axes, begins, width)


def _rounds(starts: Sequence[int], width: int, extent: int, shard: int) -> list[list[_Piece]]:
    """Pieces by distance between shards (by their sum where starts fall): a shard sends and gets once a round."""
    sign = 1 if list(starts) == sorted(starts) else -1
    rounds: dict[int, list[_Piece]] = {}
    for piece in _pieces(starts, width, extent, shard):
        rounds.setdefault(piece.source - sign * piece.target, []).append(piece)
    return [rounds[distance] for distance in sorted(rounds)]


def _pieces(starts: Sequence[int], width: int, extent: int, shard: int) -> list[_Piece]:
    found: list[_Piece] = []
    for target, start in enumerate(starts):
        low, high = max(start, 0), min(start + width, extent)
        for source in range(low // shard, -(-high // shard)) if low < high else ():
            begin = source * shard
            found.append(_Piece(source, target, max(low - begin, 0), min(high - begin, shard)))
    return found


def _exchanged(local: LocalEquation, part: Var, axes: Sequence[AxisRef], pieces: Sequence[_Piece]) -> Var:
    """Every target's part from its source; nothing moves where all are their own source."""
    if all(piece.source == piece.target for piece in pieces):
        return part
    groups = local.mesh.replica_groups(tuple(axes))
    pairs = tuple((int(group[p.source]), int(group[p.target])) for group in groups for p in pieces)
    return collective_permute(part, pairs=pairs)


def neighbours(
    local: LocalEquation, var: Var, dim: int, axes: Sequence[AxisRef], start: int, in_ring: bool
) -> Var:
    """The shard's window, as long as the shard, that begins `start` places after it, of a dim without padding.

    In a ring the end of the dim is followed by its beginning; otherwise zeros stand outside of it.
    """
    from meshjit.ops.ordering import concatenate

    shard, count = var.shape[dim], local.mesh.axes_size(axes)
    distance, rest = divmod(start, shard)
    parts: list[Var] = []
    for ahead, low, high in ((distance, rest, shard), (distance + 1, 0, rest)):
        if low < high:
            pieces = [_Piece((i + ahead) % count, i, low, high) for i in range(count) if in_ring or 0 <= i + ahead < count]
            part = cut(var, dim, low, high)
            parts.append(_exchanged(local, part, axes, pieces) if pieces else zeros(part.type))
    return parts[0] if len(parts) == 1 else concatenate(*parts, dimension=dim)


def cut_at(
    local: LocalEquation, parts: list[Var], dim: int, axes: Sequence[AxisRef], begins: Sequence[int], width: int
) -> Var:
    """`width` elements of the parts put together, from `begins[i]` on shard i, with room on both sides where needed."""
    total = sum(part.shape[dim] for part in parts)
    before, after = max(0, -min(begins)), max(0, max(begins) + width - total)
    whole = _joined(parts, dim, before, after)
    places = [begin + before for begin in begins]
    if len(set(places)) == 1:
        return cut(whole, dim, places[0], places[0] + width)
    from meshjit.ops.dynamic import dynamic_slice

    place = table(local, axes, places)
    starts = [place if d == dim else scalar(0, np.int32) for d in range(whole.rank)]
    return dynamic_slice(whole, *starts, slice_sizes=_with_extent(whole.shape, dim, width))


def _joined(parts: list[Var], dim: int, before: int, after: int) -> Var:
    from meshjit.ops.ordering import concatenate
    from meshjit.ops.slicing import pad

    whole = parts[0] if len(parts) == 1 else concatenate(*parts, dimension=dim)
    if not before and not after:
        return whole
    low, high = (tuple(n if d == dim else 0 for d in range(whole.rank)) for n in (before, after))
    return pad(whole, scalar(0, whole.dtype), low=low, high=high, interior=(0,) * whole.rank)


def cut(var: Var, dim: int, low: int, high: int, stride: int = 1) -> Var:
    """Elements [low, high) of one dim."""
    from meshjit.ops.slicing import slice_

    if (low, high, stride) == (0, var.shape[dim], 1):
        return var
    limit = _with_extent(var.shape, dim, high)
    start, strides = ([n if d == dim else m for d in range(var.rank)] for n, m in ((low, 0), (stride, 1)))
    return slice_(var, start=tuple(start), limit=limit, strides=tuple(strides))


def _with_extent(shape: Sequence[int], dim: int, extent: int) -> tuple[int, ...]:
    return tuple(extent if d == dim else n for d, n in enumerate(shape))


def table(local: LocalEquation, axes: Sequence[AxisRef], entries: Sequence[int]) -> Var:
    """i32[]: `entries[i]` on shard i of `axes`."""
    from meshjit.ops.dynamic import dynamic_slice
    from meshjit.ops.shape import reshape

    index = local.index(axes)
    steps = {b - a for a, b in zip(entries, entries[1:], strict=False)}
    if len(steps) == 1:
        from meshjit.ops.arithmetic import add, multiply

        return add(multiply(index, scalar(steps.pop(), np.int32)), scalar(entries[0], np.int32))
    column = constant(value=np.array(entries, np.int32))
    return reshape(dynamic_slice(column, index, slice_sizes=(1,)), shape=())


def positions(local: LocalEquation, shape: Sequence[int], dim: int, axes: Sequence[AxisRef]) -> Var:
    """i32 of this shape: the global position along `dim` of every element of a shard over `axes`."""
    from meshjit.ops.arithmetic import add, multiply
    from meshjit.ops.constants import iota

    count = iota(dtype=np.dtype(np.int32), shape=tuple(shape), dimension=dim)
    if not axes:
        return count
    return add(count, spread(multiply(local.index(axes), scalar(shape[dim], np.int32)), shape))


def between(places: Var, low: int, high: int) -> Var:
    """bool: low <= place < high."""
    from meshjit.ops.bits import and_
    from meshjit.ops.comparison import compare
    from meshjit.ops.constants import full_like

    above = compare(places, full_like(places, low), direction="GE")
    return and_(above, compare(places, full_like(places, high), direction="LT"))


def shard_axes(local: LocalEquation, factor: str) -> tuple[Any, ...]:
    """The axes that the plan spreads this factor over; () for none."""
    return tuple(local.assignment.get(factor, ()))
