"""Cutting a Program in two: what can be computed before some of its inputs are known, and the rest.

    %a = sine(%x)          first: (%x) -> (…, %a)
    %b = multiply(%a, %t)  second: (%a, %t) -> %b          with %t the later input

The values that the second needs from the first are the residuals. A value made of nothing (constants, iota) is made
again in the second, and so is a larger one made of a single smaller one (a broadcast): then the smaller is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshjit.core.effects import is_pure
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import depending


def split(program: Program, later: Sequence[Var], early_outputs: int) -> tuple[Program, Program]:
    """(first, second) of a Program whose last inputs are `later` and whose first outputs do not depend on them.

    first: (other inputs) -> (the early outputs, residuals).  second: (residuals, later) -> the other outputs.
    """
    late = depending(program.eqns, later)
    second = [e for e in program.eqns if any(v in late for v in (*e.inputs, *e.outputs))]  # one with an effect has no outputs
    first = [e for e in program.eqns if all(v not in late for v in (*e.inputs, *e.outputs))]
    outputs, rest = program.outputs[:early_outputs], program.outputs[early_outputs:]
    needed = [v for e in second for v in e.inputs] + list(rest)
    inputs = set(later) | {v for e in second for v in e.outputs}
    again, residuals = _made_again(first, [v for v in needed if v not in inputs])
    early = tuple(v for v in program.inputs if v not in set(later))
    return (
        Program(program.name, early, tuple(first), (*outputs, *residuals)),
        _fresh(Program(f"{program.name}_backward", (*residuals, *later), (*again, *second), rest)),
    )


def _made_again(eqns: Sequence[Eqn], needed: Iterable[Var]) -> tuple[list[Eqn], tuple[Var, ...]]:
    """The equations that are repeated so that `needed` can be had, and the values to keep for them."""
    makers = {v: e for e in eqns for v in e.outputs}
    again: set[Eqn] = set()
    residuals: dict[Var, None] = {}
    waiting = list(reversed(list(needed)))
    while waiting:
        var = waiting.pop()
        maker = makers.get(var)
        if maker is None or not _is_cheap(maker):
            residuals[var] = None
        elif maker not in again:
            again.add(maker)
            waiting.extend(maker.inputs)
    return [e for e in eqns if e in again], tuple(residuals)


def _is_cheap(eqn: Eqn) -> bool:
    """Whether keeping its operands costs less memory than keeping its one result."""
    if len(eqn.outputs) != 1 or not is_pure(eqn):
        return False
    return not eqn.inputs or (len(eqn.inputs) == 1 and eqn.inputs[0].type.nbytes < eqn.outputs[0].type.nbytes)


def _fresh(program: Program) -> Program:
    """The same Program with Vars of its own."""
    with Builder(program.name) as builder:
        return builder.build(builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs]))
