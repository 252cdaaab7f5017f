"""How a Program uses its values, whatever the plan is: how often, up to which equation, and which of them only join sums.

    %1 = dot(..)    %2 = pad(%1, 0.0)    %3 = pad(%1, 0.0)    %4 = add(%2, %3)

%2 and %3 are addends. So is %1: zeros are addends of zero, so that a pad of its addends is an addend of its pad.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

from meshjit.core.memories import values_in
from meshjit.core.ops_in import ops_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat, kinds_of, repeats
from meshjit.core.rules import is_contraction
from meshjit.ops.base.constants import is_zero
from meshjit.plan.fused_values import fused_values
from meshjit.plan.in_place import in_place

Groups: TypeAlias = tuple[tuple[int, ...], ...]

USES_OF_OUTPUT: Final = 2  # an output is reduced when it leaves, so it never counts as used once


class Uses:
    """How often a Program uses its values, and after which equation each is needed no more; whatever the plan is."""

    def __init__(self, program: Program) -> None:
        self.eqns, self.outputs, self.kinds = program.eqns, program.outputs, kinds_of(program)
        self.ends = _last_uses(program)
        self.counts = Counter(itertools.chain.from_iterable([eqn.inputs for eqn in program.eqns]))
        for _ in range(USES_OF_OUTPUT):
            self.counts.update(program.outputs)
        self.zeros = frozenset(_zeros(program))
        self.addends = self.joining(program.outputs)
        self.on_host = frozenset(values_in(program))  # values in the hosts' memory, where the machine has it
        self.fused = fused_values(program)  # the part that is held of values that are computed where they are read
        self.in_place = in_place(program, self.kinds, self.ends, {v for v, part in self.fused.items() if part < 1.0})
        self.unreduced = {*_unreduced(program)}  # values that a user leaves unreduced
        self.contracted = dict(_contractions(program))
        self.readers = Counter([key for keys in self.contracted.values() for key in keys])
        self.repeats = {repeat.start: repeat for repeat in repeats(program)}
        self.joins = {at: self._joins(repeat) for at, repeat in self.repeats.items()}
        self.outcomes: dict[Any, Any] = {}  # of planning them, see `meshjit.plan.recall`

    @functools.cached_property
    def makers(self) -> dict[Var, int]:
        """The number of the equation that makes each value."""
        return {v: at for at, eqn in enumerate(self.eqns) for v in eqn.outputs}

    @functools.cached_property
    def reads(self) -> dict[Var, list[tuple[int, int]]]:
        """By value, the equations that read it, and as which operand; behind all equations the Program's end, and as which
        output. All by number."""
        reads: dict[Var, list[tuple[int, int]]] = {}
        for at, values in enumerate([*[eqn.inputs for eqn in self.eqns], self.outputs]):
            for i, var in enumerate(values):
                reads.setdefault(var, []).append((at, i))
        return reads

    def joining(self, outputs: Collection[Var]) -> set[Var]:
        """What only joins sums, if of the outputs these are read as they are, and the others as addends."""
        return self.counts.keys() - _read_otherwise(self.eqns, self.kinds, self.zeros, outputs)

    def _joins(self, repeat: Repeat) -> tuple[bool, ...]:
        """What else partial sums in a repeat depend on."""
        values = *repeat.inner, *repeat.outer
        return (*[v in self.addends for v in values], *[v in self.zeros for v in repeat.outer])

    def again(self) -> Uses:
        """With outcomes of its own besides those so far."""
        other = copy.copy(self)
        other.outcomes = dict(self.outcomes)
        return other

    def sharers(self, eqn: Eqn) -> tuple[int, ...]:
        """For each operand of a contraction how many alike contractions read it; () for other equations. What is brought for the
        first of them is there for the others: q, k and v share the gather of what they are made of."""
        reads = self.contracted.get(eqn)
        return () if reads is None else tuple([self.readers[key] for key in reads])


def _contractions(program: Program) -> Iterator[tuple[Eqn, list[Any]]]:
    """With their operands, each as it is read: alike for equal ops and params, whatever the other operand is."""
    known: dict[int, bool] = {}
    for eqn, kind in zip(program.eqns, kinds_of(program), strict=True):
        if len(eqn.inputs) > 1 and eqn.op.regions is None:
            contracts = known.get(kind)
            if contracts is None:
                contracts = known[kind] = is_contraction(eqn)
            if contracts:
                yield eqn, [(var, i, eqn.op, tuple(eqn.params.items())) for i, var in enumerate(eqn.inputs)]


def _zeros(program: Program) -> Iterator[Var]:
    copies: dict[int, bool] = {}
    for eqn in program.eqns:
        if not eqn.inputs:
            zero = copies.get(id(eqn.params))
            if zero is None:
                zero = copies[id(eqn.params)] = is_zero(eqn)
            if zero:
                yield eqn.outputs[0]


def _read_otherwise(
    eqns: Sequence[Eqn], kinds: Sequence[int], zeros: frozenset[Var], outputs: Collection[Var]
) -> set[Var]:
    """The values that are read otherwise than as addends of sums, also through equations that are linear in them alone, or as
    those who ask for addends read them. `outputs` are."""
    otherwise = set(outputs)
    alike: dict[int, tuple[Groups, bool, bool]] = {}
    for eqn, kind in zip(reversed(eqns), reversed(kinds), strict=True):
        inputs, known = eqn.inputs, alike.get(kind)
        if known is None:
            known = alike[kind] = _linearity(eqn)
        groups, in_all, adds = known
        if not groups:
            otherwise.update(inputs if eqn.op.pinned is None else _not_left_unreduced(eqn))
            continue
        joins = eqn.outputs[0] not in otherwise
        if not (joins or adds):
            otherwise.update(inputs)
            continue
        is_sum = joins or (len(groups) == 1 and zeros.isdisjoint(inputs))
        if not (in_all and is_sum and len({*inputs}) == len(inputs)):  # else all of them are addends
            otherwise.update({*inputs}.difference(_joining(inputs, groups, zeros, joins)))
    return otherwise


def _linearity(eqn: Eqn) -> tuple[Groups, bool, bool]:
    """The groups of operands that an equation of one result is linear in; whether every operand is in one; whether it adds."""
    if eqn.op.pinned is not None or not eqn.op.linear or len(eqn.outputs) != 1:
        return (), False, False
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    in_all = sorted([i for group in groups for i in group]) == [*range(len(eqn.inputs))]
    return groups, in_all, any(len(group) > 1 for group in groups)


def _not_left_unreduced(eqn: Eqn) -> Iterator[Var]:
    assert eqn.op.pinned is not None
    specs = eqn.op.pinned(eqn.params)[0]
    return (v for v, spec in zip(eqn.inputs, specs, strict=True) if not spec.unreduced)


def _joining(inputs: Sequence[Var], groups: Groups, zeros: Collection[Var], joins: bool) -> Iterator[Var]:
    """The operands of an equation that are addends of its result, or of what its result is an addend of, if it is one."""
    for group in groups:
        members = {v for i in group if (v := inputs[i]) not in zeros}
        if (joins or len(members) > 1) and not any(v in members for i, v in enumerate(inputs) if i not in group):
            yield from members


def _unreduced(program: Program) -> Iterator[Var]:
    for eqn in program.eqns if any([op.pinned for op in ops_in(program)]) else ():
        if eqn.op.pinned is not None:
            yield from [v for v, spec in zip(eqn.outputs, eqn.op.pinned(eqn.params)[1], strict=True) if spec.unreduced]


def _last_uses(program: Program) -> list[list[Var]]:
    """For every equation the values that are needed no more after it."""
    needed, ends = {*program.outputs}, list[list[Var]]()
    for eqn in reversed(program.eqns):
        last: list[Var] = []
        for var in eqn.inputs + eqn.outputs:
            if var not in needed:
                needed.add(var)
                last.append(var)
        ends.append(last)
    ends.reverse()
    return ends
