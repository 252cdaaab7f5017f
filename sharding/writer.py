"""A walk that was found, written down: its states as placements, its edges as steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sharding.axes import AxisRef, SubAxis, canonical_axes
from sharding.mesh import AbstractMesh
from sharding.placement import Placement, placed
from sharding.steps import AllGather, AllReduce, AllToAll, Permute, ReduceScatter, Slice, Step

Atoms: TypeAlias = tuple[int, ...]  # indices into Writer.atoms, major to minor
State: TypeAlias = tuple[tuple[Atoms, ...], Atoms]  # axes per dim; partial axes, sorted
Edge: TypeAlias = tuple[str, tuple[int, ...], Atoms, State]  # step, its dims, its atoms, where it leads


@dataclass(frozen=True)
class Writer:
    """`kind`: what partial values are reduced by."""

    atoms: Sequence[SubAxis]
    mesh: AbstractMesh
    kind: str

    def written(self, source: State, edges: list[Edge]) -> tuple[tuple[Step, ...], tuple[Placement, ...]]:
        edges = self._merged_slices(edges)
        placements = tuple(self._placement(state) for state in (source, *(edge[3] for edge in edges)))
        steps = tuple(self._step(e, b, a) for e, b, a in zip(edges, placements, placements[1:], strict=False))
        return steps, placements

    def _merged_slices(self, edges: list[Edge]) -> list[Edge]:
        """Slices of one dim in a row are one slice."""
        merged: list[Edge] = []
        for edge in edges:
            last = merged[-1] if merged else None
            if last is not None and edge[0] == last[0] == "slice" and edge[1] == last[1]:
                merged[-1] = ("slice", edge[1], last[2] + edge[2], edge[3])
            else:
                merged.append(edge)
        return merged

    def _axes(self, chosen: Atoms) -> tuple[AxisRef, ...]:
        return canonical_axes([self.atoms[i] for i in chosen], self.mesh.shape) if chosen else ()

    def _placement(self, state: State) -> Placement:
        dims, partial = state
        ordered = tuple(sorted(partial, key=lambda i: (self.atoms[i].name, self.atoms[i].pre)))
        reduced = tuple((axis, self.kind) for axis in self._axes(ordered))
        return placed(tuple([self._axes(axes) for axes in dims]), reduced)

    def _step(self, edge: Edge, before: Placement, after: Placement) -> Step:
        name, dims, chosen, _ = edge
        if name == "permute":
            return Permute(before, after)
        axes = self._axes(chosen)
        if name == "slice":
            return Slice(dims[0], axes)
        if name == "gather":
            return AllGather(dims[0], axes)
        if name == "exchange":
            return AllToAll(dims[0], dims[1], axes)
        if name == "scatter":
            return ReduceScatter(dims[0], axes, self.kind)
        return AllReduce(axes, self.kind)
