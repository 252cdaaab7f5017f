"""Two plans side by side: what changes where, grouped by what it becomes, and what each costs."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import PlanCost
from meshjit.core.printer import print_type
from meshjit.core.program import Var
from meshjit.plan.cost import is_cheaper
from meshjit.plan.graph import programs_in
from meshjit.report.curve import cost_of
from meshjit.report.subject import Subject, placement_text, starred
from meshjit.report.transfers import Transfer, transfers
from meshjit.report.units import line_text
from meshjit.report.why import origin_text
from sharding.axes import AxisRef


@dataclasses.dataclass(frozen=True)
class Change:
    """Values that live elsewhere in the second plan, in the same way and for the same cause: `P("data", None)` → `P(None, None)`.
    `count` of them; in `values` those of equal layers stand once."""

    cause: str
    before: str
    after: str
    count: int
    values: tuple[str, ...]
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`changes`, most values first; `same` values live where they did; `added`, `removed`: values of one of the two alone."""

    names: tuple[str, str]
    costs: tuple[PlanCost, PlanCost]
    changes: tuple[Change, ...]
    same: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    sends: tuple[tuple[Transfer, ...], tuple[Transfer, ...]]  # what only the first, only the second sends
    is_better: bool  # the second plan, as planning compares: memory, then time, then bytes
    titles: tuple[str, str] = ("", "")

    @property
    def changed(self) -> int:
        return sum(change.count for change in self.changes)


@rarely_collected
def compare(first: Subject, second: Subject, names: tuple[str, str] = ("now", "then")) -> Comparison:
    pairs, removed, added = _paired(first, second)
    changes: dict[tuple[str, str, str], list[Var]] = {}
    same = 0
    for a, b in pairs:
        before, after = first.plan.placements[a], second.plan.placements[b]
        if before == after:
            same += 1
        else:
            key = (_cause(first, second, a, b), placement_text(before), placement_text(after))
            changes.setdefault(key, []).append(a)
    costs = cost_of(first), cost_of(second)
    memory = second.plan.target.topology.memory if second.plan.target is not None else float("inf")
    rows = [_change(first, *key, values) for key, values in changes.items()]
    causes = Counter[str]()
    for row in rows:
        causes[row.cause] += row.count
    return Comparison(
        names, costs, tuple(sorted(rows, key=lambda row: (-causes[row.cause], row.cause, -row.count))), same,
        tuple(second.labels[v] for v in added), tuple(first.labels[v] for v in removed),
        _only(transfers(first), transfers(second)), is_cheaper(costs[1], costs[0], memory), (first.title, second.title),
    )  # fmt: skip


def _cause(first: Subject, second: Subject, a: Var, b: Var) -> str:
    """What gave the value its new axes; where it has none, what it lost."""
    before, after = first.plan.placements[a], second.plan.placements[b]
    gained = [(dim, axis) for dim, axes in enumerate(after.dims) for axis in axes if axis not in before.dims[dim]]
    lost = [(dim, axis) for dim, axes in enumerate(before.dims) for axis in axes if axis not in after.dims[dim]]
    subject, var = (second, b) if gained else (first, a)
    number = subject.describer.flat.numbers[var]
    texts = dict.fromkeys([_origin(subject, number, dim, axis) for dim, axis in gained or lost])
    return ("" if gained else "no longer: ") + (" and ".join(texts) or "planning: where sums are reduced")


def _origin(subject: Subject, number: int, dim: int, axis: AxisRef) -> str:
    """Of equal layers one text: their arguments' numbers are left out. A value's own annotation is named, too."""
    own = f"the annotation of {subject.labels[subject.values[number]]},"
    text = origin_text(subject, number, dim, axis).replace("the annotation,", own, 1)
    return starred(text)


def _change(subject: Subject, cause: str, before: str, after: str, values: Sequence[Var]) -> Change:
    lines = dict.fromkeys(line_text(source) for v in values if (source := subject.source(v)) is not None)
    names = Counter(subject.groups[v][0].partition(" × ")[0] for v in values)
    listed = [name if count == 1 else f"{name} × {count}" for name, count in names.items()]
    return Change(cause, before, after, len(values), tuple(listed), tuple(lines))


def _only(first: list[Transfer], second: list[Transfer]) -> tuple[tuple[Transfer, ...], tuple[Transfer, ...]]:
    keys = [{_key(row) for row in rows} for rows in (first, second)]
    return (
        tuple(row for row in first if _key(row) not in keys[1]),
        tuple(row for row in second if _key(row) not in keys[0]),
    )


def _key(row: Transfer) -> tuple[object, ...]:
    return row.kind, row.axes, round(row.wire_bytes), row.times, row.type.partition("[")[0], row.place


def _paired(first: Subject, second: Subject) -> tuple[list[tuple[Var, Var]], list[Var], list[Var]]:
    """Values of both plans that are the same: the very same Vars, and of others those that come from alike equations in order."""
    ours, theirs = list(_values(first)), list(_values(second))
    common = set(ours) & set(theirs)
    pairs = [(v, v) for v in ours if v in common]
    rest, others = [v for v in ours if v not in common], [v for v in theirs if v not in common]
    matcher = difflib.SequenceMatcher(None, [_kind(first, v) for v in rest], [_kind(second, v) for v in others], False)
    matched = [
        (rest[block.a + i], others[block.b + i]) for block in matcher.get_matching_blocks() for i in range(block.size)
    ]
    seen = {v for pair in matched for v in pair}
    return pairs + matched, [v for v in rest if v not in seen], [v for v in others if v not in seen]


def _values(subject: Subject) -> Iterator[Var]:
    """Constraints are no values of their own: a pin adds some."""
    for part in programs_in(subject.plan.program):
        yield from part.inputs
        for eqn in part.eqns:
            if eqn.op.seed is None:
                yield from eqn.outputs


def _kind(subject: Subject, var: Var) -> tuple[object, ...]:
    """Alike in both: an input's name; of others op, type and function."""
    maker = subject.makers.get(var)
    if maker is None:
        return print_type(var.type), subject.names[var]
    return maker.op.name, print_type(var.type), maker.source.function if maker.source is not None else ""
