"""Calls replaced by the equations of what they call, in nested Programs too."""

from __future__ import annotations

from dataclasses import replace

from meshjit.core.program import Builder, Program
from meshjit.core.region import programs_of, with_programs


def inline_calls(program: Program, final: bool = False) -> Program:
    """The same Program with every op written out that is only a Program under one name. Equations keep their lines.

    `final`: nothing will be differentiated any more, so those go too that stand for how that is done (checkpoint).
    """
    if not has_calls(program):
        return program
    with Builder(program.name) as builder:
        env = {v: v for v in program.inputs}
        for eqn in program.eqns:
            params = with_programs(eqn.params, lambda p: inline_calls(p, final)) if eqn.op.regions is not None else eqn.params
            operands = tuple(env[v] for v in eqn.inputs)
            results = None
            if eqn.op.written_out is not None:
                with builder.at(eqn.source):
                    results = eqn.op.written_out(operands, params, final)
            if results is None:
                builder.eqns.append(replace(eqn, inputs=operands, params=params))
            env.update(zip(eqn.outputs, results or eqn.outputs, strict=True))
        return Program(program.name, program.inputs, tuple(builder.eqns), tuple(env[v] for v in program.outputs))


def has_calls(program: Program) -> bool:
    return any(
        eqn.op.written_out is not None or any(has_calls(p) for p in programs_of(eqn.params))
        for eqn in program.eqns
        if eqn.op.regions
    )
