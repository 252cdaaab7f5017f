"""A limit to the memory: bytes at the peak get a price, which rises until a plan fits.

The bytes that a choice holds at one equation add up like seconds do, so seconds + price * bytes is again a problem that
elimination solves (a Lagrange multiplier). The equations are those at which plans so far had their peak.

    price 0         fastest plan, peak at equation 40 too high
    price rises     until a plan fits; then between the last two prices, for the fastest that does
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from meshjit.core.plan import Plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import programs_of, run_regions
from meshjit.plan.automatic.candidate import Candidate
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.problem import Problem, Table
from meshjit.plan.cost import Machine
from meshjit.plan.lifetimes import Lifetimes


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


class Prices:
    """Of a byte at the equations where plans had their peak. Raised while plans do not fit, then halved towards the last
    that did not."""

    def __init__(self, first: float) -> None:
        self.price = first
        self.low, self.high = 0.0, float("inf")
        self.equations: set[int] = set()

    def learn(self, candidate: Candidate, memory: float, machine: Machine) -> None:
        """Of a plan that was made at the present price. Equations have prices as they were prescribed, not as refined."""
        if candidate.peak > memory:
            self.low = self.price
            self.equations.add(peak_of(candidate.plan if candidate.draft is None else candidate.draft.plan, machine))
        else:
            self.high = self.price
        self.price = self.price * 8 if self.high == float("inf") else (self.low + self.high) / 2

    @property
    def by_equation(self) -> Mapping[int, float]:
        return dict.fromkeys(sorted(self.equations), self.price / max(1, len(self.equations)))
