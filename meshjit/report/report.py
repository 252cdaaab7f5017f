"""Report: everything that can be asked of one planned function."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, Generic, TypeVar

from meshjit.core.garbage import rarely_collected
from meshjit.core.plan import PlanCost
from meshjit.core.printer import print_program
from meshjit.core.program import Var
from meshjit.report.as_json import plain
from meshjit.report.comparison import Comparison, compare
from meshjit.report.curve import cost_of
from meshjit.report.edges import Spread, spreads
from meshjit.report.exports import EXPORTS
from meshjit.report.names import values_named
from meshjit.report.notable import Note, notes
from meshjit.report.outline import Row, layer_costs, outline
from meshjit.report.page import Shown, html
from meshjit.report.peak import Peak, peak
from meshjit.report.pins import planned_with
from meshjit.report.removal import Option, removals
from meshjit.report.savings import Saving, savings
from meshjit.report.subject import Subject
from meshjit.report.suggest import Suggestions, suggest
from meshjit.report.text import (
    answer_lines,
    comparison_lines,
    cost_text,
    note_lines,
    peak_lines,
    program_lines,
    saving_lines,
    spread_lines,
    suggestion_lines,
    total_lines,
    transfer_lines,
)
from meshjit.report.timeline import Span, timeline
from meshjit.report.transfers import SLICE, Total, Transfer, single_transfers, summed, totals, transfers
from meshjit.report.why import Answer, why
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec, padded

T = TypeVar("T")


class Text(Generic[T]):
    """An answer as data (`.data`) that prints as text."""

    def __init__(self, data: T, lines: Callable[[T], Iterable[str]]) -> None:
        self.data = data
        self._lines = lines

    def __str__(self) -> str:
        return "\n".join(self._lines(self.data))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_json(self) -> str:
        return json.dumps(plain(self.data), indent=1)


class Report:
    """What lives where and why, what is sent, what is held. From `Planned.report()`, `Lowered.report()` or `Compiled.report()`.

    Prices are predictions for one device of the plan's target: seconds, and bytes on the wire or in memory."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @property
    def cost(self) -> PlanCost:
        """Seconds of work and of sending, bytes sent, bytes held at the peak; of one step on one device."""
        return cost_of(self.subject)

    @property
    def single_transfers(self) -> Sequence[Transfer]:
        """What is sent, each transfer by itself, in the order of the program."""
        return single_transfers(self.subject)

    @property
    def transfers(self) -> Sequence[Transfer]:
        """What is sent, dearest first, equal layers together."""
        return transfers(self.subject)

    @functools.cached_property
    def program(self) -> Sequence[Row]:
        """The program by the user's lines, equal layers once."""
        return outline(self.subject, self.single_transfers)

    @functools.cached_property
    def timeline(self) -> Sequence[Span]:
        """What a device is predicted to do when."""
        return timeline(self.subject)

    @functools.cached_property
    def memory(self) -> Peak:
        """The moment at which a device holds most, and what it holds then."""
        return peak(self.subject)

    @functools.cached_property
    def savings(self) -> Sequence[Saving]:
        """What would make the peak smaller, about: arguments to donate, functions to checkpoint."""
        return savings(self.subject)

    @functools.cached_property
    def notes(self) -> Sequence[Note]:
        """What is expensive: whole copies, large replicated arguments, padding, values that are computed again."""
        return notes(self.subject, self.transfers)

    @functools.cached_property
    def propagation(self) -> Sequence[Spread]:
        """How the annotations spread: every step of an axis from one value of an equation to others."""
        return spreads(self.subject)

    def totals(self, by: str = "axis") -> Sequence[Total]:
        """What is sent by "axis", "line", "function", "layer" or "kind", dearest first. They add up to the plan's bytes and
        seconds."""
        if by == "layer":
            return summed(layer_costs(self.program))
        return totals(self.transfers, by)

    def why(self, name: str) -> Text[list[Answer]]:
        """Why the values that `name` means live where they do: an argument's path (`params['w1']`), a line (`train.py:31`), a
        function, a result, or a name of the Plan's text (`%12`). UnknownName lists the nearest."""
        return Text(why(self.subject, values_named(self.subject, name)), _answers)

    def why_not(self, name: str, spec: PartitionSpec | NamedSharding) -> Text[Comparison]:
        """The plan in which the values that `name` means are placed as `spec` says, beside this one; `.data.is_better` says
        whether planning would prefer it. ShardingError for a spec that cannot place them, TypeError for what is no spec."""
        spec = spec.spec if isinstance(spec, NamedSharding) else spec
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"why_not({name!r}): {spec!r} is no spec\n  fix: a PartitionSpec, such as P('x', None)")
        values = [v for v in values_named(self.subject, name) if v.rank >= len(spec)]
        pins: dict[Var, PartitionSpec] = {v: padded(spec, v.rank) for v in values or values_named(self.subject, name)}
        return Text(compare(self.subject, planned_with(self.subject, pins)), _with_verdict)

    def removals(self, transfer: Transfer) -> Sequence[Option]:
        """Constraints after which the plan does without this transfer, cheapest first, each planned."""
        return removals(self.subject, transfer)

    def suggest(self, seconds: float = 10.0, tries: int | None = None) -> Text[Suggestions]:
        """Annotations that would save most, each planned; as many as can be tried in so many seconds, or so many."""
        return Text(suggest(self.subject, seconds, tries=tries), suggestion_lines)

    def compare(self, other: Report, names: tuple[str, str] = ("first", "second")) -> Text[Comparison]:
        """This plan and another: of the same function on another mesh, or of another version of it."""
        return Text(compare(self.subject, other.subject, names), comparison_lines)

    # -- as text

    @rarely_collected
    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame."""
        return f'<iframe style="width: 100%; height: 700px; border: 0" srcdoc="{escape(self.to_html())}"></iframe>'

    def lines(
        self, views: Sequence[str] = ("program", "collectives", "memory"), width: int = 80, seconds: float = 0.0
    ) -> Iterator[str]:
        """The views as text, as wide as this. For so many `seconds` what would remove the dearest transfers is planned."""
        yield self.headline
        for view in views:
            yield ""
            yield from self.view(view, width, seconds)

    @property
    def headline(self) -> str:
        plan = self.subject.plan
        optimum = f"; {plan.optimum}" if plan.optimum is not None else ""
        where = str(plan.mesh) if plan.mesh.device_count > 1 else "one device"
        return f"{self.subject.title} on {where}, {plan.target}\n{cost_text(self.cost)}{optimum}"

    def view(self, name: str, width: int = 80, seconds: float = 0.0) -> Iterator[str]:
        """One of VIEWS."""
        if name == "program":
            return program_lines(self.program, width)
        if name == "memory":
            return itertools.chain(peak_lines(self.memory, width), saving_lines(self.savings, width))
        if name == "propagation":
            return spread_lines(self.propagation, width)
        if name == "equations":
            return iter(print_program(self.subject.plan.program, self.subject.plan.placements, elide=True).splitlines())
        if name == "decisions":
            return (str(decision) for decision in self.subject.plan.decisions)
        return self._collectives(width, seconds)

    def _removals(self, seconds: float) -> list[Sequence[Option]]:
        """Of the dearest transfers, as many as can be planned in so many seconds."""
        end, options = time.monotonic() + seconds, list[Sequence[Option]]()
        for transfer in (row for row in self.transfers if row.kind != SLICE):
            if time.monotonic() >= end:
                break
            options.append(self.removals(transfer))
        return options

    def _collectives(self, width: int, seconds: float) -> Iterator[str]:
        if not self.cost.wire_bytes:
            yield "nothing is sent"
        else:
            yield from transfer_lines(self.transfers, self._removals(seconds) if seconds else (), width)
            for by in ("axis", "line", "layer"):
                yield from total_lines(by, self.totals(by), width)
        yield from note_lines(self.notes, width)

    @rarely_collected
    def to_html(self) -> str:
        """One file that opens offline: the code with prices, program, collectives, timeline, memory, flow."""
        return html(Shown(self.subject, self.cost, self.program, self.transfers, self.notes, self.memory))

    def export(self, kind: str) -> str:
        """For other tools: "trace" (Chrome trace events, for Perfetto), "stacks" (collapsed, for speedscope), "model-explorer".

        KeyError for another kind."""
        return EXPORTS[kind](self.subject)

    def to_json(self) -> str:
        """Everything but why and suggestions, which are asked for."""
        return json.dumps(self.data(), indent=1)

    def data(self) -> dict[str, Any]:
        plan = self.subject.plan
        return {
            "function": self.subject.title,
            "mesh": dict(plan.mesh.shape),
            "target": str(plan.target),
            "cost": plain(self.cost),
            "program": plain(self.program),
            "collectives": plain(self.transfers),
            "totals": {by: plain(self.totals(by)) for by in ("axis", "line", "function", "layer", "kind")},
            "memory": plain(self.memory),
            "savings": plain(self.savings),
            "notes": plain(self.notes),
            "propagation": plain(self.propagation),
        }


VIEWS = ("program", "collectives", "memory", "propagation", "equations", "decisions")


def _answers(answers: Sequence[Answer]) -> Iterator[str]:
    for answer in answers:
        yield from answer_lines(answer)


def _with_verdict(comparison: Comparison) -> Iterator[str]:
    yield "better: planning would prefer it" if comparison.is_better else "not better: planning would not prefer it"
    yield from comparison_lines(comparison)
