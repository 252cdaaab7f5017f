"""What a loop goes along one slice at a time, where that dim is sharded: its axes may shard another dim meanwhile.

    scan(%c, %xs: f32[64@x, 32, 8]) {body: %x: f32[32, 8] …}       the dim of the slices has to be whole: %xs is gathered
    scan(%c, %xs: f32[64, 32@x, 8]) {body: %x: f32[32@x, 8] …}     or handed over by an all_to_all, and the body sharded

The second is a seed on the slice, propagated anew; the cheaper plan is kept. So with results that are stacked, and wanted
sharded along the dim of the slices. All slices of one loop go together; a dim that divides evenly comes before others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, run_regions
from meshjit.plan.graph import programs_in
from sharding.axes import AxisRef, overlap
from sharding.graph import Origin, Propagated, Seed
from sharding.mesh import BaseMesh
from sharding.spec import Placement

CHOICES = 2  # dims that are tried


@dataclasses.dataclass(frozen=True)
class Handover:
    """A slice (by number) and the dim of it that gets axes, and where these came from."""

    value: int
    dim: int
    axes: tuple[AxisRef, ...]
    origins: tuple[tuple[AxisRef, Origin], ...]


@dataclasses.dataclass(frozen=True)
class SliceTurn:
    """The other way that one loop could go. As `sharding.alternatives.Turn`."""

    key: object
    family: object
    handovers: tuple[Handover, ...]
    elements: int

    def seeds(self, found: Propagated) -> dict[int, Seed]:
        seeds = dict(found.graph.seeds)
        for each in self.handovers:
            placement = found.placements[each.value].without_partial().with_dim(each.dim, each.axes)
            priority = max((s.priority for _, o in each.origins if (s := seeds.get(o.seed)) is not None), default=0)
            seeds[each.value] = Seed(placement, (True,) * placement.rank, priority, each.origins)
        return seeds


def slice_turns(program: Program, numbers: Mapping[Var, int], found: Propagated, mesh: BaseMesh) -> list[SliceTurn]:
    """All that may be tried, those of the largest loops first."""
    turns: list[SliceTurn] = []
    for part in programs_in(program):
        for place, eqn in enumerate(part.eqns):
            for region in run_regions(eqn):
                pairs = [(numbers[o], numbers[i]) for o, i in _slices(eqn, region)]
                for choice in range(CHOICES):
                    handovers = tuple(h for outer, inner in pairs for h in _handover(outer, inner, choice, found, mesh))
                    if handovers:
                        key = ("slices", part.name, place, tuple((h.value, h.dim, h.axes) for h in handovers))
                        elements = sum(math.prod(found.graph.shapes[h.value]) for h in handovers)
                        turns.append(SliceTurn(key, key, handovers, elements))
    return sorted(turns, key=lambda turn: -turn.elements)


def _slices(eqn: Eqn, region: Region) -> Iterator[tuple[Var, Var]]:
    """(what is cut into slices or stacked from them, the slice)"""
    for i in sorted(region.sliced):
        yield eqn.inputs[region.operands[i]], region.program.inputs[i]
    for i in sorted(region.stacked):
        result = region.results[i]
        if result is not None:
            yield eqn.outputs[result], region.program.outputs[i]


def _handover(outer: int, inner: int, choice: int, found: Propagated, mesh: BaseMesh) -> Iterator[Handover]:
    axes, here = found.placements[outer].dims[0], found.placements[inner]
    if not axes or inner in found.graph.seeds or any(overlap(a, b) for a in axes for b in here.axes()):
        return
    dims = list(_refuges(here, found.graph.shapes[inner], mesh.axes_size(axes)))
    if dims:
        said = [(axis, found.origins.get((outer, 0, axis))) for axis in axes]
        origins = tuple((axis, Origin(o.seed, o.node, o)) for axis, o in said if o is not None)
        yield Handover(inner, dims[min(choice, len(dims) - 1)], axes, origins)


def _refuges(here: Placement, shape: Sequence[int], shards: int) -> list[int]:
    """Dims of a slice without axes, and with as many elements as there are shards; even ones first."""
    free = [d for d, n in enumerate(shape) if not here.dims[d] and n >= shards > 1]
    return sorted(free, key=lambda d: shape[d] % shards != 0)
