"""What the loops of a Program that may be done in blocks of iterations take, by where things are around them.

Beyond the work that all devices share: in blocks, as the plan says that does it so; without blocks, as an elimination of the body
alone says. Both are asked for where they may matter.

    u over x, in and out      2.1 ms in blocks of 5, 3.7 ms without
    u over x, then over y     no blocks, 52 ms without
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.plan import EquationPlan, Plan
from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_regions, weighted_regions
from meshjit.partition.blocking import blocked_loop
from meshjit.partition.stretches import Refused, cut_together, may_be_cut
from meshjit.plan.automatic.decisions import Decision
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.left import Left
from meshjit.plan.automatic.made import REFINED
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.price_list import PriceList
from meshjit.plan.automatic.problem import Problem, Scope, Table
from meshjit.plan.block_sizes import BlockSizes
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft
from meshjit.plan.graph import programs_in
from sharding.axes import AxisRef

FEW: Final = 64  # entries of a table over what is around a loop, beyond which only ways count in which it can be in blocks
LARGEST: Final = 1 << 14  # the same, beside other loops
WAYS: Final = 1 << 12  # to place what is around a loop
Axes: TypeAlias = tuple[AxisRef, ...]


def stencils(program: Program) -> list[Eqn]:
    """The loops of a short Program that may be done in blocks, as far as their bodies tell: elements move there along a dim of
    what is carried, and nothing is nested. None where two have the same body, which is one decision."""
    parts = [*programs_in(program)]
    is_short = sum(len(part.eqns) for part in parts) <= REFINED
    return [*_stencils(program)] if is_short and len(set(map(id, parts))) == len(parts) else []


def _stencils(program: Program) -> Iterator[Eqn]:
    for eqn in program.eqns:
        for region in run_regions(eqn):
            yield from _stencils(region.program)
            is_plain = all(inner.op.regions is None and is_pure(inner) for inner in region.program.eqns)
            if region.loops and (region.trips or 0) > 1 and is_plain and may_be_cut(region):
                yield eqn


@dataclass
class Around:
    """Where things are around a loop, by number of the decision. `is_possible`: whether it can be done in blocks then. Seconds
    beyond the work that all devices share, at least: in blocks, and without; None where nobody has asked."""

    loop: Eqn
    choices: dict[int, int]
    is_possible: bool
    in_blocks: float | None = None
    without: float | None = None

    @property
    def more(self) -> float:
        """Either way."""
        return min(self.in_blocks or 0.0 if self.is_possible else math.inf, self.without or 0.0)


class Loops:
    """Of a draft. `free`: a Model in which they take nothing but work. `upper`: the seconds of a plan that is there. `inside`:
    the decisions in their bodies, each of which only costs something by itself; `outside`: the others. One loop alone is compared
    only in blocks."""

    def __init__(self, draft: Draft, ties: Mapping[int, int], free: Model, upper: float) -> None:
        self.draft, self.ties, self.free, self.upper = draft, ties, free, upper
        self.loops = [*free.sides]
        self.inside = {d.number for sides in free.sides.values() for d in sides.decisions}
        self.outside = [d.number for d in free.decisions if d.number not in self.inside]
        self.arounds: dict[tuple[object, ...], Around] = {}
        self.possible: dict[Eqn, list[Around]] = {}

    @property
    def count(self) -> int:
        """Of the ways to place what is around a loop that came up."""
        return len(self.arounds)

    def around(self, loop: Eqn, choices: Mapping[int, int]) -> Around:
        """Where things are around a loop."""
        sides = self.free.sides[loop]
        mine = {d.number: choices[d.number] for d in (*sides.inputs, *sides.outputs)}
        key = loop, *mine.values()
        if key not in self.arounds:
            without = math.inf if len(self.loops) == 1 else None
            self.arounds[key] = Around(loop, mine, self._can_be_done(loop, mine), without=without)
        return self.arounds[key]

    def _can_be_done(self, loop: Eqn, choices: Mapping[int, int]) -> bool:
        (region,), mesh, sides = run_regions(loop), self.draft.machine.mesh, self.free.sides[loop]
        inputs, outputs = (tuple([d.placements[choices[d.number]] for d in side]) for side in (sides.inputs, sides.outputs))
        if any(eqn.op.seed is not None for eqn in region.program.eqns):
            return True  # which depends on where that is
        try:
            blocked_loop(loop, Plan(region.program, mesh, {}, (), inputs, outputs), mesh)
        except Refused:
            return False
        return True

    def add_to(self, problem: Problem, alive: Sequence[Any]) -> None:
        """The seconds that loops take more, as far as is known, by the decisions around them, of which these choices are left."""
        for loop in self.loops:
            scope = self.scope(loop)
            left = [alive[v] for v in scope]
            if math.prod(map(len, left)) <= (FEW if len(self.loops) == 1 else LARGEST):
                problem.add(scope, self._table(loop, scope, left))
            else:
                self._add_ways(problem, loop, alive)

    def scope(self, loop: Eqn) -> Scope:
        """The decisions around a loop."""
        sides = self.free.sides[loop]
        return tuple(sorted({d.number for d in (*sides.inputs, *sides.outputs)}))

    def _table(self, loop: Eqn, scope: Scope, left: Sequence[Any]) -> Table:
        table = np.zeros([len(each) for each in left])
        for around in [around for around in self.arounds.values() if around.loop is loop]:
            at = [np.searchsorted(each, around.choices[v]) for v, each in zip(scope, left, strict=True)]
            table[tuple(at)] = around.more
        return table

    def _add_ways(self, problem: Problem, loop: Eqn, alive: Sequence[Any]) -> None:
        """A variable for the ways to place what is around a loop in which it can be done in blocks; with one more choice for all
        others, where there are several loops."""
        ways = [w for w in self.ways(loop) if all(w.choices[v] in alive[v] for v in w.choices)]
        others = [0.0] if len(self.loops) > 1 else []
        number = problem.variable([*[way.more for way in ways], *others])
        for v in self.scope(loop):
            fits = [[*[way.choices[v] == choice for way in ways], *[True] * len(others)] for choice in alive[v]]
            problem.add((v, number), np.where(np.array(fits, bool), 0.0, math.inf))

    def ways(self, loop: Eqn) -> list[Around]:
        """All ways to place what is around a loop in which it can be done in blocks. TooWide where these are too many."""
        if loop not in self.possible:
            ways = [self.around(loop, choices) for choices in self._aligned(loop)]
            self.possible[loop] = [way for way in ways if way.is_possible]
        return self.possible[loop]

    def _aligned(self, loop: Eqn) -> list[dict[int, int]]:
        """Choices of the decisions around a loop with which dims that are cut together lie over the same axes. What it only reads
        may be whole."""
        (region,), sides = run_regions(loop), self.free.sides[loop]
        body, groups, carried = region.program, cut_together(region), {i for i, _ in region.carried}
        inputs = [(v, d, i not in carried) for i, (v, d) in enumerate(zip(body.inputs, sides.inputs, strict=True))]
        outputs = [(v, d, False) for v, d in zip(body.outputs, sides.outputs, strict=True)]
        ways: list[tuple[dict[int, int], dict[int, Axes]]] = [({}, {})]
        for var, decision, may_be_whole in sorted([*inputs, *outputs], key=lambda value: value[2]):
            mine = [groups.get((var, d)) for d in range(var.rank)]
            ways = [further for way in ways for further in _further(way, decision, mine, may_be_whole)]
            if len(ways) > WAYS:
                raise TooWide(f"more than {WAYS:,} ways to place what is around a loop")
        return [*{tuple(choices.values()): choices for choices, _ in ways}.values()]

    # --- without blocks -----------------------------------------------------------------------------------------------

    def learn(self, arounds: Sequence[Around]) -> bool:
        """What loops take without blocks; whether that is news."""
        unknown = [around for around in arounds if around.without is None]
        for around in unknown:
            around.without = max(0.0, self._elimination(around).least - self._work(around.loop))
        return bool(unknown)

    def _elimination(self, around: Around) -> Elimination:
        """Of the body alone."""
        problem, inside = Problem(), self._inside(around.loop)
        problem.sizes = [size if v in inside else 1 for v, size in enumerate(self.whole.sizes)]
        problem.tables = {scope: table for scope, table in self.whole.tables.items() if not inside.isdisjoint(scope)}
        return Elimination(problem.where(around.choices))

    @functools.cached_property
    def whole(self) -> Problem:
        """Of everything that can be chosen, with lower bounds of its prices."""
        draft = self.draft
        of = draft.program, draft.flat, draft.machine, draft.annotations, self.ties
        return Left(Model(*of, bounds=PriceList(draft.machine), is_whole=False), self.upper).problem()

    def _inside(self, loop: Eqn) -> set[int]:
        """The variables of a body: its decisions, and the sets of placements of its values."""
        count, mine = len(self.free.decisions), {d.number for d in self.free.sides[loop].decisions}
        near = {v for scope in self.whole.tables if not mine.isdisjoint(scope) for v in scope if v >= count}
        return mine | near

    def with_others(self, every: Sequence[int], choices: Mapping[int, int], arounds: Sequence[Around]) -> list[int]:
        """All choices: those around loops, and bodies as in `every`, or where they take less without blocks, as is best then."""
        chosen = [choices.get(v, choice) for v, choice in enumerate(every)]
        for around in arounds:
            in_blocks = around.in_blocks if around.is_possible else math.inf
            if in_blocks is not None and around.without is not None and around.without < in_blocks:
                best = self._elimination(around).best()
                for decision in self.free.sides[around.loop].decisions:
                    chosen[decision.number] = best[decision.number]
        return chosen

    # --- in blocks ----------------------------------------------------------------------------------------------------

    def learn_of(self, plan: Plan, arounds: Sequence[Around]) -> bool:
        """What loops take in blocks by a plan; whether that is news."""
        unknown = [around for around in arounds if around.is_possible and around.in_blocks is None]
        for around in unknown:
            equation, sides = _planned(plan, around.loop), self.free.sides[around.loop]
            seconds = None if equation is None else _seconds(around.loop, equation, self.draft.machine)
            around.is_possible = seconds is not None
            around.in_blocks = max(0.0, sides.weight * (seconds or 0.0) - self._work(around.loop))
        return bool(unknown)

    def _work(self, loop: Eqn) -> float:
        """Seconds in a loop that all devices share, at least."""
        sides, ((_, trips),) = self.free.sides[loop], weighted_regions(loop)
        return sides.weight * trips * sum([float(self._costs[d.number].min()) for d in sides.decisions])

    @functools.cached_property
    def _costs(self) -> Mapping[int, Any]:
        """Of decisions."""
        return {kind.decision: kind.effects.costs for kind in self.free.kinds.values()}


def _further(
    way: tuple[dict[int, int], dict[int, Axes]], decision: Decision, groups: Sequence[int | None], may_be_whole: bool
) -> Iterator[tuple[dict[int, int], dict[int, Axes]]]:
    """A way with one more value, whose dims are of these groups: its choices, and the axes of each group so far."""
    chosen, axes = way
    for choice, placement in enumerate(decision.placements):
        if chosen.get(decision.number, choice) != choice or placement.partial:
            continue
        cut, fits = dict(axes), True
        for have, group in zip(placement.dims, groups, strict=True):
            if have == () and (group is None or may_be_whole):
                continue
            fits = fits and group is not None and cut.setdefault(group, have) == have
        if fits:
            yield {**chosen, decision.number: choice}, cut


def _planned(plan: Plan, loop: Eqn) -> EquationPlan | None:
    """How a plan does a loop."""
    for eqn, equation in zip(plan.program.eqns, plan.equations, strict=True):
        if eqn is loop:
            return equation
        for body in equation.bodies:
            if (found := _planned(body, loop)) is not None:
                return found
    return None


def _seconds(eqn: Eqn, equation: EquationPlan, machine: Machine) -> float | None:
    """At least of a loop in blocks; None where it cannot be done so."""
    (body,), ((_, trips),) = equation.bodies, weighted_regions(eqn)
    assert body.cost is not None
    if equation.block:
        exchange = machine.effect(eqn, equation).exchange
        return trips * body.cost.work_seconds + exchange.work + exchange.moving
    try:
        return trips * body.cost.work_seconds + BlockSizes(blocked_loop(eqn, body, machine.mesh), machine).least
    except Refused:
        return None
