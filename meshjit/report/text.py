"""Reports as text for a terminal of 80 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from meshjit.core.plan import PlanCost
from meshjit.core.program import Source
from meshjit.report.comparison import Comparison
from meshjit.report.edges import Spread
from meshjit.report.notable import Note
from meshjit.report.outline import Row
from meshjit.report.peak import Peak
from meshjit.report.removal import Option
from meshjit.report.savings import Saving
from meshjit.report.suggest import Suggestions
from meshjit.report.transfers import SLICE, Total, Transfer
from meshjit.report.units import bytes_text, change_text, code_text, fitted, seconds_text, times_text
from meshjit.report.why import Answer, Cause, Step

WIDTH: Final = 80
MOST_TRANSFERS: Final = 40
MOST_VALUES: Final = 12  # of a list, before the rest is counted


def cost_text(cost: PlanCost) -> str:
    """`1.83 ms a step (1.2 ms work, 0.63 ms sending), 5.9 MB sent, 41 MB held at the peak`."""
    return (
        f"{seconds_text(cost.seconds)} a step ({seconds_text(cost.work_seconds)} work, "
        f"{seconds_text(cost.move_seconds)} sending), {bytes_text(cost.wire_bytes)} sent, {bytes_text(cost.peak_bytes)} held"
    )


def indented(text: str, depth: int, width: int = WIDTH) -> list[str]:
    """Wrapped, the lines after the first two columns further in."""
    pad = " " * depth
    return textwrap.wrap(text, width, initial_indent=pad, subsequent_indent=pad + "  ", break_on_hyphens=False) or [""]


# -- the program


def program_lines(rows: Iterable[Row], width: int = WIDTH) -> Iterator[str]:
    """Line, value, type with placement, shape and bytes on a device; sent bytes and their time where there are any."""
    yield fitted("type[extent@axes of the mesh, …] → shape on each device, bytes on each device", width)
    for row in rows:
        yield from _ROWS[row.kind](row, width)


def _value_row(row: Row, width: int) -> Iterator[str]:
    left = "  " * row.depth + row.title + (f" × {row.times:g}" if row.times != 1 else "")
    type = f"{row.type} → {list(row.local_shape)}" if "@" in row.type else row.type
    right = f"{type:<30} {bytes_text(row.local_bytes):>8}" if type else ""
    if len(left) > width - 46:
        right = f"{type} {bytes_text(row.local_bytes):>8}"
    if len(left) <= width - 46 and len(left) + 1 + len(right) <= width:
        yield f"{left:<{width - max(46, len(right) + 1)}} {right}".rstrip()
    elif len(left) + 1 + len(right) <= width:
        yield _apart(left, right, width)
    else:
        yield from (fitted(left, width), _apart("", right, width))
    code = code_text(row.place) if row.kind == "line" else ""
    if code:
        yield fitted("  " * row.depth + "  " + code, width)
    yield from _sent_lines(row, width)


def _sent_lines(row: Row, width: int) -> Iterator[str]:
    if row.wire_bytes:
        yield fitted(f"{'  ' * row.depth}  → sends {bytes_text(row.wire_bytes)}, {seconds_text(row.seconds)}", width)


def _apart(left: str, right: str, width: int) -> str:
    return f"{left}{right:>{max(0, width - len(left))}}"


def _head_row(row: Row, width: int) -> Iterator[str]:
    yield fitted("  " * row.depth + row.title, width)


def _times_row(row: Row, width: int) -> Iterator[str]:
    yield fitted(f"{'  ' * row.depth}{row.title}, × {row.times:,.4g} ({row.equations:,} equations)", width)
    yield from _sent_lines(row, width)


_ROWS = {
    "argument": _value_row, "line": _value_row, "function": _head_row, "layers": _times_row, "loop": _times_row,
    "branch": _times_row, "devices": _head_row,
}  # fmt: skip


# -- what is sent


def transfer_lines(
    rows: Sequence[Transfer], options: Sequence[Sequence[Option] | None] = (), width: int = WIDTH
) -> Iterator[str]:
    """Each with its value, line and reason; where `options` has them, the constraints that would remove it."""
    everything = sum(row.seconds for row in rows)
    slices, rows = [row for row in rows if row.kind == SLICE], [row for row in rows if row.kind != SLICE]
    for i, row in enumerate(rows[:MOST_TRANSFERS]):
        mark = "  WHOLE ON EVERY DEVICE" if row.is_whole else ""
        share = f", {100 * row.seconds / everything:.0f} %" if everything else ""
        head = f"{i + 1}. {row.kind} over {row.axes} ({row.group} devices), {times_text(row.times)}{mark}"
        yield from indented(f"{head}: {bytes_text(row.wire_bytes)}, {seconds_text(row.seconds)}{share}", 0, width)
        layers = f", in {row.copies} equal places" if row.copies > 1 else ""
        yield from indented(f"{row.value} {row.type}{layers}, {row.why}", 3, width)
        if row.source:
            yield fitted(f"   {row.source}   {code_text(row.place)}".rstrip(), width)
        for line in _option_lines(options[i] if i < len(options) else None):
            yield from indented(line, 3, width)
    yield from _rest_lines(rows[MOST_TRANSFERS:], slices)


def _rest_lines(rest: Sequence[Transfer], slices: Sequence[Transfer]) -> Iterator[str]:
    if rest:
        sent, taken = sum(row.wire_bytes for row in rest), sum(row.seconds for row in rest)
        yield f"and {len(rest)} more: {bytes_text(sent)}, {seconds_text(taken)}; --json and --html have all"
    if slices:
        times, taken = sum(row.times for row in slices), sum(row.seconds for row in slices)
        yield f"parts of whole values are kept {times_text(times)}: nothing is sent, {seconds_text(taken)}"


def _option_lines(options: Sequence[Option] | None) -> Iterator[str]:
    if options is None:
        return
    if not options:
        yield "no single constraint removes it"
    for option in options[:2]:
        yield f"gone with {option.text}: {cost_text(option.cost)}"


def total_lines(what: str, rows: Sequence[Total], width: int = WIDTH) -> Iterator[str]:
    yield f"sent by {what}"
    for row in rows[:MOST_VALUES]:
        name = fitted(row.name or "-", width - 26)
        yield f"  {name:<{width - 26}} {bytes_text(row.wire_bytes):>9} {seconds_text(row.seconds):>9}"
    if len(rows) > MOST_VALUES:
        yield f"  and {len(rows) - MOST_VALUES} more"


def note_lines(rows: Sequence[Note], width: int = WIDTH) -> Iterator[str]:
    if rows:
        yield "worth knowing"
    for row in rows[:MOST_VALUES]:
        yield from indented(f"{row.kind}: {row.text}{f'  {row.source}' if row.source else ''}", 2, width)
    if len(rows) > MOST_VALUES:
        yield f"  and {len(rows) - MOST_VALUES} more"


# -- memory


def peak_lines(peak: Peak, width: int = WIDTH) -> Iterator[str]:
    verdict = "fits" if peak.fits else "DOES NOT FIT"
    yield f"memory a device, predicted: {bytes_text(peak.peak)} at the peak; {verdict} into {bytes_text(peak.limit)}"
    yield from indented(
        f"arguments {bytes_text(peak.arguments)}, results {bytes_text(peak.results)}; the peak is at {peak.at}", 2, width
    )
    for row in peak.held[:MOST_VALUES]:
        value = row.value + (f" × {row.copies}" if row.copies > 1 else "")
        yield fitted(f"  {bytes_text(row.bytes):>9}  {value:<34} {row.type}", width)
        if row.source:
            yield fitted(f"{'':<13}{row.source}   {code_text(row.place)}".rstrip(), width)
    rest = peak.held[MOST_VALUES:]
    if rest:
        yield f"  {bytes_text(sum(row.bytes for row in rest)):>9}  {len(rest)} other{'s' * (len(rest) > 1)}"
    if peak.inside:
        yield f"  {bytes_text(peak.inside):>9}  of it inside of the loop that runs then"


def saving_lines(rows: Sequence[Saving], width: int = WIDTH) -> Iterator[str]:
    for row in rows:
        yield from indented(_SAVED[row.how](row), 2, width)


_SAVED = {
    "donate": lambda row: f"donate {row.what}: results take its memory, about {bytes_text(row.bytes)} less (donate_argnums)",
    "checkpoint": lambda row: (
        f"checkpoint {row.what}: about {bytes_text(row.bytes)} less, {seconds_text(row.seconds)} of work again"
    ),
}


# -- why


def answer_lines(answer: Answer, width: int = WIDTH) -> Iterator[str]:
    copies = f" and {answer.copies - 1} like it" if answer.copies > 1 else ""
    where = f", made at {answer.source}" if answer.source else ""
    yield from indented(f"{answer.value} {answer.type}{copies}{where}, is {answer.placement}", 0, width)
    if answer.place is not None:
        yield fitted(f"    {code_text(answer.place)}", width)
    if not answer.causes:
        yield "  whole on every device: no annotation, and no decision of planning, shards it"
    for cause in answer.causes:
        yield from _cause_lines(cause, width)
    for loss in answer.losses:
        price = f"; that plan: {cost_text(loss.cost)}" if loss.cost is not None else ""
        now = f"; this one: {cost_text(answer.cost)}" if answer.cost is not None and loss.cost is not None else ""
        yield from indented(f"lost: {loss.text}{price}{now}", 2, width)
    for i, (text, seconds) in enumerate(answer.choice):
        yield from indented(f"{'computed with' if i == 0 else 'instead of'} {text}: {seconds_text(seconds)}", 2, width)


def _cause_lines(cause: Cause, width: int) -> Iterator[str]:
    yield from indented(f"{cause.axis} on dim {cause.dim}: {'' if cause.is_chosen else 'from '}{cause.origin}", 2, width)
    for step in _shortened(cause.steps):
        yield fitted(step if isinstance(step, str) else _step_text(step), width)


def _step_text(step: Step) -> str:
    times = f" × {step.times}" if step.times > 1 else ""
    return f"    {step.op + times:<22} {step.source}   {code_text(step.place)}".rstrip()


def _shortened(steps: Sequence[Step]) -> Iterator[Step | str]:
    """The first and last ones of a long way."""
    if len(steps) <= MOST_VALUES:
        yield from steps
        return
    half = MOST_VALUES // 2
    yield from steps[:half]
    yield f"    … {len(steps) - 2 * half} more …"
    yield from steps[-half:]


# -- propagation


def spread_lines(rows: Sequence[Spread], width: int = WIDTH) -> Iterator[str]:
    """`data  x → %3  dot_general, operand 0 → result 0, × 2`, and the line, where it is another than before."""
    if not rows:
        yield "nothing spreads: there are no annotations, or no equation passes them on"
    place: Source | None = None
    for row in rows:
        if row.place is not None and row.place != place:
            place = row.place
            yield fitted(f"{row.source}   {code_text(row.place)}".rstrip(), width)
        copies = f", × {row.copies}" if row.copies > 1 else ""
        values = f"{row.axis}: {row.origin_name} → {', '.join(row.target_names)}"
        yield from indented(f"{values}   {row.op}, {row.origin} → {', '.join(row.targets)}{copies}", 2, width)


# -- two plans


def comparison_lines(comparison: Comparison, width: int = WIDTH) -> Iterator[str]:
    first, second = comparison.costs
    names = comparison.names
    yield f"{comparison.changed} values changed, {comparison.same} did not" + _others(comparison)
    yield f"  {'':<14}{names[0]:>18}{names[1]:>18}"
    for what, old, new, text in (
        ("step", first.seconds, second.seconds, seconds_text),
        ("  work", first.work_seconds, second.work_seconds, seconds_text),
        ("  sending", first.move_seconds, second.move_seconds, seconds_text),
        ("bytes sent", first.wire_bytes, second.wire_bytes, bytes_text),
        ("memory", first.peak_bytes, second.peak_bytes, bytes_text),
    ):
        yield f"  {what:<14}{text(old):>18}{text(new):>18}   {change_text(new, old)}"
    for cause, group in itertools.groupby(comparison.changes, lambda change: change.cause):
        changes = list(group)
        yield from indented(f"{sum(change.count for change in changes)}: {cause}", 2, width)
        for change in changes:
            yield from indented(f"{change.before} → {change.after}, {change.count} ×: {_listed(change.values, 6)}", 4, width)
            if change.lines:
                yield from indented(f"at {_listed(change.lines, 4)}", 8, width)
    for name, rows in zip(names, comparison.sends, strict=True):
        for row in rows[:MOST_VALUES]:
            yield from indented(
                f"{name} alone sends {bytes_text(row.wire_bytes)}: {row.kind} over {row.axes} of {row.value} {row.type}"
                f"{' at ' + row.source if row.source else ''}", 2, width,
            )  # fmt: skip


def _others(comparison: Comparison) -> str:
    parts = [(comparison.removed, comparison.names[0]), (comparison.added, comparison.names[1])]
    return "".join(f"; {len(values)} only in {name}" for values, name in parts if values)


def _listed(values: Sequence[str], most: int = MOST_VALUES) -> str:
    rest = len(values) - most
    return ", ".join(values[:most]) + (f" and {rest} more" if rest > 0 else "")


# -- suggestions


def suggestion_lines(suggestions: Suggestions, width: int = WIDTH) -> Iterator[str]:
    yield f"now: {cost_text(suggestions.now)}"
    if not suggestions.rows and suggestions.possible:
        yield "no annotation that was planned makes it cheaper"
    for i, row in enumerate(suggestions.rows):
        where = "in_shardings" if row.is_argument else f"a constraint at {row.source}"
        time, sent = change_text(row.then.seconds, row.now.seconds), change_text(row.then.wire_bytes, row.now.wire_bytes)
        fits = ", fits the memory" if row.now.peak_bytes > suggestions.memory >= row.then.peak_bytes else ""
        saved = f"time {time}, bytes {sent}{fits}"
        yield from indented(f"{i + 1}. {row.value}: {row.placement} ({where}): {saved}", 0, width)
        yield from indented(cost_text(row.then), 3, width)
    if suggestions.together is not None:
        numbers, cost = suggestions.together
        yield from indented(f"{', '.join(str(i + 1) for i in numbers[:-1])} and {numbers[-1] + 1} together:", 0, width)
        yield from indented(cost_text(cost), 3, width)
    if suggestions.stopped:
        yield f"{suggestions.tried} of {suggestions.possible} annotations were planned; more: --seconds 60"
    else:
        count = suggestions.possible
        yield f"all {count} annotations were planned" if count else "there is no further annotation to plan"
