"""Decisions as data: what planning chose, among what, at which price and because of what; as text that parses back.

    reduce %5 (f32[32, 8]): [-, -] partial sum(data) to [-, -], all_reduce over data, 1,024 bytes  # mlp.py:12 loss
      because as an output it is [-, -]
      costs 161.3 us
    delay %5 = multiply(%4, %r): on a partial sum, [-, -] partial sum(data)  # mlp.py:11 loss
      because it is linear in the sum, whose only use it is
      not reduced before it: 161.3 us

`Plan.decisions` gives what concerns all of the plan first (search, group, try, conflict), then each equation in the order of the
Program, a loop's body after all of the Program around it, and what is brought as an output last. Prices are predictions for one
device, in microseconds, in four digits; rivals without a price were not planned to the end, for the reason that they name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

KINDS: Final = {
    "place": "where a value lives, and the annotations that its axes come from",
    "conflict": "two annotations offer a value different axes",
    "search": "how good a plan is that was searched for automatically",
    "group": "dims that are split alike over an axis: what that saves, and what it sends",
    "try": "an alternative that was planned",
    "compute": "how an equation's factors are spread over axes, where there was a choice",
    "move": "a value is brought to another placement",
    "exchange": "an op sends elements between shards itself: borders, owners",
    "reduce": "a partial sum is reduced, or it is decided where",
    "delay": "a partial sum stays unreduced through an equation",
    "accumulate": "a carry collects partial sums and is reduced after the loop, or what is added is reduced in every iteration",
    "hoist": "what does not change in a loop is brought before it",
    "remake": "a value is computed again instead of moved",
    "block": "a loop exchanges borders once for several iterations, or does not",
}


def rounded(seconds: float | None) -> float | None:
    """Seconds as microseconds in four digits."""
    return None if seconds is None else float(f"{seconds * 1e6:.4g}")


@dataclass(frozen=True)
class Rival:
    """What was not chosen; `microseconds` is None where it was not planned to the end."""

    text: str
    microseconds: float | None = None

    def __str__(self) -> str:
        return f"  not {self.text}" + ("" if self.microseconds is None else f": {self.microseconds:g} us")


@dataclass(frozen=True)
class Decision:
    """One choice of the planner. `subject` names the value or the equation as the Plan's text does."""

    kind: str
    subject: str
    choice: str
    because: tuple[str, ...] = ()
    microseconds: float | None = None
    rivals: tuple[Rival, ...] = ()
    source: str = ""

    def __str__(self) -> str:
        head = f"{self.kind} {self.subject}: {self.choice}" + (f"  # {self.source}" if self.source else "")
        costs = [] if self.microseconds is None else [f"  costs {self.microseconds:g} us"]
        return "\n".join([head, *(f"  because {reason}" for reason in self.because), *costs, *map(str, self.rivals)])


def print_decisions(decisions: Iterable[Decision]) -> str:
    return "\n".join(map(str, decisions))


_HEAD = re.compile(r"(\w+) (.*?): (.*?)(?:  # (.*))?")
_RIVAL = re.compile(r"  not (.*?)(?:: (\S+) us)?")


def parse_decisions(text: str) -> list[Decision]:
    """What `print_decisions` printed. Raises ValueError for a line that it does not print."""
    decisions: list[Decision] = []
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith("  ") and block:
            decisions.append(_parse(block))
            block = []
        block.append(line)
    return [*decisions, _parse(block)] if block else decisions


def _parse(lines: list[str]) -> Decision:
    head = _HEAD.fullmatch(lines[0])
    if head is None or head[1] not in KINDS:
        raise ValueError(f"no decision: {lines[0]!r}\n  fix: begin with one of {', '.join(KINDS)}")
    reasons = tuple(line.removeprefix("  because ") for line in lines[1:] if line.startswith("  because "))
    costs = [float(line.split()[1]) for line in lines[1:] if line.startswith("  costs ")]
    rivals = tuple(_rival(line) for line in lines[1:] if line.startswith("  not "))
    if len(reasons) + len(costs) + len(rivals) != len(lines) - 1:
        raise ValueError(f"a line of {lines[0]!r} is no reason, no price and no rival")
    return Decision(head[1], head[2], head[3], reasons, costs[0] if costs else None, rivals, head[4] or "")


def _rival(line: str) -> Rival:
    match = _RIVAL.fullmatch(line)
    assert match is not None
    return Rival(match[1], None if match[2] is None else float(match[2]))
