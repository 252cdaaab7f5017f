"""How long a planned Program takes where collectives run beside work: a schedule of two resources, work and links.

    %y = dot(%x, %w1)     work   | dot 1   | dot 2   |
    %z = dot(%y, %w2)     links  | gather of %w2 |        %w2 is gathered while %x is multiplied by %w1

Whoever reads a value waits until it is there. A collective that the target overlaps takes the links alone; one that it does
not overlap takes both, as does a loop that sends something. Iterations of a loop follow one another, and nothing overlaps
across them; branches count by their mean. What depends on nothing, such as a constant, is fused into its first reader. So at
least the sum of all work and the sum of all sending pass, and at most both together.

Who comes first is decided as if every collective ran beside work: whatever is free takes the first of the Program that is
ready. XLA comes close to it. Its latency-hiding scheduler (xla/service/latency_hiding_scheduler.cc) puts what is independent
between the start and the done of a collective; on GPUs without it a start stands where its operand exists, and its done
before the first reader (xla/service/gpu/gpu_hlo_schedule.cc). XLA ends this where memory is short; here nothing does. The
order does not depend on what the target overlaps, so overlapping more never takes longer.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final

from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Var
from meshjit.core.region import weighted_regions
from meshjit.core.types import TensorType
from meshjit.plan.cost import Machine
from meshjit.plan.events import Event, Exchange, Move, Remake
from sharding.cost import step_cost
from sharding.reshard import Walk
from sharding.spec import Placement

NOTHING: Final = 0
WORK: Final = 1
LINKS: Final = 2
BOTH: Final = WORK | LINKS
AT_ONCE: Final = -1  # in place of a task: what is there from the start


def schedule_seconds(plan: Plan, machine: Machine, is_block: bool = False) -> float:
    """Of one run of a planned Program. `is_block`: its iterations exchange nothing themselves."""
    tasks = _Written(plan, machine, is_block).tasks
    return tasks.seconds_in(tasks.order())


class Tasks:
    """By number, in the order of the Program: seconds, what each takes, and whom it waits for. `takes` is for a machine on
    which every collective runs beside work, `blocks` what each takes on the target."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.takes: list[int] = []
        self.blocks: list[int] = []
        self.after: list[Sequence[int]] = []

    def add(self, seconds: float, takes: int, blocks: int, after: Sequence[int]) -> int:
        self.seconds.append(seconds)
        self.takes.append(takes)
        self.blocks.append(blocks)
        self.after.append(after)
        return len(self.seconds) - 1

    def seconds_in(self, order: Sequence[int]) -> float:
        """When all are done that start in this order, each once what it waits for is done and what it takes is free."""
        ends, work, links = [0.0] * (len(self.seconds) + 1), 0.0, 0.0  # the last: AT_ONCE
        for number in order:
            blocks, start = self.blocks[number], max([ends[other] for other in self.after[number]], default=0.0)
            if blocks & WORK and work > start:
                start = work
            if blocks & LINKS and links > start:
                start = links
            end = ends[number] = start + self.seconds[number]
            if blocks & WORK:
                work = end
            if blocks & LINKS:
                links = end
        return max(ends)

    def order(self) -> list[int]:
        """In which they start where every collective runs beside work. What needs both resources and comes first keeps others
        from starting."""
        return _Dispatch(self).order()


