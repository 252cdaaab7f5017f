"""What a device does when, as planning predicts it: computing, and sending over each set of axes, one after the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Source
from meshjit.core.region import weighted_regions
from meshjit.plan.events import Event, Remake
from meshjit.report.subject import Subject
from meshjit.report.transfers import SLICE, transfers_by_event
from meshjit.report.units import line_text

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
        (step for step in _Steps(subject).of(subject.plan, 1.0) if step.seconds > 0),
        key=lambda step: (step.track, step.place, step.trips),
    ):
        together = list(steps)
        seconds = sum([step.seconds for step in together])
        spans.append(Span(track, now, seconds, together[0].title, line_text(place), place, trips))
        now += seconds
    return spans


class _Step(NamedTuple):
    """What becomes a part of a Span."""

    track: str
    seconds: float
    title: str
    place: Source | None
    trips: float


class _Steps:
    def __init__(self, subject: Subject) -> None:
        self.effect, self.sent = subject.machine.effect, transfers_by_event(subject)

    def of(self, plan: Plan, trips: float, is_block: bool = False) -> Iterator[_Step]:
        """`is_block`: iterations of a block exchange nothing themselves."""
        events: dict[Eqn | None, list[Event]] = defaultdict(list)
        for event in plan.events:
            events[getattr(event, "eqn", None)].append(event)
        for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
            own, work = events.get(eqn, ()), self.effect(eqn, equation).work
            yield from () if is_block else self.sending(own, trips)
            work += sum([self.effect(eqn, e.plan).work for e in own if isinstance(e, Remake)])
            yield _Step(WORK, trips * work, eqn.op.name, eqn.source, trips)
            for (_, times), body in zip(weighted_regions(eqn) if equation.bodies else (), equation.bodies, strict=True):
                yield from self.of(body, trips * times, is_block or bool(equation.block))
        yield from () if is_block else self.sending(events.get(None, ()), trips)

    def sending(self, events: Iterable[Event], trips: float) -> Iterator[_Step]:
        for event in events:
            for row in self.sent.get(id(event), ()):
                yield _Step(WORK if row.kind == SLICE else row.axes, row.seconds, row.kind, row.place, trips)
