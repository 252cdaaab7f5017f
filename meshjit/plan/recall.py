"""Plan repeats once: the others take over the outcome of the first.

The key is all that planning a repeat reads of its surroundings: the placements that propagation gives its results, and for each
value from outside the placement, the versions and the partial sums that are still unreduced. The Outcome is all that planning
it changes in its surroundings. Both name values and equations by their positions in the repeat, so they hold for its kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshjit.core.collective import Collective
from meshjit.core.plan import EquationPlan, PlanCost
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat
from meshjit.plan.cost import Machine
from meshjit.plan.course import Course
from meshjit.plan.delay import Delayed
from meshjit.plan.events import Event, Move, Reduction
from meshjit.plan.flow import Flow, Log
from sharding.placement import Placement

Placed = tuple[tuple[int, Placement], ...]  # position of a value → placement
BEFORE = -1  # the number of the equation that ran before the repeat
BY_CHAINS = (None, ())  # in the place of an outcome: it depends on the chains of sums from outside, which the repeat settles
SETTLED = 3  # length of what a Log has of a sum from outside that is settled: position, placement, equation


@dataclass(frozen=True)
class FlowOutcome:
    """What comes of running a repeat through a Flow. Positions count its inner values, then its outer ones."""

    work: tuple[float, ...]  # of its equations
    moves: tuple[Any, ...]  # as the Log has them, with positions and numbers instead of values and equations
    held: int  # bytes more than before
    peak: int  # bytes at most more than before
    versions: tuple[tuple[int, tuple[Placement, ...], int], ...]  # position, versions, bytes of all
    made: tuple[tuple[int, int, int, EquationPlan], ...]  # position, bytes, number of the equation and its plan
    notes: Any = None  # what a kind of Flow knows of it besides


@dataclass(frozen=True)
class PlanOutcome:
    """What comes of planning a repeat."""

    flow: FlowOutcome
    steps: tuple[EquationPlan, ...]
    placements: Placed  # that it changes
    pending: Placed
    possible: Placed
    delayed: tuple[tuple[int, int, Delayed], ...]  # position, number of the equation

    @property
    def settles(self) -> bool:
        """Whether it settles sums from outside."""
        return any(len(move) == SETTLED for move in self.flow.moves)


class FlowRecall:
    """Runs equations that are planned through a Flow, repeats of one kind once."""

    entered: list[tuple[Var, tuple[Placement, ...], int | None]]  # outer values before a repeat, their versions and bytes

    def __init__(self, program: Program, flow: Flow) -> None:
        uses = flow.machine.uses_of(program)
        self.program, self.flow = program, flow
        self.repeats, self.joins, self.outcomes = uses.repeats, uses.joins, uses.outcomes

    def run(self, plans: Sequence[EquationPlan]) -> None:
        """All equations of the Program."""
        at, eqns = 0, self.program.eqns
        while at < len(eqns):
            repeat = self.repeats.get(at)
            if repeat is None:
                self.flow.run(eqns[at], plans[at])
                at += 1
            else:
                self.repeat(repeat, plans[at : repeat.stop])
                at = repeat.stop

    def repeat(self, repeat: Repeat, plans: Sequence[EquationPlan]) -> None:
        kept: list[Any] = [plans]
        key = repeat.kind, tuple(map(id, plans)), tuple([self.state(v, kept) for v in repeat.outer])
        entry = self.outcomes.get(key)
        if entry is not None:
            return self.apply(repeat, entry[0])
        held, peak = self.begin(repeat)
        for eqn, plan in zip(self.program.eqns[repeat.start : repeat.stop], plans, strict=True):
            self.flow.run(eqn, plan)
        outcome = self.end(repeat, held, peak, ())
        if outcome is not None:
            self.outcomes[key] = outcome, kept
        return None

    def state(self, var: Var, kept: list[Any]) -> Any:
        """What running equations depends on of a value from outside. `kept`: what the answer names by identity."""
        flow, maker = self.flow, self.flow.makers.get(var)
        kept.append(maker)
        remake = (flow.cheap.get(var), None if maker is None else id(maker[1]))
        return tuple(flow.versions.get(var, ())), flow.sizes.get(var), remake, var in flow.machine.undonated

    def begin(self, repeat: Repeat) -> tuple[int, int]:
        """(bytes held, peak) before the repeat. From now on the flow's peak is that of the repeat alone."""
        flow = self.flow
        self.entered = [(v, tuple(flow.versions.get(v, ())), flow.sizes.get(v)) for v in repeat.outer]
        before, flow.peak = (flow.held, flow.peak), flow.held
        flow.log = Log({v: len(repeat.inner) + i for i, v in enumerate(repeat.outer)})
        return before

    def end(self, repeat: Repeat, held: int, peak: int, live: Sequence[Var]) -> FlowOutcome | None:
        """What happened since `begin`; None where it reached beyond the values that the repeat reads. `live`: values that are
        still to be moved, besides those that are read behind the repeat."""
        flow, log, numbers = self.flow, self.flow.log, _Numbers(self.program, repeat)
        assert log is not None
        highest, flow.log, flow.peak = flow.peak, None, max(flow.peak, peak)
        try:
            moves = tuple([numbers.of_move(move) for move in log.moves])
        except KeyError:
            return None
        inner = {v: i for i, v in enumerate(repeat.inner)}
        kept = {inner[v] for v in flow.with_makers([*live, *(repeat.inner[i] for i in repeat.escaping)]) if v in inner}
        values = numbers.values
        outer = enumerate(self.entered, len(inner))
        brought = [i for i, (v, *before) in outer if before != [tuple(flow.versions.get(v, ())), flow.sizes.get(v)]]
        positions = [*sorted(kept), *brought]
        versions = [(i, tuple(flow.versions[v]), flow.sizes[v]) for i in positions if (v := values[i]) in flow.versions]
        made = [(i, flow.cheap[v], numbers.makers[v], flow.makers[v][1]) for i in sorted(kept) if (v := values[i]) in flow.cheap]
        return FlowOutcome(tuple(log.work), moves, flow.held - held, highest - held, tuple(versions), tuple(made))

    def apply(self, repeat: Repeat, outcome: FlowOutcome) -> None:
        """Do what the outcome says with the values of another repeat."""
        flow, values, eqns = self.flow, (*repeat.inner, *repeat.outer), self.program.eqns
        work = flow.work
        for seconds in outcome.work:
            work += seconds
        flow.work = work
        for move in outcome.moves:
            self.move(move, values, repeat.start)
        flow.skip(eqns[repeat.start : repeat.stop], outcome.held, outcome.peak)
        for i, versions, size in outcome.versions:
            flow.versions[values[i]], flow.sizes[values[i]] = dict.fromkeys(versions), size
        for i, size, number, plan in outcome.made:
            flow.cheap[values[i]], flow.makers[values[i]] = size, (eqns[repeat.start + number], plan)

    def move(self, move: Any, values: Sequence[Var], start: int) -> None:
        seconds, bytes_, collectives, event, number, position = move
        if event is not None:
            at = start + number
            eqn = self.program.eqns[at] if at >= 0 else None
            event = event._replace(eqn=eqn) if position is None else Move(values[position], event.walk, eqn)
        self.flow.note(seconds, bytes_, collectives, event)


