"""Planning in words: the events of a Plan, and propagation's origins and conflicts, as Decisions.

Nothing here runs until somebody asks for `Plan.decisions`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from meshjit.core.decision import Decision, Rival, rounded
from meshjit.core.plan import EquationPlan, Plan, Trial
from meshjit.core.printer import names_of, print_type
from meshjit.core.program import Eqn, Var
from meshjit.plan.assign import Assigner
from meshjit.plan.events import Accumulation, Choice, Delay, Event, Exchange, Hoist, Move, Reduction, Remake
from meshjit.plan.flow import collectives_of
from meshjit.plan.graph import Annotations, Flattened, programs_in
from meshjit.plan.groups import groups
from meshjit.plan.seeds import seed_text
from meshjit.plan.stencil_loops import refusals
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
        self.annotations = facts.annotations
        self.names = names_of(plan.program)
        self.inputs = frozenset(plan.program.inputs)
        self.seed_text = functools.cache(self._seed_text)
        self.values = {number: var for var, number in facts.flat.numbers.items()}
        self.makers = {v: e for part in programs_in(plan.program) for e in part.eqns for v in e.outputs}
        self.events: dict[Eqn | None, list[Event]] = {}
        self.collect(plan)

    def collect(self, plan: Plan) -> None:
        for event in plan.events:
            eqn = getattr(event, "eqn", None)
            self.events.setdefault(eqn, []).append(event)
        for equation in plan.equations:
            for body in equation.bodies if not equation.block else ():  # whose iterations exchange nothing themselves
                self.collect(body)

    def decisions(self) -> Iterator[Decision]:
        if self.plan.optimum is not None:
            yield from groups(self.plan)
        yield from (self.trial(trial) for trial in self.plan.trials)
        yield from map(self.conflict, dict.fromkeys(self.propagated.conflicts))
        yield from map(self.place, self.plan.program.inputs)
        refused = dict(refusals(self.plan))
        for part in programs_in(self.plan.program):
            for eqn in part.eqns:
                if eqn in refused:
                    yield self.of(eqn, "block", "borders are exchanged in every iteration", refused[eqn])
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
        kept = f"keeps {axes_text(conflict.kept)}" if conflict.kept else "stays whole"
        choice = f"{kept}; {axes_text(conflict.lost)} on dim {conflict.dim} is lost"
        if conflict.node < 0:
            return Decision("conflict", self.value(var), choice, ("annotations of one loop carry differ",))
        node = self.propagated.graph.nodes[conflict.node]
        return Decision("conflict", self.value(var), choice, (f"{self.names[other]} offers it at {node.label}",))

    def trial(self, trial: Trial) -> Decision:
        cost, before = rounded(None if trial.cost is None else trial.cost.seconds), rounded(trial.before.seconds)
        choice, price, rival = ("kept", cost, before) if trial.is_accepted else ("rejected", before, cost)
        name = "the plan without it" if trial.is_accepted else "the plan with it"
        text = trial.text.replace(": ", ", ")
        return Decision("try", text, choice, (_verdict(trial),), price, (Rival(name, rival),), trial.source)

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
        reason = "it depends on nothing that would have to move"
        return self.of(event.eqn, "remake", f"computed again as {event.plan.results[0]}", reason)

    def delay(self, event: Delay) -> Decision:
        reason = "it is linear in the sum, " + ("which only joins others" if event.shared else "whose only use it is")
        return self.of(event.eqn, "delay", f"on a partial sum, {event.partial}", reason)

    def reduction(self, event: Reduction) -> Decision:
        ways = ("reduced after it", event.late), ("reduced before it", event.sooner)
        (choice, seconds), (rival, other) = ways if event.is_late else ways[::-1]
        reason = "the later reduction costs less" if event.is_late else "nothing is gained by waiting"
        return self.of(event.eqn, "reduce", choice, reason, seconds, Rival(rival, rounded(other)))

    def accumulation(self, event: Accumulation) -> Decision:
        reason = "the loop only adds to it, and reduces it once in the end"
        return Decision("accumulate", self.value(event.var), str(event.placement), (reason,))

    def hoist(self, event: Hoist) -> Decision:
        (placement, seconds), *others = event.options
        rivals = tuple(Rival(str(p), rounded(s)) for p, s in others)
        reason = "it is the same in all iterations"
        return Decision("hoist", self.value(event.var), f"enters the loop as {placement}", (reason,), rounded(seconds), rivals)

    def compute(self, event: Choice) -> Decision:
        (plan, seconds), *others = event.options()
        rivals = [Rival(_spread(p), rounded(s)) for p, s in others]
        return self.of(event.eqn, "compute", _spread(plan), f"rule {plan.rule}", seconds, *rivals)

    def of(
        self, eqn: Eqn, kind: str, choice: str, reason: str, seconds: float | None = None, *rivals: Rival
    ) -> Decision:
        return Decision(kind, self.equation(eqn), choice, (reason,), rounded(seconds), rivals, str(eqn.source or ""))


def _verdict(trial: Trial) -> str:
    cost, before = trial.cost, trial.before
    if cost is None:
        return "planning it was stopped once it was far slower"
    if trial.is_accepted and cost.seconds >= before.seconds:
        fewer, longer = before.peak_bytes - cost.peak_bytes, rounded(cost.seconds - before.seconds)
        return f"memory is short, and the peak holds {fewer:,.0f} bytes fewer, for {longer:g} us"
    if trial.is_accepted:
        return "the plan takes less time, or fits the memory"
    if cost.seconds < before.seconds and cost.wire_bytes > before.wire_bytes:
        sent = f"{cost.wire_bytes:,.0f} bytes a device where {before.wire_bytes:,.0f} suffice"
        return f"it sends {sent}, and does not halve the time"
    return "the plan is not clearly faster"


def _spread(plan: EquationPlan) -> str:
    parts = [f"{factor} over {axes_text(axes)}" for factor, axes in plan.assignment.items() if axes]
    return ", ".join(parts) or "all of it on every device"


_WORDS: Mapping[type, Callable[..., Decision]] = {
    Move: _Description.move,
    Exchange: _Description.exchange,
    Remake: _Description.remake,
    Delay: _Description.delay,
    Reduction: _Description.reduction,
    Accumulation: _Description.accumulation,
    Hoist: _Description.hoist,
    Choice: _Description.compute,
}
