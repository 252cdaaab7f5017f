"""What a plan sends: one row per move of a value or exchange of an op, why, and what each costs; equal layers together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from meshjit.core.collective import Collective
from meshjit.core.program import Eqn, Source, Var
from meshjit.core.types import TensorType
from meshjit.plan.events import Event, Exchange, Move
from meshjit.plan.flow import collectives_of
from meshjit.report.subject import Subject, once_per_subject, placement_text
from meshjit.report.units import function_text, line_text
from sharding.axes import axes_text, canonical_axes
from sharding.reshard import Walk
from sharding.spec import Placement
from sharding.steps import step_axes

SLICE: Final = "slice"  # each device keeps its part of a whole value: nothing is sent, and it takes next to no time
REDUCTIONS: Final = ("all_reduce", "reduce_scatter")


@dataclasses.dataclass(frozen=True)
class Transfer:
    """One collective, and those like it in equal layers; or a slice.

    wire_bytes: what a device sends in all of them. seconds: predicted, of all. times: how often it runs, loops' trips and layers
    included. value, type: what is sent. why: which two placements met. whole: whether a sharded value becomes whole on every
    device. `var` and `eqn` are what it is about: the value, and the equation that needs it (None: handed over as a result);
    `owner` is the equation to whose line it belongs.
    """

    kind: str
    axes: str
    group: int
    wire_bytes: float
    seconds: float
    times: float
    value: str
    type: str
    source: str
    why: str
    is_whole: bool
    copies: int
    place: Source | None = dataclasses.field(repr=False, default=None)
    var: Var | None = dataclasses.field(repr=False, default=None)
    eqn: Eqn | None = dataclasses.field(repr=False, default=None)
    end: Placement | None = dataclasses.field(repr=False, default=None)
    owner: Eqn | None = dataclasses.field(repr=False, default=None)


@once_per_subject
def transfers(subject: Subject) -> list[Transfer]:
    """What is sent, those of equal layers together; dearest first."""
    return together(single_transfers(subject))


def together(singles: Iterable[Transfer]) -> list[Transfer]:
    """Those of equal layers as one; dearest first."""
    rows: dict[tuple[object, ...], list[Transfer]] = {}
    for each in singles:
        key = (each.kind, each.axes, each.wire_bytes, each.times, each.type, each.place, each.is_whole, each.end)
        rows.setdefault(key, []).append(each)
    return sorted(map(_together, rows.values()), key=lambda row: (-row.seconds, -row.wire_bytes, row.kind, row.source))


def _together(rows: Sequence[Transfer]) -> Transfer:
    first, count = rows[0], len(rows)
    return dataclasses.replace(
        first, wire_bytes=count * first.wire_bytes, seconds=count * first.seconds, times=count * first.times, copies=count
    )


def single_transfers(subject: Subject) -> list[Transfer]:
    """In the order of the Program. Their bytes and seconds add up to those of the plan."""
    return [row for rows in transfers_by_event(subject).values() for row in rows]


@once_per_subject
def transfers_by_event(subject: Subject) -> Mapping[int, Sequence[Transfer]]:
    """What every event sends in all its trips, by the id of the event, which the plan keeps alive."""
    steps = _Steps(subject)
    return {id(event): rows for event, trips in subject.events() if (rows := tuple(_sent(subject, event, trips, steps)))}


def _sent(subject: Subject, event: Event, trips: float, steps: _Steps) -> Iterator[Transfer]:
    if isinstance(event, Exchange):
        yield from _exchanged(subject, event, trips)
    elif isinstance(event, Move):
        yield from _moved(subject, event, trips, steps)


class _Steps(dict[tuple[int, TensorType], tuple[Sequence[Collective], float]]):
    """The collectives of a walk for a type, and the seconds of the rest; by the id of the walk: equal layers share theirs."""

    def __init__(self, subject: Subject) -> None:
        self.mesh, self.topology = subject.plan.mesh, subject.machine.topology

    def of(self, walk: Walk, type: TensorType) -> tuple[Sequence[Collective], float]:
        key = id(walk), type
        if key not in self:
            collectives = collectives_of(walk, type, self.mesh)
            self[key] = collectives, walk.seconds - sum(each.seconds(self.mesh, self.topology) for each in collectives)
        return self[key]


def _exchanged(subject: Subject, event: Exchange, trips: float) -> Iterator[Transfer]:
    """What an op's rule sends. What code for single devices sends stands at its own lines."""
    eqn = event.eqn
    for each in event.final:
        place, why = eqn.source, f"{eqn.op.name} needs elements of other shards"
        if each.source is not None and each.source != eqn.source:
            place, why = each.source, "your code for single devices sends it"
        row = _transfer(subject, each.times(trips), eqn.outputs[0], eqn, why, None, eqn)
        yield dataclasses.replace(row, place=place, source=line_text(place))


