"""For large Programs on several mesh axes: one axis at a time, exactly, while the others stay; again until nothing gets better.

Each step is an elimination over all equations, with what the axis does as the only choice, so it never gets worse. Where it ends
depends on where it began, so it begins several times (`start.py`): with all axes together as one, from a batch over all devices;
with those axes that a batch over the others leaves; from nowhere.

    start      data*model together, from batch[data*model]; model, from batch[data]; data*model from nowhere; data from nowhere
    then       model given data, data given model, … until the cost stays
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.plan.automatic.domain import Along, Plans
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.memory import with_memory
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.start import placements_of, plans_of, starts
from meshjit.plan.draft import Draft
from sharding.placement import Placement

LARGEST: Final = 1 << 22  # entries of a table
LARGEST_OF_LONG: Final = 1 << 19  # of Programs with many equations
STARTS: Final = 4
LONG: Final = 3000  # equations from which tables are smaller, and few descents are gone
CYCLES: Final = 3  # times that every axis is gone along
GAIN: Final = 1 - 1e-6  # a step that gains less ends the descent
FREE: Final[Mapping[int, float]] = {}
VERSIONS: Final = 2  # placements of a value besides its home
ROUNDS: Final = 2  # eliminations of a problem that is too wide, each with other decisions left as they are


@dataclass(frozen=True)
class State:
    """Where a descent is: a model with the choices in it, and what they cost by estimates."""

    seconds: float
    model: Model | None = None
    choices: Sequence[int] = ()
    eqns: Mapping[Eqn, EquationPlan] = field(default_factory=dict[Eqn, EquationPlan])
    vars: Mapping[Var, Placement] = field(default_factory=dict[Var, Placement])


def descend(
    draft: Draft, ties: Mapping[int, int], deadline: float, prices: Mapping[int, float] = FREE, is_told_early: bool = False
) -> Iterator[State]:
    """Where descents end, one for each start; the first whatever the deadline. Bytes held at equations have `prices`.
    `is_told_early`: before that, where the first of them stands after its first step."""
    names = tuple(name for name, size in draft.machine.mesh.shape.items() if size > 1)
    common = Plans(draft.machine.mesh, draft.machine.kinds)
    for i, (state, axes) in enumerate(itertools.islice(_begun(draft, ties, common, names), STARTS)):
        if i and time.perf_counter() > deadline:
            return
        state = step(draft, ties, common, state, axes, prices)
        if is_told_early and not i:
            yield state
        if len(names) > 1:
            others = [*[name for name in names if name not in axes], *[name for name in names if name in axes]]
            state = _cycles(draft, ties, common, state, others, deadline, prices)
        yield state


def _begun(
    draft: Draft, ties: Mapping[int, int], common: Plans, names: tuple[str, ...]
) -> Iterator[tuple[State, tuple[str, ...]]]:
    """Where descents begin, and the axes that go along first: those that a batch leaves, or all; then from nowhere."""
    for begun, left in starts(draft, ties):
        yield State(math.inf, None, (), plans_of(begun, common), placements_of(begun)), left or names
    for axes in dict.fromkeys([names, *[(name,) for name in names]]):
        yield State(math.inf), axes


def _cycles(
    draft: Draft,
    ties: Mapping[int, int],
    common: Plans,
    state: State,
    names: Sequence[str],
    deadline: float,
    prices: Mapping[int, float],
) -> State:
    in_vain = set[str]()  # axes along which nothing is gained from here, that of the last gain among them
    for name in [*names] * CYCLES:
        if time.perf_counter() > deadline:
            return state
        if name in in_vain:
            continue
        after = step(draft, ties, common, state, (name,), prices)
        in_vain = {name} if after.seconds < GAIN * state.seconds else {*in_vain, name}
        state = after if after.seconds <= state.seconds else state
    return state


def step(
    draft: Draft, ties: Mapping[int, int], common: Plans, state: State, axes: tuple[str, ...], prices: Mapping[int, float] = FREE
) -> State:
    """The best that `axes` can do while the others are as in the state; bytes held at equations have `prices`."""
    domain = Along(common, axes, state.eqns, state.vars)
    model = Model(
        draft.program, draft.flat, draft.machine, draft.annotations, ties, domain, VERSIONS,
        estimates=True, joins=True, is_whole=bool(prices)
    )  # fmt: skip
    problem, hints, spared = with_memory(model, prices), _hints(model, state), set[int]()
    rounded = problem.rounded()  # estimates have no more digits
    best: tuple[float, Sequence[int]] | None = None
    begun = Elimination(rounded, largest=LARGEST if len(draft.program.eqns) < LONG else LARGEST_OF_LONG, waits=True)
    for _ in range(ROUNDS):
        try:
            elimination = begun.with_hints(hints, spared)
        except TooWide:
            break
        choices = elimination.best()
        seconds = problem.cost(choices)
        if best is None or seconds < best[0]:
            best = seconds, choices
        if not elimination.fixed:
            break
        spared |= elimination.fixed.keys()
        decided = {decision.number for decision in model.decisions}
        hints = [choice if v in decided else None for v, choice in enumerate(best[1])]
    return state if best is None else _state(model, best[1], best[0])


def _hints(model: Model, state: State) -> list[int | None]:
    """For every decision the choice that leaves things as they are in the state, else the cheapest by itself."""
    hints: list[int | None] = [None] * len(model.problem.sizes)
    for decision in model.decisions:
        own = model.problem.tables[(decision.number,)]
        hints[decision.number] = int(own.argmin())
        if decision.eqns:
            eqn, spreads = decision.eqns[0]
            before: object = state.eqns.get(eqn)
            same = [i for i, plan in enumerate(spreads) if plan is before]
        else:
            there = state.vars.get(decision.vars[0])
            same = [i for i, placement in enumerate(decision.placements) if placement == there]
        if same:
            hints[decision.number] = same[0]
    return hints


def _state(model: Model, choices: Sequence[int], seconds: float) -> State:
    eqns: dict[Eqn, EquationPlan] = {}
    places: dict[Var, Placement] = {}
    for decision in model.decisions:
        choice = choices[decision.number]
        eqns.update((eqn, spreads[choice]) for eqn, spreads in decision.eqns)
        places.update(dict.fromkeys(decision.vars, decision.placements[choice]) if decision.vars else ())
    return State(seconds, model, choices, eqns, places)
