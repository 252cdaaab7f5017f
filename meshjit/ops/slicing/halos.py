"""Runs of a sharded dim, halos among them: each device gets its own run of elements from whichever shards hold them.

This is how slices, pads, reversals, concatenations and rolls of a sharded dim are partitioned: neighbours exchange
only what the other lacks, by one permute per distance between shards. Worked example, x[1:-1] of 10 elements over 4
devices (local extent 3, of the result 2):

    device            0        1        2        3
    holds           0 1 2    3 4 5    6 7 8      9
    needs            1 2      3 4      5 6      7 8
    from distance 0  1 2      3 4        6                 kept, no exchange
    from distance -1                   5        7 8        one permute of the part [1, 3) of a shard

Positions are those of the global dim. What a run holds outside of it is unspecified; it is zero where starts rise, no
shard has padding, and the run has a part of the dim.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import constant, first_place, full_like, iota, place_dtype, scalar, spread, zeros
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import collective_permute
from sharding.axes import AxisRef

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class _Round:
    """`width` local elements of shards `sources`, from `lows` on, which shards `targets` need parts of: every shard sends
    and gets once at most. The lows are all the same, but where shards need so different parts that one part with all of
    them would be twice as long.

    If a round pairs shards at one fixed distance, other shards may receive data too: their runs hold it there anyway.
    Otherwise (`is_exact`) only targets may receive; the others get zeros, as for elements outside the dim."""

    sources: Integers
    targets: Integers
    lows: Integers
    width: int
    is_exact: bool = False


def fetch_run(
    local: LocalEquation,
    var: Var,
    dim: int,
    extent: int,
    axes: Sequence[AxisRef],
    starts: Sequence[int],
    width: int,
    first: int = 0,
) -> Var:
    """`width` elements of `dim` beginning at global position `starts[i]` on shard i.

    `var` is a shard, over `axes`, of a dim of `extent`. Starts may rise or fall with i, and lie outside the dim. Elements
    before `first` are not fetched.
    """
    shard = var.shape[dim]
    if shard == 0 or width == 0:
        return zeros(var.type.with_shape(_with_extent(var.shape, dim, width)))
    parts: list[Var] = []
    places = np.array(starts, np.int64)
    begins = np.zeros(len(starts), np.int64)  # where each shard's run begins in the parts put together
    gathered = 0
    for each in _rounds(places, width, (first, extent), shard):
        # Parts of neighbouring rounds meet: a shard that needs both makes the first end, and the second begin, at the
        # border of two shards. So any of its parts tells where its run begins.
        begins[each.targets] = gathered - each.lows + places[each.targets] - each.sources * shard
        part = _sent(local, var, dim, axes, each, len(starts))
        parts.append(_exchanged(local, part, axes, _completed(each, len(starts))))
        gathered += each.width
    if not parts:
        return zeros(var.type.with_shape(_with_extent(var.shape, dim, width)))
    return cut_at(local, parts, dim, axes, begins.tolist(), width)


def _rounds(starts: Integers, width: int, within: tuple[int, int], shard: int) -> list[_Round]:
    """What shards need of one another by distance between them (by their sum where starts fall), or in fewer rounds."""
    low, high = np.maximum(starts, within[0]), np.minimum(starts + width, within[1])
    targets = np.flatnonzero(low < high)
    if not targets.size:
        return []
    low, high = low[targets], high[targets]
    first, count = low // shard, (high - 1) // shard - low // shard + 1
    nth = np.arange(count.max())  # 0, 1, … of the shards that one needs
    sources = first[:, None] + nth
    real = nth < count[:, None]
    begin = sources * shard
    lows, highs = np.maximum(low[:, None] - begin, 0)[real], np.minimum(high[:, None] - begin, shard)[real]
    sources, targets = sources[real], np.broadcast_to(targets[:, None], real.shape)[real]
    sign = 1 if (np.diff(starts) >= 0).all() else -1
    rounds = sources - sign * targets
    moving = len({*rounds[sources != targets].tolist()})  # np.unique would first import numpy.ma, which takes 15 ms
    packed = _packed(first, count) if moving > max(np.bincount(sources).max(), count.max()) else rounds
    is_packed = len({*packed.tolist()}) < moving
    rounds = packed if is_packed else rounds
    chosen = ((rounds == number) for number in sorted({*rounds.tolist()}))
    return [replace(_round(sources[c], targets[c], lows[c], highs[c], shard), is_exact=is_packed) for c in chosen]


def _packed(first: Integers, count: Integers) -> Integers:
    """The round of every part, target by target: consecutive ones for the parts of a run, each the first in which none of
    their sources has to send to another target.

    The half x[:16] of 32 elements over 4 devices: shard 0 has what 0 and 1 need, shard 1 what 2 and 3 need. There are
    distances 0, -1 and -2, but two rounds are enough.
    """
    busy: set[tuple[int, int]] = set()
    rounds: list[int] = []
    for begin, n in zip(first.tolist(), count.tolist(), strict=True):
        first_free = next(t for t in itertools.count() if not any((begin + i, t + i) in busy for i in range(n)))
        busy.update((begin + i, first_free + i) for i in range(n))
        rounds += range(first_free, first_free + n)
    return np.array(rounds)


def _round(sources: Integers, targets: Integers, lows: Integers, highs: Integers, shard: int) -> _Round:
    """One part that holds what everybody needs; or parts of their own, that begin or end with the shard where the next
    or the last part of the same run has to meet them."""
    low, high, width = int(lows.min()), int(highs.max()), int((highs - lows).max())
    if high - low < 2 * width:
        return _Round(sources, targets, np.full_like(lows, low), high - low)
    ends = np.where(highs == shard, shard - width, np.minimum(lows, shard - width))
    return _Round(sources, targets, np.where(lows == 0, 0, ends), width)


def _sent(local: LocalEquation, var: Var, dim: int, axes: Sequence[AxisRef], each: _Round, count: int) -> Var:
    """What this device sends in the round."""
    low = int(each.lows[0])
    if (each.lows == low).all():
        return cut(var, dim, low, low + each.width)
    lows = np.zeros(count, np.int64)
    lows[each.sources] = each.lows
    return cut_at(local, [var], dim, axes, lows.tolist(), each.width)


def _completed(each: _Round, count: int) -> _Round:
    """The round with all shards at its distance, if most take part: rounds of several runs are then the same."""
    if each.is_exact or len(each.targets) < 2 or 2 * len(each.targets) < count or (each.lows != each.lows[0]).any():
        return each
    sign = int((each.sources[1] - each.sources[0]) // (each.targets[1] - each.targets[0]))
    if abs(sign) != 1 or (each.sources - sign * each.targets != each.sources[0] - sign * each.targets[0]).any():
        return each
    targets = np.arange(count)
    sources = each.sources[0] + sign * (targets - each.targets[0])
    real = (sources >= 0) & (sources < count)
    return _Round(sources[real], targets[real], np.full(int(real.sum()), each.lows[0]), each.width)


def _exchanged(local: LocalEquation, part: Var, axes: Sequence[AxisRef], each: _Round) -> Var:
    """Every target's part from its source; nothing moves where all are their own source."""
    if (each.sources == each.targets).all() and not each.is_exact:
        return part
    groups = local.mesh.replica_groups(tuple(axes))
    pairs = np.stack([groups[:, each.sources], groups[:, each.targets]], axis=-1)
    return collective_permute(part, pairs=tuple(map(tuple, pairs.reshape(-1, 2).tolist())))


