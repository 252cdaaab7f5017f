"""Which values of a local Program lie in memory, and what fused equations read and write of them.

What goes element by element is fused, and so is what only moves elements: a part that is cut off, sent and put to another part
is read where it lies and written where the whole is. Only what enters or leaves lies in memory, and what other equations make or
read.

    %a = slice(%x)    %b = collective_permute(%a)    %c = slice(%x)    return concatenate(%b, %c)

%x is read once, in two parts, and the result written; %a and %b are borders. A roll of a whole dim does no less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from meshjit.core.program import Eqn, Program, Var


def fused_bytes(program: Program, fused: Collection[Eqn], is_view: Callable[[Eqn], bool]) -> float:
    """Bytes that the fused equations read and write. `is_view`: whether the result lies in memory as the operand does."""
    views: dict[Var, Var] = {}
    reads: dict[Var, float] = {}  # by value: how much of it fused equations ask for
    makes: dict[Var, Eqn] = {}
    lies = {*program.inputs, *program.outputs}
    for eqn in program.eqns:
        if eqn not in fused:
            lies.update((*eqn.inputs, *eqn.outputs))
        elif eqn.inputs and is_view(eqn):
            views[eqn.outputs[0]] = views.get(eqn.inputs[0], eqn.inputs[0])
        else:
            for v in dict.fromkeys(eqn.inputs):
                part = sum(r.type.nbytes for r in eqn.outputs) if eqn.op.touches == "part" else v.type.nbytes
                source = views.get(v, v)
                reads[source] = reads.get(source, 0.0) + part
            makes.update(dict.fromkeys(eqn.outputs, eqn))
    lies.update([views[v] for v in lies if v in views])
    read = sum(min(asked, v.type.nbytes) for v, asked in reads.items() if v in lies)
    return read + sum(v.type.nbytes for v in makes if v in lies)