class _Dispatch:
    """A list schedule: `ready` are the tasks that wait for nobody, by resource; `running`: when the tasks that run are done."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks, self.started = tasks, list[int]()
        self.ready: dict[int, list[int]] = {WORK: [], LINKS: []}
        self.free, self.running = BOTH, list[tuple[float, int]]()
        self.readers: list[list[int]] = [[] for _ in tasks.seconds]
        self.waits = [0] * len(tasks.seconds)
        for number, after in enumerate(tasks.after):
            for other in after:
                if other != AT_ONCE:
                    self.readers[other].append(number)
                    self.waits[number] += 1

    def order(self) -> list[int]:
        self.arrive([number for number, waits in enumerate(self.waits) if not waits])
        now = 0.0
        while True:
            while self.start(now):
                pass
            if not self.running:
                return self.started
            now, number = heapq.heappop(self.running)
            self.free |= self.tasks.takes[number]
            self.arrive(self.finish(number))

    def start(self, now: float) -> bool:
        """Start the first that is ready and has what it takes; whether there was one."""
        for resource, ready in self.ready.items():
            if self.free & resource and ready:
                number, takes = ready[0], self.tasks.takes[ready[0]]
                if takes & ~self.free or (takes == BOTH and any(each[0] != number for each in self.ready.values())):
                    continue
                for each in (WORK, LINKS):
                    if takes & each:
                        heapq.heappop(self.ready[each])
                self.free &= ~takes
                self.started.append(number)
                heapq.heappush(self.running, (now + self.tasks.seconds[number], number))
                return True
        return False

    def finish(self, number: int) -> list[int]:
        """A task is done; those that waited for it alone."""
        arrived = list[int]()
        for reader in self.readers[number]:
            self.waits[reader] -= 1
            if not self.waits[reader]:
                arrived.append(reader)
        return arrived

    def arrive(self, numbers: list[int]) -> None:
        """These wait for nobody any more. What takes nothing is done at once."""
        for number in numbers:
            takes = self.tasks.takes[number]
            if takes == NOTHING:
                self.started.append(number)
                numbers += self.finish(number)
            for resource in (WORK, LINKS):
                if takes & resource:
                    heapq.heappush(self.ready[resource], number)


class _Written:
    """The tasks of a planned Program, its equations and what is moved for them one after the other."""

    def __init__(self, plan: Plan, machine: Machine, is_block: bool) -> None:
        self.plan, self.machine, self.tasks = plan, machine, Tasks()
        self.makers: dict[Var, dict[Placement, int]] = {}  # by version of a value the task that makes it
        self.steps: dict[tuple[int, TensorType], Sequence[tuple[float, str | None]]] = {}
        self.bodies: dict[int, float] = {}
        self.fused: dict[Var, float] = {}  # values that depend on nothing, with the work that their first reader does for them
        self.of_nothing = set[Var]()
        for var, placement in zip(plan.program.inputs, plan.inputs, strict=True):
            self.makers[var] = {machine.normal(placement): AT_ONCE}
        numbers: dict[Eqn | None, int] = {eqn: i for i, eqn in enumerate(plan.program.eqns)}
        kinds = Remake if is_block else Move | Exchange | Remake
        events = deque([event for event in plan.events if isinstance(event, kinds)])
        for number, (eqn, equation) in enumerate(zip(plan.program.eqns, plan.equations, strict=True)):
            own, brought = list[Event](), list[Move]()
            while events and numbers.get(events[0].eqn, len(numbers)) <= number - isinstance(events[0], Remake):
                event = events.popleft()
                if isinstance(event, Move) and event.var in eqn.outputs and event.eqn is eqn:
                    brought.append(event)
                else:
                    own.append(event)
            self.equation(eqn, equation, own)
            for move in brought:
                self.move(move)
        for event in events:
            self.event(event)
        for seconds in self.fused.values():
            self.tasks.add(seconds, WORK, WORK, ())

    def equation(self, eqn: Eqn, equation: EquationPlan, events: Sequence[Event]) -> None:
        for event in events:
            self.event(event)
        exchanges = [event for event in events if isinstance(event, Exchange)]
        effect = self.machine.effect(eqn, equation)
        seconds, takes = effect.work + sum([self.fused.pop(v, 0.0) for v in eqn.inputs]), WORK
        if not events and not equation.bodies and equation.rule.is_passthrough and self.of_nothing.issuperset(eqn.inputs):
            self.of_nothing.update(eqn.outputs)
            self.makers.update({v: {p: AT_ONCE} for v, p in zip(eqn.outputs, effect.results, strict=True)})
            self.fused.update(zip(eqn.outputs, [seconds], strict=False))
            return
        after = [self.maker(v, p) for v, p in zip(eqn.inputs, effect.operands, strict=True)]
        after += [self.maker(eqn.inputs[i], p) for i, p in effect.exchange.requests]
        for exchange in exchanges:
            for each in exchange.final:
                after = [self.send(each.kind, each.seconds(self.machine.mesh, self.machine.topology), after)]
        if equation.bodies:
            inside, takes = self.inside(eqn, equation)
            seconds += inside
        task = self.tasks.add(seconds, takes, takes, after) if seconds else self.tasks.add(0.0, NOTHING, NOTHING, after)
        for var, placement in zip(eqn.outputs, effect.results, strict=True):
            self.makers[var] = {placement: task}

    def event(self, event: Event) -> None:
        """The tasks of a Move or a Remake."""
        if isinstance(event, Move):
            self.move(event)
        elif isinstance(event, Remake):
            var, effect = event.eqn.outputs[0], self.machine.effect(event.eqn, event.plan)
            if var in self.of_nothing:
                self.fused[var] = self.fused.get(var, 0.0) + effect.work
                self.makers[var][effect.results[0]] = AT_ONCE
                return
            after = [self.maker(v, p) for v, p in zip(event.eqn.inputs, effect.operands, strict=True)]
            takes = WORK if effect.work else NOTHING
            self.makers[var][effect.results[0]] = self.tasks.add(effect.work, takes, takes, after)

    def inside(self, eqn: Eqn, equation: EquationPlan) -> tuple[float, int]:
        """Seconds of the loop or branches of an equation, and what they take."""
        seconds, sends = 0.0, False
        for (_, times), body in zip(weighted_regions(eqn), equation.bodies, strict=True):
            if id(body) not in self.bodies:
                self.bodies[id(body)] = schedule_seconds(body, self.machine, bool(equation.block))
            seconds += times * self.bodies[id(body)]
            sends = sends or (bool(body.collectives) and not equation.block)
        return seconds, BOTH if sends else WORK

    def move(self, move: Move) -> None:
        walk, versions = move.walk, self.makers[move.var]
        after = self.maker(move.var, walk.placements[0])
        for (seconds, kind), placement in zip(self.steps_of(walk, move.var.type), walk.placements[1:], strict=True):
            after = self.tasks.add(seconds, WORK, WORK, (after,)) if kind is None else self.send(kind, seconds, (after,))
            versions.setdefault(placement, after)

    def steps_of(self, walk: Walk, type: TensorType) -> Sequence[tuple[float, str | None]]:
        """Seconds and collective of every step; equal layers share walks."""
        key = id(walk), type
        if key not in self.steps:
            machine, size = self.machine, type.dtype.itemsize
            sides = zip(walk.steps, walk.placements, strict=False)
            costs = [(step_cost(step, here, type.shape, size, machine.mesh, machine.topology), step) for step, here in sides]
            self.steps[key] = [(seconds, step.collective) for (seconds, _), step in costs]
        return self.steps[key]

    def send(self, kind: str, seconds: float, after: Sequence[int]) -> int:
        return self.tasks.add(seconds, LINKS, LINKS if kind in self.machine.topology.overlaps else BOTH, after)

    def maker(self, var: Var, placement: Placement) -> int:
        """The task that makes a version of a value; of an addend of a whole value, that of the value."""
        versions, normal = self.makers[var], self.machine.normal
        task = versions.get(normal(placement))
        if task is None and placement.partial:
            task = versions.get(normal(placement.without_partial()))
        return max(versions.values()) if task is None else task