class PlanRecall(FlowRecall):
    """Plans equations, repeats of one kind once, on the way that `course` has gone so far."""

    def __init__(self, course: Course) -> None:
        super().__init__(course.program, course.flow)
        self.course, self.placements, self.delays = course, course.placements, course.delays

    def steps(self, repeat: Repeat, plan: Callable[[], Sequence[EquationPlan]]) -> Sequence[EquationPlan]:
        """How the equations of a repeat are computed. `plan` works it out where nothing is known of its kind."""
        homes = [self.placements[v] for v in repeat.inner]
        kept: list[Any] = [homes]
        iterations = self.course.iterations
        outer = [(self.placements[v], self.state(v, kept), self.sum_of(v), iterations.get(v)) for v in repeat.outer]
        key = repeat.kind, self.joins[repeat.start], self.delays.given, tuple(map(id, homes)), tuple(outer)
        entry, chains = self.outcomes.get(key), None
        if entry is None or entry is BY_CHAINS:
            chains = tuple([self.chain(v, kept) for v in repeat.outer])
            entry = self.outcomes.get((key, chains))
        if entry is not None:
            self.take_over(repeat, entry[0])
            return entry[0].steps
        before = [self.placements[v] for v in (*repeat.inner, *repeat.outer)]
        held, peak = self.begin(repeat)
        steps = plan()
        outcome = self.outcome(repeat, steps, before, held, peak)
        if outcome is not None and outcome.settles:
            self.outcomes[key], self.outcomes[key, chains] = BY_CHAINS, (outcome, kept)
        elif outcome is not None:
            self.outcomes[key] = outcome, kept
        return steps

    def sum_of(self, var: Var) -> Any:
        """All that planning a repeat depends on of the partial sum `var`, unless it settles it. Sums that grow from layer to
        layer, as the gradient of what all of them read, are alike in this, however long their chains are."""
        pending, delayed = self.delays.pending.get(var), self.delays.delayed.get(var)
        return pending if delayed is None else (pending, delayed.sooner, delayed.plain.results[0], len(delayed.eqn.outputs))

    def chain(self, var: Var, kept: list[Any]) -> Any:
        """All that settling the partial sum `var` depends on."""
        pending, delayed = self.delays.pending.get(var), self.delays.delayed.get(var)
        if delayed is None:
            return pending
        kept.append(delayed.plain)
        addends = [delayed.eqn.inputs[i] for i in delayed.group]
        before = [(v.type, self.chain(v, kept)) for v in addends]
        return pending, id(delayed.plain), delayed.group, delayed.before, len(delayed.eqn.outputs), tuple(before)

    def outcome(
        self, repeat: Repeat, steps: Sequence[EquationPlan], before: Sequence[Placement], held: int, peak: int
    ) -> PlanOutcome | None:
        delays, values = self.delays, (*repeat.inner, *repeat.outer)
        eqns = self.program.eqns[repeat.start : repeat.stop]
        makers = {v: n for n, eqn in enumerate(eqns) for v in eqn.outputs}
        delayed = [(i, makers[v], delays.delayed[v]) for i, v in enumerate(repeat.inner) if v in delays.delayed]
        flow = self.end(repeat, held, peak, [v for _, n, _ in delayed for v in eqns[n].inputs])
        if flow is None:
            return None
        return PlanOutcome(
            flow,
            tuple([self.course.changed.get(eqn, step) for eqn, step in zip(eqns, steps, strict=True)]),
            tuple((i, p) for i, v in enumerate(values) if (p := self.placements[v]) is not before[i]),
            tuple((i, p) for i, v in enumerate(repeat.inner) if (p := delays.pending.get(v)) is not None),
            tuple((i, p) for i, v in enumerate(repeat.inner) if (p := delays.possible.get(v)) is not None),
            tuple(delayed),
        )

    def take_over(self, repeat: Repeat, outcome: PlanOutcome) -> None:
        self.apply(repeat, outcome.flow)
        delays, values = self.delays, (*repeat.inner, *repeat.outer)
        for i, placement in outcome.placements:
            self.placements[values[i]] = placement
        delays.pending.update((values[i], placement) for i, placement in outcome.pending)
        delays.possible.update((values[i], placement) for i, placement in outcome.possible)
        for i, number, old in outcome.delayed:
            eqn = self.program.eqns[repeat.start + number]
            delays.delayed[values[i]] = dataclasses.replace(old, eqn=eqn)

    def move(self, move: Any, values: Sequence[Var], start: int) -> None:
        if len(move) == SETTLED:
            position, placement, number = move
            self.flow.eqn = self.program.eqns[start + number] if start + number >= 0 else None
            self.course.settle(values[position], placement)
        elif isinstance(move[0], Reduction):
            (_, late, sooner, is_late), number = move
            self.delays.reductions.append(Reduction(self.program.eqns[start + number], late, sooner, is_late))
        else:
            super().move(move, values, start)


