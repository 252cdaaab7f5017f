"""Plans of assignments in the order of their lower bounds, until no further one can be cheaper than the best plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.made import EQUAL, Choices, Made
from meshjit.plan.automatic.model import Model

PLANS: Final = 256  # plans that are priced in full
UNFIT: Final = 64  # plans that do not fit, after which the memory gets a price
QUICK: Final = 1 << 21  # entries of a table while decisions are kept for last
STEPS: Final = 1 << 17  # choices of one decision on the way to assignments in order; some 2 s
ASSIGNMENTS: Final = 1 << 18  # that are gone through; many lead to the same plan


def elimination_of(model: Model) -> Elimination:
    """Of all choices, if possible with the decisions last; TooWide where that is too much."""
    numbers = [decision.number for decision in model.decisions]
    try:
        return Elimination(model.problem, last=numbers, largest=QUICK)
    except TooWide:
        return Elimination(model.problem)


def gone_through(
    made: Made,
    model: Model,
    ordered: Iterator[tuple[float, Choices | None]],
    bound: float,
    tried: set[tuple[int, ...]] | None = None,
) -> tuple[float, bool]:
    """Make the plans of assignments that come in the order of their lower bounds. The bound of those that are left, and whether
    that is the best plan."""
    tried, most = tried or set(), made.searched + PLANS
    for number, (bound, choices) in enumerate(ordered):
        if bound >= made.most / EQUAL:
            return made.most, True
        is_spent = made.searched >= most or number >= ASSIGNMENTS or (made.best is None and made.searched >= UNFIT)
        if choices is None or is_spent or made.is_late:
            return bound, False
        key = model.key(choices)
        if key not in tried:
            tried.add(key)
            made.attempt(model, choices)
    return made.most, True
