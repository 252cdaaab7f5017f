"""Annotations of the largest values may spread first, to their fixed point, then those of the next smaller ones.

    x: f32[64@x, 512, 512],  w: f32[512@x, 512] of every layer, all different

All at once they meet in the midst, and values in between change their placement from layer to layer, one conflict each. With
x first, all of what is made of it lies as it does, and the weights, which are smaller, move.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from meshjit.plan.draft import Draft
from meshjit.plan.proposals.proposal import Proposal
from sharding.graph import Seed


def propose(draft: Draft) -> Iterator[Proposal]:
    """It starts anew, without what was planted to turn conflicts."""
    graph = draft.flat.graph
    sizes = {value: math.prod(graph.shapes[value]) for value, seed in graph.seeds.items() if any(seed.placement.dims)}
    if draft.propagated.conflicts and len({*sizes.values()}) > 1:
        text = "let the annotations of the largest values spread first"
        yield Proposal(
            "order", "order", text, source=_source(draft), once=True,
            seeds=lambda: {**graph.seeds, **_ranked(graph.seeds, sizes)},
        )  # fmt: skip


def _source(draft: Draft) -> str:
    """The line where annotations first meet."""
    return next((draft.flat.source(c.node) for c in draft.propagated.conflicts if c.node >= 0), "")


def _ranked(seeds: Mapping[int, Seed], sizes: Mapping[int, int]) -> dict[int, Seed]:
    """The seeds of these values, those of the largest first."""
    ranks = {size: rank for rank, size in enumerate(sorted({*sizes.values()}, reverse=True))}
    ranked: dict[tuple[int, int], Seed] = {}  # one for equal seeds
    for value, size in sizes.items():
        seed, rank = seeds[value], ranks[size]
        if (id(seed), rank) not in ranked:
            ranked[id(seed), rank] = dataclasses.replace(seed, rank=rank)
    return {value: ranked[id(seeds[value]), ranks[size]] for value, size in sizes.items()}
