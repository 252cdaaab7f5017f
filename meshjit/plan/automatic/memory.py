"""A limit to the memory: bytes at the peak get a price, which rises until a plan fits.

The bytes that a choice holds at one equation add up like seconds do, so seconds + price * bytes is again a problem that
elimination solves (a Lagrange multiplier). The equations are those at which plans so far had their peak.

    price 0         fastest plan, peak at equation 40 too high
    price rises     until a plan fits
    between         any two prices at which plans differ, for the fastest that fits, as it is or made lighter

The plans of rising prices are the same whatever the limit is, which only says where they end: with more memory, no later.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import programs_of, run_regions
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.problem import Problem, Table
from meshjit.plan.cost import Machine
from meshjit.plan.lifetimes import Lifetimes

PRICE: Final = 0.05  # the first: this fraction of the time if all that is held at the peak were not
RISE: Final = 4.0  # times the last price
IN_VAIN: Final = 3  # rises in a row for which plans hold hardly less, after which there are no more
LEANER: Final = 0.99  # of what the leanest held: more than that is hardly less


def peak_of(plan: Plan, machine: Machine) -> int:
    """The number of the equation at which most is held."""
    held = Lifetimes(plan.program, machine, plan.equations, plan.inputs, plan.outputs).held_bytes()
    return min(held.index(max(held)), len(plan.program.eqns) - 1)


def with_memory(model: Model, prices: Mapping[int, float]) -> Problem:
    """The problem in which a byte that is held at an equation costs so many seconds."""
    problem = Problem()
    problem.sizes, problem.tables = list(model.problem.sizes), dict(model.problem.tables)
    for at, price in prices.items():
        for number, held in _held(model, at).items():
            problem.add((number,), price * held)
    return problem


def _held(model: Model, at: int) -> Mapping[int, Table]:
    """By variable and choice, the bytes that are held at an equation: of every value those of its home. Other versions can be
    brought again when they are read (`proposals/gather_again.py`), but for what a loop goes through."""
    machine, held = model.machine, dict[int, Table]()
    alive = {*_alive(model.program, at), *machine.undonated}
    inside = [*programs_of(model.program.eqns[at].params)]
    for program in inside:
        alive.update(program.vars())
    parts = {v: part for program in (model.program, *inside) for v, part in machine.parts(program).items()}
    slices = _slices(model.program.eqns[at])
    for var in model.values.keys() & alive:
        value = model.values[var]
        number, homes = model.tables.versions_of.get(value.key, (value.maker.number, value.homes))
        scale = slices.get(var, 1) * parts.get(var, 1.0)
        bytes_ = [scale * machine.local_bytes(var.type, home) for home in homes]
        held[number] = held.get(number, 0.0) + np.array(bytes_)
    return held


def _slices(eqn: Eqn) -> dict[Var, int]:
    """Of the inputs that are slices of what a loop goes through, how many there are: all of them lie as each does."""
    sliced = [(region, i) for region in run_regions(eqn) for i in region.sliced]
    return {region.program.inputs[i]: eqn.inputs[region.operands[i]].type.shape[0] for region, i in sliced}


def _alive(program: Program, at: int) -> Iterator[Var]:
    """The values that are there while an equation runs."""
    made = [*program.inputs, *(v for eqn in program.eqns[: at + 1] for v in eqn.outputs)]
    read = {v for eqn in program.eqns[at:] for v in eqn.inputs} | {*program.outputs}
    return (v for v in made if v in read)


@dataclass(frozen=True)
class Rung:
    """A price, and what was planned at it."""

    price: float
    plan: Candidate


class Prices:
    """Of a byte at the equations where plans had their peak. They rise until a plan fits, or takes no less than one that does.
    Then they are between any two of those that were, first where most seconds are between plans. `fastest`: that of price 0."""

    def __init__(self, fastest: Candidate, memory: float, machine: Machine) -> None:
        self.memory, self.machine = memory, machine
        self.rungs, self.rises, self.price = [Rung(0.0, fastest)], True, PRICE * fastest.seconds / fastest.peak
        self.equations = {peak_of(fastest.plan, machine)}

    def learn(self, candidate: Candidate, most: float) -> bool:
        """Of the plan as it was prescribed at the present price, and the seconds of the best plan that fits; whether there is
        another price."""
        bisect.insort(self.rungs, Rung(self.price, candidate), key=lambda rung: rung.price)
        self.rises &= candidate.peak > self.memory and candidate.seconds < most and not self._is_in_vain
        if self.rises:
            self.equations.add(peak_of(candidate.plan, self.machine))
            self.price *= RISE
            return True
        between = max(itertools.pairwise(self.rungs), key=lambda pair: self._room(*pair, most))
        self.price = _middle(*between)
        return self._room(*between, most) > 0

    @property
    def _is_in_vain(self) -> bool:
        """Whether plans hold hardly less for prices that rise."""
        peaks = [rung.plan.peak for rung in self.rungs]
        return len(peaks) > IN_VAIN and min(peaks[-IN_VAIN:]) > LEANER * min(peaks[:-IN_VAIN])

    def _room(self, low: Rung, high: Rung, most: float) -> float:
        """Seconds between the plans of two prices, times half the logarithm of the ratio of these. 0 where the plan of the lower
        price fits, since no plan of a higher one is faster."""
        if low.plan.peak <= self.memory:
            return 0.0
        return max(0.0, min(high.plan.seconds, most) - low.plan.seconds) * math.log(high.price / _middle(low, high))

    @property
    def by_equation(self) -> Mapping[int, float]:
        return dict.fromkeys(sorted(self.equations), self.price / max(1, len(self.equations)))


def _middle(low: Rung, high: Rung) -> float:
    """A price between two, by their ratio."""
    return math.sqrt(low.price * high.price) or high.price / RISE
