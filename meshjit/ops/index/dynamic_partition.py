"""`dynamic_slice` and `dynamic_update_slice` on a mesh. Starts are clamped globally first. Along a sharded dim,

- a part of some of the dim: every device works on what it holds of the part. A slice becomes a partial sum of that (zeros
  elsewhere), and may itself be sharded over other axes; an update stays where it is, and has to be whole.
- a part of nearly all of the dim begins at one of its first few places. So every device fetches what it might need, the
  elements for all these starts, which are few more than it has, and cuts at the start that it is:

      x[s : s + 14] of 16 elements over 4 devices, s is 0, 1 or 2
      wanted on device      0                1                2                3
      of the slice          0 1 2 3          4 5 6 7          8 9 10 11        12 13
      of x for all s        0 1 2 3 4 5      4 5 … 8 9        8 9 … 12 13      12 13 14 15     two from the next shard
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.ops.base.arithmetic import add, negate, subtract
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import clamp, select
from meshjit.ops.base.constants import first_place, iota, place_dtype, scalar, spread, zeros
from meshjit.ops.base.conversion import convert, in_dtype
from meshjit.ops.base.families import factor_names
from meshjit.ops.slicing.halos import between, fetch_run, shard_axes
from meshjit.ops.slicing.slices import pad

I32 = np.dtype(np.int32)


def is_nearly_all(extent: int, size: int) -> bool:
    """Whether a part of this size leaves so little of a dim that fetching what it might need costs less than summing it."""
    return size != extent and 4 * (extent - size) <= extent


def clamped_start(start: Var, extent: int, size: int) -> Var:
    """i32[], or i64[] where the dim needs it: where a part of this size begins in a dim of this extent."""
    dtype = place_dtype(extent)
    wide = convert(start, dtype=dtype) if start.dtype.itemsize < dtype.itemsize else start
    inside = clamp(scalar(0, wide.dtype), wide, scalar(extent - size, wide.dtype))
    return in_dtype(inside, dtype)


def _factors(local: LocalEquation, sizes: Sequence[int]) -> list[tuple[int, int, int, Any, Any]]:
    """For every dim of which a part is taken: its number, extent and size, the axes of the dim and those of the part."""
    shape = local.eqn.inputs[0].shape
    names = factor_names(2 * len(shape))
    pairs = zip(names[: len(shape)], names[len(shape) :], strict=True)
    axes = [(shard_axes(local, whole), shard_axes(local, part)) for whole, part in pairs]
    return [(d, n, m, *axes[d]) for d, (n, m) in enumerate(zip(shape, sizes, strict=True)) if n != m]


def _local_starts(local: LocalEquation, starts: Sequence[Var], sizes: Sequence[int]) -> list[Var]:
    """Clamped globally; 0 where the whole dim is taken."""
    shape = local.eqn.inputs[0].shape
    return [clamped_start(start, n, m) for start, n, m in zip(starts, shape, sizes, strict=True)]


def _in_shard(local: LocalEquation, begin: Var, shard: int, size: int, axes: Any) -> tuple[Var, Var, int]:
    """For a part of a sharded dim that begins at this global place: where the run of the shard begins that holds all of the part
    that the shard has, how much further that is than the part begins (parts elsewhere are all as far), and the length of the
    run."""
    offset, length = subtract(begin, _first(local, shard, axes, begin.dtype)), min(size, shard)
    start = clamp(scalar(0, offset.dtype), offset, scalar(shard - length, offset.dtype))
    return in_dtype(start, I32), _near(subtract(start, offset), size + length), length


def _near(distance: Var, most: int) -> Var:
    """A distance, at most so far; i32[] if that holds it."""
    if distance.dtype == I32 or place_dtype(most + 1) != I32:
        return distance
    return convert(clamp(scalar(-most, distance.dtype), distance, scalar(most, distance.dtype)), dtype=I32)


def _first(local: LocalEquation, shard: int, axes: Any, dtype: np.dtype[Any]) -> Var:
    """The global place at which this device's shard begins."""
    return first_place(local.index(axes), local.mesh.axes_size(axes), shard, dtype)


def _alike(starts: Sequence[Var]) -> list[Var]:
    """Starts in one dtype that holds all."""
    dtype = max((start.dtype for start in starts), key=lambda dtype: dtype.itemsize, default=I32)
    return [in_dtype(start, dtype) for start in starts]


