"""What the rules of ops with regions are written with (loops, branches, calls)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.core.effects import Effect, effect_of
from meshjit.core.op import Params, Types
from meshjit.core.program import Builder, Program
from meshjit.core.region import depending
from meshjit.core.types import TensorType, is_inexact
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.families import factor_names, require
from sharding.rule import FactorRule

Flags = Sequence[bool]


def whole_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """Nothing is sharded: what planning knows of an op with regions comes from its regions."""
    names = iter(factor_names(sum(t.rank for t in (*in_types, *out_types))))
    operands, results = (
        tuple(tuple((next(names),) for _ in t.shape) for t in types) for types in (in_types, out_types)
    )
    factors = [f for value in (*operands, *results) for (f,) in value]
    rule = FactorRule(operands, results, dict.fromkeys(factors, "replicate"))
    return rule.with_sizes([t.shape for t in in_types], [t.shape for t in out_types])


def require_types(op: str, what: str, expected: Sequence[TensorType], actual: Sequence[TensorType]) -> None:
    """A region's inputs or outputs must be of these types, one for one."""
    require(len(expected) == len(actual), op, f"{what}: {len(actual)} where {len(expected)} are needed")
    for i, (want, have) in enumerate(zip(expected, actual, strict=True)):
        require(want == have, op, f"{what} {i} is {have}, needed is {want}")


def require_no_io(op: str, programs: Sequence[Program]) -> None:
    """Under vmap members take different branches, or leave a loop at different times: then all run for all, and nothing may be
    done in the world. NotImplementedError, as JAX's."""
    for eqn in (eqn for program in programs for eqn in program.eqns):
        if effect_of(eqn) & Effect.IO:
            where = f" at {eqn.source}" if eqn.source else ""
            raise NotImplementedError(
                f"vmap of {op} with {eqn.op.name}{where}: members go through the {op} differently\n"
                "  fix: a predicate or index that is one for all members"
            )


def chosen(values: Sequence[Any], flags: Flags) -> list[Any]:
    """The values whose flag is set."""
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def takes_cotangents(program: Program, linear: Flags) -> list[bool]:
    """Which outputs of a Program that is linear in the marked inputs have cotangents: the inexact ones, or where these inputs are
    integers, all."""
    integers = not any(is_inexact(v.dtype) for v in chosen(program.inputs, linear))
    return [integers or is_inexact(v.dtype) for v in program.outputs]


def reached(program: Program, flags: Flags) -> list[bool]:
    """Which outputs depend on an input whose flag is set."""
    dependents = depending(program.eqns, chosen(program.inputs, flags))
    return [v in dependents for v in program.outputs]


def batched_outputs(program: Program, dims: Sequence[int | None], size: int, batched: Callable[..., Program]) -> list[bool]:
    """Which outputs differ between the members of a batch, by the ops' batch rules: a rule may give one result for all."""
    whole = batched(program, dims, size, None)
    return [x.rank > v.rank for x, v in zip(whole.outputs, program.outputs, strict=True)]


def with_tangents(program: Program, count: int, values: Flags, out_flags: Flags) -> Program:
    """The program, whose outputs from `count` on are tangents, with zeros for wanted ones that it does not give."""
    types = [v.type for v in program.outputs[:count]]
    with Builder(program.name) as builder:
        outputs = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        rest = iter(outputs[count:])
        tangents = [next(rest) if flag else None for flag in values]
        full = [t or zeros(type) for t, type, flag in zip(tangents, types, out_flags, strict=True) if flag]
        return builder.build([*outputs[:count], *full])
