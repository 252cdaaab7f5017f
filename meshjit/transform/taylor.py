"""taylor: a Program and, beside it, the next coefficients of its outputs' power series, given those of its inputs.

Where x(t) = x_0 + x_1 t + x_2 t² + …, an op that is linear in groups of operands gives the products of their series: the sums
over all ways to share out the order among the groups. Any other op is asked for its tangent, dy = D(x)[dx], as equations; then
y_k is the coefficient of order k - 1 of dy, divided by k, and those equations are treated alike, one order lower. A rule that
uses results of the op, as that of exp does, meets coefficients that are known by then: this is the way in which power series
solve differential equations (A. Griewank and A. Walther, "Evaluating derivatives", 2008, chapter 13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshjit.core.effects import is_pure
from meshjit.core.once import once_per_program
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.types import is_inexact
from meshjit.ops.base.arithmetic import add, divide, multiply
from meshjit.ops.base.constants import full, zeros
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.inline_calls import inline_calls
from meshjit.transform.jvp import Derivative, equation_tangents


@once_per_program
def taylor(program: Program, moving: tuple[bool, ...], order: int) -> tuple[Program, tuple[bool, ...]]:
    """Inputs: the program's, then for each that is marked in `moving` its coefficients of order 1 to `order`. Outputs: the
    program's, then these coefficients of each output that has any; the flags say which have."""
    program = inline_calls(program)
    with Builder(program.name) as builder:
        series = _Series()
        for var in program.inputs:
            series.put(var, 0, builder.input(var.type, var.hint))
        for var, flag in zip(program.inputs, moving, strict=True):
            for k in range(1, order + 1) if flag else ():
                series.put(var, k, builder.input(var.type))
        for k in range(order + 1):
            series.extend(program.eqns, k)
        flags = tuple(v in series.moving for v in program.outputs)
        outputs = [series.coefficient(v, 0) or zeros(v.type) for v in program.outputs]
        for var, flag in zip(program.outputs, flags, strict=True):
            outputs += [series.coefficient(var, k) or zeros(var.type) for k in range(1, order + 1) if flag]
        return dce(cse(builder.build(outputs))), flags


@dataclass(frozen=True)
class _Tangent:
    """The tangents of one equation's results as equations. `same`: what their first Vars stand for in the Program; `slopes`: of
    which Vars others are the derivatives."""

    eqns: Sequence[Eqn]
    same: dict[Var, Var]
    slopes: dict[Var, Var]
    results: Sequence[Var | None]


