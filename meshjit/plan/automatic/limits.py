"""What a user says about an automatic search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Final

EFFORT: Final = 3e9  # entries of tables that an effort of 1 goes through: some 30 s on a core of a server of 2024
BRIEF: Final = 0.1  # effort of a search that is one of many
LATER: Final = 1e9  # entries for the bound of a long Program, once somebody asks for it: some 10 s
LONG: Final = 3000  # equations from which no proof is sought unless somebody asks for it
LONGER: Final = 4500  # equations from which the first round of a proof is made for the better plans that it finds
FIRST: Final = 1.0  # entries for it
WORTH: Final = 0.02  # where nobody sets an effort, a proof gets all of it only while the best plan may be 2 % above the optimum
FILLED: Final = 200_000  # entries that are gone through in the time in which the tables of an equation are filled; there are no
# more for longer Programs, whose equal layers are one


# What limits a search, by name: which numbers do, and a fix. Comparisons with NaN are false.
NUMBERS: Final[dict[str, tuple[Callable[[float], bool], str]]] = {
    "memory": (lambda n: n > 0, "more than 0 bytes, such as memory=16e9; without it the limit is the device's own"),
    "time_limit": (lambda n: n >= 0, "seconds from 0 on, such as time_limit=60; without it there is no limit"),
    "effort": (lambda n: n >= 0, "from 0, which seeks no proof, to math.inf; 1 by default"),
}


@dataclass(frozen=True)
class Limits:
    """memory: bytes that a device may hold, by default what the device has. plan: the file of a saved plan that is planned by
    instead.

    effort: how much is gone through to prove that no plan is cheaper; counted, so it ends at the same place everywhere. By
    default 1, and less once the best plan is proved to be within WORTH of the optimum; one that would be gone once tables are
    filled is none. Of Programs of LONG equations and more a bound is worked out
    when somebody asks for it, with the effort of LATER; of LONGER ones the first round of the proof is made at once, for the
    plans that it finds.
    time_limit: seconds after which the search ends in any case; none by default, for the plan would depend on how busy the
    machine is.
    explains: whether the error where nothing fits says what would, which is tried.
    """

    memory: float | None = None
    time_limit: float | None = None
    plan: str | None = None
    effort: float | None = None
    explains: bool = True

    def checked(self, who: str) -> Limits:
        """These limits. TypeError for what is no number, ValueError for one that limits nothing; `who` was given them."""
        for name, (is_limit, fix) in NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or (value is not None and not isinstance(value, Real)):
                raise TypeError(f"{who}: {name}={value!r} is no number\n  fix: {fix}")
            if value is not None and not is_limit(float(value)):
                raise ValueError(f"{who}: {name}={value}\n  fix: {fix}")
        return self

    def entries_later(self, equations: int) -> float:
        """Of tables, to be gone through when somebody asks how good the plan is."""
        return LATER if self.effort is None and equations >= LONG else 0.0

    def briefly(self, equations: int) -> Limits:
        """For one of many searches, such as what-if questions: at most a tenth of the usual effort, and no saved plan."""
        return replace(self, effort=min(BRIEF, self.entries(equations) / EFFORT), plan=None)

    @property
    def worth(self) -> float:
        """The gap from which on all of the effort is worth it: any, where it was asked for."""
        return WORTH if self.effort is None else 0.0

    @property
    def deadline(self) -> float:
        """On the clock of `time.perf_counter`, for a search that begins now."""
        return math.inf if self.time_limit is None else time.perf_counter() + self.time_limit

    def one_of(self, count: int) -> Limits:
        """For one of several searches among which the best is chosen, without a proof, and without an explanation."""
        time_limit = None if self.time_limit is None else self.time_limit / count
        return replace(self, time_limit=time_limit, effort=0.0, explains=False)

    def entries(self, equations: int) -> float:
        """Of tables, to be gone through for a proof for so many equations; none where it takes longer to fill the tables."""
        if self.effort is None:
            return EFFORT if equations < LONG else FIRST if equations >= LONGER else 0.0
        return EFFORT * self.effort if EFFORT * self.effort > FILLED * min(equations, LONG) else 0.0
