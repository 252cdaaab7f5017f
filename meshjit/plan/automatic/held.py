"""What values hold by choices, at every moment: as much as `Lifetimes` says of the plan that the choices lead to, or less.

A moment is an equation that runs; of a loop or a branch, each equation inside of it. A value holds versions: its home from where
it is made, and what is brought for readers, each up to its own last use. Which these are follows from the home and from what its
readers ask for, whatever other values do, so the bytes of a plan are a sum of tables:

    %1 made at [x, -], read at 3 as [x, -], at 5 as [-, -]      [x, -] is held up to 5, where it is gathered; [-, -] at 5

What is made again counts as nothing. So a plan whose choices hold more than the memory at any moment does not fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit.core.plan import EquationPlan, equation_plan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_regions
from meshjit.core.rules import rule_of
from meshjit.core.versions import Versions
from meshjit.plan.automatic.by_choice import ByChoice
from meshjit.plan.automatic.decisions import Decision, Value
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.problem import Problem, Table
from meshjit.plan.bring_first import first_of, is_late, is_sum
from meshjit.plan.cost import Machine
from meshjit.plan.nested import ceded, lent, unstacked
from sharding.placement import Placement
from sharding.reshard import Walk

MOST_WAYS: Final = 1 << 13  # in which one value may be made and read, each of which is followed
MOST_ENTRIES: Final = 1 << 20  # by way and moment; of values with more only home and readers by themselves count

Moment: TypeAlias = tuple[tuple[Program, int, bool], ...]  # from the whole Program inwards: equation, with its results or not
Choices: TypeAlias = Mapping[int, int] | Sequence[int]
Asked: TypeAlias = tuple[tuple[int, tuple[Placement, ...]], ...]  # by position of the use
Span: TypeAlias = tuple[int, int, int]  # bytes of a version, positions of its first and its last use


class Held:
    """The bytes that assignments of a Model hold at least, by moment."""

    def __init__(self, model: Model) -> None:
        self.moments = [*_moments(model.program)]
        spans: dict[object, Sequence[Span]] = {}
        programs = {id(value.prices.program): value.prices.program for value in model.values.values()}
        unheld = {v for program in programs.values() for v in model.machine.parts(program)}
        nested = Nested(model.machine, programs.values())
        values = [v for v in model.values.values() if v.var not in unheld]
        self.parts = [part for value in values for part in _Holder(value, model, self.moments, spans, nested).parts()]

    def bytes(self, choices: Choices) -> Table:
        """By moment, of an assignment."""
        return sum([part.of(choices) for part in self.parts], np.zeros(len(self.moments)))

    def priced(self, problem: Problem, prices: Table) -> Problem:
        """The problem in which a byte costs so much at each moment."""
        priced = Problem()
        priced.sizes, priced.tables = list(problem.sizes), dict(problem.tables)
        for part in self.parts:
            costs = part.bytes @ prices
            if costs.any():
                priced.add(part.scope, part.table(costs))
        return priced


@dataclass(frozen=True, eq=False)
class Part:
    """What a value holds: `bytes` by way and moment. `at`: by decision of the scope and its choice, the number of the first of
    its ways."""

    scope: tuple[int, ...]
    at: tuple[Any, ...]
    bytes: Table

    def of(self, choices: Choices) -> Table:
        return self.bytes[sum([int(at[choices[v]]) for v, at in zip(self.scope, self.at, strict=True)])]

    def table(self, costs: Table) -> Table:
        """By choices of the scope, what costs so much by way."""
        number: Any = 0
        for at in self.at:
            number = np.add.outer(number, at)
        return costs[number]


def _moments(program: Program) -> Iterator[Moment]:
    for at, eqn in enumerate(program.eqns):
        if eqn.op.regions is not None and eqn.op.pinned is None:
            for region in run_regions(eqn):
                yield from ((((program, at, False), *inner)) for inner in _moments(region.program))
        yield ((program, at, True),)
    yield ((program, len(program.eqns), True),)


class Nested:
    """Of values around loops and branches, and inside of them: which count where (`meshjit/plan/nested.py`)."""

    def __init__(self, machine: Machine, programs: Iterable[Program]) -> None:
        self.lent, self.late = set[Var](), set[Var]()  # inputs that count around; results that count inside till the end
        self.ceded: dict[Var, int] = {}  # with the number of the equation whose carry or result takes their memory
        for program in programs:
            uses = machine.uses_of(program)
            for at, eqn in enumerate(program.eqns):
                self.ceded.update((eqn.inputs[i], at) for i, _ in uses.in_place.get(at, ()))
                if eqn.op.regions is not None:
                    self.lent.update(*[lent(region) for region in run_regions(eqn)])
                    self.late.update([eqn.outputs[i] for i in unstacked(eqn)])
                    self.ceded.update((eqn.inputs[i], at) for i in ceded(eqn, uses.ends[at]))


# --- one value --------------------------------------------------------------------------------------------------------


class _Holder:
    """A value, and by moment the equation of its Program, -2 for none, and whether its results are there."""

    def __init__(
        self, value: Value, model: Model, moments: Sequence[Moment], spans: dict[object, Sequence[Span]], nested: Nested
    ) -> None:
        self.value, self.machine, self.spans = value, model.machine, spans
        self.type, own = value.var.type, value.prices.program
        self.is_outside = own is model.program
        here = [next(((at, has) for p, at, has in moment if p is own), (-2, True)) for moment in moments]
        self.when, has = (np.array(each) for each in zip(*here, strict=True))
        is_early = self.is_outside and value.var not in nested.late
        self.there = (self.when > value.born) | ((self.when == value.born) & (has | is_early))
        self.is_lent, self.ceded = value.var in nested.lent, nested.ceded.get(value.var, -1)
        self.times = [value.born, *value.times]
        self.end = 0  # position up to which the home is held at least
        if self.is_outside and value.var in model.machine.undonated:
            self.end = len(self.times)
            self.times.append(len(own.eqns))
        self.maker = value.prices.makers.get(value.var)
        self.masks: dict[tuple[int, int], Any] = {}

    def parts(self) -> Iterator[Part]:
        deciding = list(dict.fromkeys([self.value.maker, *(by for by, _, _ in self.value.uses)]))
        signs = [self.signs(by) for by in deciding]
        ways = math.prod(len(each.different) for each in signs)
        if ways > min(MOST_WAYS, MOST_ENTRIES // len(self.when)) or self.is_made_of:
            yield from self.one_by_one()
            return
        bytes_ = np.zeros((ways, len(self.when)))
        for row, way in zip(bytes_, itertools.product(*(each.different for each in signs)), strict=True):
            home = next(home for home, _ in way if home is not None)
            for size, first, last in self.held(home, tuple(sorted(use for _, asked in way for use in asked))):
                row += size * self.mask(first, last)
        steps = [math.prod(len(each.different) for each in signs[i + 1 :]) for i in range(len(signs))]
        yield Part(tuple(by.number for by in deciding), tuple(s.at * n for s, n in zip(signs, steps, strict=True)), bytes_)

    @property
    def is_made_of(self) -> bool:
        """Whether other values are made of this one again, so that it may be brought for these, too."""
        program, makers = self.value.prices.program, self.value.prices.makers
        return any(self.value.var in eqn.inputs and eqn.outputs[0] in makers for eqn in program.eqns if eqn.outputs)

    def one_by_one(self) -> Iterator[Part]:
        """Its home when it is made; and when it is read, what one reader asks for."""
        homes = self.value.homes
        sizes = np.array([0 if self.is_lent else self.machine.local_bytes(self.type, home) for home in homes.different])
        yield Part((self.value.maker.number,), (homes.at,), sizes[:, None] * self.mask(0, self.end))
        seen = {self.value.born}
        for position, (by, _, demands) in enumerate(self.value.uses if self.maker is None else (), 1):
            if self.times[position] not in seen:
                seen.add(self.times[position])
                sizes = np.array([self.machine.local_bytes(self.type, asked[0]) for asked in demands.different])
                yield Part((by.number,), (demands.at,), sizes[:, None] * self.mask(position, position))

    def signs(self, by: Decision) -> ByChoice[tuple[Placement | None, Asked]]:
        """By choice of a decision the home, if it makes the value, and what it asks for."""
        uses = [(i, demands) for i, (reader, _, demands) in enumerate(self.value.uses, 1) if reader is by]
        homes = self.value.homes if by is self.value.maker else None
        count = len(homes or uses[0][1])
        return ByChoice((None if homes is None else homes[c], tuple((i, each[c]) for i, each in uses)) for c in range(count))

    def mask(self, first: int, last: int) -> Any:
        """At which moments a version is held that is used at these positions. Inside of loops and branches all versions are held
        until the value's last use, and what nobody reads to the end; not while a loop runs whose carry takes their memory."""
        mask = self.masks.get((first, last))
        if mask is None:
            end = max(self.times[last], 0)
            if not self.is_outside:
                is_unread = self.value.born < 0 and len(self.times) == 1
                end = math.inf if is_unread else max(self.times)
            end = end - 1 if end == self.ceded else end
            start = max(self.times[first], self.value.born)
            mask = self.masks[first, last] = self.there & (self.when >= start) & (self.when <= end)
        return mask

    def held(self, home: Placement, asked: Asked) -> Sequence[Span]:
        """The versions of the value."""
        ranks = tuple([self.times[i] - self.times[i - 1] > 0 for i, _ in asked])
        waits = bool(asked) and is_late(self.times[0], self.times[asked[0][0]]) and not any(each[0].partial for _, each in asked)
        key = self.type, id(self.maker), self.value.born < 0, home, asked, ranks, waits, self.end, self.is_lent
        spans = self.spans.get(key)
        if spans is None:
            life = _Life(self.machine, self.value, self.maker, home)
            life.read(asked, self.times, waits)
            life.keep(self.end)
            counted = [each for each in life.spans.items() if not (self.is_lent and each[0] == home)]
            spans = self.spans[key] = [(self.machine.local_bytes(self.type, p), *span) for p, span in counted]
        return spans


