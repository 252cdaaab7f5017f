"""Reverse mode: jvp, then the linear part of it backwards.

The jvp of a program consists of equations that depend on tangents and equations that do not. The first are linear in
the tangents; the rest is known. Walking the linear ones backwards with the ops' transpose rules gives the cotangents.

    forward    %y = tanh(%x)                        known
    tangent    %t1 = ..(%y), %ty = multiply(%tx, %t1)   linear in %tx: its transpose is  ct_x = multiply(ct_y, %t1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshjit.core.effects import Effect, effect_of, is_pure
from meshjit.core.once import once_per_program
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import depending
from meshjit.core.types import is_inexact
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.constants import zeros
from meshjit.ops.control.nested import chosen, takes_cotangents
from meshjit.trace.source import line_of
from meshjit.trace.values import Known
from meshjit.transform.dce import dce
from meshjit.transform.jvp import Derivative, push_forward
from meshjit.transform.split import split


@dataclass(frozen=True)
class Pullback:
    """A program split at its outputs: forward(inputs) -> (outputs, residuals), backward(residuals, cotangents) -> cotangents.

    `backward` takes one cotangent per output marked in `takes`, and gives one per input marked in `wrt`.
    """

    forward: Program
    backward: Program
    takes: tuple[bool, ...]


def gradient(program: Program, wrt: Sequence[bool], count: int | None = None, known: Known | None = None) -> Program:
    """One Program: inputs are the program's and a cotangent for every inexact output; outputs are the program's, then a
    cotangent for every input marked in `wrt` (zeros where nothing flows back).

    Only the first `count` outputs are derived if that is given. The others take no cotangents: a cotangent of zero would
    not do, times an infinite derivative it is NaN. `known`: the values of the inputs, outside of jit, for custom rules."""
    with Builder(program.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in program.inputs}
        cotangents = [builder.input(v.type) if takes else None for v, takes in _derived(program, count)]
        if known is not None:
            known.tell(builder)
        results = _pull_back(program, builder, env, wrt, cotangents)
        return dce(builder.build([*(env[v] for v in program.outputs), *results]))


def vjp(program: Program, wrt: Sequence[bool], count: int | None = None, known: Known | None = None) -> Pullback:
    """The same in two Programs; residuals are the known values that the backward part uses."""
    whole = gradient(program, wrt, count, known)
    forward, backward = split(whole, whole.inputs[len(program.inputs) :], len(program.outputs))
    return Pullback(dce(forward), dce(backward), tuple(takes for _, takes in _derived(program, count)))


def _derived(program: Program, count: int | None) -> list[tuple[Var, bool]]:
    """Every output, and whether it takes a cotangent."""
    last = len(program.outputs) if count is None else count
    return [(v, i < last and is_inexact(v.dtype)) for i, v in enumerate(program.outputs)]


def _pull_back(
    program: Program, builder: Builder, env: dict[Var, Var], wrt: Sequence[bool], cotangents: Sequence[Var | None]
) -> list[Var]:
    """Add forward and backward equations to the builder; gives a cotangent for each input marked in `wrt`."""
    for var, flag in zip(program.inputs, wrt, strict=True):
        if flag and not is_inexact(var.dtype):
            raise TypeError(f"there is no derivative with respect to {var!r}: its dtype is not floating or complex")
    seeds = {v: Var(v.type) for v, flag in zip(program.inputs, wrt, strict=True) if flag}
    tangents = dict(seeds)
    push_forward(program, builder, env, tangents, splits=True)
    pairs = [
        (tangents[v], ct) for v, ct in zip(program.outputs, cotangents, strict=True) if ct is not None and v in tangents
    ]
    outputs = [*(env[v] for v in program.outputs), *(t for t, _ in pairs)]
    builder.eqns = list(dce(Program(program.name, (), tuple(builder.eqns), tuple(outputs))).eqns)
    return _backwards(builder, list(seeds.values()), pairs)


def _backwards(builder: Builder, seeds: Sequence[Var], pairs: Sequence[tuple[Var, Var]]) -> list[Var]:
    """Replace the builder's equations that depend on `seeds`, in which they are linear, by their transposes.

    `given` pairs values with their cotangents; the result is the seeds' cotangents."""
    linear_vars = depending(builder.eqns, seeds)
    eqns = [e for e in builder.eqns if e.outputs or not is_pure(e)]  # a loop that has no tangent after all has no results
    linear = [e for e in eqns if any(v in linear_vars for v in e.inputs)]
    builder.eqns = [e for e in eqns if not any(v in linear_vars for v in e.inputs)]
    for eqn in linear:
        if effect_of(eqn) & Effect.IO:
            raise TypeError(f"{eqn.op.name} has an effect, so nothing that depends on tangents may go through it backwards")
    sums: dict[Var, Var] = {}
    for var, ct in pairs:
        if var in linear_vars:
            _accumulate(sums, var, ct)
    for eqn in reversed(linear):
        with builder.at(eqn.source, "backward"):
            _transpose_equation(eqn, linear_vars, sums)
    return [sums[t] if t in sums else zeros(t.type) for t in seeds]


