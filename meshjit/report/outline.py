"""A planned Program folded to what a person reads: one row per line of the user's code, equal layers once, loops indented."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.printer import print_type
from meshjit.core.program import Eqn, Program, Source, Var
from meshjit.core.region import weighted_regions
from meshjit.core.repeats import repeats
from meshjit.plan.events import Remake
from meshjit.report.folding import Folded, folded
from meshjit.report.subject import Subject
from meshjit.report.transfers import Transfer
from meshjit.report.units import function_text


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the user's code, as far as it stands together, and the last value that it makes.

    kind: "argument", "line", or the head of what stands indented below it: "function", "layers", "loop", "branch", "devices"
    (code for single devices). `times`: equal layers, or trips of a loop. `equations`: how many there are, of all layers.
    local_shape, local_bytes: of the value on a device. wire_bytes, seconds: what the line sends; `work`: seconds of computing;
    in all layers and trips. Those of a head are the sums of what stands below it; the others add up to the plan's.
    """

    kind: str
    depth: int
    title: str
    value: str = ""
    type: str = ""
    local_bytes: int = 0
    local_shape: tuple[int, ...] = ()
    equations: int = 0
    times: float = 1
    wire_bytes: float = 0
    seconds: float = 0
    work: float = 0
    eqns: Sequence[Eqn] = dataclasses.field(default=(), repr=False)
    place: Source | None = dataclasses.field(default=None, repr=False)

    @property
    def is_head(self) -> bool:
        return self.kind not in ("argument", "line")


@dataclasses.dataclass(frozen=True)
class Line:
    """A row without its place among others, and the bodies below it: a head and lines each."""

    row: Row
    bodies: tuple[tuple[Row, tuple[Line, ...]], ...] = ()

    @property
    def key(self) -> object:
        """Alike in equal layers."""
        bodies = [(head.title, head.times, *(line.key for line in lines)) for head, lines in self.bodies]
        return self.row.place, self.row.type, *bodies


@rarely_collected
def outline(subject: Subject, sent: Iterable[Transfer]) -> list[Row]:
    """`sent`: each transfer by itself."""
    lines = _Lines(subject, sent)
    return [*_arguments(subject), *_rows(lines.of_plan(subject.plan, 1.0), 0)]


def _arguments(subject: Subject) -> Iterator[Row]:
    for name, variables in dict.fromkeys(subject.groups[v] for v in subject.plan.program.inputs):
        first = variables[0]
        size, shape = subject.local_bytes(first, subject.plan.placements[first]), _local_shape(subject, first)
        title = name.partition(" × ")[0]
        yield Row("argument", 0, title, subject.names[first], subject.type_text(first), size, shape, times=len(variables))


def _local_shape(subject: Subject, var: Var) -> tuple[int, ...]:
    return tuple(subject.plan.placements[var].local_shape(var.shape, subject.plan.mesh))


Cost: TypeAlias = tuple[float, float, float]  # bytes on the wire, seconds of sending, seconds of work