class _Series:
    """The coefficients of all Vars, as far as they are known, as Vars of the Program that is being built."""

    def __init__(self) -> None:
        self.moving: set[Var] = set()  # what has coefficients of an order above 0
        self._terms: dict[tuple[Var, int], Var] = {}
        self._same: dict[Var, Var] = {}
        self._slopes: dict[Var, Var] = {}
        self._tangents: dict[Eqn, _Tangent] = {}

    def put(self, var: Var, k: int, term: Var | None) -> None:
        if term is not None:
            self._terms[var, k] = term
            if k > 0:
                self.moving.add(var)

    def coefficient(self, var: Var, k: int) -> Var | None:
        """None for zero. The slope of x has the coefficients 1 x_1, 2 x_2, 3 x_3, …"""
        var = self._same.get(var, var)
        if var not in self._slopes:
            return self._terms.get((var, k))
        term = self.coefficient(self._slopes[var], k + 1)
        return term if term is None or k == 0 else multiply(term, _number(term, k + 1))

    def extend(self, eqns: Sequence[Eqn], k: int) -> None:
        """The coefficients of order k of the equations' results, those of lower orders being known."""
        builder = current_builder()
        for eqn in eqns:
            with builder.at(eqn.source):
                terms = self._values(eqn) if k == 0 else self._terms_of(eqn, k)
                for var, term in zip(eqn.outputs, terms, strict=True):
                    self.put(var, k, term if k == 0 or is_inexact(var.dtype) else None)

    def _operands(self, eqn: Eqn, orders: Sequence[int]) -> list[Var]:
        pairs = zip(eqn.inputs, orders, strict=True)
        return [self.coefficient(v, k) or zeros(v.type) for v, k in pairs]

    def _values(self, eqn: Eqn) -> Sequence[Var | None]:
        return current_builder().emit(eqn.op, self._operands(eqn, [0] * len(eqn.inputs)), eqn.params)

    def _terms_of(self, eqn: Eqn, k: int) -> Sequence[Var | None]:
        moves = [self._moves(v) for v in eqn.inputs]
        is_flat = not any(is_inexact(v.dtype) for v in eqn.outputs) and is_pure(eqn)
        if not any(moves) or (eqn.op.regions is None and (eqn.op.stops or is_flat)):
            return [None] * len(eqn.outputs)
        groups = [g for g in eqn.op.linear_groups(eqn.input_types, eqn.params) if any(moves[i] for i in g)]
        covered = {i for group in groups for i in group}
        if eqn.op.regions is None and all(i in covered for i, flag in enumerate(moves) if flag):
            return self._products(eqn, groups, k)
        return self._integrals(eqn, moves, k)

    def _moves(self, var: Var) -> bool:
        var = self._same.get(var, var)
        return var in self.moving or (var in self._slopes and self._moves(self._slopes[var]))

    def _products(self, eqn: Eqn, groups: Sequence[Sequence[int]], k: int) -> Sequence[Var | None]:
        """The op on coefficients whose orders add up to k, one order for each group; the other operands are constant."""
        total: list[Var | None] = [None] * len(eqn.outputs)
        for orders in _shares(k, len(groups)):
            at = {i: order for group, order in zip(groups, orders, strict=True) for i in group}
            if any(all(self.coefficient(eqn.inputs[i], at[i]) is None for i in group) for group in groups):
                continue
            operands = self._operands(eqn, [at.get(i, 0) for i in range(len(eqn.inputs))])
            results = current_builder().emit(eqn.op, operands, eqn.params)
            total = [r if t is None else add(t, r) for t, r in zip(total, results, strict=True)]
        return total

    def _integrals(self, eqn: Eqn, moves: Sequence[bool], k: int) -> Sequence[Var | None]:
        """The coefficient of order k - 1 of each result's tangent, divided by k."""
        if eqn not in self._tangents:
            self._tangents[eqn] = tangent = _tangent_of(eqn, moves)
            self._same.update((v, self._same.get(root, root)) for v, root in tangent.same.items())
            self._slopes.update(tangent.slopes)
        tangent = self._tangents[eqn]
        self.extend(tangent.eqns, k - 1)
        terms = [None if v is None else self.coefficient(v, k - 1) for v in tangent.results]
        return [term if term is None or k == 1 else divide(term, _number(term, k)) for term in terms]


def _tangent_of(eqn: Eqn, moves: Sequence[bool]) -> _Tangent:
    with Builder() as builder, builder.at(eqn.source):
        primals = [builder.input(v.type) for v in eqn.inputs]
        directions = [builder.input(v.type) if flag else None for v, flag in zip(eqn.inputs, moves, strict=True)]
        outputs = [builder.input(v.type) for v in eqn.outputs]
        if eqn.op.regions is None:
            results = equation_tangents(eqn, primals, directions, outputs)
        else:
            results = eqn.op.jvp(primals, directions, eqn.params, Derivative(False, {}))[1]
    same = dict(zip([*primals, *outputs], [*eqn.inputs, *eqn.outputs], strict=True))
    slopes = {d: v for d, v in zip(directions, eqn.inputs, strict=True) if d is not None}
    needed = dce(builder.build([r for r in results if r is not None]))
    kept = iter(needed.outputs)
    return _Tangent(needed.eqns, same, slopes, [None if r is None else next(kept) for r in results])


def _shares(k: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to write k as a sum of so many orders."""
    if count == 1:
        yield (k,)
        return
    for first in range(k + 1):
        for rest in _shares(k - first, count - 1):
            yield (first, *rest)


def _number(like: Var, value: int) -> Var:
    return full(like.type, value)
