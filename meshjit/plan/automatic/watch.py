"""What a search found so far, for who shows its progress."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass
class Watch:
    """plans: that were priced; seconds: of the quickest. Once a proof has begun, bound: seconds below which no plan is;
    spent: the part of its effort that is gone."""

    plans: int = 0
    seconds: float = math.inf
    bound: float = 0.0
    spent: float | None = None


WATCH: Final[ContextVar[Watch | None]] = ContextVar("watch", default=None)