def _moved(subject: Subject, event: Move, trips: float, steps: _Steps) -> Iterator[Transfer]:
    mesh, end = subject.plan.mesh, event.walk.placements[-1]
    collectives, rest = steps.of(event.walk, event.var.type)
    why, maker = _why_moved(subject, event), subject.makers.get(event.var)
    for each in collectives:
        owner = maker if each.kind in REDUCTIONS or event.eqn is None else event.eqn
        yield _transfer(subject, each.times(trips), event.var, event.eqn, why, end, owner or event.eqn or maker)
    if rest > 1e-9 * event.walk.seconds:
        axes = [axis for step in event.walk.steps if step.collective is None for axis in step_axes(step)]
        row = _transfer(subject, Collective(SLICE, (), 0.0), event.var, event.eqn, why, end, event.eqn or maker)
        text = axes_text(canonical_axes(dict.fromkeys(axes), mesh.shape))
        yield dataclasses.replace(row, axes=text, seconds=trips * rest, times=trips)


def _transfer(
    subject: Subject, each: Collective, var: Var, eqn: Eqn | None, why: str, end: Placement | None, owner: Eqn | None
) -> Transfer:
    mesh, place = subject.plan.mesh, owner.source if owner is not None else None
    is_slice = each.kind == SLICE
    whole = each.kind == "all_gather" and end is not None and not any(end.dims) and var.rank > 0
    return Transfer(
        each.kind, axes_text(each.axes), mesh.axes_size(each.axes), 0.0 if is_slice else each.wire_bytes(mesh),
        0.0 if is_slice else each.seconds(mesh, subject.machine.topology), each.trips, subject.labels[var],
        subject.type_text(var), line_text(place), why, whole, 1, place, var, eqn, end, owner,
    )  # fmt: skip


def _why_moved(subject: Subject, event: Move) -> str:
    start, end = event.walk.placements[0], event.walk.placements[-1]
    if event.eqn is None:
        reader = f"as {subject.output_names.get(event.var, 'a result')} it is"
    elif event.var in event.eqn.outputs:
        reader = "of the placements under which it is read, the others cost least from"
    else:
        reader = f"{_call_text(subject, event.eqn)} needs it"
    return f"it is {placement_text(start)}; {reader} {placement_text(end)}"


def _call_text(subject: Subject, eqn: Eqn) -> str:
    operands = ", ".join(subject.labels[v] for v in eqn.inputs[:3]) + (", …" if len(eqn.inputs) > 3 else "")
    return f"{eqn.op.name}({operands})"


@dataclasses.dataclass(frozen=True)
class Total:
    """What all transfers of one axis, kind, line, function or layer send."""

    name: str
    wire_bytes: float
    seconds: float


_OF: Final[Mapping[str, Callable[[Transfer], str]]] = {
    "axis": lambda row: row.axes,
    "kind": lambda row: row.kind,
    "line": lambda row: row.source,
    "function": lambda row: function_text(row.place) if row.place is not None else "",
}


def totals(rows: Iterable[Transfer], by: str) -> list[Total]:
    """`by` is "axis", "line", "function" or "kind"; dearest first."""
    return summed((_OF[by](row), row.wire_bytes, row.seconds) for row in rows)


def summed(parts: Iterable[tuple[str, float, float]]) -> list[Total]:
    """(name, bytes, seconds) added up by name, dearest first."""
    sent, taken = Counter[str](), Counter[str]()
    for name, wire_bytes, seconds in parts:
        sent[name] += wire_bytes  # pyright: ignore[reportArgumentType]
        taken[name] += seconds  # pyright: ignore[reportArgumentType]
    return sorted([Total(name, sent[name], taken[name]) for name in sent], key=lambda total: (-total.seconds, total.name))