def neighbours(
    local: LocalEquation, var: Var, dim: int, axes: Sequence[AxisRef], start: int, in_ring: bool
) -> Var:
    """The shard's run, as long as the shard, that begins `start` places after it, of a dim without padding.

    In a ring the end of the dim is followed by its beginning; otherwise zeros stand outside of it.
    """
    shard, count = var.shape[dim], local.mesh.axes_size(axes)
    distance, rest = divmod(start, shard)
    parts: list[Var] = []
    for ahead, low, high in ((distance, rest, shard), (distance + 1, 0, rest)):
        if low < high:
            targets = np.arange(count) if in_ring else np.arange(max(-ahead, 0), max(min(count - ahead, count), 0))
            part = cut(var, dim, low, high)
            way = _Round((targets + ahead) % count, targets, np.zeros_like(targets), high - low)
            parts.append(_exchanged(local, part, axes, way) if targets.size else zeros(part.type))
    return parts[0] if len(parts) == 1 else ops.concatenate(*parts, dimension=dim)


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

    place = table(local, axes, places)
    starts = [place if d == dim else scalar(0, place.dtype) for d in range(whole.rank)]
    return ops.dynamic_slice(whole, *starts, slice_sizes=_with_extent(whole.shape, dim, width))


def _joined(parts: list[Var], dim: int, before: int, after: int) -> Var:
    whole = parts[0] if len(parts) == 1 else ops.concatenate(*parts, dimension=dim)
    if not before and not after:
        return whole
    low, high = (tuple(n if d == dim else 0 for d in range(whole.rank)) for n in (before, after))
    return ops.pad(whole, scalar(0, whole.dtype), low=low, high=high, interior=(0,) * whole.rank)


