"""What a loop keeps of each iteration for a later one, and what of it is best computed again there instead.

    forward, 32 times      z = dot(x, a)   h = gelu(z)   y = x + dot(h, b)      keeps x, z, h and what gelu's derivative needs
    least seconds          keeps x, z: the rest goes element by element
    least bytes            keeps x: z is computed again, too

Values that are kept part those that are computed again from those that are there only in the forward loop: a cut of the
body's graph. Keeping a value costs its bytes, computing an equation again its seconds; the cheapest cut depends on what a byte
is worth. As that rises, fewer bytes are kept, and more is computed again (`ladder`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Var
from meshjit.core.region import weighted_regions
from meshjit.plan.cost import Machine
from meshjit.plan.events import Move
from meshjit.plan.least_cut import LeastCut
from meshjit.transform.compute_again_in_loops import LoopAgain, LoopPair, loop_pairs

CUTS: Final = 8  # of one loop, between the least bytes and the least seconds
NOTHING: Final = 1e-6  # of the other side of the price, where one side alone counts


@dataclass(frozen=True)
class Cut:
    """`bytes` are kept for the later loop, and `seconds` are spent on what is computed again; `again`: what is done."""

    again: LoopAgain
    bytes: float
    seconds: float

    @property
    def dropped(self) -> int:
        """How many of the residuals are computed again."""
        made = {v for eqn in self.again.eqns for v in eqn.outputs}
        return sum(inner in made for inner in self.again.pair.residuals.values())


class Residuals:
    """Of a pair of loops in the Program of `plan`, which runs `trips` times. `first`, `second`: the loops' numbers there."""

    def __init__(self, pair: LoopPair, plan: Plan, machine: Machine, trips: float) -> None:
        self.pair, self.machine = pair, machine
        eqns = plan.program.eqns
        self.first, self.second = eqns.index(pair.forward), eqns.index(pair.backward)
        self.length = pair.forward.params["length"]
        self.runs = trips * self.length
        (self.body,) = plan.equations[self.first].bodies
        self.on_host = machine.uses_of(self.body.program).on_host if machine.target.has_host_memory else frozenset[Var]()
        late = {*plan.program.outputs, *(v for eqn in eqns[self.second :] for v in eqn.inputs)}  # what is there anyway
        results = zip(pair.forward.outputs, pair.body.outputs, strict=True)
        self.stays = {inner for outer, inner in results if outer in late - {*pair.stacked} and outer.rank > inner.rank}
        self.now = float(sum(map(self._stack_bytes, {*pair.residuals.values()})))
        self.entering = self._entering(plan, late)
        self.own_seconds = dict(_seconds(self.body, machine))

    def _stack_bytes(self, var: Var) -> int:
        if var in self.on_host or var in self.stays:
            return 0
        return self.length * self.machine.local_bytes(var.type, self.body.placements[var].without_partial())

    def _entering(self, plan: Plan, late: Set[Var]) -> Mapping[Var, float]:
        """By const and slice that the first body reads: the bytes that reading it in the second keeps, if nothing else does."""
        forward = self.pair.forward
        places = zip(forward.inputs, self.body.program.inputs, plan.equations[self.first].operands, strict=True)
        consts, carries = forward.params["num_consts"], forward.params["num_carry"]
        return {
            inner: 0.0 if outer in late else float(self.machine.local_bytes(outer.type, placement.without_partial()))
            for i, (outer, inner, placement) in enumerate(places)
            if not consts <= i < consts + carries
        }

    def ladder(self) -> list[Cut]:
        """Cuts that keep fewer bytes than now, the quickest first; each is the cheapest for some worth of a byte."""
        total = sum(self.own_seconds.values()) * self.runs
        if not self.now or not total:
            return []
        least = self._cut(1.0, NOTHING * self.now / total)
        points, waiting = [least], [((self.now, 0.0), (least.bytes, least.seconds))]
        while waiting and len(points) < CUTS:
            (more, quick), (fewer, slow) = waiting.pop(0)
            worth_byte, worth_second = slow - quick, more - fewer
            if worth_byte <= 0 or worth_second <= 0:
                continue
            between = self._cut(worth_byte, worth_second)
            price = worth_byte * between.bytes + worth_second * between.seconds
            if price < (worth_byte * more + worth_second * quick) * (1 - NOTHING):
                points.append(between)
                middle = between.bytes, between.seconds
                waiting += [((more, quick), middle), (middle, (fewer, slow))]
        return sorted((cut for cut in points if cut.bytes < self.now), key=lambda cut: cut.seconds)

    def _cut(self, byte: float, second: float) -> Cut:
        """The cheapest cut where a byte and a second cost so much. A value has two nodes: is it computed, is it there."""
        graph, residuals = LeastCut(), {*self.pair.residuals.values()}
        for var in residuals:
            graph.arc((var, "there"), "sink", math.inf)
        for var in self.body.program.inputs:
            if var not in self.entering:
                graph.arc("source", (var, "computed"), math.inf)
                graph.arc((var, "computed"), (var, "there"), byte * self._stack_bytes(var))
            else:
                graph.arc("source", (var, "there"), byte * self.entering[var])
        for eqn in self.body.program.eqns:
            seconds = self.own_seconds[eqn] * self.runs if eqn.inputs else 0.0
            graph.arc("source", eqn, second * seconds if _can_be_repeated(eqn) else math.inf)
            for var in eqn.inputs:
                graph.arc((var, "there"), eqn, math.inf)
            for var in eqn.outputs:
                graph.arc(eqn, (var, "computed"), math.inf)
                graph.arc((var, "computed"), (var, "there"), byte * self._stack_bytes(var))
        side = graph.sink_side("source", "sink")
        eqns = tuple([eqn for eqn in self.body.program.eqns if eqn in side])
        made = {v for eqn in eqns for v in eqn.outputs}
        read = {v for eqn in eqns for v in eqn.inputs} | residuals
        kept = read - made - self.entering.keys()
        bytes_ = sum(map(self._stack_bytes, kept)) + sum(self.entering[v] for v in self.entering.keys() & read)
        spent = sum(self.own_seconds[eqn] for eqn in eqns if eqn.inputs) * self.runs
        return Cut(LoopAgain(self.pair, eqns), float(bytes_), spent)


