"""The result of `meshjit.verify`, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshjit.core.plan import Plan
from meshjit.core.printer import print_program, print_value
from meshjit.core.program import Eqn
from meshjit.inspect.comparison import Difference

LONGEST = 240  # characters of an equation that are shown


class VerificationError(AssertionError):
    """Partitioned and unpartitioned disagree. `eqn` is the first equation that does, `difference` by how much."""

    def __init__(self, message: str, eqn: Eqn | None, difference: Difference) -> None:
        super().__init__(message)
        self.eqn, self.difference = eqn, difference


@dataclass(frozen=True)
class Deviation:
    """One compared value: result `position` of equation `number`."""

    plan: Plan
    number: int
    position: int
    difference: Difference

    @property
    def eqn(self) -> Eqn:
        return self.plan.program.eqns[self.number]

    def __str__(self) -> str:
        return equation_text(self.plan, self.number)


@dataclass(frozen=True)
class Verification:
    """All values agree. `worst` is the one that does so least; `drifted` are those further off than one equation's
    rounding explains, whose equations are right and whose operands were off already. `unlike`: results in which a few
    elements differ between the program with all its values handed over and the one without."""

    title: str
    mesh: Any
    simulated: bool
    values: int
    elements: int
    worst: Deviation | None
    drifted: tuple[Deviation, ...]
    unlike: tuple[tuple[int, Difference], ...] = ()

    @property
    def largest_error(self) -> float:
        """Relative to an element's own size and the median one's; of values that did not drift."""
        return self.worst.difference.error if self.worst is not None else 0.0

    def __str__(self) -> str:
        how = "simulated" if self.simulated else "run"
        devices = f"{self.mesh.size} device{'s' if self.mesh.size != 1 else ''}"
        lines = [f"{self.title} on {self.mesh}, {how} on {devices}: {self.values} values ({self.elements:,} elements) agree"]
        if self.worst is not None and self.largest_error > 0:
            lines += [f"  largest relative error {self.largest_error:.2g}:", f"    {self.worst}"]
        if self.drifted:
            lines.append(f"  {len(self.drifted)} of them only follow operands that rounding set apart; the first:")
            lines.append(f"    {self.drifted[0]}")
        for i, text in self.unlike[:1]:
            lines.append(f"  {len(self.unlike)} results are rounded otherwise without values in between; result {i}: {text}")
        if self.mesh.size == 1:
            why = "that proves nothing: on one device nothing is partitioned"
            lines.append(f"  {why}; name a mesh by in_shardings, mesh= or placed arguments")
        return "\n".join(lines)


def equation_text(plan: Plan, number: int) -> str:
    """`train.py:31 mlp: %4: f32[8@x, 16] = dot_general(%1, %w) {...}`, with the names and placements of the whole Program."""
    eqn = plan.program.eqns[number]
    lines = print_program(plan.program, plan.placements, sources=False, elide=True).splitlines()
    line = lines[_line_of(plan, number)].strip()
    if eqn.op.regions is not None:
        line = line.partition(" {")[0] + " {…}"
    line = line if len(line) <= LONGEST else line[:LONGEST] + "…"
    return f"{eqn.source}: {line}" if eqn.source is not None else line


def _line_of(plan: Plan, number: int) -> int:
    """Equations with Programs in their params are printed on several lines."""
    heights = [
        sum(print_value(v, elide=True).count("\n") for v in eqn.params.values()) + 1 for eqn in plan.program.eqns[:number]
    ]
    return 1 + sum(heights)


def mismatch_text(
    before: Verification, plan: Plan, number: int | None, position: int, difference: Difference, note: str = ""
) -> str:
    """The message of a VerificationError for result `position` of an equation, or for an input (None)."""
    where = "an input" if number is None else f"equation {number} of {len(plan.program.eqns)}"
    lines = [f"{before.title} on {plan.mesh} differs from one device, first at {where}"]
    if number is not None:
        eqn, step = plan.program.eqns[number], plan.equations[number]
        operands = [f"{v.type} at {p}" for v, p in zip(eqn.inputs, step.operands, strict=True)]
        spread = ", ".join(f"{factor}: {'*'.join(map(str, axes))}" for factor, axes in step.assignment.items() if axes)
        lines += [
            f"  {equation_text(plan, number)}",
            f"  its operands were brought to {', '.join(operands)}" if operands else "  it has no operands",
            f"  its rule {step.rule} was spread as {spread or 'nothing: all devices do the same'}",
        ]
    many = number is not None and len(plan.program.eqns[number].outputs) > 1
    lines.append(f"  {f'result {position}, ' if many else ''}element {difference}")
    lines += [f"  {note}"] if note else []
    if before.values:
        lines.append(f"  the {before.values} values before it are right" if before.values > 1 else "  the one before it is right")
    return "\n".join(lines)
