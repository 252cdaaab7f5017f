"""Rewriting: the one way from a Program to another that computes the same.

    rewrite(program, {"slice": rule})        rule(eqn, here) says what stands in the place of every slice

A rule is given an equation on the new Program's values, and the Rewriter. It answers with

    None         the equation stays
    an Eqn       this equation, of the same outputs, stands in its place
    Vars         its outputs are these values; ops called on Vars inside the rule add equations, with the same source line

Equations keep their order, unless a rule asks for later ones to be done early (`Rewriter.early`).
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from meshjit.core.op import Op
from meshjit.core.ops_in import has_regions, op_names_in
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import with_regions_changed

Rule: TypeAlias = Callable[[Eqn, "Rewriter"], Eqn | Var | Sequence[Var] | None]
Pass: TypeAlias = Callable[[Program], Program]


class Rewriter(Builder):
    """The new Program as far as it stands. `makers`: which of its equations makes a value; `names`: old value → new value."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.name)
        self.program = program
        self.inputs = list(program.inputs)
        self.names: dict[Var, Var] = {}
        self.done: set[Eqn] = set()  # old equations that stand, or are replaced, before their turn

    @functools.cached_property
    def makers(self) -> dict[Var, Eqn]:
        """Old equations that stay are among them before their turn; they make what nobody can have asked for by then."""
        return {v: eqn for eqn in (*self.program.eqns, *self.eqns) for v in eqn.outputs}

    def put(self, eqn: Eqn) -> None:
        """Add an equation of the new Program."""
        self.eqns.append(eqn)
        self._note(eqn)

    def _note(self, eqn: Eqn) -> None:
        if "makers" in self.__dict__:  # somebody has asked
            self.makers.update(dict.fromkeys(eqn.outputs, eqn))

    def emit(self, op: Op, inputs: Sequence[Var], params: Mapping[str, Any]) -> tuple[Var, ...]:
        outputs = super().emit(op, inputs, params)
        self._note(self.eqns[-1])
        return outputs

    def new(self, var: Var) -> Var:
        """What the old Program's value is in the new one."""
        return self.names.get(var, var)

    def renamed(self, eqn: Eqn) -> Eqn:
        """The old equation on the new Program's values."""
        names = self.names
        if names.keys().isdisjoint(eqn.inputs):
            return eqn
        return eqn.with_inputs(tuple([names.get(v, v) for v in eqn.inputs]))

    def early(self, eqns: Iterable[Eqn]) -> None:
        """Do these old equations now."""
        for eqn in eqns:
            if eqn not in self.done:
                self.done.add(eqn)
                self.put(self.renamed(eqn))

    def replace(self, old: Eqn, results: Sequence[Var]) -> None:
        """The old equation's outputs are these values."""
        self.done.add(old)
        self.names.update(zip(old.outputs, results, strict=True))

    def _put_answer(self, old: Eqn, eqn: Eqn, answer: Eqn | Var | Sequence[Var] | None) -> None:
        if answer is None or isinstance(answer, Eqn):
            self.put(answer or eqn)
        else:
            self.names.update(zip(old.outputs, (answer,) if isinstance(answer, Var) else answer, strict=True))

    def run(self, rules: Mapping[str, Rule] | Rule) -> Program:
        """The new Program. `rules` are by the names of ops, or one for all; the old Program itself if nothing changes."""
        eqns = self.program.eqns
        if not callable(rules) and rules.keys().isdisjoint(op_names_in(self.program)):
            return self.program
        rule_of = (lambda _: rules) if callable(rules) else rules.get
        with self:
            start = self._first_change(rules)
            if start is None:
                return self.program
            done, stays, put = self.done, self.names.keys().isdisjoint, self.eqns.append
            for old in eqns[start + 1 :]:
                if done and old in done:
                    continue
                rule, eqn = rule_of(old.op.name), old if stays(old.inputs) else self.renamed(old)
                if rule is None:
                    answer = None
                else:
                    self.source = old.source
                    answer = rule(eqn, self)
                if answer is None and eqn is old:
                    put(eqn)
                else:
                    self._put_answer(old, eqn, answer)
        return self.build([self.new(v) for v in self.program.outputs])

    def _first_change(self, rules: Mapping[str, Rule] | Rule) -> int | None:
        """Where the first equation stands that does not stay as it is; it is done, and all before it."""
        eqns = self.program.eqns
        for at in range(len(eqns)) if callable(rules) else [at for at, eqn in enumerate(eqns) if eqn.op.name in rules]:
            old, rule = eqns[at], rules if callable(rules) else rules[eqns[at].op.name]
            self.source = old.source
            answer = rule(old, self)
            if answer is None:
                if not (self.eqns or self.names or self.done):
                    continue
                self.eqns.append(old)
            else:
                self._put_answer(old, old, answer)
            if self.names or self.done or self.eqns != [old]:
                self.eqns[:0] = eqns[:at]
                return at
            self.eqns.clear()
        return None


def rewrite(program: Program, rules: Mapping[str, Rule] | Rule) -> Program:
    """The Program with every equation rewritten by the rule for its op, or by the one rule."""
    return Rewriter(program).run(rules)


def in_regions(program: Program, change: Pass, device: bool = True) -> Program:
    """The Program with its nested Programs changed; itself if none is another afterwards. A shared one stays shared.

    Those of single devices (`manual`) have no placements: passes that read some say `device=False`."""
    if not has_regions(program):
        return program
    changed: dict[int, Program] = {}

    def once(nested: Program) -> Program:
        if id(nested) not in changed:
            changed[id(nested)] = change(nested)
        return changed[id(nested)]

    eqns = tuple([with_regions_changed(eqn, once, device) for eqn in program.eqns])
    return replace(program, eqns=eqns) if any(a is not b for a, b in zip(eqns, program.eqns, strict=True)) else program


def everywhere(program: Program, change: Pass) -> Program:
    """The pass on the Program, and on every Program inside of it first."""
    return change(in_regions(program, lambda nested: everywhere(nested, change)))


def uses_of(program: Program) -> Counter[Var]:
    """How often every value is an operand or an output."""
    uses = Counter(itertools.chain.from_iterable([eqn.inputs for eqn in program.eqns]))
    uses.update(program.outputs)
    return uses
