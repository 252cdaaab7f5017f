"""The loops of a plan that exchange borders in every iteration."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn
from meshjit.core.region import run_regions
from meshjit.partition.blocking import blocked_loop
from meshjit.partition.stretches import Refused


def stencil_loops(plan: Plan) -> Iterator[tuple[Eqn, EquationPlan]]:
    """Loops of a known length that exchange borders, nested ones included."""
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        for body in equation.bodies:
            yield from stencil_loops(body)
            exchanges = any(each.kind == "collective_permute" for each in body.collectives)
            if exchanges and any(region.loops and (region.trips or 0) > 1 for region in run_regions(eqn)):
                yield eqn, equation


def refusals(plan: Plan) -> Iterator[tuple[Eqn, str]]:
    """The loops that cannot exchange borders for several iterations at once, and why."""
    for eqn, equation in stencil_loops(plan):
        try:
            blocked_loop(eqn, equation.bodies[0], plan.mesh)
        except Refused as refused:
            yield eqn, str(refused)
