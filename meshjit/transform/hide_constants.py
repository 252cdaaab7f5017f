"""Hide constants from sums over devices. For local Programs for GPU, after partitioning.

    %n = constant() {value=splat(f32[3], 1.0)}            %n = constant() {value=splat(f32[3], 1.0)}
    %s = all_reduce(%n) {axes=('x',), kind='sum'}   ->    %h = optimization_barrier(%n)
                                                          %s = all_reduce(%h) {axes=('x',), kind='sum'}

XLA:GPU ends the process where its simplifier meets a broadcast constant that an all-reduce adds up (docs/xla.md). It
may make a constant of whatever depends on no input, so all such operands are hidden.
"""

from __future__ import annotations

from meshjit.core.program import Eqn, Program
from meshjit.core.region import depending
from meshjit.ops.base.annotations import optimization_barrier
from meshjit.ops.collective.collectives import all_reduce
from meshjit.transform.rewriting import in_regions, rewrite


def hide_constants(program: Program) -> Program:
    """The Program with a barrier before every all-reduce of what depends on no input, in nested Programs too."""
    program = in_regions(program, hide_constants)
    if all(eqn.op is not all_reduce for eqn in program.eqns):
        return program
    variable = {*program.inputs, *depending(program.eqns, program.inputs)}

    def hidden(eqn: Eqn, _: object) -> Eqn | None:
        return None if eqn.inputs[0] in variable else eqn.with_inputs((optimization_barrier(*eqn.inputs),))

    return rewrite(program, {all_reduce.name: hidden})
