"""How far the planning of one Program is: where its values are, which sums are partial, how equations are computed.

Deciding changes nothing: `Planner` and `Delays` return what they decide, and it is done here, by `take` for the next equation
and by `settle` where a chain of delayed equations ends. Only the latter changes what was decided before: the sum of a
chain may be reduced before its last equation after all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.cost import Machine
from meshjit.plan.delay import ChainEnd, Delayed, Delays
from meshjit.plan.events import Reduction
from meshjit.plan.flow import Flow
from sharding.spec import Placement


class Course:
    """`placements`: where values are, those of nested Programs included. `pending`: the inputs that are partial sums."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        placements: Mapping[Var, Placement],
        pending: Mapping[Var, Placement] | None = None,
        flow: Flow | None = None,
        unreduced: Collection[Var] = (),
    ) -> None:
        self.program = program
        self.placements = {**placements, **(pending or {})}
        self.delays = Delays(program, machine, pending, unreduced)
        self.flow = flow or Flow(program, machine)  # prices the equations so far
        self.changed: dict[Eqn, EquationPlan] = {}  # equations whose operands were reduced before them after all
        self.flow.start([self.placements[v] for v in program.inputs])

    def take(self, eqn: Eqn, step: EquationPlan) -> EquationPlan:
        """The next equation is computed as `step` says, on partial sums where these flow through it."""
        delays = self.delays
        step, group = delays.through(eqn, step)
        for i, (var, target) in enumerate(zip(eqn.inputs, step.operands, strict=True)):
            if i not in group:
                self.settle(var, target)
        if group:
            before = tuple([self.placements[eqn.inputs[i]] for i in group])
            delays.delayed.update(dict.fromkeys(eqn.outputs, Delayed(eqn, step, group, before)))
            step = delays.with_sums(eqn, step, group)
            self.placements.update((v, step.operands[i]) for i in group if (v := eqn.inputs[i]) in delays.pending)
        for var, natural in zip(eqn.outputs, step.results, strict=True):
            if natural.partial and natural.partial_kind == "sum":
                delays.pending[var] = delays.possible[var] = natural
        self.flow.run(eqn, step)
        return step

    def settle(self, var: Var, target: Placement) -> None:
        """`var` is used as `target`: where it is a sum that was delayed, reduce it sooner if that costs no more."""
        end = self.delays.chain_end(var, target) if var in self.delays.delayed else None
        if end is not None:
            self.finish(end)

    def finish(self, end: ChainEnd) -> None:
        """Reduce the sum of a chain where it costs less."""
        flow, delays, chain = self.flow, self.delays, end.chain
        log = flow.log
        if log is not None and end.var in log.outer:  # done anew for the next repeat of the kind
            log.moves.append((log.outer[end.var], end.target, flow.eqn))
            flow.log = None
        delays.reductions.append(Reduction(chain.eqn, end.late, end.sooner, end.is_late))
        if flow.log is not None:
            flow.log.moves.append(delays.reductions[-1])
        if not end.is_late:
            del delays.pending[end.var], delays.delayed[end.var]
            self.placements.update(zip([chain.eqn.inputs[i] for i in chain.group], chain.before, strict=True))
            for addend in end.addends:
                self.finish(addend)
            self.changed[chain.eqn] = chain.plain
            flow.change(chain.eqn, chain.plain)
        flow.log = log