class _Life(Versions[None]):
    """The versions of one value as they are brought one after the other. `spans`: positions of the first and the last use."""

    def __init__(self, machine: Machine, value: Value, maker: Eqn | None, home: Placement) -> None:
        super().__init__(machine)
        self.machine, self.var, self.position, self.spans = machine, value.var, 0, dict[Placement, tuple[int, int]]()
        self.is_summed, self.made_again = value.born >= 0 and is_sum(home), set[Placement]()
        if maker is not None:
            self.makers[self.var] = maker, equation_plan(rule_of(maker), {}, machine.mesh)
        self.home = home
        self.enter(self.var, home, None)
        self.use(home)

    def read(self, asked: Asked, times: Sequence[int], waits: bool) -> None:
        """`waits`: a sum would, for its first reader."""
        if self.is_summed:
            whole = dict.fromkeys([each[0] for _, each in asked if not each[0].partial])
            placement = first_of(self.machine, self.var.type, next(iter(self.spans)), whole, waits)
            if placement is not None:
                self.bring(self.var, placement)
        for _, each in itertools.groupby(asked, key=lambda use: times[use[0]]):  # operands first, then what the op asks for
            uses = list(each)
            for i, p in [(i, p) for i, each in uses for p in each[:1]] + [(i, p) for i, each in uses for p in each[1:]]:
                self.position = i
                self.operand(self.var, p)

    def keep(self, end: int) -> None:
        """The home is held up to this position at least."""
        first, last = self.spans[self.home]
        self.spans[self.home] = first, max(last, end)

    def use(self, placement: Placement) -> None:
        if placement not in self.made_again:
            first, _ = self.spans.get(placement, (self.position, 0))
            self.spans[placement] = first, self.position

    def bring(self, var: Var, placement: Placement) -> None:
        super().bring(var, placement)
        self.use(self.walks.normal(placement))

    def make_again(self, var: Var, placement: Placement) -> None:
        super().make_again(var, placement)
        if placement in self.versions[var]:
            self.made_again.add(placement)

    def travel(self, var: Var, walk: Walk, local: None) -> Sequence[None]:
        for placement in walk.placements:
            self.use(placement)
        return (None,) * len(walk.steps)

    def addend(self, local: None, placement: Placement) -> None:
        return None

    def remake(self, eqn: Eqn, plan: EquationPlan) -> None:
        return None
