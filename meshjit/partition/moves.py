"""The steps of a reshard as local equations, and the masks that keep padding out of results.

A dim of extent E over k shards has local extent ceil(E / k); device i along the dim's axes holds [i*local, (i+1)*local).
What lies beyond E is padding. Each step below first makes the blocks line up (pad to shards * local), moves them, and
trims what the new placement does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.program import Var
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import first_place, full, iota, scalar
from meshjit.ops.base.shape import broadcast_in_dim, reshape, transpose
from meshjit.ops.collective import collectives
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.slicing.slices import pad, slice_
from sharding.axes import AxisRef
from sharding.mesh import BaseMesh
from sharding.spec import Placement
from sharding.steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter, Slice


class Moves:
    """Builds local equations in the current builder; remembers the device's index along axes already asked for.

    Where the machine is slow to gather or scatter along minor dims, it is told to do so along the first, and a
    transposition of blocks takes care of the rest (n = 4; the reshapes cost nothing):

        reduce_scatter dim 1    [a, 4b] reshape [a, 4, b] transpose [4, a, b] reduce_scatter dim 0 [1, a, b] reshape [a, b]
        all_gather dim 1        [a, b] reshape [1, a, b] all_gather dim 0 [4, a, b] transpose [a, 4, b] reshape [a, 4b]
    """

    def __init__(self, mesh: BaseMesh, target: Target) -> None:
        self.mesh = mesh
        self.target = target
        self.topology = target.topology
        self.indices: dict[tuple[AxisRef, ...], Var] = {}

    def index(self, axes: Sequence[AxisRef]) -> Var:
        """i32[]: where this device stands along axes, major to minor; 0 along no axes."""
        key = tuple(axes)
        if key not in self.indices:
            self.indices[key] = collectives.axis_index(axes=key) if key else scalar(0, np.int32)
        return self.indices[key]

    def mask(self, local: Var, dim: int, extent: int, axes: Sequence[AxisRef], fill: Any) -> Var:
        """`local` with what lies beyond the global extent of `dim` replaced by `fill`; itself if nothing does."""
        size = local.shape[dim]
        if not axes or size * self.mesh.axes_size(axes) == extent:
            return local
        offset = first_place(self.index(axes), self.mesh.axes_size(axes), size)
        place = add(iota(dtype=offset.dtype, shape=local.shape, dimension=dim), _spread(offset, local.shape))
        inside = compare(place, _spread(scalar(extent, offset.dtype), local.shape), direction="LT")
        return select(inside, local, full(local.type, fill))

    def addend(self, local: Var, axes: Sequence[AxisRef]) -> Var:
        """`local`, which all devices along axes hold, on the first of them, zeros on the others: together a sum."""
        first = compare(self.index(tuple(axes)), scalar(0, np.int32), direction="EQ")
        return select(_spread(first, local.shape), local, full(local.type, 0))

    def take(self, step: Any, local: Var, here: Placement, shape: Sequence[int]) -> Var:
        """One step of a walk, from placement `here` of a value whose global shape is `shape`."""
        target = step.apply(here, self.mesh).local_shape(shape, self.mesh)
        if 0 in shape:  # no elements, nothing to move; and XLA refuses to gather along a dim of extent 0
            return full(local.type.with_shape(target), 0)
        if isinstance(step, Slice):
            return self.slice(local, step.dim, step.axes, target)
        if isinstance(step, AllGather):
            return _trimmed(self.gather(local, step.dim, step.axes), target)
        if isinstance(step, AllToAll):
            return self.all_to_all(local, step, target)
        if isinstance(step, AllReduce):
            return collectives.all_reduce(local, axes=step.axes, kind=step.kind)
        if isinstance(step, ReduceScatter):
            return self.reduce_scatter(local, step, target)
        assert isinstance(step, Permute), step
        return collectives.collective_permute(local, pairs=step.pairs(self.mesh))

    def slice(self, local: Var, dim: int, axes: Sequence[AxisRef], target: Sequence[int]) -> Var:
        """Keep the block of this device along axes."""
        local = _padded(local, dim, self.mesh.axes_size(axes) * target[dim])
        start = first_place(self.index(axes), self.mesh.axes_size(axes), target[dim])
        starts = [start if d == dim else scalar(0, start.dtype) for d in range(local.rank)]
        return dynamic_slice(local, *starts, slice_sizes=tuple(target))

    def gather(self, local: Var, dim: int, axes: Sequence[AxisRef]) -> Var:
        size, shape = self.mesh.axes_size(axes), local.shape
        if dim and math.prod(shape[:dim]) == 1:  # XLA would lay such a dim out first, and copy
            return reshape(
                self.gather(reshape(local, shape=shape[dim:]), 0, axes),
                shape=(*shape[:dim], size * shape[dim], *shape[dim + 1 :]),
            )
        if not self.is_dear("all_gather", shape, dim):
            return collectives.all_gather(local, axes=tuple(axes), size=size, dim=dim)
        stacked = collectives.all_gather(reshape(local, shape=(1, *shape)), axes=tuple(axes), size=size, dim=0)
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1))
        return reshape(transpose(stacked, permutation=order), shape=(*shape[:dim], size * shape[dim], *shape[dim + 1 :]))

    def reduce_scatter(self, local: Var, step: ReduceScatter, target: Sequence[int]) -> Var:
        size, dim = self.mesh.axes_size(step.axes), step.dim
        local = _padded(local, dim, size * target[dim])
        params = {"axes": step.axes, "size": size, "kind": step.kind}
        if not self.is_dear("reduce_scatter", local.shape, dim):
            return collectives.reduce_scatter(local, dim=dim, **params)
        blocks = reshape(local, shape=(*local.shape[:dim], size, target[dim], *local.shape[dim + 1 :]))
        order = (dim, *range(dim), *range(dim + 1, blocks.rank))
        mine = collectives.reduce_scatter(transpose(blocks, permutation=order), dim=0, **params)
        return reshape(mine, shape=tuple(target))

    def is_dear(self, kind: str, shape: Sequence[int], dim: int) -> bool:
        """Whether the machine wants a collective along `dim` turned into one along the first dim."""
        return kind in self.topology.minor_slowdown and math.prod(shape[:dim]) > 1

    def all_to_all(self, local: Var, step: AllToAll, target: Sequence[int]) -> Var:
        size = self.mesh.axes_size(step.axes)
        local = _padded(local, step.split_dim, size * target[step.split_dim])
        params = {"axes": step.axes, "size": size, "split_dim": step.split_dim, "concat_dim": step.concat_dim}
        return _trimmed(collectives.all_to_all(local, **params), target)


def _spread(value: Var, shape: Sequence[int]) -> Var:
    return broadcast_in_dim(value, shape=tuple(shape), dimensions=())


def _padded(local: Var, dim: int, extent: int) -> Var:
    """`local` grown to `extent` along dim by zeros at the end."""
    missing = extent - local.shape[dim]
    if missing == 0:
        return local
    high = tuple(missing if d == dim else 0 for d in range(local.rank))
    none = (0,) * local.rank
    return pad(local, full(TensorType((), local.dtype), 0), low=none, high=high, interior=none)


def _trimmed(local: Var, target: Sequence[int]) -> Var:
    """The beginning of `local`, of shape `target`."""
    if local.shape == tuple(target):
        return local
    rank = local.rank
    return slice_(local, start=(0,) * rank, limit=tuple(target), strides=(1,) * rank)
