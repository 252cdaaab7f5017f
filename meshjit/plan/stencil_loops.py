"""The loops of a plan that exchange borders in every iteration, and why those do that are not done in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshjit.core.plan import EquationPlan, Plan, PlanCost
from meshjit.core.program import Eqn
from meshjit.core.region import run_regions
from meshjit.partition.blocking import blocked_loop
from meshjit.partition.stretches import Refused
from meshjit.plan.block_sizes import BlockSizes
from meshjit.plan.cost import Machine


@dataclass(frozen=True)
class Unblocked:
    """A loop whose iterations exchange their own borders: why no block is possible, or what the loop costs, and in blocks of so
    many iterations."""

    eqn: Eqn
    refusal: str = ""
    cost: PlanCost | None = None
    count: int = 0
    in_blocks: PlanCost | None = None


def stencil_loops(plan: Plan) -> Iterator[tuple[Eqn, EquationPlan]]:
    """Loops of a known length that exchange borders, nested ones included."""
    for eqn, equation in exchanging_loops(plan):
        if any((region.trips or 0) > 1 for region in run_regions(eqn)):
            yield eqn, equation


def exchanging_loops(plan: Plan) -> Iterator[tuple[Eqn, EquationPlan]]:
    """Loops that exchange borders, inner ones first."""
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        for body in equation.bodies:
            yield from exchanging_loops(body)
        pairs = zip(run_regions(eqn), equation.bodies, strict=True) if equation.bodies else ()
        if any(region.loops and _exchanges(body) for region, body in pairs):
            yield eqn, equation


def _exchanges(body: Plan) -> bool:
    return any(each.kind == "collective_permute" for each in body.collectives)


def unblocked(plan: Plan, machine: Machine) -> Iterator[Unblocked]:
    """The loops that do not exchange borders for several iterations at once, where they run more than once."""
    for eqn, equation in exchanging_loops(plan):
        trips = [region.trips for region in run_regions(eqn)]
        if None in trips:
            yield Unblocked(eqn, "nobody knows before how often it runs")
        elif not equation.block and any(n is not None and n > 1 for n in trips):
            yield _priced(eqn, equation, machine)


def _priced(eqn: Eqn, equation: EquationPlan, machine: Machine) -> Unblocked:
    try:
        sizes = BlockSizes(blocked_loop(eqn, equation.bodies[0], machine.mesh), machine)
    except Refused as refused:
        return Unblocked(eqn, str(refused))
    several = [(n, sizes.cost(n)) for n in sizes.counts if n > 1]
    if not several:
        return Unblocked(eqn, "two iterations need more than the shards next to a device's own have")
    count, cost = min(several, key=lambda pair: pair[1].seconds)
    return Unblocked(eqn, "", sizes.ordinary, count, cost)
