"""A lower bound on the seconds of a walk, without a search: what A* needs to look in the right direction, and what lets a
planner leave out an alternative that cannot win.

Slices alone reach the target from placements that it extends. Otherwise a collective has to start; each makes at most one dim
less sharded. Where the shard is too small, others make it larger, by at most as many bytes as they put on the wire: gathers,
and exchanges where extents are uneven. A reduction sends at least as many bytes as it leaves, so with what gathers add, the
whole target.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final

from sharding.axes import SubAxis
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.topology import Topology

COLLECTIVES: Final = ("all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter")


class Floor:
    """Prices below which no collective of a topology goes. `is_even`: whether shards hold no padding on the way."""

    def __init__(self, topology: Topology, is_even: bool) -> None:
        self.start = min(topology.latency.values(), default=0.0)
        quickest = max(topology.bandwidth.values(), default=1.0)
        growing = ("all_gather",) if is_even else ("all_gather", "all_to_all")
        prices = [[topology.slowdown.get(k, 1.0) / quickest for k in kinds] for kinds in (growing, COLLECTIVES)]
        self.growing_byte, self.byte = map(min, prices)

    def seconds(self, is_reduced: bool, is_extended: bool, too_sharded: int, size: float, target: float) -> float:
        """At least so much, from a shard of `size` bytes to one of `target`: `is_reduced`: no sum is lacking; `is_extended`: the
        target's axes begin with those here, in every dim; `too_sharded`: how many dims have more shards than in the target."""
        if not is_reduced:
            return (1 + too_sharded) * self.start + target * self.byte
        if too_sharded:
            return too_sharded * self.start + max(0.0, target - size) * self.growing_byte
        return 0.0 if is_extended else self.start


floor_of = functools.lru_cache(maxsize=256)(Floor)


def least_seconds(
    shape: Sequence[int], itemsize: float, source: Placement, target: Placement, mesh: BaseMesh, topology: Topology
) -> float:
    """At most `plan_reshard(...).seconds` with the same arguments; both placements normalized. Parts of axes are not compared."""
    pairs = [pair for pair in zip(source.dims, target.dims, strict=True) if pair[0]]
    is_extended = all([there[: len(here)] == here or any([isinstance(a, SubAxis) for a in here]) for here, there in pairs])
    too_sharded = sum([mesh.axes_size(here) > mesh.axes_size(there) for here, there in pairs if here != there])
    sizes = [math.prod(placement.local_shape(shape, mesh)) * itemsize for placement in (source, target)]
    is_reduced = mesh.axes_size(source.partial_axes) == mesh.axes_size(target.partial_axes)
    return floor_of(topology, False).seconds(is_reduced, is_extended, too_sharded, *sizes)
