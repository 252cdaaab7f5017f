"""Why a value lives where it does: from the annotation to this placement, step by step; what lost, and at which price."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import PlanCost
from meshjit.core.printer import print_type
from meshjit.core.program import Eqn, Source, Var
from meshjit.plan.events import Choice
from meshjit.plan.graph import Label
from meshjit.report.curve import cost_of
from meshjit.report.pins import planned_with, spec_at
from meshjit.report.subject import Subject, placement_text
from meshjit.report.units import line_text
from sharding.axes import AxisRef, axes_text
from sharding.graph import Conflict, Origin
from sharding.spec import Placement, ShardingError


@dataclasses.dataclass(frozen=True)
class Step:
    """An equation that an axis passed on its way; `times` in a row on the same line."""

    op: str
    source: str
    place: Source | None = dataclasses.field(default=None, repr=False)
    times: int = 1


CHOSEN: Final = "planning chose it for this equation"


@dataclasses.dataclass(frozen=True)
class Cause:
    """Where one axis of a placement comes from, in words, and the way from there; or why planning itself chose it."""

    dim: int
    axis: str
    origin: str
    steps: tuple[Step, ...]
    is_chosen: bool = False


@dataclasses.dataclass(frozen=True)
class Loss:
    """What was offered and lost: where, and what the plan would cost with it (None: it cannot be pinned)."""

    text: str
    source: str
    cost: PlanCost | None


@dataclasses.dataclass(frozen=True)
class Answer:
    """`causes` of every axis; `losses`: conflicts that the value, or one on the way to it, decided; `choice`: of an equation
    that could be computed in several ways, that which was taken and the others, with their seconds."""

    value: str
    type: str
    placement: str
    source: str
    place: Source | None
    causes: tuple[Cause, ...]
    losses: tuple[Loss, ...]
    choice: tuple[tuple[str, float], ...]
    copies: int = 1
    cost: PlanCost | None = None


@rarely_collected
def why(subject: Subject, values: Sequence[Var]) -> list[Answer]:
    """One Answer for all values of a line that lie alike and have their axes from the same places; the way is the first one's."""
    alike: dict[object, list[Var]] = {}
    for var in values:
        placement, number = subject.plan.placements[var], subject.describer.flat.numbers[var]
        axes = [(d, axis) for d, each in enumerate(placement.dims) for axis in each]
        origins = tuple(origin_text(subject, number, dim, axis) for dim, axis in axes)
        key = (subject.source(var), subject.groups[var][0] if var not in subject.makers else "", var.type, placement, origins)
        alike.setdefault(key, []).append(var)
    return [dataclasses.replace(_answer(subject, group[0]), copies=len(group)) for group in alike.values()]


def _answer(subject: Subject, var: Var) -> Answer:
    placement, source = subject.plan.placements[var], subject.source(var)
    number = subject.describer.flat.numbers[var]
    causes = [_cause(subject, number, dim, axis) for dim, axes in enumerate(placement.dims) for axis in axes]
    return Answer(
        subject.labels[var], print_type(var.type), placement_text(placement), line_text(source), source, tuple(causes),
        tuple(_losses(subject, var, number)), tuple(_choice(subject, var)), cost=cost_of(subject),
    )  # fmt: skip


def _cause(subject: Subject, number: int, dim: int, axis: AxisRef) -> Cause:
    origin = subject.describer.propagated.origins.get((number, dim, axis))
    if origin is None:
        return Cause(dim, str(axis), _choice_text(subject, subject.values[number], dim, axis), (), True)
    return Cause(dim, str(axis), origin_text(subject, number, dim, axis), tuple(_steps(subject, origin)))


def _choice_text(subject: Subject, var: Var, dim: int, axis: AxisRef) -> str:
    """Why planning itself split a dim: of an automatic plan, what splitting all dims that belong together saves and sends."""
    decision = None if subject.plan.optimum is None else subject.decision_of_dim(var, dim, axis)
    if decision is None:
        return CHOSEN
    return f"the search chose it, with all dims that are split alike: {', '.join(decision.because)}"


