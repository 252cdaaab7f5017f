"""What a value is made of is moved instead of the value, where that is less.

    %2: f32[K, N@x] = convert(%1: bf16[K, N@x])    read as [-, -]: gathers 4 bytes an element
    %2: f32[K, N] = convert(%1: bf16[K, N])        the operand is gathered, 2 bytes an element; each device converts all of it

So numbers of few bits are moved before they are widened, and rows before they are repeated. Once all equations are planned, it
is known who reads a value, and where. Both ways have a price: that of bringing every value in which they differ to all its
readers, and that of the equations that make these values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.plan.delay import Price
from meshjit.plan.events import Elsewhere
from meshjit.plan.planned import Planned
from sharding.placement import Placement

STEPS: Final = 6  # equations between what is moved and what was to be moved
NO_CHANGES: Final[Mapping[int, EquationPlan]] = {}
REASON: Final = "what it is made of is less to move than its result"


class _Way(NamedTuple):
    """Equations that are computed elsewhere, by number. What they, their values and what these are made of cost then, and what
    all of that costs as planned."""

    changes: Mapping[int, EquationPlan]
    price: Price
    planned: Price

    def is_better_than(self, other: _Way) -> bool:
        return Price.of((self.price, other.planned)).is_below(Price.of((other.price, self.planned)))


AS_PLANNED: Final = _Way(NO_CHANGES, Price(0.0, 0.0), Price(0.0, 0.0))


def move_operands(planned: Planned) -> Sequence[Elsewhere]:
    """The equations that are computed elsewhere because their operands are less to move than their results."""
    targets: dict[Var, dict[Placement, None]] = {}
    for move in planned.moves:
        targets.setdefault(move.var, {})[move.walk.placements[-1]] = None
    widened = {v: there for v, there in targets.items() if v in planned.made and _may_be_less(v, planned)}
    if not widened:
        return ()
    eqns, made = planned.program.eqns, planned.made
    return [
        Elsewhere(eqns[made[v]], way.changes[made[v]], way.changes, way.price.seconds, way.planned.seconds, REASON)
        for v, way in _Origins(planned).best(widened)
    ]


def _may_be_less(var: Var, planned: Planned) -> bool:
    """Whether a value is made element by element of something smaller, or of what is itself made of something."""
    at = planned.made[var]
    eqn = planned.program.eqns[at]
    if not _is_elementwise(eqn, planned.plans[at]):
        return False
    return any([v in planned.made or v.type.nbytes < var.type.nbytes for v in eqn.inputs])


def _is_elementwise(eqn: Eqn, plan: EquationPlan) -> bool:
    """Whether an equation can be computed anywhere, of whole values, each element of its one result by itself."""
    if not plan.rule.is_passthrough or plan.bodies or plan.manual or len(eqn.outputs) != 1 or not is_pure(eqn):
        return False
    return not any(p.partial for p in (*plan.operands, *plan.results))


@dataclass(frozen=True)
class _Origins:
    """What bringing values somewhere costs from where they are made, or from where what they are made of is."""

    planned: Planned
    known: dict[Var, Price] = field(default_factory=dict[Var, Price])  # of bringing values to their readers, as planned

    def best(self, widened: Mapping[Var, Iterable[Placement]]) -> Iterator[tuple[Var, _Way]]:
        """The values that are better computed where they are read, and how. Equal layers are asked about once."""
        in_vain = set[Any]()
        for var, targets in widened.items():
            alike = self.surroundings(var)
            if alike not in in_vain:
                way = _best([self.bring(var, None, target, STEPS) for target in targets])
                if way.changes and way.is_better_than(AS_PLANNED):
                    yield var, way
                else:
                    in_vain.add(alike)

    def surroundings(self, var: Var) -> Any:
        """The plan that makes a value and those that make its operands, and where all of these are read."""
        planned = self.planned
        values = var, *planned.program.eqns[planned.made[var]].inputs
        plans = [id(planned.plans[planned.made[v]]) if v in planned.made else planned.home(v) for v in values]
        return *plans, *[tuple(planned.asked(v)) for v in values]

    def bring(self, var: Var, reader: int | None, target: Placement, steps: int) -> _Way:
        """The better way to have a value under a placement that the equation `reader` reads it under instead of where it does;
        None: that somebody reads it under as planned."""
        planned, at = self.planned, self.planned.made.get(var)
        if planned.is_made_again(var):
            return AS_PLANNED
        target = planned.machine.normal(target)
        before, asked = self.as_planned(var), planned.asked(var, reader, target)
        stay = _Way(NO_CHANGES, before if reader is None else planned.price(var, asked), before)
        if at is None or not steps or stay.price.seconds <= (0.0 if reader is None else before.seconds):
            return stay
        eqn, plan = planned.program.eqns[at], planned.plans[at]
        there = planned.machine.spread_again(eqn, plan.rule, target) if _is_elementwise(eqn, plan) else None
        if there is None:
            return stay
        return _best([stay, self.computed(at, there, planned.price(var, asked, target), before, steps)])

    def as_planned(self, var: Var) -> Price:
        if var not in self.known:
            self.known[var] = self.planned.price(var, self.planned.asked(var))
        return self.known[var]

    def computed(self, at: int, there: EquationPlan, after: Price, before: Price, steps: int) -> _Way:
        """An equation computed as `there` says. Bringing its result to its readers costs so much `after` that, and so much
        `before`."""
        planned = self.planned
        sides = dict.fromkeys(zip(planned.program.eqns[at].inputs, there.operands, strict=True))
        ways = [self.bring(operand, at, placement, steps - 1) for operand, placement in sides]
        changes = {number: plan for way in ways for number, plan in way.changes.items()}
        price = Price.of((after, planned.work(at, there), *[way.price for way in ways]))
        as_planned = Price.of((before, planned.work(at, planned.plans[at]), *[way.planned for way in ways]))
        return _Way({at: there, **changes}, price, as_planned)


def _best(ways: Iterable[_Way]) -> _Way:
    """The first of the best."""
    return functools.reduce(lambda best, way: way if way.is_better_than(best) else best, ways)
