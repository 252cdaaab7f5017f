"""Calls replaced by the equations of what they call, in nested Programs too."""

from __future__ import annotations

from dataclasses import replace

from meshjit.core.program import Builder, Program
from meshjit.core.region import programs_of, with_programs
from meshjit.ops.call import call


def inline_calls(program: Program) -> Program:
    """The same Program without calls. Lines stay those that the equations were traced at."""
    if not has_calls(program):
        return program
    with Builder(program.name) as builder:
        env = {v: v for v in program.inputs}
        for eqn in program.eqns:
            if eqn.op is call:
                results = builder.inline(inline_calls(eqn.params["program"]), [env[v] for v in eqn.inputs])
                env.update(zip(eqn.outputs, results, strict=True))
                continue
            params = with_programs(eqn.params, inline_calls) if eqn.op.regions is not None else eqn.params
            builder.eqns.append(replace(eqn, inputs=tuple(env[v] for v in eqn.inputs), params=params))
            env.update(zip(eqn.outputs, eqn.outputs, strict=True))
        return Program(program.name, program.inputs, tuple(builder.eqns), tuple(env[v] for v in program.outputs))


def has_calls(program: Program) -> bool:
    return any(
        eqn.op is call or any(has_calls(p) for p in programs_of(eqn.params)) for eqn in program.eqns if eqn.op.regions
    )
