"""Dead code elimination."""

from __future__ import annotations

import operator
from dataclasses import replace

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var


def dce(program: Program) -> Program:
    """Drop equations without effects none of whose results anybody needs; the Program itself if there are none. Inputs stay, so
    that callers need not change."""
    if program.answers.get(dce):
        return program
    needed: set[Var] = set(program.outputs)
    kept: list[Eqn] = []
    has_parts = holds_programs = False
    for eqn in reversed(program.eqns):
        if not needed.isdisjoint(eqn.outputs) or not is_pure(eqn):
            if eqn.op.prune is not None:
                eqn, has_parts = _pruned(eqn, needed), True
                holds_programs = holds_programs or eqn.op.regions is not None
            needed.update(eqn.inputs)
            kept.append(eqn)
    kept.reverse()
    is_same = len(kept) == len(program.eqns) and (not has_parts or all(map(operator.is_, kept, program.eqns)))
    live = program if is_same else Program(program.name, program.inputs, tuple(kept), program.outputs)
    live.answers[dce] = is_same or not holds_programs  # nothing more to drop, which need not be looked for again
    return live


def _pruned(eqn: Eqn, needed: set[Var]) -> Eqn:
    """An op with regions without the results that nobody needs, and what only they need inside; as it is if it has an effect."""
    assert eqn.op.prune is not None
    if not is_pure(eqn):
        return eqn
    operands, results, params = eqn.op.prune(eqn.params, [v in needed for v in eqn.outputs], dce)
    inputs, outputs = tuple(eqn.inputs[i] for i in operands), tuple(eqn.outputs[i] for i in results)
    return replace(eqn, inputs=inputs, outputs=outputs, params=params)
