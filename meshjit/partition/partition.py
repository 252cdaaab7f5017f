"""Plan → local Program: per-device shapes, explicit collectives.

One generic rule for every equation: bring the operands to the placements that the plan asks for, rebuild the equation
on local types, mark the result partial over reduced factors. Ops that need more (offsets, owners, halos) have a
`partition` rule in their own paragraph.

Values are resharded on demand, from the cheapest version that exists, and every version is kept: two uses share a
reshard, and a partial sum whose only uses are sharded is reduce-scattered.

Invariant: of a dim whose extent does not divide, the last shards hold padding whose content is unspecified. Where
elements of different places meet (reduced factors) it is replaced by the identity of the reduction first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Builder, Eqn, Program, Source, Var
from meshjit.core.region import with_run_programs
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.core.versions import Versions, Walks
from meshjit.ops.base.identity_elements import identity_element
from meshjit.partition.blocking import write_in_blocks
from meshjit.partition.copy_repeats import Copies
from meshjit.partition.moves import Moves
from meshjit.partition.own_rule import own_rule, write_by
from meshjit.targets import target_of
from meshjit.transform.pipeline import finish
from sharding.reshard import Walk
from sharding.spec import Placement


def partition(plan: Plan) -> Program:
    """The program that every device of the plan's mesh runs. Its inputs and outputs are the local shards."""
    target = plan.target or target_of(plan.mesh)
    return finish(write_locally(plan, target), plan.mesh, target.topology)


def write_locally(plan: Plan, target: Target) -> Program:
    """The same before collectives are shared, merged and paired: those that planning predicts."""
    return Partitioner(plan, target).run()


class Partitioner(Versions[Var]):
    """`copies`: repeats are written once, and values inside of the others are not known one by one."""

    def __init__(self, plan: Plan, target: Target, copies: bool = True) -> None:
        super().__init__(Walks(plan.mesh, target))
        self.plan = plan
        self.copies = copies
        self.mesh = plan.mesh
        self.target = target
        self.builder = Builder(plan.program.name)
        self.moves = Moves(self.mesh, target)
        self.local_type = functools.cache(lambda type, placement: local_type(type, placement, plan))
        self.sources: dict[Var, Source | None] = {v: eqn.source for eqn in plan.program.eqns for v in eqn.outputs}

    def run(self) -> Program:
        program = self.plan.program
        with self.builder:
            for var, placement in zip(program.inputs, self.plan.inputs, strict=True):
                type = self.local_type(var.type, placement)
                self.enter(var, self.walks.normal(placement), self.builder.input(type, var.hint))
            copies, at = Copies(program, self, self.builder, self.moves), 0
            while at < len(program.eqns):
                repeat, start = copies.repeats.get(at) if self.copies else None, at
                at = at + 1 if repeat is None else repeat.stop
                if repeat is None:
                    self.equations(start, at)
                else:
                    plans = self.plan.equations[start:at]
                    copies.write(repeat, plans, self.sources, lambda start=start, stop=at: self.equations(start, stop))
            copies.finish()
            outputs = [self.bring(var, p) for var, p in zip(program.outputs, self.plan.outputs, strict=True)]
        return self.builder.build(outputs)

    def equations(self, start: int, stop: int) -> None:
        for eqn, plan in zip(self.plan.program.eqns[start:stop], self.plan.equations[start:stop], strict=True):
            with self.builder.at(eqn.source):
                self.equation(eqn, plan)

    def equation(self, eqn: Eqn, plan: EquationPlan) -> None:
        operands = [self.operand(v, p) for v, p in zip(eqn.inputs, plan.operands, strict=True)]
        results = self.compute(eqn, plan, operands)
        for var, result, placement in zip(eqn.outputs, results, plan.results, strict=True):
            expected = self.local_type(var.type, placement)
            assert result.type == expected, f"{eqn.op.name}: local result is {result.type}, its placement says {expected}"
            self.enter(var, self.walks.normal(placement), result)
        if not eqn.inputs or eqn.inputs[0] in self.cheap:
            self.note_maker(eqn, plan)
        if plan.brought:
            self.bring_results(eqn, plan)

    def operand(self, var: Var, placement: Placement) -> Var:
        """The local value; an addend of a whole value is that value on one device and zeros on the others."""
        known = self.versions[var].get(placement)
        if known is not None:
            return known
        local = super().operand(var, placement)
        if not placement.partial or self.walks.normal(placement) in self.versions[var]:
            return local
        return self.addend(local, placement)

    def addend(self, local: Var, placement: Placement) -> Var:
        return self.moves.addend(local, placement.partial_axes)

    def compute(self, eqn: Eqn, plan: EquationPlan, operands: Sequence[Var]) -> Sequence[Var]:
        if plan.bodies:
            if plan.block:
                return write_in_blocks(eqn, plan, operands, self.builder, self.moves)
            if eqn.op.pinned is not None:
                return self.builder.inline(write_locally(plan.bodies[0], self.target), operands)
            local = iter([write_locally(body, self.target) for body in plan.bodies])
            return self.builder.emit(eqn.op, operands, with_run_programs(eqn, lambda _: next(local), device=False))
        rule = own_rule(eqn, plan)
        if rule is not None:
            return write_by(rule, eqn, plan, operands, self.moves, lambda i, placement: self.bring(eqn.inputs[i], placement))
        if plan.rule.reductions:
            operands = [self.masked(i, v, eqn, plan) for i, v in enumerate(operands)]
        params = eqn.params
        if eqn.op.localize is not None:
            types = tuple([self.local_type(v.type, p) for v, p in zip(eqn.outputs, plan.results, strict=True)])
            params = eqn.op.localize(params, tuple([v.type for v in operands]), types)
        return self.builder.emit(eqn.op, operands, params)

    def remake(self, eqn: Eqn, plan: EquationPlan) -> Var:
        with self.builder.at(eqn.source):
            return super().remake(eqn, plan)

    def masked(self, index: int, local: Var, eqn: Eqn, plan: EquationPlan) -> Var:
        """The operand with the padding of reduced dims replaced by the identity of the reduction."""
        for dim, factors in enumerate(plan.rule.operands[index]):
            for factor in factors:
                kind = plan.rule.reductions.get(factor)
                if kind is not None:
                    fill = identity_element(kind, local.dtype)
                    extent = eqn.inputs[index].shape[dim]
                    local = self.moves.mask(local, dim, extent, plan.operands[index].dims[dim], fill)
        return local

    def travel(self, var: Var, walk: Walk, local: Var) -> Sequence[Var]:
        """The reduction of a partial sum is blamed on the line that made the sum, other moves on the line that wants them."""
        source = self.sources.get(var) if walk.placements[0].partial or self.builder.source is None else self.builder.source
        locals_: list[Var] = []
        with self.builder.at(source):
            for step, here in zip(walk.steps, walk.placements, strict=False):
                local = self.moves.take(step, local, here, var.type.shape)
                locals_.append(local)
        return locals_


def local_type(type: TensorType, placement: Placement, plan: Plan) -> TensorType:
    return type.with_shape(placement.local_shape(type.shape, plan.mesh))
