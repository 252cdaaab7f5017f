"""Constraints and in_shardings that would save most: each is planned before it is shown.

Tried are, by turns and the dearest first: what would make a transfer unnecessary; arguments, spread over axes that they do
not use; values in the middle, spread over axes along which every device computes the same. All there are, or as many as the
budget allows.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from meshjit.core.plan import PlanCost
from meshjit.core.program import Source, Var
from meshjit.plan.cost import is_cheaper
from meshjit.report.curve import cost_of
from meshjit.report.pins import planned_with
from meshjit.report.removal import Option, candidates, others, planned_option
from meshjit.report.subject import Subject
from meshjit.report.transfers import transfers
from meshjit.report.units import line_text
from sharding.axes import name_of
from sharding.spec import PartitionSpec, Placement, ShardingError

SMALL: Final = 1 << 16  # bytes of all values of a group, whole: smaller ones are not worth an annotation


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """One annotation, and what the plan costs with it, and without."""

    value: str
    placement: str
    is_argument: bool
    source: str
    now: PlanCost
    then: PlanCost
    var: Var = dataclasses.field(repr=False)
    spec: PartitionSpec = dataclasses.field(repr=False)
    place: Source | None = dataclasses.field(repr=False, default=None)

    @property
    def saved_seconds(self) -> float:
        return self.now.seconds - self.then.seconds


@dataclasses.dataclass(frozen=True)
class Suggestions:
    """Best first, one for each kind of plan. `tried`: how many annotations were planned, of so many that are `possible`.
    `together`: numbers of rows that are better together than the first alone, and the plan's cost with all of them."""

    rows: tuple[Suggestion, ...]
    tried: int
    possible: int
    now: PlanCost
    memory: float  # of a device
    together: tuple[tuple[int, ...], PlanCost] | None = None

    @property
    def stopped(self) -> bool:
        """Whether the budget was over before all were tried."""
        return self.tried < self.possible


def suggest(subject: Subject, seconds: float = 10.0, most: int = 5, tries: int | None = None) -> Suggestions:
    """Plan annotations until `seconds` are over, or so many were tried; the `most` best of those that make the plan cheaper."""
    now, target = cost_of(subject), subject.plan.target
    assert target is not None, "planning names its target"
    memory, end, better = target.topology.memory, time.monotonic() + seconds, list[Suggestion]()
    possible, tried = list(_distinct(subject)), 0
    for var, placement in possible[:tries]:
        if time.monotonic() > end:
            break
        tried += 1
        option = planned_option(subject, var, placement)
        if option is not None and is_cheaper(option.cost, now, memory):
            better.append(_suggestion(subject, option, now))
    in_order = sorted(better, key=lambda row: (max(0.0, row.then.peak_bytes - memory), row.then.seconds))
    kinds: dict[tuple[str, str], list[Suggestion]] = {}
    for row in in_order:
        kinds.setdefault((f"{row.then.wire_bytes:.2g}", f"{row.then.peak_bytes:.2g}"), []).append(row)
    rows = [_best_to_write(alike) for alike in itertools.islice(kinds.values(), most)]
    return Suggestions(tuple(rows), tried, len(possible), now, memory, _together(subject, rows, memory))


def _best_to_write(alike: Sequence[Suggestion]) -> Suggestion:
    """Of those that lead to plans that send and hold alike, and are as fast as the first: an argument's rather than a constraint,
    that rather than one on what autodiff makes."""
    fast = [row for row in alike if row.then.seconds <= 1.01 * alike[0].then.seconds]
    return min(fast, key=lambda row: (not row.is_argument, row.place is not None and bool(row.place.note)))


def _together(subject: Subject, rows: Sequence[Suggestion], memory: float) -> tuple[tuple[int, ...], PlanCost] | None:
    """The first, and of the others in order each that makes the plan cheaper still."""
    if not rows:
        return None
    numbers, cost = [0], rows[0].then
    pins = dict.fromkeys(subject.groups[rows[0].var][1], rows[0].spec)
    for number, row in enumerate(rows[1:], 1):
        if row.var in pins:
            continue
        more = {**pins, **dict.fromkeys(subject.groups[row.var][1], row.spec)}
        try:
            other = cost_of(planned_with(subject, more))
        except ShardingError:
            continue
        if is_cheaper(other, cost, memory):
            numbers, pins, cost = [*numbers, number], more, other
    return (tuple(numbers), cost) if len(numbers) > 1 else None


def _distinct(subject: Subject) -> Iterator[tuple[Var, Placement]]:
    """Each for a group of alike values once; what is so already is nothing to try."""
    seen = {(subject.groups[v][1][0], p.without_partial()) for v, p in subject.plan.placements.items()}
    for var, placement in _in_turn(_against_transfers(subject), _arguments(subject), _values(subject)):
        first = subject.groups[var][1][0]
        if (first, placement) not in seen:
            seen.add((first, placement))
            yield first, placement


def _in_turn(*sources: Iterable[tuple[Var, Placement]]) -> Iterator[tuple[Var, Placement]]:
    for each in itertools.zip_longest(*sources):
        yield from (pair for pair in each if pair is not None)


def _against_transfers(subject: Subject) -> Iterator[tuple[Var, Placement]]:
    for transfer in transfers(subject):
        yield from candidates(subject, transfer)


def _arguments(subject: Subject) -> Iterator[tuple[Var, Placement]]:
    """Those that are whole first, the largest first."""
    groups = dict.fromkeys(subject.groups[v][1] for v in subject.plan.program.inputs)
    placements = subject.plan.placements
    in_order = sorted(groups, key=lambda group: (not placements[group[0]].is_replicated, -_size(group)))
    yield from _spread(subject, in_order)


def _values(subject: Subject) -> Iterator[tuple[Var, Placement]]:
    """Of the top level, what is largest on a device first. Constants have no place that is worth a word."""
    made = [v for eqn in subject.plan.program.eqns if eqn.op.seed is None and eqn.inputs for v in eqn.outputs]
    groups = dict.fromkeys(subject.groups[v][1] for v in made)
    placements = subject.plan.placements
    held = {group: len(group) * subject.local_bytes(group[0], placements[group[0]]) for group in groups}
    yield from _spread(subject, sorted(groups, key=held.__getitem__, reverse=True))


def _spread(subject: Subject, groups: Iterable[tuple[Var, ...]]) -> Iterator[tuple[Var, Placement]]:
    """Each over every axis that it does not use."""
    for group in groups:
        used = {name_of(axis) for dim in subject.plan.placements[group[0]].dims for axis in dim}
        for axis in subject.plan.mesh.axis_names if _size(group) >= SMALL else ():
            if axis not in used:
                yield from others(subject, group[0], [axis])


def _size(group: Sequence[Var]) -> int:
    return len(group) * group[0].type.nbytes


def _suggestion(subject: Subject, option: Option, now: PlanCost) -> Suggestion:
    is_argument = option.var in subject.plan.program.inputs
    place = subject.source(option.var)
    return Suggestion(
        option.value, option.placement, is_argument, line_text(place), now, option.cost, option.var, option.spec, place
    )
