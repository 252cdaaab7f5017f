"""Partial sums that stay unreduced as long as linearity allows.

    %a = dot(..)   partial sum(x)          all_reduce(a) + all_reduce(b) == all_reduce(a + b): half the bytes
    %b = dot(..)   partial sum(x)
    %c = add(%a, %b)                       partial too; reduced where %c is needed

A value may stay partial if three things hold: its only use is one equation that is linear in it; all operands in which
that equation is jointly linear are partial over the same axes; the result is no larger than the operands. Whether delaying
paid is known only at the end of the chain, at the first equation that needs the reduced value. From there the reduction
moves back before every equation where it costs no more:

    %g = dot(..)           all_reduce(g) here: nothing is gained behind %s, and elementwise equations can be fused
    %s = multiply(%g, %r)
    %q = subtract(%p, %s)  needs the sum of %s: as many bytes as %g has

It stays where addends have met (one reduction instead of two), where the value has become smaller, and where the use
of the sum is sharded (a reduce_scatter).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.cost import Machine
from meshjit.plan.events import Delay, Event, Reduction
from sharding.axes import AxisRef, overlap
from sharding.spec import Placement

PartialAxes = tuple[tuple[AxisRef, str], ...]
EQUAL: Final = 1 + 1e-6  # sums of seconds that differ by less are the same


@dataclass(frozen=True)
class Delayed:
    """An equation that partial sums flow through: its plan without them, and where these were placed before."""

    eqn: Eqn
    plain: EquationPlan
    group: tuple[int, ...]
    before: tuple[Placement, ...]


@dataclass(frozen=True)
class ChainEnd:
    """The end of a chain of delayed equations: the sum `var` is used as `target`. Reducing it there takes `late` seconds,
    before the chain's last equation `sooner`; `addends` are what ends where it is reduced sooner."""

    var: Var
    target: Placement
    chain: Delayed
    late: float
    sooner: float
    addends: tuple[ChainEnd, ...]

    @property
    def is_late(self) -> bool:
        return self.sooner > self.late * EQUAL


