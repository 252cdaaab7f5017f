"""The collectives of a local Program: what each moves, along which axes, and which line of the user's code asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshjit.core.program import Eqn, Program
from sharding.axes import SubAxis
from sharding.cost import COLLECTIVES, collective_bytes
from sharding.mesh import BaseMesh


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives of one kind over the same axes from one line. `bytes` is what one device puts on the wire, all together."""

    kind: str
    axes: str
    source: str
    count: int
    bytes: int


def collective_rows(program: Program, mesh: BaseMesh) -> list[CollectiveRow]:
    """One row per kind, axes and line, dearest first."""
    rows: dict[tuple[str, str, str], tuple[int, float]] = {}
    for eqn, times in collective_equations(program):
        key = (eqn.op.name, _axes_text(eqn), str(eqn.source or ""))
        count, wire = rows.get(key, (0, 0.0))
        rows[key] = (count + times, wire + times * wire_bytes(eqn, mesh))
    listed = [CollectiveRow(*key, count, round(wire)) for key, (count, wire) in rows.items()]
    return sorted(listed, key=lambda row: (-row.bytes, row.kind, row.source))


def collective_equations(program: Program, times: int = 1) -> Iterator[tuple[Eqn, int]]:
    """Every collective, also in nested Programs, with how often it runs."""
    for eqn in program.eqns:
        if eqn.op.name in COLLECTIVES:
            yield eqn, times
        for value in eqn.params.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Program):
                    yield from collective_equations(item, times * int(eqn.params.get("length", 1)))


def wire_bytes(eqn: Eqn, mesh: BaseMesh) -> float:
    """Bytes that one device puts on the wire, by the ring formulas of `sharding.cost`."""
    operand = eqn.inputs[0].type
    return collective_bytes(eqn.op.name, operand.nbytes, _group_size(eqn, mesh))


def _group_size(eqn: Eqn, mesh: BaseMesh) -> int:
    if "axes" not in eqn.params:  # a permute: one partner each
        return 2
    return mesh.axes_size(_axes(eqn))


def _axes(eqn: Eqn) -> tuple[Any, ...]:
    return tuple(axis if isinstance(axis, str) else SubAxis(*axis) for axis in eqn.params["axes"])


def _axes_text(eqn: Eqn) -> str:
    return ", ".join(map(str, _axes(eqn))) if "axes" in eqn.params else "pairs"