class _Numbers:
    """The values and equations of a repeat by position and number."""

    def __init__(self, program: Program, repeat: Repeat) -> None:
        self.values = (*repeat.inner, *repeat.outer)
        self.positions = {v: i for i, v in enumerate(self.values)}
        eqns = program.eqns[repeat.start : repeat.stop]
        self.makers = {v: n for n, eqn in enumerate(eqns) for v in eqn.outputs}
        self.eqns: Mapping[Eqn | None, int] = {eqn: n for n, eqn in enumerate(eqns)} | {
            program.eqns[repeat.start - 1] if repeat.start else None: BEFORE
        }

    def of_move(self, move: Any) -> Any:
        """What a Log has, with numbers; KeyError where it is not about this repeat."""
        if isinstance(move, Reduction):
            return move, self.eqns[move.eqn]
        if len(move) == SETTLED:
            return (*move[:2], self.eqns[move[2]])
        event = move[3]
        if event is None:
            return (*move, BEFORE, None)
        return (*move, self.eqns[event.eqn], self.positions[event.var] if isinstance(event, Move) else None)


def run_through(
    program: Program,
    machine: Machine,
    plans: Sequence[EquationPlan],
    inputs: Sequence[Placement],
    outputs: Sequence[Placement],
    lent: frozenset[Var] = frozenset(),
) -> tuple[PlanCost, tuple[Collective, ...], list[Event]]:
    """The cost of equations that are planned, their collectives and how values move. `lent`: inputs that count elsewhere."""
    flow = Flow(program, machine, lent=lent)
    flow.start(inputs)
    FlowRecall(program, flow).run(plans)
    return flow.end(outputs), tuple(flow.collectives), flow.events