def loop_residuals(plan: Plan, machine: Machine, trips: float = 1.0) -> Iterator[tuple[Residuals, bool]]:
    """Of all pairs of loops, nested ones too; with whether the pair stands in nested Programs."""
    for pair in loop_pairs(plan.program):
        yield Residuals(pair, plan, machine, trips), False
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        if equation.bodies:
            for (_, times), body in zip(weighted_regions(eqn), equation.bodies, strict=True):
                for residuals, _ in loop_residuals(body, machine, trips * times):
                    yield residuals, True


def _can_be_repeated(eqn: Eqn) -> bool:
    return is_pure(eqn) and eqn.op.pinned is None


def _seconds(body: Plan, machine: Machine) -> Iterator[tuple[Eqn, float]]:
    """Of each equation: work, what ops exchange, and what is moved for it."""
    moving: dict[Eqn | None, float] = {}
    for event in body.events:
        if isinstance(event, Move):
            moving[event.eqn] = moving.get(event.eqn, 0.0) + event.walk.seconds
    for eqn, plan in zip(body.program.eqns, body.equations, strict=True):
        yield eqn, moving.get(eqn, 0.0) + _own(eqn, plan, machine)


def _own(eqn: Eqn, plan: EquationPlan, machine: Machine) -> float:
    if plan.bodies:
        costs = [(body.cost, times) for (_, times), body in zip(weighted_regions(eqn), plan.bodies, strict=True)]
        return sum(times * cost.seconds for cost, times in costs if cost is not None)
    effect = machine.effect(eqn, plan)
    return effect.work + effect.exchange.moving
