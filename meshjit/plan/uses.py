"""How a Program uses its values, whatever the plan is: how often, up to which equation, as addends of which sums."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from meshjit.core.memories import values_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import repeats
from meshjit.core.rules import rule_of, work_passes

USES_OF_OUTPUT: Final = 2  # an output is reduced when it leaves, so it never counts as used once


class Uses:
    """How often a Program uses its values, and after which equation each is needed no more; whatever the plan is."""

    def __init__(self, program: Program) -> None:
        self.ends = _last_uses(program)
        self.counts = Counter([v for eqn in program.eqns for v in eqn.inputs])
        for _ in range(USES_OF_OUTPUT):
            self.counts.update(program.outputs)
        self.addends = {v for v in _addends(program) if self.counts[v] == 1}
        self.on_host = frozenset(values_in(program))  # values in the hosts' memory, where the machine has it
        self.unreduced = {*_unreduced(program)}  # values that a user leaves unreduced
        self.reads = dict(_contractions(program))
        self.readers = Counter([key for keys in self.reads.values() for key in keys])
        self.repeats = {repeat.start: repeat for repeat in repeats(program)}
        self.joins = {at: tuple([v in self.addends for v in repeat.inner]) for at, repeat in self.repeats.items()}
        self.outcomes: dict[Any, Any] = {}  # of planning them, see `meshjit.plan.recall`

    def again(self) -> Uses:
        """With outcomes of its own besides those so far."""
        other = copy.copy(self)
        other.outcomes = dict(self.outcomes)
        return other

    def sharers(self, eqn: Eqn) -> tuple[int, ...]:
        """For each operand of a contraction how many alike contractions read it; () for other equations. What is brought for the
        first of them is there for the others: q, k and v share the gather of what they are made of."""
        return tuple([self.readers[key] for key in self.reads.get(eqn, ())])


def _contractions(program: Program) -> Iterator[tuple[Eqn, list[Any]]]:
    """With their operands, each as it is read: alike for equal ops and params, whatever the other operand is."""
    copies: dict[tuple[int, ...], bool] = {}
    for eqn in program.eqns:
        if len(eqn.inputs) > 1 and eqn.op.regions is None:
            contracts = copies.get(eqn.identity)
            if contracts is None:
                contracts = copies[eqn.identity] = bool(rule_of(eqn).reductions) and not work_passes(eqn)
            if contracts:
                yield eqn, [(var, i, eqn.op, tuple(eqn.params.items())) for i, var in enumerate(eqn.inputs)]


def _addends(program: Program) -> Iterator[Var]:
    """The operands of equations that are linear in several of them together, and those that are asked for as addends."""
    copies: dict[tuple[int, ...], list[int]] = {}
    for eqn in program.eqns:
        if eqn.op.pinned is not None:
            yield from [v for v, spec in zip(eqn.inputs, eqn.op.pinned(eqn.params)[0], strict=True) if spec.unreduced]
        elif len(eqn.inputs) > 1 and eqn.op.linear != ():
            positions = copies.get(eqn.identity)
            if positions is None:
                groups = [group for group in eqn.op.linear_groups(eqn.input_types, eqn.params) if len(group) > 1]
                positions = copies[eqn.identity] = [i for group in groups for i in group if i < len(eqn.inputs)]
            yield from [eqn.inputs[i] for i in positions]


def _unreduced(program: Program) -> Iterator[Var]:
    for eqn in program.eqns:
        if eqn.op.pinned is not None:
            yield from [v for v, spec in zip(eqn.outputs, eqn.op.pinned(eqn.params)[1], strict=True) if spec.unreduced]


def _last_uses(program: Program) -> list[list[Var]]:
    """For every equation the values that are needed no more after it."""
    later = set(program.outputs)
    ends: list[list[Var]] = []
    for eqn in reversed(program.eqns):
        last = {*eqn.inputs, *eqn.outputs}.difference(later)
        ends.append([*last])
        later |= last
    return ends[::-1]
