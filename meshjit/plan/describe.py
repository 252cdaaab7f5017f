"""Planning in words: the events of a Plan, and propagation's origins and conflicts, as Decisions.

Nothing here runs until somebody asks for `Plan.decisions`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from meshjit.core.decision import Decision, Rival, rounded
from meshjit.core.plan import Plan, PlanCost, Trial
from meshjit.core.printer import names_of, print_type
from meshjit.core.program import Eqn, Var
from meshjit.plan.assign import Assigner
from meshjit.plan.cost import is_cheaper
from meshjit.plan.events import Accumulation, Choice, Delay, Elsewhere, Event, Exchange, Hoist, Move, Reduction, Remake
from meshjit.plan.flow import collectives_of
from meshjit.plan.graph import Annotations, Flattened, programs_in
from meshjit.plan.groups import groups
from meshjit.plan.seeds import seed_text
from meshjit.plan.spread_words import reasons, spread
from meshjit.plan.stencil_loops import Unblocked, unblocked
from meshjit.plan.verdict import of_trial, rejected
from sharding.axes import AxisRef, axes_text
from sharding.graph import Conflict, Origin, Propagated


@dataclass(frozen=True)
class Describer:
    """Turns a plan that was made from this propagation, with these tables, into Decisions."""

    flat: Flattened
    propagated: Propagated
    annotations: Annotations
    assigner: Assigner

    def __call__(self, plan: Plan) -> tuple[Decision, ...]:
        return tuple(_Description(plan, self).decisions())


class _Description:
    def __init__(self, plan: Plan, facts: Describer) -> None:
        self.plan = plan
        self.flat, self.propagated = facts.flat, facts.propagated
        self.annotations, self.machine = facts.annotations, facts.assigner.machine
        self.names = names_of(plan.program)
        self.inputs = frozenset(plan.program.inputs)
        self.seed_text = functools.cache(self._seed_text)
        self.values = {number: var for var, number in facts.flat.numbers.items()}
        self.makers = {v: e for part in programs_in(plan.program) for e in part.eqns for v in e.outputs}
        self.events: dict[Eqn | None, list[Event]] = {}
        self.owners: dict[Var, Eqn] = {}  # by input of a nested Program
        self.collect(plan, None)

    def collect(self, plan: Plan, owner: Eqn | None) -> None:
        """`owner`: the equation that holds the Program, which what is about no equation of its own is told with."""
        for event in plan.events:
            self.events.setdefault(getattr(event, "eqn", None) or owner, []).append(event)
        for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
            for body in equation.bodies:
                self.owners |= dict.fromkeys(body.program.inputs, eqn)
            for body in equation.bodies if not equation.block else ():  # whose iterations exchange nothing themselves
                self.collect(body, eqn)

    def decisions(self) -> Iterator[Decision]:
        if self.plan.optimum is not None:
            yield from groups(self.plan)
        yield from (self.trial(trial) for trial in self.plan.trials)
        yield from map(self.conflict, dict.fromkeys(self.propagated.conflicts))
        yield from map(self.place, self.plan.program.inputs)
        unblocked_loops = {loop.eqn: loop for loop in unblocked(self.plan, self.machine)}
        for part in programs_in(self.plan.program):
            for eqn in part.eqns:
                if eqn in unblocked_loops:
                    yield self.unblocked(unblocked_loops[eqn])
                for event in self.events.get(eqn, ()):
                    yield self.event(event)
                yield from map(self.place, eqn.outputs)
        yield from map(self.event, self.events.get(None, ()))

    # -- what they are about

    def value(self, var: Var) -> str:
        return f"{self.names[var]} ({print_type(var.type)})"

    def equation(self, eqn: Eqn) -> str:
        results = ", ".join(self.names[v] for v in eqn.outputs)
        left = f"{results} = " if results else ""
        return f"{left}{eqn.op.name}({', '.join(self.names[v] for v in eqn.inputs)})"

    # -- propagation

    def place(self, var: Var) -> Decision:
        placement, number = self.plan.placements[var], self.flat.numbers[var]
        reasons = [self.reason(number, dim, axis) for dim, axes in enumerate(placement.dims) for axis in axes]
        maker = self.makers.get(var)
        source = str(maker.source or "") if maker is not None else ""
        return Decision("place", self.value(var), str(placement), tuple(filter(None, reasons)), source=source)

    def reason(self, number: int, dim: int, axis: AxisRef) -> str:
        origin = self.propagated.origins.get((number, dim, axis))
        if origin is None:
            whom = "this value" if self.values[number] in self.inputs else "this equation"
            return f"{axis} on dim {dim}: chosen for {whom}"
        return f"{axis} on dim {dim}: {self.seed_text(origin.seed, origin.seed == number)}{self.way(origin)}"

    def _seed_text(self, number: int, is_own: bool) -> str:
        return seed_text(self.plan, self.annotations, self.names, self.makers, self.values[number], is_own)

    def way(self, origin: Origin) -> str:
        """The last equation on the way; those before it are on the way to its operands."""
        path = origin.path
        if not path:
            return ""
        before = "" if len(path) == 1 else f"{len(path)} equations, the last "
        return f", by way of {before}{self.propagated.graph.nodes[path[-1]].label}"

    def conflict(self, conflict: Conflict) -> Decision:
        var, other = self.values[conflict.value], self.values[conflict.offered_by]
        kept = f"keeps {axes_text(conflict.kept)}{self.dim_of(conflict)}" if conflict.kept else "stays whole"
        choice = f"{kept}; {axes_text(conflict.lost)} on dim {conflict.dim} is lost"
        if conflict.node < 0:
            return Decision("conflict", self.value(var), choice, ("annotations of one loop carry differ",))
        node = self.propagated.graph.nodes[conflict.node]
        return Decision("conflict", self.value(var), choice, (f"{self.names[other]} offers it at {node.label}",))

    def dim_of(self, conflict: Conflict) -> str:
        """Where the value has the axes that were in the way."""
        dim = conflict.holder(self.propagated.placements[conflict.value])
        return "" if dim is None else f" on dim {dim}"

    def trial(self, trial: Trial) -> Decision:
        cost, before = rounded(None if trial.cost is None else trial.cost.seconds), rounded(trial.before.seconds)
        choice, price, rival = ("kept", cost, before) if trial.is_accepted else ("rejected", before, cost)
        name = "the plan without it" if trial.is_accepted else "the plan with it"
        text = trial.text.replace(": ", ", ")
        reason = of_trial(trial, self.machine.topology.memory)
        return Decision("try", text, choice, (reason,), price, (Rival(name, rival),), trial.source)

    def unblocked(self, loop: Unblocked) -> Decision:
        choice = "borders are exchanged in every iteration"
        if loop.cost is None or loop.in_blocks is None:
            return self.of(loop.eqn, "block", choice, loop.refusal)
        rival = Rival(f"once for {loop.count}", rounded(loop.in_blocks.seconds))
        return self.of(loop.eqn, "block", choice, self.why_unblocked(loop.cost, loop.in_blocks), loop.cost.seconds, rival)

    def why_unblocked(self, cost: PlanCost, in_blocks: PlanCost) -> str:
        if not is_cheaper(in_blocks, cost, math.inf):
            return rejected(in_blocks, cost)
        assert self.plan.cost is not None
        left = self.machine.topology.memory - self.plan.cost.peak_bytes
        if in_blocks.peak_bytes > left:
            return f"the peak would hold {in_blocks.peak_bytes:,.0f} bytes more, and the memory has no room for them"
        return "no plan with the block was taken, see what was tried"

    # -- events

    def event(self, event: Event) -> Decision:
        return _WORDS[type(event)](self, event)

    def _read_by(self, eqn: Eqn, var: Var) -> str:
        if var in eqn.outputs:
            return "of the placements under which it is read, the others cost least from"
        result = f", for {self.names[eqn.outputs[0]]}," if eqn.outputs else ""
        return f"{eqn.op.name}{result} needs it"

    def move(self, event: Move) -> Decision:
        walk, var = event.walk, event.var
        start, end = walk.placements[0], walk.placements[-1]
        sent = "; ".join(map(str, collectives_of(walk, var.type, self.plan.mesh))) or "each device keeps a part"
        by = "as an output it is" if event.eqn is None else self._read_by(event.eqn, var)
        kind = "reduce" if start.partial and not end.partial else "move"
        eqn = event.eqn if event.eqn is not None and kind == "move" else self.makers.get(var)
        return Decision(
            kind, self.value(var), f"{start} to {end}, {sent}", (f"{by} {end}",), rounded(walk.seconds),
            source=str(eqn.source or "") if eqn is not None else "",
        )  # fmt: skip

    def exchange(self, event: Exchange) -> Decision:
        mesh, target = self.plan.mesh, self.plan.target
        assert target is not None
        seconds = sum(each.seconds(mesh, target.topology) for each in event.final)
        sent = "; ".join(map(str, event.collectives))
        return self.of(event.eqn, "exchange", sent, "the op needs elements of other shards", seconds)

    def remake(self, event: Remake) -> Decision:
        (var, *_), target, reason = event.eqn.outputs, event.plan.results[0], "it depends on nothing that would have to move"
        moved = self.machine.seconds(var.type, self.plan.placements[var].without_partial(), target)
        rivals = (Rival("moved", rounded(moved)),) if moved else ()
        work = self.machine.effect(event.eqn, event.plan).work
        return self.of(event.eqn, "remake", f"computed again as {target}", reason, work, *rivals)

    def delay(self, event: Delay) -> Decision:
        reason = "it is linear in the sum, " + ("which only joins others" if event.shared else "whose only use it is")
        rival = Rival("reduced before it", _finite(event.sooner))
        return self.of(event.eqn, "delay", f"on a partial sum, {event.partial}", reason, None, rival)

    def reduction(self, event: Reduction) -> Decision:
        ways = ("reduced after it", event.late), ("reduced before it", event.sooner)
        (choice, seconds), (rival, other) = ways if event.is_late else ways[::-1]
        reason = "the later reduction costs less" if event.is_late else "nothing is gained by waiting"
        return self.of(event.eqn, "reduce", choice, reason, seconds, Rival(rival, rounded(other)))

    def accumulation(self, event: Accumulation) -> Decision:
        (choice, seconds), (rival, other) = ("", event.after), ("reduced in every iteration", event.inside)
        reason = "the loop only adds to it, and reduces it once in the end"
        if event.placement is None:
            (choice, seconds), (rival, other) = (rival, other), ("reduced after the loop", seconds)
            reason = event.refusal or "it is larger than the parts that are added in all iterations"
        rivals = () if other is None else (Rival(rival, _finite(other)),)
        choice = choice or str(event.placement)
        return Decision("accumulate", self.value(event.var), choice, (reason,), _finite(seconds), rivals, self.loop_of(event.var))

    def hoist(self, event: Hoist) -> Decision:
        (placement, seconds), *others = event.options
        rivals = tuple(Rival(str(p), rounded(s)) for p, s in others)
        choice, reason = f"enters the loop as {placement}", "it is the same in all iterations"
        return Decision("hoist", self.value(event.var), choice, (reason,), rounded(seconds), rivals, self.loop_of(event.var))

    def loop_of(self, var: Var) -> str:
        """The line of the loop whose body has this input."""
        return str(self.owners[var].source or "")

    def compute(self, event: Choice) -> Decision:
        (plan, seconds), *others = event.options()
        rivals = tuple(Rival(spread(p), rounded(s)) for p, s in others)
        source = str(event.eqn.source or "")
        return Decision(
            "compute", self.equation(event.eqn), spread(plan), reasons(plan), rounded(seconds), rivals, source,
        )  # fmt: skip

    def elsewhere(self, event: Elsewhere) -> Decision:
        rival = Rival("as planned before its readers were known", rounded(event.before))
        return self.of(event.eqn, "compute", spread(event.plan), event.reason, event.seconds, rival)

    def of(
        self, eqn: Eqn, kind: str, choice: str, reason: str, seconds: float | None = None, *rivals: Rival
    ) -> Decision:
        return Decision(kind, self.equation(eqn), choice, (reason,), rounded(seconds), rivals, str(eqn.source or ""))


def _finite(seconds: float | None) -> float | None:
    """Microseconds; None where a user leaves a sum unreduced, whatever that costs."""
    return None if seconds is None or math.isinf(seconds) else rounded(seconds)


_WORDS: Mapping[type, Callable[..., Decision]] = {
    Move: _Description.move,
    Exchange: _Description.exchange,
    Remake: _Description.remake,
    Delay: _Description.delay,
    Reduction: _Description.reduction,
    Accumulation: _Description.accumulation,
    Hoist: _Description.hoist,
    Choice: _Description.compute,
    Elsewhere: _Description.elsewhere,
}
