"""The plans of one draft that were made so far, and which of them are worth keeping."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from meshjit.plan.automatic.candidate import Candidate, arguments_bytes, candidate_of, propagated, refined, spread, ways_of_inputs
from meshjit.plan.automatic.frugal import CLOSE
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.prescribe import prescribe
from meshjit.plan.automatic.small import is_small
from meshjit.plan.automatic.unfit import Unfit
from meshjit.plan.automatic.watch import WATCH
from meshjit.plan.draft import Draft
from meshjit.plan.proposals.spread_again import REPEATED

REFINED: Final = 300  # equations up to which proposals refine the best plan
EQUAL: Final = 1 + 1e-9  # seconds that differ by less are the same
Choices: TypeAlias = Mapping[int, int] | Sequence[int]  # by number of the variable


class Made:
    """`rival`: seconds of a plan that somebody else made; plans that take longer are not looked for."""

    def __init__(self, draft: Draft, ties: Mapping[int, int], deadline: float = math.inf, is_frugal: bool = False) -> None:
        self.draft, self.machine, self.ties, self.deadline, self.is_frugal = draft, draft.machine, ties, deadline, is_frugal
        self.memory = draft.machine.topology.memory
        self.best: Candidate | None = None  # of plans that fit
        self.unfit = Unfit(self.memory, lambda candidate: refined(candidate, self.machine, "memory"))
        self.close: list[Candidate] = []  # those that fit and are about as fast as the best
        self.searched = 0
        self.rival = math.inf

    def attempt(self, model: Model, choices: Choices) -> Candidate:
        """Make the plan of an assignment."""
        candidate = candidate_of(prescribe(self.draft, model, choices), self.machine)
        self.searched += 1
        self.consider(candidate)
        return candidate

    def consider(self, candidate: Candidate) -> None:
        """Keep it if it is better than others, or about as good."""
        _note(candidate)
        if candidate.peak > self.memory:
            self.unfit.consider(candidate)
            return
        if self.best is None or candidate.seconds * EQUAL < self.best.seconds:
            self.best = candidate
        if self.is_frugal:
            self.close = [c for c in (*self.close, candidate) if c.seconds <= CLOSE * self.best.seconds]

    def as_refined(self, best: Candidate) -> Candidate:
        """What proposals make of it, if that is better and the Program short."""
        if best.draft is None or (len(self.draft.program.eqns) > REFINED and best.peak <= self.memory):
            return best
        improved = refined(best, self.machine)
        return improved if improved.is_better_than(best, self.memory) else best

    @functools.cached_property
    def propagated(self) -> Candidate:
        """The annotations' plan. Nothing is computed again for it where some plan fits without, or where its arguments alone do
        not."""
        plain = propagated(self.draft, self.ties, "propagated, none computed again")
        is_wanted = min(self.most, self.unfit.quickest) == math.inf and plain.peak > self.memory
        if not is_wanted or arguments_bytes(plain.plan, self.machine) > self.memory:
            return plain
        return propagated(self.draft, self.ties, "propagated")

    def from_spread_inputs(self, best: Candidate, is_open: bool, is_in_blocks: bool, is_compared: bool) -> Candidate | None:
        """What propagation makes of inputs that lie over all devices, where the best plan repeats work, or a much better one is
        not ruled out: it goes on from there over parts of axes, too. Where this plan or the best one does loops in blocks of
        iterations, and plans that do are not `is_compared`, all ways to spread the inputs of a short Program are tried."""
        assert best.plan.cost is not None
        repeats = best.plan.cost.work_seconds > REPEATED * self.least_work
        if self.is_late or not (repeats or is_open or (is_in_blocks and not is_compared)):
            return None
        ways = ways_of_inputs(self.draft)
        chosen = spread(self.draft, self.ties, ways, 0)
        if is_compared or not (chosen.is_in_blocks or is_in_blocks) or len(self.draft.program.eqns) > REFINED:
            return chosen
        for way in range(1, len(ways)):
            if self.is_late:
                break
            other = spread(self.draft, self.ties, ways, way)
            chosen = other if other.is_better_than(chosen, self.memory) else chosen
        return chosen

    @property
    def quickest(self) -> float:
        """Seconds of the best plan so far that fits."""
        return math.inf if self.best is None else self.best.seconds

    @property
    def most(self) -> float:
        """The same, whoever found it."""
        return min(self.rival, self.quickest)

    @property
    def fitting(self) -> float:
        """The same, propagation's among them, and what was made lighter."""
        propagated = self.propagated.seconds if self.propagated.peak <= self.memory else math.inf
        return min(self.most, self.unfit.quickest, propagated)

    @property
    def is_late(self) -> bool:
        """The search ends in any case."""
        return time.perf_counter() > self.deadline

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether everything can be gone through."""
        return is_small(self.draft)

    @functools.cached_property
    def least_work(self) -> float:
        """Seconds of the work if all devices share all of it."""
        return self.machine.work_left(self.draft.program)[0]


def _note(candidate: Candidate) -> None:
    """For who watches."""
    watch = WATCH.get()
    if watch is not None:
        watch.plans, watch.seconds = watch.plans + 1, min(watch.seconds, candidate.seconds)
