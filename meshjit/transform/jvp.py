"""jvp: a Program and, beside it, the derivative of its outputs in a direction (forward mode)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshjit.core.effects import is_pure
from meshjit.core.once import once_per_program
from meshjit.core.op import Absent
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.region import dependent_results, run_programs
from meshjit.core.types import is_inexact
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.constants import zeros
from meshjit.trace.values import Known
from meshjit.transform.dce import dce
from meshjit.transform.split import split

Flags = dict[tuple[int, tuple[bool, ...]], tuple[Program, list[bool]]]


def jvp(
    program: Program,
    nonzero: Sequence[bool],
    splits: bool = False,
    answers: Flags | None = None,
    known: Known | None = None,
) -> tuple[Program, tuple[bool, ...]]:
    """Inputs: the program's, then a tangent for each input marked nonzero. Outputs: the program's, then the tangents
    of those outputs that have one; the flags say which do. Values of integer and boolean dtypes have none.

    With `splits` no equation computes both values and tangents, so that the Program can be cut in two. `answers`: results of
    `Derivative.flags` so far. `known`: the values of the inputs, outside of jit, for custom rules.
    """
    with Builder(program.name) as builder:
        env = {v: builder.input(v.type, v.hint) for v in program.inputs}
        tangents: dict[Var, Var] = {}
        for var, flag in zip(program.inputs, nonzero, strict=True):
            if flag and is_inexact(var.dtype):
                tangents[var] = builder.input(var.type)
        if known is not None:
            known.tell(builder)
        push_forward(program, builder, env, tangents, splits, answers)
        flags = tuple(v in tangents for v in program.outputs)
        outputs = [env[v] for v in program.outputs]
        outputs += [tangents[v] for v, flag in zip(program.outputs, flags, strict=True) if flag]
        return builder.build(outputs), flags


def require_meaning(program: Program) -> None:
    """TypeError where tangents are of no use forwards, since only their transpose is known (custom_vjp)."""
    for eqn in program.eqns:
        if isinstance(eqn.op.evaluate, Absent):
            raise TypeError(f"{eqn.op.evaluate.reason}" + (f"\n  at {eqn.source}" if eqn.source else ""))
        for nested in run_programs(eqn):
            require_meaning(nested)


@dataclass(frozen=True)
class Linearized:
    """A program and its derivative: forward(inputs) -> (outputs, residuals), tangent(residuals, tangents) -> tangents.

    `tangent` takes one for each input marked nonzero, and gives one for each output marked in `flags`."""

    forward: Program
    tangent: Program
    flags: tuple[bool, ...]


def linearize(
    program: Program, nonzero: Sequence[bool], answers: Flags | None = None, known: Known | None = None
) -> Linearized:
    """The jvp in two Programs, so that many directions share what does not depend on them. `known` as in `jvp`."""
    if known is not None:
        return _cut(program, *jvp(program, nonzero, True, answers, known))
    return _linearize(program, tuple(nonzero), answers=answers)


@once_per_program
def _linearize(program: Program, nonzero: tuple[bool, ...], *, answers: Flags | None) -> Linearized:
    return _cut(program, *jvp(program, nonzero, True, answers))


def _cut(program: Program, whole: Program, flags: tuple[bool, ...]) -> Linearized:
    forward, tangent = split(whole, whole.inputs[len(program.inputs) :], len(program.outputs))
    return Linearized(dce(forward), dce(tangent), flags)


@dataclass(frozen=True)
class Derivative:
    """The derivatives of nested Programs, for the jvp rule of an op with regions.

    `splits`: the rule must not put values and tangents into one equation (see `jvp`). `answers`: results of `flags`, by the
    Program's id and its flags; each entry holds its Program, so that the id stays unique. Without the cache each level of
    nested loops would double the number of questions.
    """

    splits: bool
    answers: Flags

    def flags(self, program: Program, nonzero: Sequence[bool]) -> list[bool]:
        """Which outputs have a tangent when these inputs have."""
        key = (id(program), tuple(nonzero))
        if key not in self.answers:
            self.answers[key] = (program, list(jvp(program, nonzero, False, self.answers)[1]))
        return self.answers[key][1]

    def joint(self, program: Program, nonzero: Sequence[bool]) -> tuple[Program, list[bool]]:
        whole, flags = jvp(program, nonzero, self.splits, self.answers)
        return dce(whole), list(flags)

    def parts(self, program: Program, nonzero: Sequence[bool]) -> Linearized:
        return linearize(program, nonzero, self.answers)

    def of_rule(self, rule: Program, primals: Sequence[Var], directions: Sequence[Var]) -> list[Var]:
        """The results of a user's rule, (primals, directions) -> (values, tangents), which is linear in the directions."""
        operands, linear = [*primals, *directions], [*[False] * len(primals), *[True] * len(directions)]
        return self.cut(rule, operands, linear) if self.splits else current_builder().inline(rule, operands)

    def cut(self, program: Program, operands: Sequence[Var], linear: Sequence[bool]) -> list[Var]:
        """The results of a Program that is linear in the operands marked.

        It may hold equations of which some results depend on these and others do not (`jvp` of a loop, in a rule). Such an
        equation becomes two: its results are its values where those operands are 0, and its derivative along them."""
        builder, env = current_builder(), dict(zip(program.inputs, operands, strict=True))
        dependent = {v for v, flag in zip(program.inputs, linear, strict=True) if flag}
        for eqn in program.eqns:
            flags = dependent_results(eqn, [v in dependent for v in eqn.inputs])
            dependent.update(v for v, flag in zip(eqn.outputs, flags, strict=True) if flag)
            values, are_linear = [env[v] for v in eqn.inputs], [v in dependent for v in eqn.inputs]
            with builder.at(eqn.source):
                is_mixed = any(flags) and not all(flags)
                results = self._in_two(eqn, values, are_linear) if is_mixed else builder.emit(eqn.op, values, eqn.params)
            env.update(zip(eqn.outputs, results, strict=True))
        return [env[v] for v in program.outputs]

    def _in_two(self, eqn: Eqn, operands: Sequence[Var], linear: Sequence[bool]) -> list[Var]:
        primals = [zeros(x.type) if flag else x for x, flag in zip(operands, linear, strict=True)]
        directions = [x if flag else None for x, flag in zip(operands, linear, strict=True)]
        values, tangents = eqn.op.jvp(primals, directions, eqn.params, self)
        return [value if tangent is None else tangent for value, tangent in zip(values, tangents, strict=True)]


