"""A report as one HTML file that opens offline: the code with what each line costs, program, collectives, timeline, memory, flow.

The page's own script and style stand in `page/`, with dagre (MIT, page/dagre.LICENSE), which lays out the flow.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import PlanCost
from meshjit.core.program import Eqn, Source, Var
from meshjit.report.as_json import plain
from meshjit.report.curve import curve
from meshjit.report.notable import Note
from meshjit.report.outline import Row
from meshjit.report.peak import Peak
from meshjit.report.subject import Subject
from meshjit.report.timeline import timeline
from meshjit.report.transfers import Transfer

POINTS: Final = 500  # of the curve of memory
BOXES: Final = 300  # of the flow
ARGUMENTS: Final = 16  # boxes; of more none is drawn
SPANS: Final = 4000  # of the timeline: the longest


@dataclasses.dataclass(frozen=True)
class Shown:
    """What the page shows of a report."""

    subject: Subject
    cost: PlanCost
    program: Sequence[Row]
    transfers: Sequence[Transfer]
    notes: Sequence[Note]
    memory: Peak


@rarely_collected
def html(report: Shown) -> str:
    """The whole page."""
    parts = {name: files("meshjit.report").joinpath("page", name).read_text() for name in _FILES}
    data = json.dumps(page_data(report), separators=(",", ":")).replace("</", "<\\/")
    text = parts["page.html"]
    for mark, content in (
        ("/*STYLE*/", parts["page.css"]), ("/*DAGRE*/", parts["dagre.min.js"]), ("/*SCRIPT*/", parts["page.js"]),
        ("DATA", data), ("TITLE", report.subject.title.replace("<", "&lt;")),
    ):  # fmt: skip
        text = text.replace(mark, content, 1)
    return text


_FILES = ("page.html", "page.css", "page.js", "dagre.min.js")


def page_data(report: Shown) -> dict[str, Any]:
    """What the page shows; lines are `[file, line]`."""
    subject = report.subject
    return {
        "title": subject.title,
        "mesh": dict(subject.plan.mesh.shape),
        "target": str(subject.plan.target),
        "cost": plain(report.cost),
        "sources": _sources(subject),
        "rows": [{**_row(row), "at": _at(row.place)} for row in report.program],
        "collectives": [{**plain(row), "at": _at(row.place)} for row in report.transfers if row.wire_bytes],
        "notes": plain(report.notes),
        "memory": {**plain(report.memory), "curve": _curve(subject)},
        "timeline": _timeline(subject),
        "flow": _flow(report),
    }


def _row(row: Row) -> dict[str, Any]:
    """What is not empty."""
    names = "kind", "depth", "title", "value", "type", "local_shape", "local_bytes"
    names += "equations", "times", "wire_bytes", "seconds", "work"
    return {name: getattr(row, name) for name in names if getattr(row, name)}


def _at(place: Source | None) -> list[Any] | None:
    return None if place is None else [place.file, place.line]


def _sources(subject: Subject) -> dict[str, list[str]]:
    """The files that equations come from, as far as they can be read."""
    sources = {eqn.source.file for eqn in subject.makers.values() if eqn.source is not None}
    return {file: lines for file in sorted(sources) if (lines := _lines(file))}


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _curve(subject: Subject) -> list[list[Any]]:
    """[bytes, line, trips] along the Program, the most of each stretch; a loop is one of its iterations."""
    points = curve(subject)
    size = -(-len(points) // POINTS)
    tops = [max(points[at : at + size], key=lambda point: point.bytes) for at in range(0, len(points), size)]
    return [[top.bytes, _at(top.place), top.trips] for top in tops]


def _timeline(subject: Subject) -> list[list[Any]]:
    """[track, start, seconds, what, line], in order; of very many the longest."""
    spans = timeline(subject)
    if len(spans) > SPANS:
        shortest = sorted((span.seconds for span in spans), reverse=True)[SPANS]
        spans = [span for span in spans if span.seconds > shortest]
    return [[span.track, span.start, span.seconds, span.title, _at(span.place)] for span in spans]


def _flow(report: Shown) -> dict[str, Any]:
    """Lines of the folded program, and which reads what another makes, as numbers of rows."""
    rows = [(i, row) for i, row in enumerate(report.program) if row.eqns or row.kind == "argument"]
    if sum(row.kind == "argument" for _, row in rows) > ARGUMENTS:
        rows = [(i, row) for i, row in rows if row.kind != "argument"]
    if len(rows) > BOXES:
        heavy = sorted((row.work + row.seconds for _, row in rows), reverse=True)[BOXES]
        rows = [(i, row) for i, row in rows if row.work + row.seconds > heavy][:BOXES]
    return {"nodes": [i for i, _ in rows], "edges": sorted(set(_edges(report.subject, rows)))}


def _edges(subject: Subject, rows: Sequence[tuple[int, Row]]) -> Iterator[tuple[int, int]]:
    maker: dict[Var, int] = {v: i for i, row in rows for eqn in row.eqns for v in eqn.outputs}
    arguments = {row.value: i for i, row in rows if row.kind == "argument"}
    maker |= {v: arguments[subject.names[v]] for v in subject.plan.program.inputs if subject.names[v] in arguments}
    for i, row in rows:
        for eqn in row.eqns:
            for source in _read(maker, eqn):
                if source != i:
                    yield source, i


def _read(maker: dict[Var, int], eqn: Eqn) -> Iterator[int]:
    return (maker[v] for v in eqn.inputs if v in maker)
