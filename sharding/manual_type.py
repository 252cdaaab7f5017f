"""ManualAxisType: how a value in code for single devices stands to the axes of the mesh (`jax.sharding.ManualAxisType`)."""

from __future__ import annotations

from dataclasses import dataclass

Names = frozenset[str]


@dataclass(frozen=True)
class ManualAxisType:
    """Along axes in `varying` devices may hold different values, along those in `unreduced` they hold addends of one value;
    along those in `reduced` they hold one value, whose cotangent is unreduced. Along others all hold the same."""

    varying: Names = frozenset()
    unreduced: Names = frozenset()
    reduced: Names = frozenset()

    def __post_init__(self) -> None:
        for name in ("varying", "unreduced", "reduced"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        both = (self.varying & self.unreduced) | (self.varying & self.reduced) | (self.unreduced & self.reduced)
        if both:
            raise ValueError(f"ManualAxisType: {sorted(both)} in more than one of varying, unreduced and reduced: {self}")

    @property
    def empty(self) -> bool:
        return not (self.varying or self.unreduced or self.reduced)