def cut(var: Var, dim: int, low: int, high: int, stride: int = 1) -> Var:
    """Elements [low, high) of one dim."""
    if (low, high, stride) == (0, var.shape[dim], 1):
        return var
    limit = _with_extent(var.shape, dim, high)
    start, strides = ([n if d == dim else m for d in range(var.rank)] for n, m in ((low, 0), (stride, 1)))
    return ops.slice_(var, start=tuple(start), limit=limit, strides=tuple(strides))


def _with_extent(shape: Sequence[int], dim: int, extent: int) -> tuple[int, ...]:
    return tuple(extent if d == dim else n for d, n in enumerate(shape))


def table(local: LocalEquation, axes: Sequence[AxisRef], entries: Sequence[int]) -> Var:
    """A scalar, i32, or i64 if that does not hold all entries: `entries[i]` on shard i of `axes`."""
    index, dtype = local.index(axes), place_dtype(max(map(abs, entries)))
    steps = {b - a for a, b in zip(entries, entries[1:], strict=False)}
    if len(steps) == 1:
        return add(first_place(index, len(entries), steps.pop(), dtype), scalar(entries[0], dtype))
    return _looked_up(np.array(entries, dtype), index, local.target.most_choices)


def _looked_up(entries: np.ndarray[Any, Any], index: Var, most_choices: int) -> Var:
    """Scalar: the entry at `index`, chosen between scalars, one wherever an entry differs from that before it, if these are
    at most so many; else sliced from the table."""
    changes = [i for i in range(1, entries.size) if entries[i] != entries[i - 1]]
    if len(changes) > most_choices:
        return reshape(ops.dynamic_slice(constant(value=entries), index, slice_sizes=(1,)), shape=())
    entry = scalar(entries[0], entries.dtype)
    for i in changes:
        is_behind = compare(index, scalar(i, index.dtype), direction="GE")
        entry = select(is_behind, scalar(entries[i], entries.dtype), entry)
    return entry


def positions(
    local: LocalEquation, shape: Sequence[int], dim: int, axes: Sequence[AxisRef], dtype: np.dtype[Any] | None = None
) -> Var:
    """The global position along `dim` of every element of a shard over `axes`, which has this shape. Without a dtype it has one
    that holds all positions."""
    shards = local.mesh.axes_size(axes)
    dtype = dtype or place_dtype(shards * shape[dim])
    count = iota(dtype=dtype, shape=tuple(shape), dimension=dim)
    return add(count, spread(first_place(local.index(axes), shards, shape[dim], dtype), shape)) if axes else count


def between(places: Var, low: int, high: int) -> Var:
    """bool: low <= place < high."""
    above = compare(places, full_like(places, low), direction="GE")
    return and_(above, compare(places, full_like(places, high), direction="LT"))


def shard_axes(local: LocalEquation, factor: str) -> tuple[Any, ...]:
    """The axes that the plan spreads this factor over; () for none."""
    return tuple(local.assignment.get(factor, ()))
