"""Branches that all members of a batch compute, though each member takes one of them.

A member that does not take a branch computes it at operands that the branch was not written for. Its result is dropped and
its cotangent is 0, but 0 times an infinite derivative is NaN:

    cond(x < 0.1, lambda: 0.1, lambda: sqrt(x))      at x = 0 the derivative of sqrt is infinite

So tangents pass into a branch, and cotangents out of it, for the members alone that take it. An operand that all members
share (a weight) stays shared where it enters multiplications only: there the other factor is 0 for members elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import depending
from meshjit.core.types import TensorType, is_inexact
from meshjit.ops.base.annotations import stop_cotangent
from meshjit.ops.base.comparison import masked, select
from meshjit.ops.base.constants import spread

FLAG = TensorType((), np.dtype(np.bool_))


def guarded(branch: Program, batched: Sequence[bool]) -> Program:
    """The branch for one member, to be batched: (whether the member takes it, whether any does, *inputs) -> outputs.

    `batched` says which inputs differ between members. For members that do not take the branch no derivative passes from
    outputs to inputs, and values may be others."""
    own = depending(branch.eqns, [v for v, flag in zip(branch.inputs, batched, strict=True) if flag])
    common = [v for v, flag in zip(branch.inputs, batched, strict=True) if not flag and is_inexact(v.dtype)]
    shared = depending(branch.eqns, common) - own
    with Builder(branch.name) as builder:
        mine, some = builder.input(FLAG), builder.input(FLAG)
        env = {v: builder.input(v.type, v.hint) for v in branch.inputs}
        for var, flag in zip(branch.inputs, batched, strict=True):
            env[var] = _shielded(mine if flag else some, env[var])
        for eqn in branch.eqns:
            with builder.at(eqn.source):
                env.update(zip(eqn.outputs, _applied(builder, eqn, env, own, shared, mine), strict=True))
        return builder.build([env[v] for v in branch.outputs])


def _applied(
    builder: Builder, eqn: Eqn, env: dict[Var, Var], own: set[Var], shared: set[Var], mine: Var
) -> Sequence[Var]:
    """The equation; where values of the member meet shared ones, no derivative passes unless the member is here."""
    operands = [env[v] for v in eqn.inputs]
    if not (any(v in own for v in eqn.inputs) and any(v in shared for v in eqn.inputs)):
        return builder.emit(eqn.op, operands, eqn.params)
    group = _linear_group(eqn, own, shared)
    if group is None:
        apart = [_shielded(mine, x) if v in shared else x for v, x in zip(eqn.inputs, operands, strict=True)]
        return builder.emit(eqn.op, apart, eqn.params)
    for i, var in enumerate(eqn.inputs):
        if var in own and i not in group and is_inexact(var.dtype):
            operands[i] = masked(spread(mine, var.shape), operands[i])
    return [_shielded(mine, x) for x in builder.emit(eqn.op, operands, eqn.params)]


def _linear_group(eqn: Eqn, own: set[Var], shared: set[Var]) -> Sequence[int] | None:
    """The operands with all shared ones in which the equation is linear, if it is linear in the others too; else None."""
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    covered = {i for group in groups for i in group}
    moving = [i for i, v in enumerate(eqn.inputs) if is_inexact(v.dtype) and (v in own or v in shared)]
    held = {i for i in moving if eqn.inputs[i] in shared}
    return next((group for group in groups if held <= set(group)), None) if covered.issuperset(moving) else None


def _shielded(flag: Var, var: Var) -> Var:
    """The value itself, through which derivatives pass where the flag is set."""
    return select(spread(flag, var.shape), var, stop_cotangent(var)) if is_inexact(var.dtype) else var
