"""The cheapest plan that fits the memory, or the leanest of all, exactly.

Bytes get a price at every moment. What an assignment costs, and what it holds beyond the memory at these prices, is no more than
what it costs if it fits. So assignments are gone through in that order, those that hold too much by their tables are passed over,
and the search ends at the cost of the best plan that fits (Lagrangian relaxation with its gap closed; Handler and Zang, 1980):

    prices 0        fastest assignments first: hundreds of them hold too much
    prices up       the first assignments are about as dear as the plan that is sought, and few come before it

Choices with which nothing is better than the best plan are left out first. Without any plan that fits, weights of moments bring
the leanest first: no assignment holds less than the weighted mean of its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from meshjit.plan.automatic.eliminate import LARGEST, Elimination, TooWide
from meshjit.plan.automatic.exhaust import PLANS, elimination_of, gone_through
from meshjit.plan.automatic.held import Held
from meshjit.plan.automatic.made import EQUAL, Choices, Made
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.problem import Problem, Table

STEPS: Final = 1 << 15  # choices of one decision on the way to assignments in order
ROUNDS: Final = 40  # changes of prices
NARROWED: Final = 4  # times that choices are left out, and prices changed once more
IN_VAIN: Final = 4  # rounds without a higher bound, after which steps are halved
RISE: Final = 0.5  # what the bound is supposed to rise by where no plan fits yet, of itself
TILT: Final = 2.0  # exponent of what a moment's weight grows by, where it holds most
QUICK: Final = 1 << 18  # entries of a table of the elimination that tells what each choice costs at least
EFFORT: Final = 1 << 28  # entries of tables to go through until assignments are gone through in order; some 2 s

Ordered = Iterator[tuple[float, Choices | None]]


class Within:
    """Makes plans that hold at most `made.memory`, as far as tables tell."""

    def __init__(self, made: Made, model: Model) -> None:
        self.made, self.model, self.held, self.memory = made, model, Held(model), made.memory
        self.tried = set[tuple[int, ...]]()
        self.prices = np.zeros(len(self.held.moments))
        self.dearest, self.effort = _dearest(model.problem), EFFORT

    # --- the cheapest that fits ---------------------------------------------------------------------------------------

    def cheapest(self) -> tuple[float, bool]:
        """Make the cheapest plan that fits. A bound on the seconds and the rent of all that fit, and whether that is the plan's;
        inf where none fits."""
        problem, bound = self.model.problem, -math.inf
        try:
            for _ in range(NARROWED):
                bound = max(bound, self._raise_prices(problem))
                if bound >= self._enough:
                    return self.made.most, True
                narrower = self._narrowed(problem, self.prices, self._enough + self._free)
                if narrower is None:
                    break
                problem = narrower
            ordered = self._in_order(problem)
        except TooWide:
            return bound, False
        last, is_complete = gone_through(self.made, self.model, ordered, bound, self.tried, math.inf, self.fits)
        return max(bound, last), is_complete

    def fits(self, choices: Choices) -> bool:
        return bool((self.held.bytes(choices) <= self.memory).all())

    def least_without_rent(self) -> float:
        """Seconds below which no plan fits; TooWide where that is too much to say."""
        least = math.inf
        for cost, choices in self._in_order(self.model.without_rent()):
            if choices is None or cost >= least:
                return min(cost, least)
            held = self.held.bytes(choices)
            if (held <= self.memory).all():
                least = min(least, cost + float(self.prices @ (self.memory - held)))
        return least

    @property
    def _enough(self) -> float:
        """A bound that says that no plan which fits is better than the best one, or that none fits."""
        return min(self.made.most / EQUAL, self.dearest * EQUAL)

    @property
    def _free(self) -> float:
        """What the memory costs at the present prices."""
        return float(self.prices.sum()) * self.memory

    def _in_order(self, problem: Problem) -> Ordered:
        """Assignments in the order of what they cost, and hold beyond the memory."""
        elimination, free = elimination_of(self.model, self.held.priced(problem, self.prices)), self._free
        return ((cost - free, choices) for cost, choices in elimination.in_order(STEPS))

    def _raise_prices(self, problem: Problem) -> float:
        """Prices for which the bound is high, along subgradients, as far as the best plan is above it; the bound."""
        made, prices, best, bound, step, in_vain = self.made, self.prices, self.prices, -math.inf, 1.0, 0
        for _ in range(ROUNDS):
            elimination = self._eliminated(self.held.priced(problem, prices))
            now = elimination.least - float(prices.sum()) * self.memory
            in_vain = 0 if now > bound * EQUAL else in_vain + 1
            best, bound = (prices, now) if now > bound else (best, bound)
            if bound >= self._enough or self._is_spent:
                break
            choices = elimination.best()
            over = self.held.bytes(choices) - self.memory
            if (over <= 0).all():
                self._attempt(choices)
            step, in_vain = (step / 2, 0) if in_vain == IN_VAIN else (step, in_vain)
            over = np.where((over > 0) | (prices > 0), over, 0.0)
            if not over.any():
                break
            aim = made.most if made.most < math.inf else max(now, bound) * (1 + RISE)
            prices = np.maximum(0.0, prices + step * max(aim - now, 0.0) / float(over @ over) * over)
        self.prices = best
        return bound

    def _narrowed(self, problem: Problem, prices: Table, most: float) -> Problem | None:
        """The problem without choices that cost at least so much together with anything else; None where there are none."""
        narrower, is_narrower = self.held.priced(problem, prices), False
        left = Problem()
        left.sizes, left.tables = problem.sizes, dict(problem.tables)
        for decision in self.model.decisions:
            if problem.sizes[decision.number] > 1 and self.effort > 0:
                try:
                    costs = self._eliminated(narrower, QUICK, [decision.number]).by_choice()
                except TooWide:
                    continue
                out = np.where(costs >= most, math.inf, 0.0)
                if (np.isinf(out) & ~np.isinf(left.tables[decision.number,])).any():
                    is_narrower = True
                    for each in (left, narrower):
                        each.add((decision.number,), out)
        return left if is_narrower else None

    def _eliminated(self, problem: Problem, largest: int = LARGEST, last: Sequence[int] = ()) -> Elimination:
        elimination = Elimination(problem, last=last, largest=largest)
        self.effort -= elimination.work
        return elimination

    @property
    def _is_spent(self) -> bool:
        return self.effort <= 0 or self.made.is_late

    def _attempt(self, choices: Choices) -> None:
        key = self.model.key(choices)
        if key not in self.tried:
            self.tried.add(key)
            self.made.attempt(self.model, choices)

    # --- where none fits ----------------------------------------------------------------------------------------------

    def leanest(self) -> None:
        """Make the plan that holds least; or of PLANS, where more seem to hold less than they do."""
        self.effort = EFFORT
        problem, weights = _allowed(self.model.problem), np.full(len(self.held.moments), 1 / len(self.held.moments))
        try:
            for _ in range(NARROWED):
                weights, bound = self._tilted(problem, weights)
                narrower = None if bound >= self._least else self._narrowed(problem, weights, self._least)
                if narrower is None:
                    break
                problem = narrower
            elimination = elimination_of(self.model, self.held.priced(problem, weights))
        except TooWide:
            return
        most = self.made.searched + PLANS
        for bound, choices in elimination.in_order(STEPS):
            if choices is None or bound >= self._least or self.made.searched >= most or self.made.is_late:
                return
            if self.held.bytes(choices).max() < self._least:
                self._attempt(choices)

    @property
    def _least(self) -> float:
        return math.inf if self.made.unfit.leanest is None else self.made.unfit.leanest.peak

    def _tilted(self, problem: Problem, weights: Table) -> tuple[Table, float]:
        """Weights by moment, 1 together, for which the least weighted mean of bytes is high; and that."""
        best, bound = weights, -math.inf
        for number in range(ROUNDS):
            elimination = self._eliminated(self.held.priced(problem, weights))
            best, bound = (weights, elimination.least) if elimination.least > bound else (best, bound)
            if bound >= self._least or self._is_spent:
                break
            choices = elimination.best()
            held = self.held.bytes(choices)
            if held.max() < self._least:
                self._attempt(choices)
            weights = weights * np.exp(TILT / (1 + number) ** 0.5 * held / held.max())
            weights = weights / weights.sum()
        return best, bound


def _dearest(problem: Problem) -> float:
    """No assignment that is allowed costs more."""
    return sum(float(np.max(table, initial=0.0, where=np.isfinite(table))) for table in problem.tables.values())


def _allowed(problem: Problem) -> Problem:
    """What may be chosen, at no cost."""
    allowed = Problem()
    allowed.sizes = problem.sizes
    allowed.tables = {scope: np.where(np.isinf(table), table, 0.0) for scope, table in problem.tables.items()}
    return allowed
