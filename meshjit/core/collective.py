"""Collectives as data: what one moves, along which axes, and how often; the noun that plans, prices and reports share."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Source
from meshjit.core.region import weighted_regions
from sharding.axes import AxisRef, SubAxis, axes_text
from sharding.cost import COLLECTIVES, collective_bytes, collective_seconds
from sharding.mesh import BaseMesh
from sharding.topology import Topology


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of a per-device program.

    axes: those of its groups; of a permute those along which some sender and receiver differ.
    nbytes: of its operand, on one device. dim: along which it gathers or scatters; 0 where all dims before have extent 1.
    trips: how often it runs, as far as anybody knows. source: the user's line.
    """

    kind: str
    axes: tuple[AxisRef, ...]
    nbytes: float
    dim: int = 0
    trips: float = 1.0
    source: Source | None = dataclasses.field(default=None, compare=False)

    def times(self, trips: float) -> Collective:
        return self if trips == 1 else dataclasses.replace(self, trips=self.trips * trips)

    def wire_bytes(self, mesh: BaseMesh) -> float:
        """Bytes that one device puts on the wire in all trips."""
        return self.trips * collective_bytes(self.kind, self.nbytes, mesh.axes_size(self.axes))

    def seconds(self, mesh: BaseMesh, topology: Topology) -> float:
        """Predicted seconds of all trips."""
        return self.trips * collective_seconds(self.kind, self.nbytes, self.axes, mesh, topology, self.dim)

    def __str__(self) -> str:
        """`all_gather over data, 4,096 bytes, 32 times`."""
        often = "" if self.trips == 1 else f", {self.trips:g} times"
        return f"{self.kind} over {axes_text(self.axes)}, {self.nbytes:,.0f} bytes{often}"


def collectives_in(program: Program, mesh: BaseMesh, trips: float = 1.0) -> Iterator[Collective]:
    """Every collective of a local Program, nested Programs included, in order."""
    for eqn in program.eqns:
        if eqn.op.name in COLLECTIVES:
            yield collective_of(eqn, mesh).times(trips)
        for region, times in weighted_regions(eqn):
            yield from collectives_in(region.program, mesh, trips * times)


def collective_of(eqn: Eqn, mesh: BaseMesh) -> Collective:
    """The collective that a local equation is."""
    params, operand = eqn.params, eqn.inputs[0].type
    axes = _axes(params["axes"]) if "axes" in params else crossed_axes(params["pairs"], mesh)
    dim = params.get("dim", 0)
    is_minor = math.prod(operand.shape[:dim]) > 1
    return Collective(eqn.op.name, axes, operand.nbytes, dim if is_minor else 0, source=eqn.source)


def _axes(axes: Sequence[Any]) -> tuple[AxisRef, ...]:
    """Params that were parsed hold a part of an axis as a plain tuple."""
    return tuple(axis if isinstance(axis, str) else SubAxis(*axis) for axis in axes)


def crossed_axes(pairs: Sequence[tuple[int, int]], mesh: BaseMesh) -> tuple[AxisRef, ...]:
    """The axes along which the ends of some pair differ."""
    return _crossed(pairs, mesh.axis_names, mesh.axis_sizes) if pairs else ()


@functools.lru_cache(maxsize=32)
def _crossed(pairs: Sequence[tuple[int, int]], names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[AxisRef, ...]:
    ends = [np.unravel_index(column, sizes) for column in zip(*pairs, strict=True)]
    return tuple(a for a, here, there in zip(names, *ends, strict=True) if (here != there).any())
