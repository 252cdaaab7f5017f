"""Partial sums that stay unreduced as long as linearity allows.

    %a = dot(..)   partial sum(x)          all_reduce(a) + all_reduce(b) == all_reduce(a + b): half the bytes
    %b = dot(..)   partial sum(x)
    %c = add(%a, %b)                       partial too; reduced where %c is needed

A value may stay partial if three things hold: its only use is one equation that is linear in it; all operands in which
that equation is jointly linear are partial over the same axes, or zeros; the result is no larger than the operands. What
only joins sums (`Uses.addends`) may become larger, in several equations as well: slices of one array have pads as
gradients.

Whether delaying paid is known only at the end of the chain, at the first equation that needs the reduced value. From there
the reduction moves back before every equation where it costs no more, or sends less:

    %g = dot(..)           all_reduce(g) here: nothing is gained behind %s, and elementwise equations can be fused
    %s = multiply(%g, %r)
    %q = subtract(%p, %s)  needs the sum of %s: as many bytes as %g has

It stays where addends have met (one reduction instead of two), where the value has become smaller, and where the use
of the sum is sharded (a reduce_scatter).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.events import Delay, Event, Reduction
from sharding.axes import AxisRef, overlap
from sharding.spec import Placement

PartialAxes = tuple[tuple[AxisRef, str], ...]
EQUAL: Final = 1 + 1e-6  # sums of seconds, or of bytes, that differ by less are the same


class Price(NamedTuple):
    """What reductions cost. Seconds are predicted, and count what starting several of them takes, which XLA may combine."""

    seconds: float
    bytes: float

    def is_below(self, other: Price) -> bool:
        """Whether it is clearly faster, and sends no more."""
        return self.seconds * EQUAL < other.seconds and self.is_within(other)

    def is_within(self, other: Price) -> bool:
        """Whether it is as fast, and sends no more."""
        return self.seconds <= other.seconds * EQUAL and self.bytes <= other.bytes * EQUAL

    def times(self, factor: float) -> Price:
        return Price(self.seconds * factor, self.bytes * factor)

    @staticmethod
    def of(prices: Iterable[Price]) -> Price:
        """Of all of them."""
        seconds, sent = 0.0, 0.0
        for price in prices:
            seconds, sent = seconds + price.seconds, sent + price.bytes
        return Price(seconds, sent)


@dataclass(frozen=True)
class Delayed:
    """An equation that partial sums flow through: its plan without them, where these were placed before, and the price
    of reducing them before it, each where that costs least."""

    eqn: Eqn
    plain: EquationPlan
    group: tuple[int, ...]
    before: tuple[Placement, ...]
    sooner: Price


@dataclass(frozen=True)
class ChainEnd:
    """The end of a chain of delayed equations: the sum `var` is used as `target`. Reducing it there costs `late`, before the
    chain's last equation or even sooner `sooner`."""

    var: Var
    target: Placement
    chain: Delayed
    late: Price
    sooner: Price

    @property
    def is_late(self) -> bool:
        return self.late.is_below(self.sooner)


