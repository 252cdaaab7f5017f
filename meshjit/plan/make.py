"""Program and annotations → Plan.

1. propagate   seeds (annotated inputs, outputs, constraints) spread over the factor rules to a placement for every value;
2. assign      every equation picks, among the spreads of its factors that its values suggest, the one that costs least
               in resharding its operands and results;
3. delay       partial sums stay unreduced through equations that are linear in them, as long as that makes them fewer
               or smaller, and are reduced once;
4. search      what else could be decided is planned, too, and kept where it costs less (`proposals/`, `search.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Machine
from meshjit.plan.draft import draft_again, first_draft
from meshjit.plan.graph import Annotations as Annotations
from meshjit.plan.search import search
from meshjit.targets import target_of
from sharding.mesh import BaseMesh

PlanAgain: TypeAlias = Callable[[Program, BaseMesh, Annotations, Target | None], Plan]


def make_plan(
    program: Program, mesh: BaseMesh, annotations: Annotations, target: Target | None = None, like: Plan | None = None
) -> Plan:
    """Placements for every value of `program` on `mesh`, priced for `target` (by default that of the mesh's devices).
    Annotated values are placed exactly as annotated. `like`: a plan that was made here of most of these equations, on this
    mesh and for this target, whose tables are used again; what comes out is the same."""
    program = without_sharing(program)
    if like is not None and not any(spec is not None and spec.unreduced for spec in annotations.inputs):
        return search(draft_again(program, annotations, like))
    machine = Machine(mesh, target or target_of(mesh), annotations.undonated_of(program))
    return search(first_draft(program, annotations, Assigner(machine)))
