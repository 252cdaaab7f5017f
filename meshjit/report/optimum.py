"""How far a plan can be from the best there is: what its search proved; of a plan by annotations, what the work alone says."""

from __future__ import annotations

from collections.abc import Iterator

from meshjit.core.plan import Optimum, Plan
from meshjit.core.region import weighted_regions
from meshjit.report.subject import Subject


def optimum_text(subject: Subject) -> str:
    """`19.4 ms, optimal` of a plan that was searched for; `not searched, at most 2.3 times the optimum` of others."""
    if subject.plan.optimum is not None:
        return str(subject.plan.optimum)
    _, _, rest = str(optimum_of(subject)).partition(", ")
    return f"not searched, {rest}"


def optimum_of(subject: Subject) -> Optimum:
    """Of a plan by annotations: no placement of the same equations takes less than an even share of their work on each device."""
    cost = subject.plan.cost
    assert cost is not None, "planning prices its plans"
    return Optimum(cost.seconds, sum(_shares(subject, subject.plan, 1.0)), searched=0, is_complete=False)


def _shares(subject: Subject, plan: Plan, trips: float) -> Iterator[float]:
    shares: dict[int, float] = {}  # equations that share a plan are alike
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        if id(equation) not in shares:
            shares[id(equation)] = subject.machine.even_share(eqn, equation.rule)
        yield trips * shares[id(equation)]
        for (_, times), body in zip(weighted_regions(eqn) if equation.bodies else (), equation.bodies, strict=True):
            yield from _shares(subject, body, trips * times)
