"""Over which mesh axes the values of a Program of single devices vary: along which devices may hold different ones.

    %n: i32[] = axis_index() {axes=('x',)}      varies over x
    %s: f32[] = psum_invariant(%a) {axes=('x',)}    varies over all axes that %a varies over, but x

An op's own rule is `Op.varying`; a result of any other op varies over all axes over which an operand does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region

Axes: TypeAlias = frozenset[str]
NOWHERE: Axes = frozenset()


def varying_values(program: Program, inputs: Sequence[Axes]) -> Mapping[Var, Axes]:
    """The axes of every value of the Program, whose inputs vary over `inputs`."""
    env: dict[Var, Axes] = dict(zip(program.inputs, inputs, strict=True))
    for eqn in program.eqns:
        env.update(zip(eqn.outputs, varying_results(eqn, [env[v] for v in eqn.inputs]), strict=True))
    return env


def varying_outputs(program: Program, inputs: Sequence[Axes]) -> list[Axes]:
    """The axes of the Program's outputs."""
    values = varying_values(program, inputs)
    return [values[v] for v in program.outputs]


def varying_results(eqn: Eqn, operands: Sequence[Axes]) -> Sequence[Axes]:
    """The axes of an equation's results."""
    if eqn.op.varying is not None:
        return eqn.op.varying(operands, eqn.params)
    regions = () if eqn.op.regions is None else eqn.op.regions(eqn.params)
    if not regions:
        return [NOWHERE.union(*operands)] * len(eqn.outputs)
    return _of_regions(eqn, [r for r in regions if r.role == "run"], operands)


def _of_regions(eqn: Eqn, regions: Sequence[Region], operands: Sequence[Axes]) -> list[Axes]:
    """What chooses between Programs, or says when a loop ends, makes all results vary as it does."""
    read = {i for region in regions for i in region.operands}
    common = NOWHERE.union(*(axes for i, axes in enumerate(operands) if i not in read))
    results = [common] * len(eqn.outputs)
    carried = list(operands)
    while True:
        before = list(carried)
        for region in regions:
            inputs = [carried[i] | common for i in region.operands]
            outputs = varying_outputs(region.program, inputs)
            for result, axes in zip(region.results, outputs, strict=True):
                if result is None:
                    common |= axes
                else:
                    results[result] |= axes
            for i, output in region.carried:
                carried[region.operands[i]] |= outputs[output]
        if carried == before:
            return [axes | common for axes in results]