class _Lines:
    """Lines with what they cost: what an equation sends and computes counts for its own line."""

    def __init__(self, subject: Subject, sent: Iterable[Transfer]) -> None:
        self.subject = subject
        self.sent: dict[tuple[Eqn | None, Source | None], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for row in sent:
            key = row.owner, row.place
            wire_bytes, seconds = self.sent[key]
            self.sent[key] = wire_bytes + row.wire_bytes, seconds + row.seconds
        self.again = defaultdict[Eqn, float](float)  # seconds of making values again
        for event, trips in subject.events():
            if isinstance(event, Remake):
                self.again[event.eqn] += trips * subject.machine.effect(event.eqn, event.plan).work

    def of_plan(self, plan: Plan, trips: float) -> Iterator[Line]:
        plans = dict(zip(plan.program.eqns, plan.equations, strict=True))
        for group in _split(plan.program, _groups(plan.program.eqns)):
            row = dataclasses.replace(self.row(group, plans, trips), eqns=tuple(group))
            yield Line(row, tuple([body for eqn in group for body in self.bodies(eqn, plans[eqn], trips)]))
        handed_over = self.sent.pop((None, None), None)
        if handed_over is not None:
            yield Line(Row("line", 0, "handing over", wire_bytes=handed_over[0], seconds=handed_over[1]))

    def row(self, group: Sequence[Eqn], plans: dict[Eqn, EquationPlan], trips: float) -> Row:
        place, subject = group[-1].source, self.subject
        sent = [self.sent.pop((eqn, place), (0.0, 0.0)) for eqn in group]
        work = sum(trips * subject.machine.effect(e, plans[e]).work + self.again.pop(e, 0.0) for e in group)
        last, name, type, size, shape = _last(group), "", "", 0, tuple[int, ...]()
        if last is not None:
            name, type = subject.labels[last], subject.type_text(last)
            size, shape = subject.local_bytes(last, subject.plan.placements[last]), _local_shape(subject, last)
        wire_bytes, seconds = sum(b for b, _ in sent), sum(s for _, s in sent)
        return Row("line", 0, _title(place), name, type, size, shape, len(group), 1, wire_bytes, seconds, work, place=place)

    def bodies(self, eqn: Eqn, plan: EquationPlan, trips: float) -> Iterator[tuple[Row, tuple[Line, ...]]]:
        for (region, times), body in zip(weighted_regions(eqn) if plan.bodies else (), plan.bodies, strict=True):
            what = "loop" if region.loops else "branch"
            head = Row(what, 0, f"{eqn.op.name}, {what}", times=times, equations=len(body.program.eqns), place=eqn.source)
            yield head, tuple(self.of_plan(body, trips * times))
        for region in eqn.op.regions(eqn.params) if eqn.op.regions is not None else ():
            if region.role == "device":  # values are shards, and what is sent stands at the line that sends it
                lines = tuple(self.of_devices(eqn, region.program))
                count = len(region.program.eqns)
                yield Row("devices", 0, "on each device", equations=count, place=eqn.source), lines

    def of_devices(self, outer: Eqn, program: Program) -> Iterator[Line]:
        for group in _groups(program.eqns):
            place, last = group[-1].source, _last(group)
            wire_bytes, seconds = self.sent.pop((outer, place), (0.0, 0.0))
            type, size = (print_type(last.type), last.type.nbytes) if last is not None else ("", 0)
            shape = last.shape if last is not None else ()
            row = Row("line", 0, _title(place), "", type, size, shape, len(group), 1, wire_bytes, seconds, place=place)
            nested = [(eqn, each) for eqn in group for each in weighted_regions(eqn)]
            bodies = [body for eqn, (region, times) in nested for body in self.inner(outer, eqn, region.program, times)]
            yield Line(row, tuple(bodies))

    def inner(self, outer: Eqn, eqn: Eqn, program: Program, times: float) -> Iterator[tuple[Row, tuple[Line, ...]]]:
        head = Row("loop", 0, f"{eqn.op.name}, body", times=times, equations=len(program.eqns), place=eqn.source)
        yield head, tuple(self.of_devices(outer, program))


def _title(place: Source | None) -> str:
    return "" if place is None else f"{place.file.rsplit('/', 1)[-1]}:{place.line}"


def _last(group: Sequence[Eqn]) -> Var | None:
    """The last value that the group itself does not read, which is what it comes to."""
    made = [v for eqn in group for v in eqn.outputs]
    read = {v for eqn in group for v in eqn.inputs}
    return next((v for v in reversed(made) if v not in read), made[-1] if made else None)


def _groups(eqns: Sequence[Eqn]) -> Iterator[list[Eqn]]:
    """Stretches of one source."""
    group: list[Eqn] = []
    for eqn in eqns:
        if group and group[-1].source != eqn.source:
            yield group
            group = []
        group.append(eqn)
    if group:
        yield group


def _split(program: Program, groups: Iterable[list[Eqn]]) -> Iterator[Sequence[Eqn]]:
    """Where one line makes equal layers, one group for each: most of its equations are then in repeats of one kind."""
    starts = {repeat.start: repeat for repeat in repeats(program)}
    at = 0
    for group in groups:
        inside = [starts[i] for i in range(at, at + len(group)) if i in starts]
        kinds = Counter(repeat.kind for repeat in inside)
        kind, count = kinds.most_common(1)[0] if kinds else (0, 0)
        members = [repeat for repeat in inside if repeat.kind == kind and repeat.stop <= at + len(group)]
        if count > 1 and 2 * sum(repeat.stop - repeat.start for repeat in members) > len(group):
            cuts = sorted({0, len(group)}.union(*({r.start - at, r.stop - at} for r in members)))
            yield from (group[a:b] for a, b in itertools.pairwise(cuts))
        else:
            yield group
        at += len(group)


# -- rows: equal layers once, functions named where they begin


def _rows(lines: Iterable[Line], depth: int) -> Iterator[Row]:
    lines = list(lines)
    yield from _folded_rows(folded([line.key for line in lines]), lines, depth)


def _folded_rows(parts: Sequence[int | Folded], lines: Sequence[Line], depth: int) -> Iterator[Row]:
    function: str | None = None
    for part in parts:
        if isinstance(part, Folded):
            function = None
            below = list(_folded_rows(part.parts, _layers(lines, part), depth + 1))
            yield _summed(Row("layers", depth, _layers_title(below), times=part.times), below)
            yield from below
            continue
        place = lines[part].row.place
        name = "without a line" if place is None else function_text(place) + (f" ({place.note})" if place.note else "")
        if name != function:
            function = name
            yield Row("function", depth, name, place=place)
        yield from _line_rows(lines[part], depth + 1)


def _line_rows(line: Line, depth: int) -> Iterator[Row]:
    yield dataclasses.replace(line.row, depth=depth)
    for head, lines in line.bodies:
        below = list(_rows(lines, depth + 2))
        yield _summed(dataclasses.replace(head, depth=depth + 1), below)
        yield from below


def _layers(lines: Sequence[Line], part: Folded) -> list[Line]:
    """Each line of the first layer with what the same lines of all layers cost."""
    return [_merged(lines[part.start + i : part.start + part.times * part.period : part.period]) for i in range(part.period)]


def _merged(copies: Sequence[Line]) -> Line:
    first = copies[0]
    row = dataclasses.replace(_summed(first.row, [c.row for c in copies]), eqns=tuple([e for c in copies for e in c.row.eqns]))
    bodies = [_merged_bodies([c.bodies[i] for c in copies]) for i in range(len(first.bodies))]
    return Line(row, tuple(bodies))


def _merged_bodies(copies: Sequence[tuple[Row, tuple[Line, ...]]]) -> tuple[Row, tuple[Line, ...]]:
    head, lines = copies[0]
    return head, tuple([_merged([other[i] for _, other in copies]) for i in range(len(lines))])


def _summed(head: Row, below: Sequence[Row]) -> Row:
    """With the sums of what costs; `equations` only where they are not known yet."""
    rows = [row for row in below if not row.is_head]
    return dataclasses.replace(
        head, equations=head.equations if head.is_head and head.equations else sum(row.equations for row in rows),
        wire_bytes=sum(row.wire_bytes for row in rows), seconds=sum(row.seconds for row in rows),
        work=sum(row.work for row in rows),
    )  # fmt: skip


def _layers_title(below: Sequence[Row]) -> str:
    """`layers model.py:29 … 36`, from the first line to the last."""
    places = [row.place for row in below if not row.is_head and row.place is not None]
    if not places:
        return "layers"
    first, last = places[0], places[-1]
    end = str(last.line) if last.file == first.file else _title(last)
    return f"layers {_title(first)} … {end}" if first != last else f"layers {_title(first)}"


def layer_costs(rows: Sequence[Row]) -> Iterator[tuple[str, float, float]]:
    """(layers or loop, bytes sent, seconds of that) of each outermost one, and of what stands in none."""
    depth, rest = 0, (0.0, 0.0)
    inside = False
    for row in rows:
        inside = inside and row.depth > depth
        if inside:
            continue
        if row.kind in ("layers", "loop"):
            depth, inside = row.depth, True
            yield f"{row.title} × {row.times:g}", row.wire_bytes, row.seconds
        elif not row.is_head:
            rest = rest[0] + row.wire_bytes, rest[1] + row.seconds
    yield "elsewhere", *rest