def push_forward(
    program: Program,
    builder: Builder,
    env: dict[Var, Var],
    tangents: dict[Var, Var],
    splits: bool = False,
    answers: Flags | None = None,
) -> None:
    """Add the program's equations and their tangents to the builder. `env` and `tangents` map the program's Vars; both grow."""
    derivative = Derivative(splits, {} if answers is None else answers)
    for eqn in program.eqns:
        with builder.at(eqn.source):
            primals = [env[v] for v in eqn.inputs]
            directions = [tangents.get(v) for v in eqn.inputs]
            outputs, pushed = _pushed(eqn, builder, primals, directions, derivative)
            env.update(zip(eqn.outputs, outputs, strict=True))
            tangents.update((v, t) for v, t in zip(eqn.outputs, pushed, strict=True) if t is not None and is_inexact(v.dtype))


def _pushed(
    eqn: Eqn, builder: Builder, primals: Sequence[Var], tangents: Sequence[Var | None], derivative: Derivative
) -> tuple[Sequence[Var], Sequence[Var | None]]:
    """One equation's results and their tangents."""
    is_constant = all(t is None for t in tangents)
    if eqn.op.regions is not None and not is_constant:
        return eqn.op.jvp(primals, tangents, eqn.params, derivative)
    outputs = builder.emit(eqn.op, primals, eqn.params)
    return outputs, [None] * len(outputs) if is_constant else equation_tangents(eqn, primals, tangents, outputs)


def equation_tangents(
    eqn: Eqn, primals: Sequence[Var], tangents: Sequence[Var | None], outputs: Sequence[Var]
) -> list[Var | None]:
    """Tangents of one equation's results. An op that is linear in every operand that has a tangent needs no rule."""
    if eqn.op.stops or (not any(is_inexact(v.dtype) for v in eqn.outputs) and is_pure(eqn)):
        return [None] * len(eqn.outputs)
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    covered = {i for group in groups for i in group}
    if all(t is None or i in covered for i, t in enumerate(tangents)):
        return _linear_tangents(eqn, primals, tangents, groups)
    return list(eqn.op.jvp(primals, tangents, outputs, eqn.params))


def _linear_tangents(
    eqn: Eqn, primals: Sequence[Var], tangents: Sequence[Var | None], groups: Sequence[Sequence[int]]
) -> list[Var | None]:
    """d op(x, y) = op(dx, y) + op(x, dy): per group the op itself on its tangents; missing ones of a group are zeros."""
    total: list[Var | None] = [None] * len(eqn.outputs)
    for group in groups:
        if all(tangents[i] is None for i in group):
            continue
        operands = list(primals)
        for i in group:
            operands[i] = tangents[i] or zeros(primals[i].type)
        results = _as_list(eqn.op(*operands, **_params(eqn.params)))
        total = [r if t is None else add(t, r) for t, r in zip(total, results, strict=True)]
    return total


def _params(params: Mapping[str, object]) -> dict[str, object]:
    return dict(params)


def _as_list(results: Var | tuple[Var, ...]) -> list[Var]:
    return [results] if isinstance(results, Var) else list(results)
