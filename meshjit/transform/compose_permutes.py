"""Compose permutes of permutes: what goes from device to device twice goes there at once.

    %1 = collective_permute(%a) {pairs=((0, 1), (1, 0), (2, 3), (3, 2))}
    %2 = collective_permute(%1) {pairs=((0, 2), (2, 0), (1, 3), (3, 1))}
    ->
    %2 = collective_permute(%a) {pairs=((0, 3), (1, 2), (2, 1), (3, 0))}

A grid that is mirrored in two sharded dims is such a case. Only where nobody else reads what lies between.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Final

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.collective.collectives import collective_permute
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite, uses_of

NAME: Final = collective_permute.name


def compose_permutes(program: Program) -> Program:
    """The same Program with fewer permutes, in nested Programs too."""
    program = in_regions(program, compose_permutes)
    composed = rewrite(program, {NAME: functools.partial(_composed, uses=uses_of(program))})
    return program if composed is program else dce(composed)


def _composed(eqn: Eqn, here: Rewriter, uses: Counter[Var]) -> Var | None:
    (between,) = eqn.inputs
    first = here.makers.get(between)
    if first is None or first.op is not collective_permute or uses[between] != 1:
        return None
    targets = dict(eqn.params["pairs"])
    pairs = tuple((source, targets[target]) for source, target in first.params["pairs"] if target in targets)
    if not pairs:
        return None
    result = collective_permute(first.inputs[0], pairs=pairs)
    uses[result] = uses[eqn.outputs[0]]
    return result
