"""Program and annotations → Plan.

Three steps, each of which sees factor rules only, never which op it has:

1. propagate   seeds (annotated inputs, outputs, constraints) spread over the rules to a placement for every value;
2. assign      every equation picks, among the spreads of its factors that its values suggest, the one that costs least
               in resharding its operands and results;
3. delay       partial sums stay unreduced through equations that are linear in them, and are reduced once, where
               somebody needs the sum.
"""

from __future__ import annotations

from meshjit.core.plan import Plan
from meshjit.core.program import Program
from meshjit.core.region import without_sharing
from meshjit.plan.equations import Planner
from meshjit.plan.graph import Annotations as Annotations
from meshjit.plan.graph import flatten
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.propagate import propagate
from sharding.spec import PartitionSpec, Placement, open_dims, placement_of
from sharding.topology import Topology


def make_plan(
    program: Program, mesh: BaseMesh, annotations: Annotations, topology: Topology | None = None
) -> Plan:
    """Placements for every value of `program` on `mesh`. Annotated values are placed exactly as annotated."""
    topology = topology or Topology.of(mesh)
    program = without_sharing(program)
    flat = flatten(program, annotations, mesh)
    found = propagate(flat.graph, mesh)
    placements = {var: found.placements[i] for var, i in flat.numbers.items()}
    inputs = tuple(placements[v] for v in program.inputs)
    outputs = tuple(
        placements[v] if spec is None else normalized(_filled(spec, placements[v]), mesh)
        for v, spec in zip(program.outputs, annotations.outputs, strict=True)
    )
    equations = Planner(mesh, topology, placements, flat.rules).equations(program)
    outputs = tuple(p.without_partial() for p in outputs)
    return Plan(
        program, mesh, placements, equations, inputs, outputs, flat.origins(found), tuple(found.conflicts), topology
    )


def _filled(spec: PartitionSpec, placement: Placement) -> Placement:
    """The spec's placement, its UNCONSTRAINED dims as propagation placed them, as far as axes are still free."""
    wanted = placement_of(spec, placement.rank)
    for dim, is_open in enumerate(open_dims(spec, placement.rank)):
        used = {str(axis) for axis in wanted.axes()}
        if is_open and not used & {str(axis) for axis in placement.dims[dim]}:
            wanted = wanted.with_dim(dim, placement.dims[dim])
    return wanted
