"""What a search found so far, for who shows its progress."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary


@dataclass
class Watch:
    """plans: that were priced; seconds: of the quickest. Once a proof has begun, bound: seconds below which no plan is;
    spent: the part of its effort that is gone."""

    plans: int = 0
    seconds: float = math.inf
    bound: float = 0.0
    spent: float | None = None
    proofs: WeakKeyDictionary[object, tuple[float, float | None]] = field(default_factory=WeakKeyDictionary)

    def proved(self, proof: object, bound: float, spent: float | None) -> None:
        """How far one of the proofs is."""
        self.proofs[proof] = bound, spent
        self.bound = min(bound for bound, _ in self.proofs.values())
        parts = [part for _, part in self.proofs.values() if part is not None]
        self.spent = sum(parts) / len(parts) if parts else None


WATCH: Final[ContextVar[Watch | None]] = ContextVar("watch", default=None)
