"""Plan → local Program: per-device shapes, explicit collectives.

One generic rule for every equation: bring the operands to the placements that the plan asks for, rebuild the equation
on local types, mark the result partial over reduced factors. Ops that need more (offsets, owners, halos) have a
`partition` rule in their own paragraph.

Values are resharded when somebody needs them, from the cheapest version at hand, and every version is kept: the same
value resharded twice is resharded once, and a partial sum that is only ever wanted in shards is reduce-scattered.

Invariant: of a dim whose extent does not divide, the last shards hold padding whose content is unspecified. Where
elements of different places meet (reduced factors) it is replaced by the identity of the reduction first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from meshjit.core.local import LocalEquation
from meshjit.core.plan import EquationPlan, Plan, equation_plan, rematerializable
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.core.region import with_run_programs
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.ops.base.identity_elements import identity_element
from meshjit.partition.blocking import in_blocks
from meshjit.partition.moves import Moves
from meshjit.targets import target_of
from meshjit.transform.pipeline import finish
from sharding.placement import normalized
from sharding.reshard import Walk, plan_reshard
from sharding.spec import Placement


def partition(plan: Plan) -> Program:
    """The program that every device of the plan's mesh runs. Its inputs and outputs are the local shards."""
    target = plan.target or target_of(plan.mesh)
    return finish(_Partitioner(plan, target).run(), plan.mesh, target.topology)


