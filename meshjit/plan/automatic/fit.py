"""Plans that fit the memory, where the fastest ones do not: bytes at the peak get a price (`memory.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshjit.plan.automatic.candidate import Candidate, refined
from meshjit.plan.automatic.descend import descend
from meshjit.plan.automatic.made import REFINED, Made
from meshjit.plan.automatic.memory import Prices

PRICED: Final = 10  # prices of memory that are tried
RETRIED: Final = 3  # of them, on each larger mesh where nothing fits, and whatever the time


def fit(made: Made, priced: int) -> None:
    """Make plans at so many prices. Each may become the fastest that fits once it is made lighter, and what takes longer is then
    often faster: so that one is there that fits says nothing of plans at higher prices."""
    prices, lightened = Prices(made.unfit.front[0], made.memory, made.machine), set[object]()
    for tried in range(priced):
        candidate = None if made.is_late and tried >= RETRIED else _at_prices(made, prices.by_equation)
        if candidate is None:
            return
        if (candidate.seconds, candidate.peak) not in lightened:
            lightened.add((candidate.seconds, candidate.peak))
            _make_lighter(made, candidate)
        if not prices.learn(candidate, min(made.most, made.unfit.quickest)):
            return


def _make_lighter(made: Made, candidate: Candidate) -> None:
    """Make the plan that it becomes, where it does not fit."""
    if candidate.peak > made.memory and len(made.draft.program.eqns) <= REFINED:
        made.consider(refined(candidate, made.machine, "memory"))


def _at_prices(made: Made, prices: Mapping[int, float]) -> Candidate | None:
    for state in descend(made.draft, made.ties, made.deadline, prices):
        if state.model is not None:
            return made.attempt(state.model, state.choices)
    return None
