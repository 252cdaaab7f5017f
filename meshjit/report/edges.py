"""How propagation spread the annotations: every step of an axis from one value of an equation to others; equal layers once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from meshjit.core.program import Eqn, Source
from meshjit.plan.graph import Label
from meshjit.report.subject import Subject
from meshjit.report.units import line_text
from sharding.axes import AxisRef
from sharding.graph import Node
from sharding.origins import Edge, Origins


@dataclasses.dataclass(frozen=True)
class Spread:
    """In its visit number `step`, propagation gave an axis that one value of an equation has to others: `operand 0`, `result 0`.
    `copies`: such steps on one line, equal layers together; names are those of the first."""

    step: int
    axis: str
    op: str
    origin: str
    origin_name: str
    targets: tuple[str, ...]
    target_names: tuple[str, ...]
    source: str
    copies: int = 1
    place: Source | None = dataclasses.field(default=None, repr=False)
    eqn: Eqn | None = dataclasses.field(default=None, repr=False)
    ref: AxisRef = dataclasses.field(default="", repr=False)


def spreads(subject: Subject) -> list[Spread]:
    """In the order in which propagation took the steps."""
    rows: dict[object, Spread] = {}
    for each in single_spreads(subject):
        key = (each.axis, each.op, each.origin, each.targets, each.place)
        before = rows.get(key)
        rows[key] = each if before is None else dataclasses.replace(before, copies=before.copies + 1)
    return list(rows.values())


def single_spreads(subject: Subject) -> Iterator[Spread]:
    """Each by itself: what one visit gave from one value, along one axis."""
    visits: dict[tuple[int, int, AxisRef, int], list[int]] = {}
    for edge in _edges(subject):
        visits.setdefault((edge.step, edge.node, edge.axis, edge.source), []).append(edge.target)
    firsts = subject.describer.propagated.structure.firsts
    for (step, number, axis, source), targets in visits.items():
        node = subject.describer.propagated.graph.nodes[number]
        label = node.label
        assert isinstance(label, Label)
        places = {name: value for name, value in _places(node, firsts) if value in targets and value != source}
        origin = next(name for name, value in _places(node, firsts) if value == source)
        yield Spread(
            step, str(axis), f"{label.prefix}{label.eqn.op.name}", origin, _name(subject, node, origin), tuple(places),
            tuple(_name(subject, node, name) for name in places), line_text(label.eqn.source), 1, label.eqn.source,
            label.eqn if not label.prefix else None, axis,
        )  # fmt: skip


def _edges(subject: Subject) -> Sequence[Edge]:
    origins = subject.describer.propagated.origins
    assert isinstance(origins, Origins), "propagation gives them"
    return origins.edges


def _places(node: Node, firsts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """`operand 0`, … with the numbers of the values, those of a tie as its first."""
    for i, value in enumerate(node.operands):
        yield f"operand {i}", firsts[value]
    for i, value in enumerate(node.results):
        yield f"result {i}", firsts[value]


def _name(subject: Subject, node: Node, place: str) -> str:
    kind, _, number = place.partition(" ")
    values = node.operands if kind == "operand" else node.results
    return subject.labels[subject.values[values[int(number)]]]
