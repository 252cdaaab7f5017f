"""What a user says about an automatic search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

TIME_LIMIT: Final = 120.0  # seconds
EFFORT: Final = 3e9  # entries of tables that an effort of 1 goes through: some 30 s on a core of a server of 2024
BRIEF: Final = 0.1  # effort of a search that is one of many
LONG: Final = 3000  # equations from which no proof is sought unless somebody asks for it


@dataclass(frozen=True)
class Limits:
    """memory: bytes that a device may hold, by default what the device has. plan: a saved plan is planned by instead.

    effort: how much is gone through to prove that no plan is cheaper; counted, so it ends at the same place everywhere. By
    default 1, and 0 for Programs of LONG equations and more. time_limit: seconds after which the search ends in any case.
    """

    memory: float | None = None
    time_limit: float = TIME_LIMIT
    plan: str | None = None  # the file of a saved plan
    effort: float | None = None

    def briefly(self, equations: int) -> Limits:
        """For one of many searches, such as what-if questions: at most a tenth of the usual effort, and no saved plan."""
        return replace(self, effort=min(BRIEF, self.entries(equations) / EFFORT), plan=None)

    def entries(self, equations: int) -> float:
        """Of tables, to be gone through for a proof for so many equations."""
        if self.effort is None:
            return EFFORT if equations < LONG else 0.0
        return EFFORT * self.effort
