"""Nothing expensive is silent: whole copies, padding and values that are computed again, each with what it costs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from meshjit.core.program import Eqn
from meshjit.plan.events import Remake
from meshjit.report.subject import Subject, size_of
from meshjit.report.transfers import Transfer
from meshjit.report.units import bytes_text, line_text, seconds_text
from sharding.mesh import BaseMesh
from sharding.placement import Placement

WASTE: Final = 0.05  # padding is named from this part of a shard on
LARGE: Final = 1 << 20  # bytes of a device's copy from which a replicated argument is named


@dataclasses.dataclass(frozen=True)
class Note:
    """`kind`: "whole" (a sharded value is gathered on every device), "replicated" (a large argument is), "padding", "remade"."""

    kind: str
    text: str
    source: str


def notes(subject: Subject, sent: Sequence[Transfer]) -> list[Note]:
    return [*_whole(sent), *_replicated(subject), *_padded(subject), *_remade(subject)]


def _whole(sent: Sequence[Transfer]) -> Iterator[Note]:
    for row in sent:
        if row.is_whole:
            cost = f"{bytes_text(row.wire_bytes)}, {seconds_text(row.seconds)}"
            yield Note("whole", f"{row.value} {row.type} is gathered whole on every device: {cost}", row.source)


def _replicated(subject: Subject) -> Iterator[Note]:
    plan = subject.plan
    for name, group in dict.fromkeys(subject.groups[v] for v in plan.program.inputs):
        size = sum(v.type.nbytes for v in group)
        if plan.mesh.device_count > 1 and plan.placements[group[0]].is_replicated and size >= LARGE:
            yield Note("replicated", f"{name} {subject.type_text(group[0])}: {bytes_text(size)} on every device", "")


def _padded(subject: Subject) -> Iterator[Note]:
    """Values of a line and shape once."""
    seen: dict[tuple[str, str], Note] = {}
    wasted: dict[tuple[tuple[int, ...], Placement], float] = {}
    for var, placement in subject.plan.placements.items():
        key = (var.shape, placement)
        if key not in wasted:
            wasted[key] = _waste(*key, subject.plan.mesh)
        if wasted[key] >= WASTE:
            source = line_text(subject.source(var))
            text = f"{subject.labels[var]} {subject.type_text(var)}: {100 * wasted[key]:.0f} % of its shards is padding"
            seen.setdefault((source, subject.type_text(var, placement)), Note("padding", text, source))
    yield from seen.values()


def _waste(shape: tuple[int, ...], placement: Placement, mesh: BaseMesh) -> float:
    """The part of all shards that lies beyond the extents."""
    shards = [n * placement.shards(d, mesh) for d, n in enumerate(placement.local_shape(shape, mesh))]
    return 1 - size_of(shape) / size_of(shards) if size_of(shards) else 0.0


def _remade(subject: Subject) -> Iterator[Note]:
    times = Counter[Eqn]()
    for event, trips in subject.events():
        if isinstance(event, Remake):
            times[event.eqn] += trips  # pyright: ignore[reportArgumentType]
    for eqn, count in times.items():
        var = eqn.outputs[0]
        if var.rank:
            text = f"{subject.labels[var]} {subject.type_text(var)} is computed again instead of moved, {count:g} ×"
            yield Note("remade", text, line_text(eqn.source))
