"""Plans that fit the memory, where the fastest ones do not: bytes at the peak get a price (`memory.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from meshjit.plan.automatic.candidate import Candidate, refined
from meshjit.plan.automatic.descend import descend
from meshjit.plan.automatic.made import REFINED, Made
from meshjit.plan.automatic.memory import Prices, peak_of

PRICED: Final = 10  # prices of memory that are tried
IN_VAIN: Final = 2  # prices in a row for which plans hold hardly less, after which none is tried where another plan fits,
IN_VAIN_ALONE: Final = 3  # and where none does
LEANER: Final = 0.01  # of what is held beyond the memory: less than that is hardly less
RETRIED: Final = 3  # of them, on each larger mesh where nothing fits, and whatever the time
PRICE: Final = 0.05  # the first: this fraction of the time if all that is held at the peak were not


def fit(made: Made, lighter: Candidate | None, priced: int) -> None:
    """Make plans at so many prices, as long as they can still be faster than `lighter`, if that fits."""
    first = made.unfit.leanest
    assert first is not None, "some plan was made"
    memory, machine, leanest, in_vain = made.memory, made.machine, first.peak, 0
    least = math.inf if lighter is None or lighter.peak > memory else lighter.seconds
    prices = Prices(PRICE * first.seconds / leanest)
    prices.equations.add(peak_of(first.plan, machine))
    for tried in range(priced):
        if made.is_late and tried >= RETRIED:
            return
        candidate = _at_prices(made, prices.by_equation)
        if candidate is None:
            return
        if candidate.peak > memory and candidate.draft is not None and len(made.draft.program.eqns) <= REFINED:
            candidate = refined(candidate, machine, "memory")
            made.consider(candidate)
        prices.learn(candidate, memory, machine)
        if candidate.peak > memory:
            in_vain = in_vain + 1 if candidate.peak > leanest - LEANER * (leanest - memory) else 0
            leanest = min(leanest, candidate.peak)
            if in_vain >= (IN_VAIN if least < math.inf else IN_VAIN_ALONE) or candidate.seconds >= least:
                return


def _at_prices(made: Made, prices: Mapping[int, float]) -> Candidate | None:
    for state in descend(made.draft, made.ties, made.deadline, prices):
        if state.model is not None:
            return made.attempt(state.model, state.choices)
    return None
