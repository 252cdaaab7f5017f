"""What an op's own rule writes for one equation, and what that costs.

Planning does not model such rules: it lets them write their local equations and prices these as any others. So there is one
truth about halos, owners and exchanges, and a rule that sends less is planned with at once.
"""

from __future__ import annotations

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.partition.blocking import write_in_blocks
from meshjit.partition.moves import Moves
from meshjit.partition.own_rule import OwnRule, write_by
from sharding.mesh import BaseMesh
from sharding.spec import Placement


def write_block(eqn: Eqn, plan: EquationPlan, mesh: BaseMesh, target: Target) -> Program:
    """What partitioning writes for a loop done in blocks of iterations."""
    with Builder(eqn.op.name) as builder:
        types = [t.with_shape(p.local_shape(t.shape, mesh)) for t, p in zip(eqn.input_types, plan.operands, strict=True)]
        operands = [builder.input(t) for t in types]
        return builder.build(write_in_blocks(eqn, plan, operands, builder, Moves(mesh, target)))


def write(
    rule: OwnRule, eqn: Eqn, plan: EquationPlan, mesh: BaseMesh, target: Target
) -> tuple[Program, tuple[tuple[int, Placement], ...]]:
    """What `rule` writes for this equation, whose operands and results lie as the plan says; and the operands that it asks for
    under other placements."""
    requests: list[tuple[int, Placement]] = []

    def local_type(type: TensorType, placement: Placement) -> TensorType:
        return type.with_shape(placement.local_shape(type.shape, mesh))

    with Builder(eqn.op.name) as builder:

        def bring(i: int, placement: Placement) -> Var:
            requests.append((i, placement))
            return builder.input(local_type(eqn.inputs[i].type, placement))

        operands = [builder.input(local_type(v.type, p)) for v, p in zip(eqn.inputs, plan.operands, strict=True)]
        local = builder.build(list(write_by(rule, eqn, plan, operands, Moves(mesh, target), bring)))
    return local, tuple(requests)
