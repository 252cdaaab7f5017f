"""What would make a plan hold less at its peak: arguments that could be donated, and functions that could be checkpointed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Final

from meshjit.core.printer import root_of
from meshjit.core.program import Source, Var
from meshjit.report.curve import highest
from meshjit.report.subject import Subject
from meshjit.report.units import function_text

MOST: Final = 3
LEAST: Final = 0.02  # of the peak: what saves less is not named


@dataclasses.dataclass(frozen=True)
class Saving:
    """`how`: "donate" or "checkpoint". bytes: of one device, about. seconds: what computing again would take, about."""

    how: str
    what: str
    bytes: int
    seconds: float = 0.0


def savings(subject: Subject) -> list[Saving]:
    """Largest first."""
    most = highest(subject)
    every = [*_donations(subject), *_checkpoints(subject, most.in_program)]
    worth = [saving for saving in every if saving.bytes >= LEAST * most.bytes]
    return sorted(worth, key=lambda saving: -saving.bytes)[:MOST]


def _donations(subject: Subject) -> Iterator[Saving]:
    """Arguments that nobody donates and whose memory a result of the same type and placement could take."""
    plan = subject.plan
    results = Counter(zip([v.type for v in plan.program.outputs], plan.outputs, strict=True))
    names = Counter[str]()
    for i, (var, placement) in enumerate(zip(plan.program.inputs, plan.inputs, strict=True)):
        key = (var.type, placement)
        if results[key] > 0:
            results[key] -= 1
            if i not in subject.donated:
                names[root_of(subject.names[var])] += subject.local_bytes(var, placement)
    for name, size in names.items():
        yield Saving("donate", name, size)


def _checkpoints(subject: Subject, at: int) -> Iterator[Saving]:
    """Functions whose values are kept for the backward pass: all could be computed again but those that are made last, as results
    are. Not the one whose forward pass runs then: it needs them."""
    eqns = subject.plan.program.eqns
    running = eqns[at].source if at < len(eqns) else None
    kept: dict[str, Counter[tuple[Source, str]]] = {}
    for var, size in _kept(subject, at):
        source = subject.source(var)
        if source is not None and not source.note:
            kept.setdefault(function_text(source), Counter())[source, subject.makers[var].op.name] += size
    for function, sizes in kept.items():
        *before, _ = sizes.values()
        if running is None or running.note or function != function_text(running):
            yield Saving("checkpoint", function, sum(before), _work(subject, function))


def _kept(subject: Subject, at: int) -> Iterator[tuple[Var, int]]:
    """Values of the forward pass that are held at an equation and read behind it, in the order in which they are made."""
    held = [(uses, var, placement) for var, placement, uses in subject.lifetimes.alive(at) if var in subject.makers]
    for uses, var, placement in sorted(held, key=lambda each: each[0][0]):
        if uses[0] < at < uses[-1]:
            yield var, subject.lifetimes.local_bytes(var, placement)


def _work(subject: Subject, function: str) -> float:
    plans = zip(subject.plan.program.eqns, subject.plan.equations, strict=True)
    return sum(subject.machine.effect(eqn, plan).work for eqn, plan in plans if _belongs(eqn.source, function))


def _belongs(source: Source | None, function: str) -> bool:
    return source is not None and function_text(source) == function and not source.note
