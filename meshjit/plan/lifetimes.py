"""From when to when each version of each value is held, once it is known how all equations are computed.

`Flow` frees all versions of a value after its last use, which it knows beforehand. A weight that is updated in the end would be
held gathered until then, though its last use gathered is in the backward pass: here every version ends with its own last use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.cost import Flow, Machine
from sharding.reshard import Walk
from sharding.spec import Placement


class Lifetimes(Flow):
    """`uses`: the numbers of the equations that make or read a version, in order; that of the outputs comes after all."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        plans: Sequence[EquationPlan],
        inputs: Sequence[Placement],
        outputs: Sequence[Placement],
    ) -> None:
        super().__init__(program, machine)
        self.uses: dict[tuple[Var, Placement], list[int]] = {}
        self.inside = [0] * (len(plans) + 1)  # bytes that nested Programs hold at most, by equation
        self.start(inputs)
        for eqn, plan in zip(program.eqns, plans, strict=True):
            self.run(eqn, plan)
        self.end(outputs)

    def run(self, eqn: Eqn, plan: EquationPlan) -> None:
        at = self.at
        super().run(eqn, plan)
        self.at = at
        effect = self.machine.effect(eqn, plan)
        for var, placement in (*zip(eqn.inputs, effect.operands, strict=True), *zip(eqn.outputs, effect.results, strict=True)):
            self.note_use(var, placement if placement in self.versions[var] else placement.without_partial())
        self.inside[at] = max([int(body.cost.peak_bytes) for body in plan.bodies if body.cost is not None], default=0)
        self.at = at + 1

    def enter(self, var: Var, placement: Placement, local: None) -> None:
        super().enter(var, placement, local)
        self.note_use(var, placement)

    def travel(self, var: Var, walk: Walk, local: None) -> Sequence[None]:
        for placement in walk.placements:
            self.note_use(var, placement)
        return super().travel(var, walk, local)

    def bring(self, var: Var, placement: Placement) -> None:
        super().bring(var, placement)
        self.note_use(var, self.walks.normal(placement))

    def note_use(self, var: Var, placement: Placement) -> None:
        self.uses.setdefault((var, placement), []).append(self.at)

    def held_bytes(self) -> list[int]:
        """What is held while each equation runs, and while the outputs are handed over."""
        changes = [0] * (len(self.inside) + 1)
        for (var, placement), uses in self.uses.items():
            size = self.machine.local_bytes(var.type, placement)
            changes[uses[0]] += size
            changes[uses[-1] + 1] -= size
        return [held + inside for held, inside in zip(accumulate(changes), self.inside, strict=False)]

    def kept(self, at: int) -> Iterator[tuple[Var, Placement, int]]:
        """Versions, but for those under which values were made, that are held at an equation that does not read them: with the
        number of the one that reads them next."""
        for (var, placement), uses in self.uses.items():
            if uses[0] < at < uses[-1] and at not in uses and placement != next(iter(self.versions[var])):
                yield var, placement, next(n for n in uses if n > at)