class Delays:
    """The partial sums of one Program so far. Its methods decide; `meshjit.plan.course` does what they say."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        pending: Mapping[Var, Placement] | None = None,
        unreduced: Collection[Var] = (),
    ) -> None:
        """`unreduced`: inputs that a user leaves unreduced, as those equations say of their results that are `pinned`."""
        self.machine = machine
        self.uses = machine.uses_of(program).counts
        self.addends = machine.uses_of(program).addends
        self.unreduced = machine.uses_of(program).unreduced.union(unreduced)
        self.pending: dict[Var, Placement] = dict(pending or {})  # at first the inputs that are partial already
        self.possible = dict(self.pending)  # all that were pending, also those that were reduced sooner after all
        self.delayed: dict[Var, Delayed] = {}  # by result
        self.reductions: list[Reduction] = []

    @property
    def events(self) -> list[Event]:
        """What became of partial sums: equations that they flow through, and where they are reduced."""
        delayed = {chain.eqn: Delay(chain.eqn, self.pending[var]) for var, chain in self.delayed.items()}
        return [*delayed.values(), *self.reductions]

    def joins(self, eqn: Eqn) -> bool:
        """Whether a partial result would only be added to another value, which may be partial as well: then it is not
        known what its own reduction costs, if anything."""
        return len(eqn.outputs) == 1 and eqn.outputs[0] in self.addends

    def through(self, eqn: Eqn, step: EquationPlan) -> tuple[EquationPlan, tuple[int, ...]]:
        """How the equation is computed, partial operands aside, and the operands whose sums flow through it."""
        if not self.pending or self.pending.keys().isdisjoint(eqn.inputs) or eqn.op.pinned is not None:
            return step, ()
        group = self.accepted(eqn, step)
        if group:
            return step, group
        together = self.together(eqn, step)
        group = self.accepted(eqn, together)
        return (together, group) if group else (step, ())

    def with_sums(self, eqn: Eqn, step: EquationPlan, group: Sequence[int]) -> EquationPlan:
        """The equation's plan on operands of which those in `group` are partial sums, as its results then are."""
        partial: PartialAxes = next(self.pending[v].partial for i in group if (v := eqn.inputs[i]) in self.pending)
        operands = tuple(Placement(p.dims, partial) if i in group else p for i, p in enumerate(step.operands))
        results = tuple(Placement(p.dims, (*p.partial, *partial)) for p in step.results)
        return EquationPlan(step.rule, step.assignment, operands, results)

    def chain_end(self, var: Var, target: Placement) -> ChainEnd | None:
        """Of the chain that ends in `var`, whose sum is used as `target`; None where no chain ends."""
        chain = self.delayed.get(var)
        if chain is None or target.partial or len(chain.eqn.outputs) > 1:  # others may have been used as they are
            return None
        addends = {v: chain.plain.operands[i] for i in chain.group if (v := chain.eqn.inputs[i]) in self.pending}
        seconds = self.machine.seconds
        late = seconds(var.type, self.pending[var], target)
        sooner = sum(seconds(v.type, self.pending[v], there) for v, there in addends.items())
        sooner += seconds(var.type, chain.plain.results[0], target)
        end = ChainEnd(var, target, chain, late, sooner, ())
        if end.is_late:
            return end
        ends = [self.chain_end(v, there) for v, there in addends.items()]
        return replace(end, addends=tuple(e for e in ends if e is not None))

    def together(self, eqn: Eqn, step: EquationPlan) -> EquationPlan:
        """The equation where its operands lie as they are, if they are addends of one sum; else its plan unchanged.

        The sum of several is then reduced once, wherever the plan would have had each of them: with x partial over
        model and wanted sharded over it, dq + dk + dv is one reduce_scatter instead of three.
        """
        sums = [self.pending.get(v) for v in eqn.inputs]
        first = sums[0] if sums else None
        if first is None or any(p != first for p in sums) or len(set(eqn.inputs)) < 2 or not step.rule.is_passthrough:
            return step
        assignment = step.rule.project(step.rule.operands[0], Placement(first.dims), self.machine.mesh)
        there = equation_plan(step.rule, assignment, self.machine.mesh)
        return there if all(p.dims == first.dims for p in there.operands) else step

    def accepted(self, eqn: Eqn, step: EquationPlan) -> tuple[int, ...]:
        """The operands, jointly linear and partial alike, whose sums flow through; () if none do."""
        sums_only = all(kind == "sum" for kind in step.rule.reductions.values()) and is_pure(eqn)
        if not sums_only:
            return ()
        for group in eqn.op.sum_groups(eqn.input_types, eqn.params):
            if self.flows(eqn, step, group):
                return group
        return ()

    def flows(self, eqn: Eqn, step: EquationPlan, group: Sequence[int]) -> bool:
        sums = [self.pending.get(eqn.inputs[i]) for i in group]
        first = next((p for p in sums if p is not None), None)
        together = [eqn.inputs[i] for i in group]
        asked = [v for v in together if v in self.unreduced]  # a user says so, whatever it costs
        is_asked = bool(asked) and all(v in asked or not v.rank for v in together)
        if first is None or any(not is_asked if p is None else p.partial != first.partial for p in sums):
            return False
        if not is_asked and any(self.uses[v] != eqn.inputs.count(v) for v in together):  # somebody else needs the sum
            return False
        if any(p.dims != step.operands[i].dims for i, p in zip(group, sums, strict=True) if p is not None):
            return False
        if any(v in together for i, v in enumerate(eqn.inputs) if i not in group):
            return False
        busy = [axis for p in (*step.operands, *step.results) for axis in p.axes()]
        if any(overlap(axis, other) for axis in first.partial_axes for other in busy):
            return False
        return is_asked or sum(v.type.nbytes for v in eqn.outputs) <= sum(v.type.nbytes for v in together)
