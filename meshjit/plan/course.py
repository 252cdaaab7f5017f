"""How far the planning of one Program is: where its values are, which sums are partial, how equations are computed.

Deciding changes nothing: `Planner` and `Delays` return what they decide, and it is done here, by `take` for the next equation
and by `settle` where a chain of delayed equations ends. Only the latter changes what was decided before: the sum of a
chain may be reduced before its last equation after all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.cost import Machine
from meshjit.plan.delay import ChainEnd, Delayed, Delays
from meshjit.plan.events import Reduction
from meshjit.plan.flow import Flow, Log
from sharding.spec import Placement

NOTHING_REPEATED: Final[Mapping[Var, float]] = {}


@dataclass(frozen=True)
class _Undo:
    """What is left to do once the addends of a chain are reduced; `log` is the flow's from then on."""

    chain: Delayed
    log: Log | None


class Course:
    """`placements`: where values are, those of nested Programs included. `pending`: the inputs that are partial sums."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        placements: dict[Var, Placement],
        pending: Mapping[Var, Placement] | None = None,
        flow: Flow | None = None,
        unreduced: Collection[Var] = (),
        given: Collection[Var] = (),
        iterations: Mapping[Var, float] = NOTHING_REPEATED,
    ) -> None:
        """`placements` are the course's from now on. `iterations`: of what does not change in a loop, how many share what
        bringing it costs."""
        self.program = program
        self.iterations = iterations
        self.uses = machine.uses_of(program)
        self.placements = placements
        self.placements.update(pending or {})
        self.delays = Delays(program, machine, pending, unreduced, given)
        self.flow = flow or Flow(program, machine)  # prices the equations so far
        self.homes: dict[Var, Placement] = {}  # where values were placed that are sums and flow on
        self.changed: dict[Eqn, EquationPlan] = {}  # equations whose operands were reduced before them after all
        self.flow.start([self.placements[v] for v in program.inputs])

    def sharers(self, eqn: Eqn) -> tuple[float, ...]:
        """For each operand of an equation how many share what bringing it costs: alike contractions, and the iterations of a loop
        before which it is brought; () if none do."""
        alike, iterations = self.uses.sharers(eqn), self.iterations
        if not iterations or iterations.keys().isdisjoint(eqn.inputs):
            return alike
        return tuple([n * iterations.get(v, 1) for n, v in zip(alike or (1,) * len(eqn.inputs), eqn.inputs, strict=True)])

    def take(self, eqn: Eqn, step: EquationPlan) -> EquationPlan:
        """The next equation is computed as `step` says, on partial sums where these flow through it."""
        delays = self.delays
        step, group = delays.through(eqn, step)
        for i, var in enumerate(eqn.inputs):
            if var in delays.delayed and i not in group:
                self.settle(var, step.operands[i])
        if group:
            before = tuple([self.homes.setdefault(v, self.placements[v]) for v in map(eqn.inputs.__getitem__, group)])
            chain = Delayed(eqn, step, group, before, delays.before(eqn, step, group))
            delays.delayed.update(dict.fromkeys(eqn.outputs, chain))
            step = delays.with_sums(eqn, step, group)
            self.placements.update((v, step.operands[i]) for i in group if (v := eqn.inputs[i]) in delays.pending)
        for var, natural in zip(eqn.outputs, step.results, strict=True):
            if natural.partial and natural.partial_kind == "sum":
                delays.pending[var] = delays.possible[var] = natural
        self.flow.run(eqn, step)
        return step

    def settle(self, var: Var, target: Placement) -> None:
        """`var` is used as `target`: where it is a sum that was delayed, reduce it sooner if that costs no more."""
        waiting: list[tuple[Var, Placement] | _Undo] = [(var, target)]
        while waiting:  # no recursion, however long chains are
            task = waiting.pop()
            if isinstance(task, _Undo):
                self.undo(task.chain)
                self.flow.log = task.log
            elif task[0] in self.delays.delayed and (end := self.delays.chain_end(*task)) is not None:
                log = self.flow.log
                self.finish(end)
                if end.is_late:
                    self.flow.log = log
                else:
                    chain = end.chain
                    waiting += [_Undo(chain, log), *reversed(self.delays.addends_of(chain.eqn, chain.plain, chain.group))]

    def finish(self, end: ChainEnd) -> None:
        """Note where the sum of a chain is reduced; if sooner, its addends are to be settled, and its equation undone."""
        flow, delays = self.flow, self.delays
        if flow.log is not None and end.var in flow.log.outer:  # done anew for the next repeat of the kind
            flow.log.moves.append((flow.log.outer[end.var], end.target, flow.eqn))
            flow.log = None
        delays.reductions.append(Reduction(end.chain.eqn, end.late.seconds, end.sooner.seconds, end.is_late))
        if flow.log is not None:
            flow.log.moves.append(delays.reductions[-1])
        if not end.is_late:
            del delays.pending[end.var], delays.delayed[end.var]

    def undo(self, chain: Delayed) -> None:
        """An equation has reduced sums as operands after all."""
        self.placements.update(zip([chain.eqn.inputs[i] for i in chain.group], chain.before, strict=True))
        self.changed[chain.eqn] = chain.plain
        self.flow.change(chain.eqn, chain.plain)
