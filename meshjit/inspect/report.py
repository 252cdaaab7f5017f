"""What a compiled function looks like to a person: the annotated Program, its collectives, its memory."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from meshjit.core.printer import print_program
from meshjit.inspect.collectives import collective_rows


def report_console(quiet: bool = False) -> Console:
    """Where reports go: as wide as the terminal, or wide enough for source lines where there is none."""
    return Console(quiet=quiet, width=None if sys.stdout.isatty() else 160)


def report(compiled: Any, console: Console | None = None) -> None:
    """Print everything about one `meshjit.stages.Compiled`."""
    console = console or report_console()
    lowering = compiled.executable.lowering
    plan = lowering.plan
    console.rule(f"{compiled.name} on {plan.mesh}", align="left")
    text = print_program(plan.program, plan.placements, elide=True)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print(collectives_table(lowering))
    console.print(memory_table(compiled))


def collectives_table(lowering: Any) -> Table:
    """Kind, axes, count, bytes a device on the wire, source line; and the totals."""
    rows = collective_rows(lowering.local, lowering.plan.mesh)
    table = Table("kind", "axes", "count", "bytes a device", "source line", title="Collectives", title_justify="left")
    table.columns[2].justify = table.columns[3].justify = "right"
    for row in rows:
        table.add_row(row.kind, row.axes, str(row.count), f"{row.bytes:,}", row.source)
    table.add_section()
    total = sum(row.bytes for row in rows)
    table.add_row("total", "", str(sum(row.count for row in rows)), f"{total:,}", "")
    return table


def memory_table(compiled: Any) -> Table:
    """Bytes of one device, as XLA reports them."""
    table = Table("memory a device", "bytes", title="Memory", title_justify="left")
    table.columns[1].justify = "right"
    for name, count in compiled.memory_analysis().rows():
        table.add_row(name, f"{count:,}")
    return table
