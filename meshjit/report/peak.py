"""What a device holds when it holds most, by value and line."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from meshjit.core.program import Source, Var
from meshjit.plan.lifetimes import Lifetimes
from meshjit.report.curve import Point, highest
from meshjit.report.subject import Subject, starred
from meshjit.report.units import line_text
from sharding.spec import Placement


@dataclasses.dataclass(frozen=True)
class Held:
    """A version of a value that is held at the peak; `copies` of equal layers together."""

    value: str
    type: str
    bytes: int
    source: str
    role: str  # "argument", "result", "between"; "inside" of the body of a loop or branch
    copies: int = 1
    place: Source | None = dataclasses.field(default=None, repr=False)
    var: Var | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class Peak:
    """Bytes of one device, predicted. `at` is the line that runs when most is held, and `held` what is held then; `inside` is the
    part of it that belongs to the bodies of the loops and branches that run then."""

    arguments: int
    results: int
    peak: int
    limit: float
    at: str
    inside: int
    held: tuple[Held, ...]

    @property
    def fits(self) -> bool:
        return self.peak <= self.limit


def peak(subject: Subject) -> Peak:
    plan, most = subject.plan, highest(subject)
    around = [(lifetimes, at, lifetimes.counted_inside[at][body]) for lifetimes, at, body in most.outer]
    every = (*around, (most.lifetimes, most.at, ()))
    (outside, *inside) = [_alive(subject, lifetimes, at, others, i > 0) for i, (lifetimes, at, others) in enumerate(every)]
    inner = [row for rows in inside for row in rows]
    return Peak(
        sum(subject.local_bytes(v, p) for v, p in zip(plan.program.inputs, plan.inputs, strict=True)),
        sum(subject.local_bytes(v, p) for v, p in zip(plan.program.outputs, plan.outputs, strict=True)),
        most.bytes, subject.machine.topology.memory, _where(most), sum(row.bytes for row in inner),
        tuple(sorted([*outside, *inner], key=lambda row: (-row.bytes, row.value))),
    )  # fmt: skip


def _where(point: Point) -> str:
    if point.place is not None:
        return str(point.place)
    eqns = point.lifetimes.program.eqns
    return eqns[point.at].op.name if point.at < len(eqns) else "handing over the results"


def _alive(
    subject: Subject, lifetimes: Lifetimes, at: int, others: Collection[tuple[Var, Placement]], is_inside: bool
) -> list[Held]:
    """Values of one line, type and role together; but for `others`, which count in a body."""
    rows: dict[tuple[str, str, str], Held] = {}
    for var, placement, _ in lifetimes.alive(at):
        size = lifetimes.local_bytes(var, placement)
        if (var, placement) in others or not size:
            continue
        each = _held(subject, var, placement, size, is_inside)
        key = (each.type, each.source or starred(each.value), each.role)
        before = rows.get(key)
        rows[key] = each if before is None else dataclasses.replace(
            before, bytes=before.bytes + each.bytes, copies=before.copies + 1, value=starred(before.value)
        )  # fmt: skip
    return list(rows.values())


def _held(subject: Subject, var: Var, placement: Placement, size: int, is_inside: bool) -> Held:
    program = subject.plan.program
    role = "argument" if var in program.inputs else "result" if var in subject.output_names else "between"
    role = "inside" if is_inside else role
    place = subject.source(var)
    return Held(subject.labels[var], subject.type_text(var, placement), size, line_text(place), role, 1, place, var)
