"""The cheapest legal walk from one placement to another.

States are placements, edges the steps of steps.py, and the walk is a shortest path (A*, `search.py`) in predicted seconds. Two
rules come before the price:

- A walk never holds a shard larger than the larger of source and target, if any such walk exists; if none does (uneven
  extents, whose boundaries do not nest), then the least possible more. So `P("y", None, "x") -> P(None, ("x", "y"))`
  is two all-to-alls however cheap a gather would be.
- A replicated value never becomes partial; a partial one may stay so over the axes over which the target is.

What is searched: axes are cut into parts where that helps, free axes may shard any dim on the way (slices cost next to
nothing, and make what follows smaller), and a permutation reaches only placements that agree with the target as far as
both go in every dim; from others a later step would have to undo it. space.py says how far this goes on large meshes.
Partial sums take no detour over free axes where that gains less than `Topology.detour`: a sum over x that is sliced over y,
reduce-scattered over x and gathered over both sends less than an all-reduce, and is three collectives' worth of scheduling.

Worked examples on x=4, y=2:

    [x, -]   -> [-, x]      all_to_all(split 1, concat 0, x)
    [x, -]   -> [y, -]      slice(0, y); permute([x*y, -] -> [y*x, -]); all_gather(0, x)
    [-] sum(x) -> [x]       reduce_scatter(0, x, sum)
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

from sharding.axes import AxisRef, SubAxis, atoms, canonical_axes, cut_points, name_of
from sharding.cost import step_cost as step_cost
from sharding.mesh import AbstractMesh, BaseMesh
from sharding.placement import Placement, ShardingError, normalized
from sharding.search import WalkSearch
from sharding.steps import Step
from sharding.topology import Topology


@dataclasses.dataclass(frozen=True)
class Walk:
    """Steps from one placement to another. `placements` has one more member than `steps`: before, between, after.

    seconds and bytes (on the wire, per device) are predictions; peak_bytes is the largest shard held at any point.
    """

    steps: tuple[Step, ...]
    placements: tuple[Placement, ...]
    seconds: float
    bytes: float
    peak_bytes: float

    def __str__(self) -> str:
        lines = [str(self.placements[0])]
        for step, after in zip(self.steps, self.placements[1:], strict=True):
            lines.append(f"  {step}  ->  {after}")
        return "\n".join(lines)


def plan_reshard(
    shape: Sequence[int],
    itemsize: float,
    source: Placement,
    target: Placement,
    mesh: BaseMesh,
    topology: Topology | None = None,
) -> Walk:
    """The cheapest walk from `source` to `target` of a value of global `shape`, elements of `itemsize` bytes.

    Axes of size 1 are ignored. Without a topology the mesh is taken to be CPU devices. ShardingError when `target` is
    partial where `source` is not, or either does not fit the shape or the mesh.
    """
    mesh = mesh if isinstance(mesh, AbstractMesh) else AbstractMesh(mesh.axis_sizes, mesh.axis_names)
    return _plan(tuple(shape), itemsize, source, target, mesh, topology or Topology.cpu(mesh))


@functools.lru_cache(maxsize=65536)
def _plan(
    shape: tuple[int, ...],
    itemsize: float,
    source: Placement,
    target: Placement,
    mesh: AbstractMesh,
    topology: Topology,
) -> Walk:
    source, target = normalized(source, mesh), normalized(target, mesh)
    _check(shape, source, target, mesh)
    try:
        cuts = cut_points([*source.axes(), *target.axes()], mesh.shape)
        for ref in (*source.axes(), *target.axes()):
            atoms(ref, cuts, mesh.shape)
    except ValueError:  # parts of an axis that fit no common grid: by way of neither
        between = _without_shared_axes(source, target)
        legs = (
            _plan(shape, itemsize, source, between, mesh, topology),
            _plan(shape, itemsize, between, target, mesh, topology),
        )
        return _concatenated(*legs)

    def searched(has_detours: bool) -> Walk:
        steps, placements = WalkSearch(shape, itemsize, source, target, mesh, topology, has_detours).walk()
        costs = [step_cost(step, at, shape, itemsize, mesh, topology) for step, at in zip(steps, placements, strict=False)]
        peak = max(math.prod(placement.local_shape(shape, mesh)) * itemsize for placement in placements)
        return Walk(steps, placements, sum(seconds for seconds, _ in costs), sum(moved for _, moved in costs), peak)

    walk = searched(has_detours=True)
    if topology.detour and source.partial and _is_detour(walk, source, target):
        straight = searched(has_detours=False)
        if straight.seconds < walk.seconds + topology.detour and straight.peak_bytes <= walk.peak_bytes:
            return straight
    return walk


def _is_detour(walk: Walk, source: Placement, target: Placement) -> bool:
    """Whether it shards over an axis that neither end does."""
    ends = {name_of(axis) for placement in (source, target) for axis in placement.axes()}
    return any(name_of(axis) not in ends for placement in walk.placements for axis in placement.axes())


def _check(shape: tuple[int, ...], source: Placement, target: Placement, mesh: AbstractMesh) -> None:
    for placement in (source, target):
        if placement.rank != len(shape):
            raise ShardingError(f"placement {placement} has {placement.rank} dims, the shape {shape} has {len(shape)}")
    if target.partial:
        have, want = _partial_atoms(source, target, mesh)
        lost = [piece for piece in want if piece not in have]
        if lost or source.partial_kind != target.partial_kind:
            axis = canonical_axes(lost or have, mesh.shape)[0]
            raise ShardingError(
                f"cannot go from {source} to {target}: the value is not partial {target.partial_kind} over {axis}, "
                f"and cannot become so"
            )


def _partial_atoms(source: Placement, target: Placement, mesh: AbstractMesh) -> tuple[list[SubAxis], list[SubAxis]]:
    cuts = cut_points([*source.partial_axes, *target.partial_axes], mesh.shape)
    have, want = (
        [piece for axis in placement.partial_axes for piece in atoms(axis, cuts, mesh.shape)]
        for placement in (source, target)
    )
    return have, want


def _without_shared_axes(source: Placement, target: Placement) -> Placement:
    """`source` without the dims' axes from the first on that the target uses, too; reduced as far as the target is."""
    used = {name_of(axis) for axis in target.axes()}

    def head(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        return tuple(itertools.takewhile(lambda axis: name_of(axis) not in used, axes))

    return Placement(tuple(head(axes) for axes in source.dims), target.partial)


def _concatenated(first: Walk, second: Walk) -> Walk:
    return Walk(
        first.steps + second.steps,
        first.placements + second.placements[1:],
        first.seconds + second.seconds,
        first.bytes + second.bytes,
        max(first.peak_bytes, second.peak_bytes),
    )
