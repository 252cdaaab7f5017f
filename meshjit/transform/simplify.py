"""Clean-up between passes: nothing here changes what a Program computes."""

from __future__ import annotations

from meshjit.core.program import Program
from meshjit.core.region import with_programs
from meshjit.transform.calls import inline_calls
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.lines import batch_lines
from meshjit.transform.parts import take_parts_early
from meshjit.transform.places import place


def simplify(program: Program) -> Program:
    """Without calls, dead code, no-ops and common subexpressions, in nested Programs too."""
    program = dce(inline_calls(program, final=True))
    for change in (_with_simple_regions, take_parts_early, fold, place, batch_lines, cse, dce):
        program = change(program)
    return program


def _with_simple_regions(program: Program) -> Program:
    if not any(eqn.op.regions for eqn in program.eqns):
        return program
    done: dict[int, Program] = {}

    def simple(nested: Program) -> Program:
        if id(nested) not in done:
            done[id(nested)] = simplify(nested)
        return done[id(nested)]

    eqns = [e.with_params(with_programs(e.params, simple)) if e.op.regions else e for e in program.eqns]
    return Program(program.name, program.inputs, tuple(eqns), program.outputs)