class _Partitioner:
    def __init__(self, plan: Plan, target: Target) -> None:
        self.plan = plan
        self.mesh = plan.mesh
        self.target = target
        self.builder = Builder(plan.program.name)
        self.moves = Moves(self.mesh, target.topology)
        self.normal = functools.cache(lambda placement: normalized(placement, self.mesh))
        self.local_type = functools.cache(lambda type, placement: local_type(type, placement, plan))
        self.versions: dict[Var, dict[Placement, Var]] = {}
        self.sources: dict[Var, Source | None] = {v: eqn.source for eqn in plan.program.eqns for v in eqn.outputs}
        self.makers: dict[Var, tuple[Eqn, EquationPlan]] = {}  # of values that can be made again
        self.made: dict[Var, int] = {}

    def run(self) -> Program:
        program = self.plan.program
        with self.builder:
            for var, placement in zip(program.inputs, self.plan.inputs, strict=True):
                type = self.local_type(var.type, placement)
                self.versions[var] = {self.normal(placement): self.builder.input(type, var.hint)}
            for eqn, step in zip(program.eqns, self.plan.equations, strict=True):
                with self.builder.at(eqn.source):
                    self.equation(eqn, step)
            outputs = [
                self.wanted(var, placement)
                for var, placement in zip(program.outputs, self.plan.outputs, strict=True)
            ]
        return self.builder.build(outputs)

    def equation(self, eqn: Eqn, step: EquationPlan) -> None:
        operands = [self.operand(v, p) for v, p in zip(eqn.inputs, step.operands, strict=True)]
        results = self.local_equation(eqn, step, operands)
        for var, result, placement in zip(eqn.outputs, results, step.results, strict=True):
            expected = self.local_type(var.type, placement)
            assert result.type == expected, f"{eqn.op.name}: local result is {result.type}, its placement says {expected}"
            self.versions[var] = {self.normal(placement): result}
        size = rematerializable(eqn, step.rule, self.made)
        if size is not None:
            self.made[eqn.outputs[0]], self.makers[eqn.outputs[0]] = size, (eqn, step)

    def operand(self, var: Var, placement: Placement) -> Var:
        """The local value as `wanted` gives it; where a sum is wanted of a whole value, as a sum of that and zeros."""
        if not placement.partial or self.normal(placement) in self.versions[var]:
            return self.wanted(var, placement)
        return self.moves.addend(self.wanted(var, placement.without_partial()), placement.partial_axes)

    def local_equation(self, eqn: Eqn, step: EquationPlan, operands: list[Var]) -> Sequence[Var]:
        if step.bodies:
            bodies = [_Partitioner(body, self.target).run() for body in step.bodies]
            blocked = in_blocks(eqn, step, bodies[0], operands, self.builder, self.moves)
            if blocked is not None:
                return blocked
            local = iter(bodies)
            return self.builder.emit(eqn.op, operands, with_run_programs(eqn, lambda _: next(local)))
        own = eqn.op.partition or eqn.op.reblock
        if own is not None and any(step.assignment.values()):
            local = LocalEquation(
                eqn, tuple(operands), step.operands, step.results, step.assignment, self.mesh, self.target,
                self.moves.index, self.moves.mask, lambda i, placement: self.wanted(eqn.inputs[i], placement),
            )  # fmt: skip
            return own(local)
        if step.rule.reductions:
            operands = [self.masked(i, v, eqn, step) for i, v in enumerate(operands)]
        params = eqn.params
        if eqn.op.localize is not None:
            types = tuple(
                self.local_type(v.type, p) for v, p in zip(eqn.outputs, step.results, strict=True)
            )
            params = eqn.op.localize(params, tuple(v.type for v in operands), types)
        return self.builder.emit(eqn.op, operands, params)

    def masked(self, index: int, local: Var, eqn: Eqn, step: EquationPlan) -> Var:
        """The operand with the padding of reduced dims replaced by the identity of the reduction."""
        for dim, factors in enumerate(step.rule.operands[index]):
            for factor in factors:
                kind = step.rule.reductions.get(factor)
                if kind is not None:
                    fill = identity_element(kind, local.dtype)
                    extent = eqn.inputs[index].shape[dim]
                    local = self.moves.mask(local, dim, extent, step.operands[index].dims[dim], fill)
        return local

    def wanted(self, var: Var, placement: Placement) -> Var:
        """The local value of `var` under this placement, resharded from the cheapest version at hand.

        The reduction of a partial sum is blamed on the line that made the sum, other moves on the line that wants them.
        """
        versions, placement = self.versions[var], self.normal(placement)
        if placement not in versions and var in self.makers:
            self.rematerialize(var, placement)
        if placement not in versions:
            walk, start = self.nearest(var, placement)
            local, here = versions[start], start
            made = self.sources.get(var)
            with self.builder.at(made if start.partial or self.builder.source is None else self.builder.source):
                for step in walk.steps:
                    local = self.moves.take(step, local, here, var.type.shape)
                    here = step.apply(here, self.mesh)
                    versions.setdefault(here, local)
            assert here == placement, f"walk from {start} ended at {here} instead of {placement}"
        return versions[placement]

    def nearest(self, var: Var, placement: Placement) -> tuple[Walk, Placement]:
        walks = [(self.walk(var.type, p, placement), p) for p in self.versions[var]]
        return min(walks, key=lambda pair: pair[0].seconds)

    def rematerialize(self, var: Var, placement: Placement) -> None:
        """A value that depends on nothing (see `rematerializable`) under another placement, unless cutting a version suffices."""
        eqn, planned = self.makers[var]
        if eqn.inputs and not self.nearest(var, placement)[0].bytes:
            return
        rule = planned.rule
        spread = rule.project(rule.results[0], placement, self.mesh)
        step = equation_plan(rule, spread, self.mesh)
        sides = zip(rule.operands, step.operands, strict=True)
        alike = all(spread.items() >= rule.project(dims, p, self.mesh).items() for dims, p in sides)
        if step.results[0] == placement and alike:  # not so where shards of a merged dim are uneven
            with self.builder.at(eqn.source):
                operands = [self.wanted(v, p) for v, p in zip(eqn.inputs, step.operands, strict=True)]
                self.versions[var][placement] = self.local_equation(eqn, step, operands)[0]

    def walk(self, type: TensorType, source: Placement, target: Placement) -> Walk:
        return plan_reshard(type.shape, type.dtype.itemsize, source, target, self.mesh, self.target.topology)


def local_type(type: TensorType, placement: Placement, plan: Plan) -> TensorType:
    return type.with_shape(placement.local_shape(type.shape, plan.mesh))