class Delays:
    """The partial sums of one Program so far. Its methods decide; `meshjit.plan.course` does what they say."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        pending: Mapping[Var, Placement] | None = None,
        unreduced: Collection[Var] = (),
        given: Collection[Var] = (),
    ) -> None:
        """`given`: outputs that are handed over as addends. `unreduced`: inputs that a user leaves unreduced, as those equations
        say of their results that are `pinned`."""
        self.machine = machine
        self.uses = machine.uses_of(program).counts
        uses = machine.uses_of(program)
        self.given = frozenset(given)
        self.addends = uses.joining([v for v in program.outputs if v not in given]) if given else uses.addends
        self.zeros = machine.uses_of(program).zeros
        self.unreduced = machine.uses_of(program).unreduced.union(unreduced)
        self.pending: dict[Var, Placement] = dict(pending or {})  # at first the inputs that are partial already
        self.possible = dict(self.pending)  # all that were pending, also those that were reduced sooner after all
        self.delayed: dict[Var, Delayed] = {}  # by result
        self.reductions: list[Reduction] = []

    @property
    def events(self) -> list[Event]:
        """What became of partial sums: equations that they flow through, and where they are reduced."""
        delayed = {c.eqn: Delay(c.eqn, self.pending[var], self.is_shared(c), c.sooner.seconds) for var, c in self.delayed.items()}
        return [*delayed.values(), *self.reductions]

    def is_shared(self, chain: Delayed) -> bool:
        return any(self.uses[v] != chain.eqn.inputs.count(v) for v in map(chain.eqn.inputs.__getitem__, chain.group))

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
        return step.with_sums(group, partial)

    def chain_end(self, var: Var, target: Placement) -> ChainEnd | None:
        """Of the chain that ends in `var`, whose sum is used as `target`; None where no chain ends."""
        chain = self.delayed.get(var)
        if chain is None or target.partial or len(chain.eqn.outputs) > 1:  # others may have been used as they are
            return None
        return ChainEnd(var, target, chain, self.price(var.type, self.pending[var], target), self.sooner(var, chain, target))

    def price(self, type: TensorType, source: Placement, target: Placement) -> Price:
        if source == target:
            return Price(0.0, 0.0)
        walk = self.machine.walk(type, source, target)
        return Price(walk.seconds, walk.bytes)

    def sooner(self, var: Var, chain: Delayed, target: Placement) -> Price:
        """Of reducing what comes to the sum `var` before the last equation of the chain."""
        return Price.of((self.before(chain.eqn, chain.plain, chain.group), self.price(var.type, chain.plain.results[0], target)))

    def before(self, eqn: Eqn, plain: EquationPlan, group: Sequence[int]) -> Price:
        """Of reducing partial sums that flow through an equation before it, each where that costs least."""
        return Price.of(self.share(eqn, v, there) for v, there in self.addends_of(eqn, plain, group))

    def share(self, eqn: Eqn, var: Var, target: Placement) -> Price:
        """Of reducing an addend to `target` where that costs least; the equation's share, where others read it as well."""
        chain = self.delayed.get(var)
        least = self.price(var.type, self.pending[var], target)
        if chain is not None and len(chain.eqn.outputs) == 1:
            sooner = Price.of((chain.sooner, self.price(var.type, chain.plain.results[0], target)))
            least = least if least.is_below(sooner) else sooner
        return least.times(eqn.inputs.count(var) / self.uses[var]) if var in self.addends else least

    def addends_of(self, eqn: Eqn, plain: EquationPlan, group: Sequence[int]) -> list[tuple[Var, Placement]]:
        """Of an equation that partial sums flow through, each that is unreduced, and where the equation would have it reduced."""
        return list({v: plain.operands[i] for i in group if (v := eqn.inputs[i]) in self.pending}.items())

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
            group = tuple([i for i in group if eqn.inputs[i] not in self.zeros])
            if self.flows(eqn, step, group):
                return group
        return ()

    def flows(self, eqn: Eqn, step: EquationPlan, group: Sequence[int]) -> bool:
        together = [eqn.inputs[i] for i in group]
        sums = [self.pending.get(v) for v in together]
        first = next((p for p in sums if p is not None), None)
        if first is None:
            return False
        asked = [v for v in together if v in self.unreduced]  # a user says so, whatever it costs
        is_asked = bool(asked) and all(v in asked or not v.rank for v in together)
        if any([not is_asked if p is None else p.partial != first.partial for p in sums]):
            return False
        grows = sum([v.type.nbytes for v in eqn.outputs]) > sum([v.type.nbytes for v in together])
        if not is_asked and not grows and any(self.uses[v] != eqn.inputs.count(v) for v in together):
            return False  # somebody else needs the sum
        if any(p.dims != step.operands[i].dims for i, p in zip(group, sums, strict=True) if p is not None):
            return False
        if any(v in together for i, v in enumerate(eqn.inputs) if i not in group):
            return False
        busy = [axis for p in (*step.operands, *step.results) for axis in p.axes()]
        if any(overlap(axis, other) for axis in first.partial_axes for other in busy):
            return False
        return is_asked or not grows or (self.joins(eqn) and all(v in self.addends for v in together))
