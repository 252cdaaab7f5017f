"""Inline calls: the equations of what they call stand in their place, in nested Programs too."""

from __future__ import annotations

from collections.abc import Sequence

from meshjit.core.op import REGISTRY
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_programs
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite


def inline_calls(program: Program, final: bool = False) -> Program:
    """The same Program with every op written out that is only a Program under one name. Equations keep their lines.

    `final`: nothing will be differentiated any more, so those go too that stand for how that is done (checkpoint).
    """
    if not has_calls(program):
        return program

    def rule(eqn: Eqn, here: Rewriter) -> Sequence[Var] | None:
        assert eqn.op.written_out is not None
        return eqn.op.written_out(eqn.inputs, eqn.params, final)

    rules = {name: rule for name, op in REGISTRY.items() if op.written_out is not None}
    return rewrite(in_regions(program, lambda nested: inline_calls(nested, final)), rules)


def has_calls(program: Program) -> bool:
    return any(
        eqn.op.written_out is not None or any(has_calls(p) for p in run_programs(eqn))
        for eqn in program.eqns
        if eqn.op.regions
    )