def backward(program: Program, linear: Sequence[bool], known: Known | None = None) -> Program:
    """The transpose of a program that is linear in the marked inputs.

    (the other inputs, a cotangent for every inexact output) -> the marked inputs' cotangents. Where these are all
    integers, integer outputs have cotangents, too. `known`: the values of its inputs, outside of jit, for custom rules.
    """
    return _backward(program, tuple(linear)) if known is None else _written_backward(program, linear, known)


@once_per_program
def _backward(program: Program, linear: tuple[bool, ...]) -> Program:
    return _written_backward(program, linear)


def _written_backward(program: Program, linear: Sequence[bool], known: Known | None = None) -> Program:
    with Builder(program.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v, flag in zip(program.inputs, linear, strict=True) if not flag}
        seeds = {v: Var(v.type) for v, flag in zip(program.inputs, linear, strict=True) if flag}
        takes = takes_cotangents(program, linear)
        cotangents = [(v, builder.input(v.type)) for v in chosen(program.outputs, takes)]
        env.update(seeds)
        if known is not None:
            known.tell(builder)
        values = Derivative(True, {}).cut(program, [env[v] for v in program.inputs], linear)
        named = dict(zip(program.outputs, values, strict=True))
        results = _backwards(builder, list(seeds.values()), [(named[v], ct) for v, ct in cotangents])
        return dce(builder.build(results))


def _transpose_equation(eqn: Eqn, linear: set[Var], sums: dict[Var, Var]) -> None:
    """Send the cotangents of one linear equation on to its linear operands."""
    cotangents = [sums.pop(v, None) for v in eqn.outputs]
    if all(ct is None for ct in cotangents):
        return
    if len(eqn.outputs) > 1 and not eqn.op.takes_none:
        cotangents = [zeros(v.type) if ct is None else ct for v, ct in zip(eqn.outputs, cotangents, strict=True)]
    operands = [None if v in linear else v for v in eqn.inputs]
    for var, operand, ct in zip(eqn.inputs, operands, _transposed(eqn, cotangents, operands), strict=True):
        if operand is None and ct is not None:
            _accumulate(sums, var, ct)


def _transposed(eqn: Eqn, cotangents: Sequence[Var | None], operands: list[Var | None]) -> Sequence[Var | None]:
    if eqn.op.regions is not None:
        return eqn.op.transpose(cotangents, operands, eqn.input_types, eqn.params, backward)
    _check_linear(eqn, operands)
    return eqn.op.transpose(cotangents, operands, eqn.input_types, eqn.params)


def _check_linear(eqn: Eqn, operands: list[Var | None]) -> None:
    """The linear operands must lie in one group of joint linearity; they do, because tangents are never multiplied.
    An op that is linear but for rounding has no groups, and a rule all the same (reduce_precision)."""
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    if not groups and eqn.op.transpose:
        return
    missing = {i for i, x in enumerate(operands) if x is None}
    if not any(missing <= set(group) for group in groups):
        raise NotImplementedError(
            f"{eqn.op.name} at {line_of(eqn.source)} is not linear in operands {sorted(missing)}, so it has no transpose\n"
            "  fix: linear_transpose of a function that is linear in all its arguments; vjp for others"
        )


def _accumulate(sums: dict[Var, Var], var: Var, ct: Var) -> None:
    sums[var] = add(sums[var], ct) if var in sums else ct
