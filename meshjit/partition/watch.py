"""A partitioned Program that also hands over every value in between: what `meshjit.verify` compares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.partition.partition import Partitioner
from meshjit.targets import target_of
from sharding.spec import Placement


@dataclass(frozen=True)
class Watched:
    """`local` gives the outputs of the plan's Program and then every value as its equation left it; `values` says which
    Var each of these is, and where: partial sums are not reduced yet."""

    local: Program
    values: tuple[tuple[Var, Placement], ...]


def partition_watched(plan: Plan) -> Watched:
    """As `partition`, with the same equations, and all values as further outputs."""
    worker = Partitioner(plan, plan.target or target_of(plan.mesh), copies=False)
    local = worker.run()
    results = [v for eqn in plan.program.eqns for v in eqn.outputs]
    first = [next(iter(worker.versions[var].items())) for var in results]  # later versions are moved ones
    outputs = (*local.outputs, *(version for _, version in first))
    values = tuple((var, placement) for var, (placement, _) in zip(results, first, strict=True))
    return Watched(dataclasses.replace(local, outputs=outputs), values)
