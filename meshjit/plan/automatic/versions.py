"""What it costs to have a value under several placements, as `meshjit.core.versions` brings it there one after the other.

A value leaves its maker under one placement, its *home*; each use asks for it under one. What was brought for one use is there
for the others, with all that lies on the way, so the price is that of the set, in the order in which it costs least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from meshjit.core.once import once_per_program
from meshjit.core.plan import rematerializable
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import rule_of
from meshjit.plan.automatic.estimate import estimate
from meshjit.plan.cost import Machine
from sharding.mesh import BaseMesh
from sharding.placement import Placement, normalized
from sharding.spec import PartitionSpec, open_dims, placement_of


class VersionPrices:
    """Of the values of one Program. Values that can be made again are not moved where making them costs less."""

    def __init__(
        self, machine: Machine, program: Program, estimates: bool = False, known: dict[object, float] | None = None
    ) -> None:
        self.machine, self.program, self.estimates = machine, program, estimates
        self.makers, self.counts = _makers(program), machine.uses_of(program).counts
        self.known: dict[object, float] = {} if known is None else known

    def seconds(self, var: Var, home: Placement, others: Sequence[Placement]) -> float:
        """Of having a value that was made at `home` under all of `others`, too; inf where that cannot be."""
        elsewhere = besides(home, others)
        if not elsewhere:
            return 0.0
        if any(p.partial for p in elsewhere):
            return math.inf
        maker, key = self.makers.get(var), self.key(var, home, elsewhere)
        seconds = self.known.get(key)
        if seconds is None:
            orders = itertools.permutations(elsewhere) if not self.estimates else [elsewhere]
            seconds = self.known[key] = min(self._in_order(var, maker, home, order) for order in orders)
        return seconds

    def made_again(self, var: Var, placements: Sequence[Placement]) -> list[float]:
        """By placement, the seconds of making a value again there; inf where it is not."""
        maker = self.makers.get(var)
        chains = [None if maker is None else self._chain(maker, placement) for placement in placements]
        return [math.inf if seconds is None else seconds for seconds in chains]

    def kind(self, var: Var) -> object:
        """The same for values that cost the same to bring."""
        maker = self.makers.get(var)
        return id(maker) if maker is not None else var.type

    def key(self, var: Var, home: Placement, others: Sequence[Placement]) -> object:
        """The same for what costs the same."""
        return self.kind(var), home, others[0] if len(others) == 1 else frozenset(others)

    def _in_order(self, var: Var, maker: Eqn | None, home: Placement, order: Sequence[Placement]) -> float:
        have, seconds = {home}, 0.0
        for placement in order:
            if placement in have:
                continue
            again = self._again(maker, have, placement) if maker is not None else None
            if again is not None:
                seconds += again
                have.add(placement)
            elif self.estimates:
                seconds += min(estimate(self.machine, var.type, source, placement) for source in have)
                have.add(placement)
            else:
                walk = self.machine.nearest(var.type, sorted(have, key=str), placement)
                seconds += walk.seconds
                have.update(walk.placements)
        return seconds

    def _again(self, maker: Eqn, have: set[Placement], placement: Placement) -> float | None:
        """Seconds of making the value again at a placement; None where it is not."""
        var = maker.outputs[0]
        if maker.inputs and not self.estimates and not self.machine.nearest(var.type, sorted(have, key=str), placement).bytes:
            return None
        return self._chain(maker, placement)

    def _chain(self, maker: Eqn, placement: Placement) -> float | None:
        """With what only this equation reads, which is made again, too. Where that lies so already, another choice of its home
        costs as much; so of all choices together the least stays right."""
        plan = self.machine.spread_again(maker, rule_of(maker), placement)
        if plan is None:
            return None
        seconds = self.machine.effect(maker, plan).work
        for var, there in zip(maker.inputs, plan.operands, strict=True):
            before = self.makers.get(var)
            if before is not None and before.op.seed is None and self.counts[var] == 1:
                seconds += self._chain(before, there) or 0.0
        return seconds


@once_per_program
def _makers(program: Program) -> Mapping[Var, Eqn]:
    """The values that can be made again, with their equations."""
    makers: dict[Var, Eqn] = {}
    cheap: dict[Var, int] = {}
    for eqn in program.eqns:
        if not eqn.inputs or eqn.inputs[0] in cheap:
            size = rematerializable(eqn, rule_of(eqn), cheap)
            if size is not None:
                cheap[eqn.outputs[0]], makers[eqn.outputs[0]] = size, eqn
    return makers


def besides(home: Placement, others: Sequence[Placement]) -> tuple[Placement, ...]:
    """The placements among `others` that are not `home`, each once."""
    return tuple(dict.fromkeys([p for p in others if p != home]))


def home_of(natural: Placement, demands: Sequence[Placement]) -> Placement:
    """Where a value is said to live: where it is made; of a partial sum, where it is first needed whole."""
    if not natural.partial:
        return natural
    return next((p for p in demands if not p.partial), natural.without_partial())


def subsets(placements: Sequence[Placement], most: int) -> list[tuple[Placement, ...]]:
    return [s for n in range(min(most, len(placements)) + 1) for s in itertools.combinations(placements, n)]


class Pin:
    """Where somebody said that a value is: axes per dim, and the dims that may get more."""

    def __init__(self, placement: Placement, open_dims: Sequence[bool]) -> None:
        self.placement, self.open_dims = placement, tuple(open_dims) or (False,) * placement.rank

    def allows(self, placement: Placement) -> bool:
        sides = zip(self.placement.dims, placement.dims, self.open_dims, strict=True)
        return all(have[: len(asked)] == asked if is_open else have == asked for asked, have, is_open in sides)


def pin_of(spec: PartitionSpec | None, rank: int, mesh: BaseMesh) -> Pin | None:
    return None if spec is None else Pin(normalized(placement_of(spec, rank).without_partial(), mesh), open_dims(spec, rank))
