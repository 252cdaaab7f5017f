"""A scan over a sharded dim: move its axes to another dim of the slices for the duration of the loop.

    scan(%c, %xs: f32[64@x, 32, 8]) {body: %x: f32[32, 8] …}       the dim of the slices must be whole: %xs is gathered
    scan(%c, %xs: f32[64, 32@x, 8]) {body: %x: f32[32@x, 8] …}     or an all_to_all hands x over, and the body is sharded

The second is a seed on the slice, propagated anew; the cheaper plan is kept. The same holds for stacked results that are
used sharded along the dim of the slices. All slices of one loop move together; a dim that divides evenly is preferred.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from meshjit.core.program import Eqn, Var
from meshjit.core.region import Region, run_regions
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from meshjit.plan.proposals.proposal import Proposal
from sharding.axes import AxisRef, axes_text, overlap
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


def propose(draft: Draft) -> list[Proposal]:
    """Those of the largest loops first."""
    weighed: list[tuple[int, Proposal]] = []
    shapes = draft.propagated.graph.shapes
    for part in programs_in(draft.program):
        for place, eqn in enumerate(part.eqns):
            for handovers in _of_loop(eqn, draft) if eqn.op.regions is not None else ():
                key = ("slices", part.name, place, tuple((h.value, h.dim, h.axes) for h in handovers))
                weight = sum(math.prod(shapes[h.value]) for h in handovers)
                weighed.append((weight, _proposal(draft, eqn, handovers, key)))
    return [proposal for _, proposal in sorted(weighed, key=lambda pair: -pair[0])]


def _of_loop(eqn: Eqn, draft: Draft) -> Iterator[tuple[Handover, ...]]:
    """The ways in which the slices of one loop may go together."""
    numbers, propagated, mesh = draft.flat.numbers, draft.propagated, draft.machine.mesh
    for region in run_regions(eqn):
        pairs = [(numbers[o], numbers[i]) for o, i in _slices(eqn, region)]
        for choice in range(CHOICES):
            if handovers := tuple(h for o, i in pairs for h in _handover(o, i, choice, propagated, mesh)):
                yield handovers


def _proposal(draft: Draft, eqn: Eqn, handovers: Sequence[Handover], key: object) -> Proposal:
    first = handovers[0]
    shape = list(draft.propagated.graph.shapes[first.value])
    text = f"shard dim {first.dim} of the slices {shape} over {axes_text(first.axes)}, which sharded the dim they are cut from"
    return Proposal(
        "slices", key, text, key, str(eqn.source or ""), seeds=lambda: _seeds(draft.propagated, handovers)
    )  # fmt: skip


def _seeds(propagated: Propagated, handovers: Sequence[Handover]) -> dict[int, Seed]:
    seeds = dict(propagated.graph.seeds)
    for each in handovers:
        placement = propagated.placements[each.value].without_partial().with_dim(each.dim, each.axes)
        priority = max((s.priority for _, o in each.origins if (s := seeds.get(o.seed)) is not None), default=0)
        seeds[each.value] = Seed(placement, (True,) * placement.rank, priority, each.origins)
    return seeds


def _slices(eqn: Eqn, region: Region) -> Iterator[tuple[Var, Var]]:
    """(what is cut into slices or stacked from them, the slice)"""
    for i in sorted(region.sliced):
        yield eqn.inputs[region.operands[i]], region.program.inputs[i]
    for i in sorted(region.stacked):
        result = region.results[i]
        if result is not None:
            yield eqn.outputs[result], region.program.outputs[i]


def _handover(outer: int, inner: int, choice: int, propagated: Propagated, mesh: BaseMesh) -> Iterator[Handover]:
    axes, here = propagated.placements[outer].dims[0], propagated.placements[inner]
    if not axes or inner in propagated.graph.seeds or any(overlap(a, b) for a in axes for b in here.axes()):
        return
    dims = list(_refuges(here, propagated.graph.shapes[inner], mesh.axes_size(axes)))
    if dims:
        pairs = [(axis, propagated.origins.get((outer, 0, axis))) for axis in axes]
        origins = tuple((axis, Origin(o.seed, o.node, o)) for axis, o in pairs if o is not None)
        yield Handover(inner, dims[min(choice, len(dims) - 1)], axes, origins)


def _refuges(here: Placement, shape: Sequence[int], shards: int) -> list[int]:
    """Dims of a slice without axes, and with as many elements as there are shards; even ones first."""
    free = [d for d, n in enumerate(shape) if not here.dims[d] and n >= shards > 1]
    return sorted(free, key=lambda d: shape[d] % shards != 0)
