"""Partial sums that stay unreduced as long as linearity allows.

    %a = dot(..)   partial sum(x)          all_reduce(a) + all_reduce(b) == all_reduce(a + b): half the bytes
    %b = dot(..)   partial sum(x)
    %c = add(%a, %b)                       partial too; reduced where %c is needed

A value stays partial when its only use is one equation that is linear in it, together with everything else it is
jointly linear in being partial over the same axes, and when the result is no larger than what would have been reduced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from sharding.axes import AxisRef, overlap
from sharding.mesh import BaseMesh
from sharding.spec import Placement

PartialAxes = tuple[tuple[AxisRef, str], ...]


class Delays:
    """Follows partial sums through the equations of one Program, in order."""

    def __init__(self, program: Program, mesh: BaseMesh, pending: Mapping[Var, Placement] | None = None) -> None:
        self.mesh = mesh
        self.uses = Counter(v for eqn in program.eqns for v in eqn.inputs)
        self.uses.update(program.outputs)
        self.uses.update(program.outputs)  # an output is reduced when it leaves, so it never counts as used once
        self.pending: dict[Var, Placement] = dict(pending or {})  # at first the inputs that are partial already
        self.addends = {v for eqn in program.eqns for v in _addends(eqn) if self.uses[v] == 1}

    def joins(self, eqn: Eqn) -> bool:
        """Whether a partial result would only be added to another value, which may be partial as well: then it is not
        known what its own reduction costs, if anything."""
        return len(eqn.outputs) == 1 and eqn.outputs[0] in self.addends

    def through(self, eqn: Eqn, step: EquationPlan, placements: dict[Var, Placement]) -> EquationPlan:
        """The equation's plan with partial operands accepted where that is right; notes its own partial results."""
        group = self.accepted(eqn, step)
        if not group:
            together = self.together(eqn, step)
            group = self.accepted(eqn, together)
            step = together if group else step
        if group:
            step = self.absorb(eqn, step, group, placements)
        for var, natural in zip(eqn.outputs, step.results, strict=True):
            if natural.partial and natural.partial_kind == "sum":
                self.pending[var] = natural
        return step

    def together(self, eqn: Eqn, step: EquationPlan) -> EquationPlan:
        """The equation where its operands lie as they are, if they are addends of one sum; else its plan unchanged.

        The sum of several is then reduced once, wherever the plan would have had each of them: with x partial over
        model and wanted sharded over it, dq + dk + dv is one reduce_scatter instead of three.
        """
        sums = [self.pending.get(v) for v in eqn.inputs]
        first = sums[0] if sums else None
        if first is None or any(p != first for p in sums) or len(set(eqn.inputs)) < 2 or not step.rule.is_passthrough:
            return step
        assignment = step.rule.project(step.rule.operands[0], Placement(first.dims), self.mesh)
        there = equation_plan(step.rule, assignment, self.mesh)
        return there if all(p.dims == first.dims for p in there.operands) else step

    def accepted(self, eqn: Eqn, step: EquationPlan) -> tuple[int, ...]:
        """The operands, jointly linear and partial alike, whose sums flow through; () if none do."""
        sums_only = all(kind == "sum" for kind in step.rule.reductions.values())
        if not sums_only or eqn.op.partition is not None:
            return ()
        for group in eqn.op.linear_groups(eqn.input_types, eqn.params):
            if self.flows(eqn, step, group):
                return group
        return ()

    def flows(self, eqn: Eqn, step: EquationPlan, group: Sequence[int]) -> bool:
        sums = [self.pending.get(eqn.inputs[i]) for i in group]
        first = sums[0]
        if first is None or any(p is None or p.partial != first.partial for p in sums):
            return False
        alone = all(self.uses[eqn.inputs[i]] == list(eqn.inputs).count(eqn.inputs[i]) for i in group)
        in_place = all(p.dims == step.operands[i].dims for i, p in zip(group, sums, strict=True) if p is not None)
        others = [i for i in range(len(eqn.inputs)) if i not in group]
        whole = not any(eqn.inputs[i] in (eqn.inputs[j] for j in group) for i in others)
        busy = [axis for p in (*step.operands, *step.results) for axis in p.axes()]
        free = not any(overlap(axis, other) for axis in first.partial_axes for other in busy)
        reduced = sum(eqn.inputs[i].type.nbytes for i in group)
        return alone and in_place and whole and free and sum(v.type.nbytes for v in eqn.outputs) <= reduced

    def absorb(
        self, eqn: Eqn, step: EquationPlan, group: Sequence[int], placements: dict[Var, Placement]
    ) -> EquationPlan:
        partial: PartialAxes = self.pending[eqn.inputs[group[0]]].partial
        operands = tuple(
            Placement(p.dims, partial) if i in group else p for i, p in enumerate(step.operands)
        )
        results = tuple(Placement(p.dims, (*p.partial, *partial)) for p in step.results)
        for i in group:
            placements[eqn.inputs[i]] = operands[i]
        return EquationPlan(step.rule, step.assignment, operands, results)


def _addends(eqn: Eqn) -> list[Var]:
    """The operands of an equation that is linear in several of them together."""
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    return [eqn.inputs[i] for group in groups if len(group) > 1 for i in group if i < len(eqn.inputs)]
