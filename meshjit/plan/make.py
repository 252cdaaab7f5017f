"""Program and annotations → Plan.

Four steps, each of which sees factor rules only, never which op it has:

1. propagate   seeds (annotated inputs, outputs, constraints) spread over the rules to a placement for every value;
2. assign      every equation picks, among the spreads of its factors that its values suggest, the one that costs least
               in resharding its operands and results;
3. delay       partial sums stay unreduced through equations that are linear in them, as long as that makes them fewer
               or smaller, and are reduced once;
4. settle      where two annotations wanted the same axis, the other way is planned too, and the cheaper plan is kept.

Where slices of dims that are sharded by then make stencils, the Program is aligned with them and planned anew; likewise
where transforms along several dims may begin with those that are whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshjit.core.plan import Plan
from meshjit.core.program import Program, Var
from meshjit.core.region import without_sharing
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import Flow, Machine
from meshjit.plan.equations import Planner
from meshjit.plan.graph import Annotations as Annotations, Flattened, flatten
from meshjit.plan.settle import is_cheaper, settled
from meshjit.plan.slices import SliceTurn, slice_turns
from meshjit.targets import target_of
from meshjit.transform.align import align
from meshjit.transform.commute import commute
from meshjit.transform.keep_dims_apart import keep_dims_apart, merged
from sharding.graph import Propagated
from sharding.mesh import BaseMesh
from sharding.placement import normalized
from sharding.spec import PartitionSpec, Placement, open_dims, placement_of


def make_plan(
    program: Program, mesh: BaseMesh, annotations: Annotations, target: Target | None = None
) -> Plan:
    """Placements for every value of `program` on `mesh`, priced for `target` (by default that of the mesh's devices).
    Annotated values are placed exactly as annotated."""
    program = without_sharing(program)
    assigner = Assigner(Machine(mesh, target or target_of(mesh)))
    plan = _settled(program, annotations, assigner)
    aligned = align(program, lambda var, dim: plan.placements[var].shards(dim, mesh))
    plan = plan if aligned is program else _settled(aligned, annotations, assigner)
    plan = _with_transforms_in_order(plan, annotations, assigner)
    return _with_dims_apart(plan, annotations, assigner)


def _with_transforms_in_order(plan: Plan, annotations: Annotations, assigner: Assigner) -> Plan:
    """The plan, or a cheaper one in which transforms along whole dims come first. Where one chain leaves its result is
    where the next begins, so a few times."""
    rival = plan
    for _ in range(4):
        known = rival.placements
        program = commute(rival.program, lambda var, dim, known=known: var not in known or not known[var].dims[dim])
        if program is rival.program:
            break
        rival = _settled(program, annotations, assigner)
    assert rival.cost is not None and plan.cost is not None
    return rival if is_cheaper(rival.cost, plan.cost, assigner.machine.topology.memory) else plan


def _with_dims_apart(plan: Plan, annotations: Annotations, assigner: Assigner) -> Plan:
    """The plan, or a cheaper one in which no dim is gathered only because a reshape merges it. What is apart on the way
    forth makes the way back gather, where it did not have to before; so once more."""
    for _ in range(2):
        gathered = set(_merging_gathers(plan))
        apart = keep_dims_apart(plan.program, lambda eqn, wanted=gathered: eqn.outputs[0] in wanted)
        if apart is plan.program:
            return plan
        rival = _settled(apart, annotations, assigner)
        assert rival.cost is not None and plan.cost is not None
        if not is_cheaper(rival.cost, plan.cost, assigner.machine.topology.memory):
            return plan
        plan = rival
    return plan


def _merging_gathers(plan: Plan) -> Iterator[Var]:
    """Results of reshapes that merge two dims, and want their operand less sharded than it is, or cut it at other places."""
    for eqn, step in zip(plan.program.eqns, plan.equations, strict=True):
        for body in step.bodies:
            yield from _merging_gathers(body)
        if merged(eqn) is not None:
            have, wanted = plan.placements[eqn.inputs[0]], step.operands[0]
            sides = ((wanted, eqn.inputs[0]), (step.results[0], eqn.outputs[0]))
            before, after = (math.prod(p.local_shape(v.shape, plan.mesh)) for p, v in sides)
            if before != after or any(wanted.shards(d, plan.mesh) < have.shards(d, plan.mesh) for d in range(have.rank)):
                yield eqn.outputs[0]


def _settled(program: Program, annotations: Annotations, assigner: Assigner) -> Plan:
    machine, flat = assigner.machine, flatten(program, annotations, assigner.machine.mesh)

    def plan_of(found: Propagated, limit: float) -> Plan:
        return _plan(program, annotations, flat, found, assigner, limit)

    def other_turns(found: Propagated) -> list[SliceTurn]:
        return slice_turns(program, flat.numbers, found, machine.mesh)

    return settled(flat.graph, machine.mesh, plan_of, machine.topology.memory, other_turns)


def _plan(
    program: Program, annotations: Annotations, flat: Flattened, found: Propagated, assigner: Assigner, limit: float
) -> Plan:
    """The plan that follows from what propagation found. TooDear if it takes more than `limit` seconds."""
    machine = assigner.machine
    placements = {var: found.placements[i] for var, i in flat.numbers.items()}
    inputs = tuple(placements[v] for v in program.inputs)
    outputs = tuple(
        placements[v] if spec is None else normalized(_filled(spec, placements[v]), machine.mesh)
        for v, spec in zip(program.outputs, annotations.outputs, strict=True)
    )
    outputs = tuple(p.without_partial() for p in outputs)
    flow = Flow(program, machine, limit)
    equations = Planner(assigner, placements, flat.rules).equations(program, outputs, flow=flow)
    cost, origins, conflicts = flow.end(outputs), flat.origins(found), tuple(found.conflicts)
    return Plan(
        program, machine.mesh, placements, equations, inputs, outputs, origins, conflicts, machine.target, cost
    )


def _filled(spec: PartitionSpec, placement: Placement) -> Placement:
    """The spec's placement, its UNCONSTRAINED dims as propagation placed them, as far as axes are still free."""
    wanted = placement_of(spec, placement.rank)
    for dim, is_open in enumerate(open_dims(spec, placement.rank)):
        used = {str(axis) for axis in wanted.axes()}
        if is_open and not used & {str(axis) for axis in placement.dims[dim]}:
            wanted = wanted.with_dim(dim, placement.dims[dim])
    return wanted