def origin_text(subject: Subject, number: int, dim: int, axis: AxisRef) -> str:
    """Where an axis of a value comes from, in words."""
    origin = subject.describer.propagated.origins.get((number, dim, axis))
    if origin is None:
        return CHOSEN
    return subject.seed_texts(origin.seed, origin.seed == number)


def _at(source: Source | None) -> str:
    return f" at {line_text(source)}" if source is not None else ""


def _steps(subject: Subject, origin: Origin) -> Iterator[Step]:
    """The equations on the way; those of one line and op in a row are one step."""
    last: Step | None = None
    for node in origin.path:
        label = subject.describer.propagated.graph.nodes[node].label
        assert isinstance(label, Label)
        step = Step(f"{label.prefix}{label.eqn.op.name}", line_text(label.eqn.source), label.eqn.source)
        if last is not None and (last.op, last.source) == (step.op, step.source):
            last = dataclasses.replace(last, times=last.times + 1)
            continue
        if last is not None:
            yield last
        last = step
    if last is not None:
        yield last


def _losses(subject: Subject, var: Var, number: int) -> Iterator[Loss]:
    """Conflicts about the value, or between those that it is made of. Each is planned the other way."""
    for conflict in dict.fromkeys(subject.describer.propagated.conflicts):
        if conflict.node < 0:
            continue
        if conflict.value == number:
            yield _loss(subject, var, conflict, conflict.dim, conflict.lost)
        elif subject.makers.get(var) is _eqn(subject, conflict):
            yield from _loss_of_result(subject, var, number, conflict)


def _eqn(subject: Subject, conflict: Conflict) -> Eqn | None:
    label = subject.describer.propagated.graph.nodes[conflict.node].label
    return label.eqn if isinstance(label, Label) else None


def _loss_of_result(subject: Subject, var: Var, number: int, conflict: Conflict) -> Iterator[Loss]:
    """The result has the axes of one side; the other side's are lost for it."""
    node = subject.describer.propagated.graph.nodes[conflict.node]
    for dims in (dims for dims, result in zip(node.rule.results, node.results, strict=True) if result == number):
        for dim in (d for d, factors in enumerate(dims) if conflict.factor in factors):
            taken = subject.plan.placements[var].dims[dim]
            yield _loss(subject, var, conflict, dim, conflict.kept if taken == conflict.lost else conflict.lost)


def _loss(subject: Subject, var: Var, conflict: Conflict, dim: int, axes: Sequence[AxisRef]) -> Loss:
    eqn = _eqn(subject, conflict)
    source, values = eqn.source if eqn is not None else None, subject.values
    sides = values[conflict.value], values[conflict.offered_by]
    texts = [f"{subject.labels[v]} is {placement_text(subject.plan.placements[v])}" for v in sides]
    text = f"{axes_text(axes)} on dim {dim}, for {' and '.join(texts)}, which meet in {eqn.op.name if eqn else 'one value'}"
    return Loss(text + _at(source), line_text(source), _cost_with(subject, var, dim, axes))


def _cost_with(subject: Subject, var: Var, dim: int, axes: Sequence[AxisRef]) -> PlanCost | None:
    """Of the plan in which the value has these axes on this dim, wherever else it has them now."""
    dims = [tuple(axis for axis in each if axis not in axes) for each in subject.plan.placements[var].dims]
    dims[dim] = tuple(axes)
    try:
        return cost_of(planned_with(subject, {var: spec_at(Placement(tuple(dims)))}))
    except ShardingError:
        return None


def _choice(subject: Subject, var: Var) -> Iterator[tuple[str, float]]:
    maker = subject.makers.get(var)
    for event, _ in subject.events():
        if isinstance(event, Choice) and event.eqn is maker:
            for plan, seconds in event.options():
                spread = [f"{factor} over {axes_text(axes)}" for factor, axes in plan.assignment.items() if axes]
                yield ", ".join(spread) or "all of it on every device", seconds