def partition_slice(local: LocalEquation) -> list[Var]:
    """Along each sharded dim cut the run that holds what this shard has of the part, then move it to its place."""
    var, *indices = local.operands
    (type,), sizes = local.result_types, local.params["slice_sizes"]
    if 0 in (type.size, var.type.size):
        return [zeros(type)]
    starts, run, moves = _local_starts(local, indices, sizes), list(type.shape), list[tuple[int, Var]]()
    for dim, n, m, axes, over in _factors(local, sizes):
        width = type.shape[dim]
        if axes and is_nearly_all(n, m):
            firsts = [i * width for i in range(local.mesh.axes_size(axes))]
            var = fetch_run(local, var, dim, n, axes, firsts, width + n - m)
            continue
        begin = add(starts[dim], _first(local, width, over, starts[dim].dtype)) if over else starts[dim]
        if not axes and width * local.mesh.axes_size(over) == m:
            starts[dim] = begin
            continue
        starts[dim], distance, run[dim] = _in_shard(local, begin, var.shape[dim], width, axes)
        moves.append((dim, distance))
    var = ops.dynamic_slice(var, *_alike(starts), slice_sizes=tuple(run))
    for dim, distance in moves:
        var = shift(var, dim, distance, type.shape[dim])
    return [var]


def shift(var: Var, dim: int, distance: Var, size: int) -> Var:
    """Element j of the result, of `size` along `dim`, is element j - distance of `var`, or 0 where it has none."""
    low = tuple(size if d == dim else 0 for d in range(var.rank))
    padded = pad(var, scalar(0, var.dtype), low=low, high=low, interior=(0,) * var.rank)
    start = subtract(scalar(size, distance.dtype), distance)
    starts = [start if d == dim else scalar(0, start.dtype) for d in range(var.rank)]
    return ops.dynamic_slice(padded, *starts, slice_sizes=tuple(size if d == dim else n for d, n in enumerate(var.shape)))


def partition_update(local: LocalEquation) -> list[Var]:
    """Along sharded dims read the run that the part may touch, replace what belongs to the part, write it back."""
    var, update, *indices = local.operands
    sizes = local.eqn.inputs[1].shape
    if 0 in sizes or 0 in var.shape:
        return [var]
    starts, moves = _local_starts(local, indices, sizes), list[tuple[int, Var]]()
    for dim, n, m, axes, _ in _factors(local, sizes):
        shard = var.shape[dim]
        if axes and is_nearly_all(n, m):
            update = _might_need(local, update, dim, (n, m, shard), axes, starts[dim])
            ahead = subtract(_first(local, shard, axes, starts[dim].dtype), starts[dim])
            moves.append((dim, ahead))
            starts[dim] = scalar(0, I32)
        elif axes:
            starts[dim], ahead, length = _in_shard(local, starts[dim], shard, m, axes)
            update = shift(update, dim, negate(ahead), length)
            moves.append((dim, ahead))
    keep = None
    for dim, ahead in moves:  # element j of the run is element j + ahead of the update, if there is such a one
        places = add(iota(dtype=ahead.dtype, shape=update.shape, dimension=dim), spread(ahead, update.shape))
        inside = between(places, 0, sizes[dim])
        keep = inside if keep is None else and_(keep, inside)
    if keep is not None:
        update = select(keep, update, ops.dynamic_slice(var, *_alike(starts), slice_sizes=update.shape))
    return [ops.dynamic_update_slice(var, update, *_alike(starts))]


def _might_need(local: LocalEquation, update: Var, dim: int, extents: tuple[int, int, int], axes: Any, start: Var) -> Var:
    """The elements of the update for this device's shard of the operand, whichever of n - m + 1 places it begins at."""
    n, m, shard = extents
    firsts = [i * shard - (n - m) for i in range(local.mesh.axes_size(axes))]
    update = fetch_run(local, update, dim, m, axes, firsts, shard + n - m)
    begin = subtract(scalar(n - m, start.dtype), start)
    starts = [begin if d == dim else scalar(0, begin.dtype) for d in range(update.rank)]
    return ops.dynamic_slice(update, *starts, slice_sizes=tuple(shard if d == dim else k for d, k in enumerate(update.shape)))
