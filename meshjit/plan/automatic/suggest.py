"""Assignments of a Problem that are likely to be cheap, found by elimination around one that is known.

What is too wide for it keeps a part of that one; then others are kept, and what was found is kept instead. Where choices have an
excess (`messages.py`), those with little of it are gone through alone, more of them than of all choices:

    excess [0, 3, 9] of x, [0, 1] of y, at most 2      x keeps its first choice, y has both
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.plan.automatic.eliminate import Elimination
from meshjit.plan.automatic.messages import Excess
from meshjit.plan.automatic.problem import Problem

NEARBY: Final = 3  # eliminations, each with another part of the assignment left as it is
Assignment: TypeAlias = tuple[float, list[int]]  # with its cost, inf where it is forbidden


def around(problem: Problem, known: Sequence[int], largest: int) -> Iterator[Assignment]:
    """The best assignments, with tables of so many entries, where a part of the one that is known is left as it is; as long as
    that gains something."""
    hints, spared, begun = list[int | None](known), set[int](), Elimination(problem, largest=largest, waits=True)
    least = None
    for _ in range(NEARBY):
        elimination = begun.with_hints(hints, spared)
        choices = elimination.best()
        yield elimination.least, choices
        if not elimination.fixed or elimination.least == least:
            return
        least = elimination.least
        spared |= elimination.fixed.keys()
        hints = list[int | None](choices)


def among(kept: Sequence[Any], few: Problem, known: Sequence[int], largest: int) -> Iterator[Assignment]:
    """The same of a problem that has these choices of each variable alone; where those that are known are not among them, others
    stand in for them."""
    near = [_number(choices, choice) for choices, choice in zip(kept, known, strict=True)]
    for cost, choices in around(few, near, largest):
        yield cost, [int(own[choice]) for own, choice in zip(kept, choices, strict=True)]


def little(excess: Excess, most: float) -> list[Any]:
    """Choices with at most so much excess, and those that have least."""
    return [np.flatnonzero(each <= max(most, each.min())) for each in excess]


def _number(kept: Any, choice: int) -> int:
    """Of a choice among those that are kept; 0 where it is not."""
    at = int(np.searchsorted(kept, choice))
    return at if at < len(kept) and kept[at] == choice else 0
