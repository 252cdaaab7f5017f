"""Dead code elimination."""

from __future__ import annotations

from meshjit.core.program import Eqn, Program, Var


def dce(program: Program) -> Program:
    """Drop equations none of whose results anybody needs. Inputs stay, so that callers need not change."""
    needed: set[Var] = set(program.outputs)
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        if any(v in needed for v in eqn.outputs):
            needed.update(eqn.inputs)
            kept.append(eqn)
    return Program(program.name, program.inputs, tuple(reversed(kept)), program.outputs)
