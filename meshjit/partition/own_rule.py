"""An op's own way to be partitioned, its `partition` rule, where the generic way does not do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.local import LocalEquation
from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.core.types import TensorType
from meshjit.partition.moves import Moves
from sharding.reshard import plan_reshard
from sharding.spec import Placement

OwnRule = Callable[[LocalEquation], Sequence[Var]]


def own_rule(eqn: Eqn, plan: EquationPlan) -> OwnRule | None:
    """The rule that writes this equation, if it is not the generic one."""
    rule: Any = eqn.op.partition
    if rule is None:
        return None
    is_pinned = eqn.op.pinned is not None and not plan.bodies
    return rule if any(plan.assignment.values()) or is_pinned or eqn.op.is_local or not eqn.outputs else None


def write_by(
    rule: OwnRule,
    eqn: Eqn,
    plan: EquationPlan,
    operands: Sequence[Var],
    moves: Moves,
    bring: Callable[[int, Placement], Var],
) -> Sequence[Var]:
    """The local results. `bring(i, placement)` gives the local value of operand i under another placement."""
    return rule(
        LocalEquation(
            eqn, tuple(operands), plan.operands, plan.results, plan.assignment, moves.mesh, moves.target,
            moves.index, moves.mask, bring, functools.partial(_moved, moves), plan.manual,
        )
    )  # fmt: skip


def _moved(moves: Moves, local: Var, type: TensorType, here: Placement, there: Placement) -> Var:
    """A value that lies `here` under another placement."""
    walk = plan_reshard(type.shape, type.dtype.itemsize, here, there, moves.mesh, moves.topology)
    for step, before in zip(walk.steps, walk.placements, strict=False):
        local = moves.take(step, local, before, type.shape)
    return local
