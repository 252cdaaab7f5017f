"""Plans of assignments in the order of their lower bounds, until no further one can be cheaper than the best plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.made import EQUAL, Choices, Made
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.problem import Problem

PLANS: Final = 256  # plans that are priced in full
UNFIT: Final = 64  # plans that do not fit, after which the memory gets a price;
FEW_UNFIT: Final = 4  # where tables tell what plans hold
QUICK: Final = 1 << 21  # entries of a table while decisions are kept for last
STEPS: Final = 1 << 17  # choices of one decision on the way to assignments in order; some 2 s
ASSIGNMENTS: Final = 1 << 18  # that are gone through; many lead to the same plan


def elimination_of(model: Model, problem: Problem) -> Elimination:
    """Of a problem with the model's choices, if possible with the decisions last; TooWide where that is too much."""
    numbers = [decision.number for decision in model.decisions]
    try:
        return Elimination(problem, last=numbers, largest=QUICK)
    except TooWide:
        return Elimination(problem)


def gone_through(
    made: Made,
    model: Model,
    ordered: Iterator[tuple[float, Choices | None]],
    bound: float,
    tried: set[tuple[int, ...]] | None = None,
    unfit: float = UNFIT,
    may_fit: Callable[[Choices], bool] = lambda _: True,
) -> tuple[float, bool]:
    """Make the plans of assignments that come in the order of their lower bounds, and `may_fit` the memory. The bound of those
    that are left, and whether that is the best plan. It ends after so many plans that are `unfit` where none fits."""
    tried, most = tried or set(), made.searched + PLANS
    for number, (bound, choices) in enumerate(ordered):
        if bound >= made.most / EQUAL:
            return made.most, True
        is_spent = made.searched >= most or number >= ASSIGNMENTS or (made.best is None and made.searched >= unfit)
        if choices is None or is_spent or made.is_late:
            return bound, False
        key = model.key(choices)
        if key not in tried and may_fit(choices):
            tried.add(key)
            made.attempt(model, choices)
    return made.most, True
