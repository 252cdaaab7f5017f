"""What a device holds when it holds most, by value and line."""

from __future__ import annotations

import dataclasses

from meshjit.core.program import Var
from meshjit.plan.lifetimes import Lifetimes
from meshjit.report.subject import Subject, starred
from sharding.spec import Placement


@dataclasses.dataclass(frozen=True)
class Held:
    """A version of a value that is held at the peak; `copies` of equal layers together."""

    value: str
    type: str
    bytes: int
    source: str
    role: str  # "argument", "result" or "between"
    copies: int = 1
    var: Var | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class Peak:
    """Bytes of one device, predicted. `at` is the line that runs when most is held; `inside` is what its loops hold besides."""

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
    plan, lifetimes = subject.plan, subject.lifetimes
    held = lifetimes.held_bytes()
    at = max(range(len(held)), key=held.__getitem__)
    eqns = plan.program.eqns
    where = str(eqns[at].source or eqns[at].op.name) if at < len(eqns) else "handing over the results"
    return Peak(
        sum(subject.local_bytes(v, p) for v, p in zip(plan.program.inputs, plan.inputs, strict=True)),
        sum(subject.local_bytes(v, p) for v, p in zip(plan.program.outputs, plan.outputs, strict=True)),
        held[at], subject.machine.topology.memory, where, lifetimes.inside[at], _alive(subject, lifetimes, at),
    )  # fmt: skip


def _alive(subject: Subject, lifetimes: Lifetimes, at: int) -> tuple[Held, ...]:
    """Largest first; values of one line, type and role together."""
    rows: dict[tuple[str, str, str], Held] = {}
    for var, placement, _ in lifetimes.alive(at):
        each = _held(subject, var, placement)
        key = (each.type, each.source or starred(each.value), each.role)
        before = rows.get(key)
        rows[key] = each if before is None else dataclasses.replace(
            before, bytes=before.bytes + each.bytes, copies=before.copies + 1
        )  # fmt: skip
    return tuple(sorted(rows.values(), key=lambda row: (-row.bytes, row.value)))


def _held(subject: Subject, var: Var, placement: Placement) -> Held:
    program = subject.plan.program
    role = "argument" if var in program.inputs else "result" if var in subject.output_names else "between"
    size = subject.local_bytes(var, placement)
    return Held(subject.names[var], subject.type_text(var, placement), size, str(subject.source(var) or ""), role, 1, var)
