"""What a device does when, as planning predicts it: computing, and sending over each set of axes, one after the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Source
from meshjit.core.region import weighted_regions
from meshjit.plan.events import Event, Remake
from meshjit.report.subject import Subject
from meshjit.report.transfers import SLICE, transfers_of

WORK: Final = "computing"


@dataclasses.dataclass(frozen=True)
class Span:
    """From `start` on, for `seconds`, on one track: computing, or the axes over which something is sent. `trips`: of a loop,
    which stands here as one iteration that takes as long as all."""

    track: str
    start: float
    seconds: float
    title: str
    source: str
    place: Source | None = dataclasses.field(default=None, repr=False)
    trips: float = 1.0


def timeline(subject: Subject) -> list[Span]:
    """In the order of the Program; what follows on one track for one line is one span."""
    spans: list[Span] = []
    now = 0.0
    for (track, place, trips), steps in itertools.groupby(
        (step for step in _steps(subject, subject.plan, 1.0) if step.seconds > 0),
        key=lambda step: (step.track, step.place, step.trips),
    ):
        together = list(steps)
        seconds = sum(step.seconds for step in together)
        spans.append(Span(track, now, seconds, together[0].title, together[0].source, place, trips))
        now += seconds
    return spans


def _steps(subject: Subject, plan: Plan, trips: float, is_block: bool = False) -> Iterator[Span]:
    """`is_block`: iterations of a block exchange nothing themselves."""
    events: dict[Eqn | None, list[Event]] = defaultdict(list)
    for event in plan.events:
        events[getattr(event, "eqn", None)].append(event)
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        yield from () if is_block else _sending(subject, events[eqn], trips)
        again = sum(subject.machine.effect(eqn, e.plan).work for e in events[eqn] if isinstance(e, Remake))
        yield _span(WORK, trips * (subject.machine.effect(eqn, equation).work + again), eqn.op.name, eqn.source, trips)
        for (_, times), body in zip(weighted_regions(eqn) if equation.bodies else (), equation.bodies, strict=True):
            yield from _steps(subject, body, trips * times, is_block or bool(equation.block))
    yield from () if is_block else _sending(subject, events[None], trips)


def _sending(subject: Subject, events: list[Event], trips: float) -> Iterator[Span]:
    for event in events:
        for row in transfers_of(subject, event, trips):
            track = WORK if row.kind == SLICE else row.axes
            yield _span(track, row.seconds, row.kind, row.place, trips)


def _span(track: str, seconds: float, title: str, place: Source | None, trips: float) -> Span:
    return Span(track, 0.0, seconds, title, str(place or ""), place, trips)
