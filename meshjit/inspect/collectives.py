"""The collectives of a local Program: what each moves, along which axes, and which line of the user's code asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from meshjit.core.collective import collectives_in
from meshjit.core.program import Program
from sharding.mesh import BaseMesh


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one kind over the same axes from one line.

    `count`: how often they run, all together: every trip of a loop (16 of one that nobody knows), the mean of branches.
    `bytes`: what one device puts on the wire, all together."""

    kind: str
    axes: str
    source: str
    count: float
    bytes: int


def collective_rows(program: Program, mesh: BaseMesh) -> list[CollectiveRow]:
    """One row per kind, axes and line, dearest first."""
    rows: dict[tuple[str, str, str], tuple[float, float]] = {}
    for each in collectives_in(program, mesh):
        axes = ", ".join(map(str, each.axes)) if each.kind != "collective_permute" else "pairs"
        key = (each.kind, axes, str(each.source or ""))
        count, wire = rows.get(key, (0.0, 0.0))
        rows[key] = (count + each.trips, wire + each.wire_bytes(mesh))
    listed = [CollectiveRow(*key, _whole(count), round(wire)) for key, (count, wire) in rows.items()]
    return sorted(listed, key=lambda row: (-row.bytes, row.kind, row.source))


def _whole(count: float) -> float:
    return int(count) if count == int(count) else count
