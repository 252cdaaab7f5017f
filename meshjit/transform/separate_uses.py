"""Later uses of a value read a copy of it that is made when they come: what the value was brought to before is not kept for them.

    %h = tanh(%z)                              %h = tanh(%z)
    %y = dot(%h, %w)    gathered here          %y = dot(%h, %w)
    ...                 kept all the while     ...
    %g = dot(%h, %dy)                          %h2, %dy2 = optimization_barrier(%h, %dy)
                                               %g = dot(%h2, %dy2)      gathered again

The barrier keeps the compiler from merging both gathers, and from doing the second before its other operand is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.annotations import optimization_barrier
from meshjit.transform.rewriting import Rewriter, rewrite


def separate_uses(program: Program, later: Mapping[Eqn, tuple[Sequence[Var], Var]]) -> Program:
    """The Program in which, from these equations on, values are copies. `later`: values, and the operand that they wait for."""
    by_result = {eqn.outputs[0]: waiting for eqn, waiting in later.items()}

    def rule(eqn: Eqn, here: Rewriter) -> Eqn | None:
        if not eqn.outputs or eqn.outputs[0] not in by_result:
            return None
        values, awaited = by_result[eqn.outputs[0]]
        awaited = here.new(awaited)
        *copies, last = optimization_barrier(*map(here.new, values), awaited)
        names = {**dict(zip(map(here.new, values), copies, strict=True)), awaited: last}
        here.names.update(zip(values, copies, strict=True))
        return eqn.with_inputs(tuple([names.get(v, v) for v in eqn.inputs]))

    return rewrite(program, rule)
