"""What is read once more after a long way is computed again from a value of half its bytes, which is kept in its place.

    %s = dot(%q, %k)                   bf16        %s = dot(%q, %k)
    %e = exp(f32(%s) - max)            f32         %e = exp(f32(%s) - max)
    %o = dot(bf16(%e / sum), %v)                   %o = dot(bf16(%e / sum), %v)
    ...           %e is kept                       ...           %s is kept
    %g = dot(bf16(%e / sum), %do)                  %s2, %do2 = optimization_barrier(%s, %do)
                                                   %g = dot(bf16(exp(f32(%s2) - max) / sum), %do2)

A family is what a contraction makes, its root, and what is made of that element by element. Compilers fuse such equations with
every reader, and keep the root, as long as they are cheap. But what is made of a function's values, such as exponentials, and
of a sum or a maximum over the family is written once, and kept. What sums and maxima come to is small, and is kept as it is.

What stands behind a barrier, as the layers of a `checkpoint` do in the backward pass, is computed again already, and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import rule_of, work_passes
from meshjit.ops.base.annotations import optimization_barrier
from meshjit.transform.compute_again import Section, compute_again, made_of_nothing
from meshjit.transform.rewriting import in_regions

SMALL: Final = 8  # a value of so many times fewer bytes than another one is small beside it
WORTH: Final = 1 << 20  # bytes of a root below which nothing is gained


@dataclass(eq=False)
class Family:
    """`made`: where each member was made; `bent` are those that are not linear in the root. `comes_back`: a member is made of
    what a reduction of others came to. `bit`: its own among families that may be computed again, else 0."""

    root: Var
    bit: int = 0
    made: dict[Var, int] = field(default_factory=dict[Var, int])
    bent: set[Var] = field(default_factory=set[Var])
    comes_back: bool = False
    at: int = -1  # the first equation that reads a member after a long way; -1: none does
    awaited: Var | None = None  # what it reads that came that way
    late: set[Var] = field(default_factory=set[Var])  # the members made before that are read from there on

    @property
    def is_wide(self) -> bool:
        return self.has_wide(self.bent)

    def has_wide(self, vars: Iterable[Var]) -> bool:
        return any(v.type.nbytes >= 2 * self.root.type.nbytes for v in vars)


def keep_narrow(program: Program) -> Program:
    """The same values of the same equations, some of which are made twice."""
    program = in_regions(program, keep_narrow)
    families = _Families(program)
    wide = [family for family in families.every if family.comes_back and family.is_wide]
    if not wide:
        return program
    for n, family in enumerate(wide):
        family.bit = 1 << n
    _find_late_readers(program, families)
    sections = [section for family in wide for section in families.section(family)]
    return compute_again(program, sections)[0] if sections else program


class _Families:
    """Of a Program. `of`: the family of a root or a member. `spread`: large values that are made of small ones element by
    element, and where. `sums`: of whose members a small value, or one that is spread from it, is a reduction."""

    def __init__(self, program: Program) -> None:
        self.program, self.free = program, made_of_nothing(program)
        self.every: list[Family] = []
        self.of: dict[Var, Family] = {}
        self.spread: dict[Var, int] = {}
        self.sums: dict[Var, Family] = {}
        for n, eqn in enumerate(program.eqns):
            if eqn.op is optimization_barrier:
                break
            if len(eqn.outputs) == 1 and eqn.op.regions is None and is_pure(eqn):
                self._add(n, eqn, eqn.outputs[0])

    def _add(self, n: int, eqn: Eqn, out: Var) -> None:
        inputs = [v for v in eqn.inputs if v not in self.free]
        if is_contraction(eqn):
            if out.type.nbytes >= WORTH:
                self.of[out] = Family(out)
                self.every.append(self.of[out])
        elif rule_of(eqn).reductions:
            if len(inputs) == 1 and inputs[0] in self.of:
                self.sums[out] = self.of[inputs[0]]
        elif _is_elementwise(eqn):
            self._add_elementwise(n, eqn, inputs, out)
        elif rule_of(eqn).is_passthrough:
            self._add_sum(inputs, out)

    def _add_elementwise(self, n: int, eqn: Eqn, inputs: list[Var], out: Var) -> None:
        families = {self.of[v] for v in inputs if v in self.of}
        others = [v for v in inputs if v not in self.of]
        if not families:
            self._add_sum(others, out)
            if others and all(self._is_cheap_beside(v, out) for v in others):
                self.spread[out] = n
        elif len(families) == 1:
            (family,) = families
            if out.type.size == family.root.type.size and all(self._is_cheap_beside(v, family.root) for v in others):
                self.of[out], family.made[out] = family, n
                if not family.bent.isdisjoint(inputs) or not _is_linear(eqn, family, self.of):
                    family.bent.add(out)
                family.comes_back |= any(self.sums.get(v) is family for v in others)

    def _add_sum(self, inputs: list[Var], out: Var) -> None:
        sums = {self.sums[v] for v in inputs if v in self.sums}
        if len(sums) == 1:
            (self.sums[out],) = sums

    def _is_cheap_beside(self, var: Var, large: Var) -> bool:
        return var in self.spread or SMALL * var.type.nbytes <= large.type.nbytes

    def section(self, family: Family) -> Iterator[Section]:
        """What is to be computed again of a family, if anything is."""
        if family.awaited is None or not family.has_wide(family.late & family.bent):
            return
        if family.late.isdisjoint(self.program.outputs):
            numbers = sorted(self._makers(family))
            yield Section(tuple([self.program.eqns[n] for n in numbers]), family.at, family.awaited)

    def _makers(self, family: Family) -> set[int]:
        """The equations that make what is read late of the root and of what is small."""
        numbers, pending = set[int](), [*family.late]
        while pending:
            var = pending.pop()
            n = family.made.get(var, self.spread.get(var))
            if n is not None and n not in numbers:
                numbers.add(n)
                pending += self.program.eqns[n].inputs
        return numbers


def _find_late_readers(program: Program, families: _Families) -> None:
    """Of each family with a bit the first reader that also reads what a contraction of the family has led to, and what is read
    from there on."""
    behind = dict[Var, int]()  # the bits of the families that led to a value
    for n, eqn in enumerate(program.eqns):
        ways = 0
        for v in eqn.inputs:
            ways |= behind.get(v, 0)
        for family in {families.of[v] for v in eqn.inputs if v in families.of}:
            if ways & family.bit and family.at < 0:
                family.at = n
                family.awaited = next(v for v in reversed(eqn.inputs) if behind.get(v, 0) & family.bit)
            if family.at >= 0:
                family.late.update(v for v in eqn.inputs if families.of.get(v) is family and family.made.get(v, n) < family.at)
            if family.bit and is_contraction(eqn):
                ways |= family.bit
        if ways:
            behind.update(dict.fromkeys(eqn.outputs, ways))


def is_contraction(eqn: Eqn) -> bool:
    rule = rule_of(eqn)
    return bool(rule.reductions) and len(rule.operands) > 1 and not work_passes(eqn)


def _is_linear(eqn: Eqn, family: Family, of: Mapping[Var, Family]) -> bool:
    """In its operands of the family."""
    mine = {i for i, v in enumerate(eqn.inputs) if of.get(v) is family}
    return any(mine <= {*group} for group in eqn.op.linear_groups(eqn.input_types, eqn.params))


def _is_elementwise(eqn: Eqn) -> bool:
    return rule_of(eqn).is_passthrough and eqn.op.partition is None and eqn.op.pinned is None and not work_passes(eqn)
