"""Operands whose memory results take, where nobody needs them afterwards.

    %y f32[N] = tanh(%x f32[N])                    element by element
    %y f32[N] = dynamic_update_slice(%x, %u, …)    what the op says: %u alone is written
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from meshjit.core.access import Same
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import access_of, goes_by_element

Pairs: TypeAlias = Sequence[tuple[int, int]]  # (operand, result)


def in_place(
    program: Program, kinds: Sequence[int], last: Sequence[Collection[Var]], fused: Collection[Var]
) -> Mapping[int, Pairs]:
    """By number of the equation. `kinds`: those of the equations. `last`: the values that nobody needs after each. `fused`: those
    that are computed where they are read, and have no memory."""
    possible = {kind: [*_possible(eqn)] for kind, eqn in dict(zip(kinds, program.eqns, strict=True)).items()}
    pairs = dict[int, Pairs]()
    for at, (eqn, kind, ends) in enumerate(zip(program.eqns, kinds, last, strict=True)):
        if ends and possible[kind] and (len(eqn.outputs) != 1 or eqn.outputs[0] not in fused):
            actual = [*_actual(eqn, possible[kind], ends, fused)]
            if actual:
                pairs[at] = actual
    return pairs


def _possible(eqn: Eqn) -> Iterator[tuple[int, int]]:
    """What may be taken, were it the last time that the operands are read."""
    if eqn.op.regions is not None or eqn.op.pinned is not None:
        return
    if eqn.op.in_place is not None:
        yield from [(i, result) for result, i in enumerate(eqn.op.in_place(eqn.input_types)) if i is not None]
    elif eqn.op.touches == "nothing":
        yield 0, 0
    elif len(eqn.outputs) == 1 and goes_by_element(eqn):
        (access,), (out,) = access_of(eqn), eqn.output_types
        here = tuple(map(Same, range(len(out.shape))))
        for i, (type, places) in enumerate(zip(eqn.input_types, access.operands, strict=True)):
            if (type.shape, type.nbytes) == (out.shape, out.nbytes) and places == here:
                yield i, 0


def _actual(eqn: Eqn, possible: Pairs, last: Collection[Var], fused: Collection[Var]) -> Iterator[tuple[int, int]]:
    """One operand a result: the first that has memory, and is needed no more."""
    replaced = set[int]()
    for i, result in possible:
        var = eqn.inputs[i]
        is_free = var in last and var not in fused and eqn.inputs.count(var) == 1
        if is_free and result not in replaced and eqn.outputs[result] not in fused:
            replaced.add(result)
            yield i, result
