"""What a device holds over time: a point for every equation; of a loop or branch those of one run of its body."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from meshjit.core.plan import Plan, PlanCost
from meshjit.core.program import Eqn, Source
from meshjit.core.region import weighted_regions
from meshjit.plan.lifetimes import Lifetimes
from meshjit.plan.nested import lent
from meshjit.report.subject import Subject, once_per_subject


class Point(NamedTuple):
    """`bytes` are held while equation `at` of `lifetimes` runs; `outer` says where that stands: (lifetimes, number, which of its
    bodies) of each equation that it is inside of, from outside in. `trips`: how often it comes to this, all loops around it
    included."""

    bytes: int
    place: Source | None
    trips: float
    lifetimes: Lifetimes
    at: int
    outer: tuple[tuple[Lifetimes, int, int], ...] = ()

    @property
    def in_program(self) -> int:
        """The number of the equation of the whole Program."""
        return self.outer[0][1] if self.outer else self.at


@once_per_subject
def curve(subject: Subject) -> list[Point]:
    """In the order of the Program; the last point is the handing over of the results."""
    return list(_points(subject, subject.plan, subject.lifetimes, 0, 1.0, None, ()))


def _points(
    subject: Subject,
    plan: Plan,
    lifetimes: Lifetimes,
    below: int,
    trips: float,
    end: Source | None,
    outer: tuple[tuple[Lifetimes, int, int], ...],
) -> Iterator[Point]:
    """`below`: bytes that are held outside of this Program meanwhile. `end`: the line of its last point."""
    held, bodies = lifetimes.own_bytes(), dict[int, Lifetimes]()
    for at, (eqn, equation) in enumerate(zip(plan.program.eqns, plan.equations, strict=True)):
        inside = list(zip(weighted_regions(eqn), equation.bodies, strict=True)) if equation.bodies else []
        if not inside:
            yield Point(below + held[at], eqn.source, trips, lifetimes, at, outer)
        for number, ((region, times), body) in enumerate(inside):
            if id(body) not in bodies:
                sides = body.inputs, body.outputs
                bodies[id(body)] = Lifetimes(body.program, subject.machine, body.equations, *sides, lent(region))
            around = (*outer, (lifetimes, at, number))
            beside = below + held[at] - lifetimes.bytes_of(lifetimes.counted_inside[at][number])
            yield from _points(subject, body, bodies[id(body)], beside, trips * times, _place(eqn, end), around)
    yield Point(below + held[len(plan.equations)], end, trips, lifetimes, len(plan.equations), outer)


def _place(eqn: Eqn, end: Source | None) -> Source | None:
    return eqn.source if eqn.source is not None else end


def highest(subject: Subject) -> Point:
    """The first point at which most is held."""
    return max(curve(subject), key=lambda point: point.bytes)


@once_per_subject
def cost_of(subject: Subject) -> PlanCost:
    """The plan's cost with the bytes of the curve's highest point, for what is shown to agree. Planning counts faster: a value is
    held under all its placements until its last use, and the results of a loop from its end on."""
    assert subject.plan.cost is not None, "planning prices its plans"
    return dataclasses.replace(subject.plan.cost, peak_bytes=float(highest(subject).bytes))
