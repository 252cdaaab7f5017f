"""What a Program is computed with, also in loops and branches."""

from __future__ import annotations

from collections.abc import Iterable

from meshjit.core.effects import is_pure
from meshjit.core.once import once_per_program
from meshjit.core.program import Eqn, Program, Var


@once_per_program
def needed_by(program: Program) -> frozenset[Var]:
    """The values that the Program's outputs and effects are computed with, the outputs included. What only a rule may ask for is
    none of them."""
    needed = set(program.outputs)
    for eqn in reversed(program.eqns):
        if not needed.isdisjoint(eqn.outputs) or not is_pure(eqn):
            needed.update(_needed_operands(eqn))
    return frozenset(needed)


def _needed_operands(eqn: Eqn) -> Iterable[Var]:
    """All operands, without those that go into its Programs alone and that none of these needs."""
    regions = [r for r in eqn.op.regions(eqn.params) if r.role != "rule"] if eqn.op.regions is not None else []
    given = {i for region in regions for i in region.operands}
    needed = set[int]()
    for region in regions:
        inside = needed_by(region.program)
        needed.update(i for i, v in zip(region.operands, region.program.inputs, strict=True) if v in inside)
    return [v for i, v in enumerate(eqn.inputs) if i in needed or i not in given]
