"""The best plan there is, and how good it is.

The Model's elimination gives assignments in the order of their cost, which is a lower bound on the price of the plan that each
leads to. Plans are made and priced in that order, and the search ends when no further assignment can be cheaper than the best
plan so far: then it is optimal. Of large Programs a few plans are made by descents (`descend.py`), and a proof (`prove.py`)
leaves out what cannot be cheaper first. What propagation of the annotations alone gives is one of the plans.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from meshjit.core.plan import Optimum, Plan
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import SPREAD, Candidate, candidate_of, most_rent
from meshjit.plan.automatic.descend import LONG, State, descend
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.exhaust import FEW_UNFIT, STEPS, elimination_of, gone_through
from meshjit.plan.automatic.fit import PRICED, RETRIED, fit
from meshjit.plan.automatic.frugal import CLOSE, is_preferred, preferred, slow_links
from meshjit.plan.automatic.in_blocks import Found, InBlocks
from meshjit.plan.automatic.limits import BRIEF
from meshjit.plan.automatic.loops import stencils
from meshjit.plan.automatic.made import EQUAL, Made
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.prescribe import prescribed_like
from meshjit.plan.automatic.price_list import PriceList, has_many_axes
from meshjit.plan.automatic.problem import Problem
from meshjit.plan.automatic.prove import ROUND, Proof
from meshjit.plan.automatic.relax import Relaxed, bound_on
from meshjit.plan.automatic.saved import saved_of
from meshjit.plan.automatic.within import Within
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft

LEFT: Final = 1 << 21  # entries of a table of the elimination of choices without rent
NEAR: Final = 1.01  # times the bound of the first round of a proof: a plan that descents need not better
FAR: Final = 1.05  # times the seconds of another Search's plan: a plan of a descent after which no more are made
OPEN: Final = 1.05  # times the bound: a plan beside which that of propagation from spread inputs is priced, too
FAR_OF_LONG: Final = 1.03  # times the bound: a long Program gets further rounds of a proof as long as its best plan takes more,
VERY_FAR_OF_LONG: Final = 1.1  # likewise: where steps of a descent gain more in their time than rounds,
FURTHER: Final = 0.5  # with so much of the effort for its bound at most
UNSURE: Final = 1 / 3  # of the effort, where no plan that fits was made


class Search(Made):
    """For the best of the plans of one draft. `chosen` is what `plan` settled for."""

    chosen: Candidate

    def __init__(
        self,
        draft: Draft,
        ties: Mapping[int, int],
        deadline: float = math.inf,
        effort: float = 0.0,
        priced: int = PRICED,
        later: float = 0.0,
        is_frugal: bool = False,
        worth: float = 0.0,
    ) -> None:
        super().__init__(draft, ties, deadline, is_frugal)
        self.effort, self.priced, self.later, self.worth = effort, priced, later, worth
        self.ahead: Iterator[State] = iter(())  # descents
        self.is_begun = False  # whether the next of them is one that was begun
        self.ends = set[float]()  # seconds of those that are behind
        self.bound, self.is_complete = 0.0, False  # of seconds and rent
        self.spent_in_vain = 0.0  # effort of a proof that is given up
        self.is_relaxed = False  # whether the bound is that of a relaxed problem
        self.unlimited = 0.0  # the bound of plans that hold more than the memory, too
        self.tried = set[tuple[int, ...]]()  # assignments of the proof's Model
        self.in_blocks: Found | None = None  # of plans that do loops in blocks of iterations, where all were compared
        self.left: Callable[[], Problem] | None = None  # choices of all plans that may be faster than the best, without rent

    @functools.cached_property
    def rent_left(self) -> float:
        """Of plans that may be as fast as the best; a proof knows better."""
        return self.most_rent

    @functools.cached_property
    def most_rent(self) -> float:
        """Of all plans."""
        return most_rent(self.draft)

    def known(self, enough: float) -> float:
        """Seconds below which there is no plan, or `enough` if those are more."""
        return min(self._known_without_blocks(enough), math.inf if self.in_blocks is None else self.in_blocks.known)

    def _known_without_blocks(self, enough: float) -> float:
        """The bound of seconds and rent, less what rent there may be; or what the choices that are left cost at least without it.
        That is not asked where the bound is worked out later."""
        least = max(self.bound - self.rent_left, min(self.bound, self.least_work))
        if least >= enough or self.is_bounded_later:
            return min(enough, least)
        try:
            return min(enough, max(least, min(self.most, self._without_rent())))
        except TooWide:
            return min(enough, least)

    def _without_rent(self) -> float:
        """The same, of the choices that are left."""
        if not (self.is_small and self.is_complete):
            return 0.0 if self.left is None else Elimination(self.left(), largest=LEFT).least
        if self.unfit.leanest is not None and self.best is not None:
            return self.within.least_without_rent()
        return Elimination(self.model.without_rent(), largest=LEFT).least

    @functools.cached_property
    def within(self) -> Within:
        """For the plans of a small Program that fit."""
        return Within(self, self.model)

    @functools.cached_property
    def model(self) -> Model:
        """Of everything that can be chosen, with the prices of plans."""
        draft = self.draft
        return Model(draft.program, draft.flat, draft.machine, draft.annotations, self.ties)

    def plan(self) -> Plan:
        """The best plan, with its Optimum."""
        self.begin()
        self.prove()
        self.conclude()
        return self.result(self.settle())

    def begin(self) -> None:
        """Plans; of a small Program the best one. None where another Search has some, and it is late, or none would be close."""
        if self.is_late and self.rival < math.inf:
            self.bound = self.least_work
            return
        if self.is_hopeless:
            self._give_up()
            return
        self.bound, self.is_complete = self.in_order() if self.is_small else self.descents(self.begins_early)
        self.unlimited = self.bound
        if self.best is None:
            self._descend()
        if self.unfit.leanest is not None and self.is_small and not self.is_complete and self.priced > RETRIED:
            self._within_memory()
        is_open = self.bound < self.rival and not self.is_complete
        if is_open and self.unfit.is_faster_than(self.most):
            self.unfit.fastest_lighter(self.quickest)
            fit(self, self.priced)
        if has_many_axes(self.machine):
            self._relax()

    def _relax(self) -> None:
        """Bound all plans where axes are alike, and make those that are best there. On many axes that finds better plans than
        descents do, which go along one at a time."""
        if self.is_complete or self.is_late or self.best is None or not (self.later or self.effort):
            return
        effort, worth, near = (self.later, 0.0, FAR_OF_LONG) if self.later else (self.effort, self.worth, 0.0)
        relaxed = Relaxed(self.draft, self.ties, self.most, effort, self.deadline, self.most_rent, worth, near, self.attempt)
        self.bound, self.is_relaxed = max(self.bound, relaxed.bound()), True
        self.is_complete = self.bound * EQUAL >= self.most
        if self.is_complete and relaxed.proof is not None:
            self._leave(relaxed.proof)

    def _leave(self, proof: Proof) -> None:
        """What a proof left to choose from, and nothing else of it."""
        proof.left.forget_prices()
        self.rent_left, self.left = min(self.most_rent, proof.rent_left), proof.left.without_rent

    @functools.cached_property
    def is_hopeless(self) -> bool:
        """Whether the first round of the proof tells that no plan is close to one that another Search has."""
        if self.rival == math.inf or self.is_small or self.proof is None:
            return False
        self.prove(ROUND)
        return self.proof.bound >= CLOSE * self.rival

    def _give_up(self) -> None:
        """Keep of the proof its bound alone, which no plan of a rival will reach: its tables are large."""
        assert self.proof is not None
        self.bound, self.is_complete = self.proof.bound, True
        self.rent_left, self.spent_in_vain = min(self.most_rent, self.proof.rent_left), self.proof.spent
        self.proof = None

    def prove(self, effort: float = math.inf, left: float = math.inf) -> bool:
        """Go on with the proof for so much effort, of which so much is left; whether it goes on."""
        if self.proof is None or self.proof.is_over:
            return False
        self.proof.upper, self.proof.effort = min(self.proof.upper, self.fitting), min(self.proof.effort, left)
        self.proof.run(effort)
        if self.later:
            self._go_on(self.proof)
        if self.proof.is_over:
            self.proof.left.forget_prices()
        return not self.proof.is_over

    def _go_on(self, proof: Proof) -> None:
        """Further rounds for a long Program, as long as its best plan is far from the bound, for better plans. Where it is very
        far the descent is gone to its end first."""
        if self.most > VERY_FAR_OF_LONG * proof.bound:
            self._descend(int(self.is_begun))
            proof.upper = min(proof.upper, self.fitting)
        proof.grant(FURTHER * self.later)
        proof.near = FAR_OF_LONG
        proof.run()
        proof.effort = 0.0

    @property
    def spent(self) -> float:
        """Effort of the proof so far."""
        return self.spent_in_vain if self.proof is None else self.proof.spent

    @property
    def proved(self) -> float:
        """The bound of the proof so far."""
        return 0.0 if self.proof is None else self.proof.bound

    def conclude(self) -> None:
        """What follows from the proof, once it is over."""
        if self.proof is not None:
            self.proof.left.forget_prices()
            bound, self.is_complete = self._proved(self.proof)
            self.bound = max(self.bound, bound)
        elif self.effort > 0 and not self.is_relaxed:
            self._relax()
        is_near = self.is_complete or self.most <= NEAR * self.bound
        if not is_near and self.quickest <= FAR * self.rival:
            self._descend(self._further)

    def settle(self) -> Candidate:
        """The fastest plan, as proposals improve it."""
        best, lighter = self.best or self.unfit.leanest, self.unfit.best_lighter(self.quickest)
        if lighter is not None and best is not None and lighter.is_better_than(best, self.memory):
            best = lighter
        if best is None or self.propagated.is_better_than(best, self.memory):
            best = self.propagated
        self.chosen = self.as_refined(best)
        self._compare_blocks()
        if not self.is_hopeless and best.seconds <= FAR * self.rival:
            is_open = not self.later and best.seconds > OPEN * self.bound
            spread = self.from_spread_inputs(best, is_open, self.chosen.is_in_blocks, self._compares_blocks)
            if spread is not None and spread.is_better_than(self.chosen, self.memory):
                self.chosen = spread
        if self.chosen.computes_again:  # it may be faster than all others that fit: compare it with plans without a limit
            self.bound, self.is_complete = min(self.bound, max(self.unlimited, self.proved)), False
        return self.chosen

    @property
    def _compares_blocks(self) -> bool:
        """Whether all plans in blocks were compared."""
        return self.in_blocks is not None and self.in_blocks.is_complete

    def _compare_blocks(self) -> None:
        """With the plans of a short Program that do loops in blocks of iterations."""
        loops, cost = stencils(self.draft.program), self.chosen.plan.cost
        if not loops or self.is_late:
            return
        assert cost is not None
        try:
            found = InBlocks(self, loops, self.chosen, min(cost.seconds, self.rival)).found()
        except TooWide:
            return
        self.chosen, self.in_blocks = found.best, found
        self.is_complete = self.is_complete and found.is_complete

    def result(self, best: Candidate, fastest: Candidate | None = None) -> Plan:
        """The plan of a candidate, with its Optimum; of one that was preferred to the fastest, say which that is."""
        self.chosen = best
        fastest = fastest or best
        cost, quick = best.plan.cost, fastest.plan.cost
        assert cost is not None and quick is not None
        known = self.known(min(cost.seconds, quick.seconds))
        is_beyond = best.refined_by == SPREAD or (best.is_in_blocks and self.in_blocks is None)  # parts of axes, or not compared
        if is_beyond and cost.seconds * EQUAL < self.bound:
            known, self.is_complete = min(known, self.least_work), False
        later = self._proved_later(fastest, known) if self.is_bounded_later else None
        least = quick if best is not fastest else None
        optimum = Optimum(cost.seconds, known, self.searched, self.is_complete, later, least, cost.wire_bytes)
        saved = saved_of(self.draft if best.draft is None else best.draft, best.refined_by, best.plan, best.way)
        exact = cost if best.draft is None or best.refined_by else best.draft.exact_cost
        return dataclasses.replace(best.plan, cost=exact, optimum=optimum, saved=saved)

    def frugal(self, fastest: Candidate, most: float) -> Candidate | None:
        """The plan that sends least among those priced that are about as fast as the fastest, and take at most `most` seconds.
        Of a small Program the fastest is often the only one priced; there the plan that is best where links are slow is added."""

        def least() -> Candidate | None:
            return preferred([c for c in self.close if c.seconds <= most], fastest, self.memory)

        for target in slow_links(self.machine.target) if self.is_small else ():
            if not self.is_late and least() is None:
                self._try_on(target)
        rival = least()
        rival = None if rival is None else self.as_refined(rival)
        return rival if rival is not None and is_preferred(rival, fastest, self.memory) else None

    def _try_on(self, target: Target) -> None:
        """The plan that is best on another machine."""
        draft, machine = self.draft, self.machine
        slow = Machine(machine.mesh, target, machine.undonated)
        search = Search(first_draft(draft.program, draft.annotations, Assigner(slow)), self.ties, self.deadline)
        search.in_order()
        if search.best is not None and search.best.draft is not None:
            self.consider(candidate_of(prescribed_like(draft, search.best.draft), machine))

    @property
    def fits(self) -> bool:
        return self.chosen.peak <= self.memory

    # --- exactly ------------------------------------------------------------------------------------------------------

    def in_order(self) -> tuple[float, bool]:
        """Price plans in the order of their lower bounds. The bound that is left, and whether the search came to its end."""
        try:
            elimination = elimination_of(self.model, self.model.problem)
        except TooWide:
            return self.descents()
        bound, is_complete = gone_through(self, self.model, elimination.in_order(STEPS), elimination.least, unfit=FEW_UNFIT)
        return (bound, is_complete) if self.model.tables.is_whole else (self.least_work, False)

    def _within_memory(self) -> None:
        """The plan that is cheapest among those that fit, or holds least."""
        bound, is_complete = self.within.cheapest()
        if self.best is None and self.rival == math.inf:
            self.within.leanest()
        elif self.model.tables.is_whole:
            self.bound, self.is_complete = max(self.bound, bound), is_complete

    # --- with lower bounds first --------------------------------------------------------------------------------------

    @functools.cached_property
    def proof(self) -> Proof | None:
        """That no plan is cheaper, with better plans on the way to it; None where none is needed, or it would be too wide.
        It says nothing of plans that compute something again, so it is a brief one where only these fit; where none was made that
        fits, it may make some, or be in vain."""
        is_wide = self.later and has_many_axes(self.machine)
        if self.is_complete or self.effort <= 0 or self.is_late or is_wide or not math.isfinite(self.upper):
            return None
        draft, tried = self.draft, self.tried
        try:
            model = Model(
                draft.program, draft.flat, self.machine, draft.annotations, self.ties,
                bounds=PriceList(self.machine), is_whole=False
            )  # fmt: skip
        except TooWide:
            return None

        def attempt(choices: Sequence[int]) -> float:
            key = model.key(choices)
            if key not in tried:
                tried.add(key)
                self.attempt(model, choices)
            return self.fitting

        effort = self.effort if self.most < math.inf else (BRIEF if self.unfit.quickest < math.inf else UNSURE) * self.effort
        return Proof(model, self.upper, attempt, effort, self.deadline, self.most_rent, self.worth)

    @property
    def upper(self) -> float:
        """Seconds of the best plan so far; where none fits, of those that come nearest to it."""
        nearest = [self.unfit.leanest, *self.unfit.lighter] if self.fitting == math.inf else []
        return max([c.seconds for c in nearest if c is not None], default=self.fitting)

    def _proved(self, proof: Proof) -> tuple[float, bool]:
        """A bound on all plans, and whether the best is optimal; what the proof left is gone through."""
        proof.upper = min(proof.upper, self.fitting)
        self._leave(proof)
        if proof.is_closed:
            return proof.upper, True
        if self.later or self.most == math.inf:  # a few rounds, for the plans that they find; or none that fits was found
            return proof.bound, False
        try:
            bound, is_complete = gone_through(self, proof.model, proof.in_order(STEPS), proof.bound, self.tried)
        except TooWide:
            return proof.bound, False
        return max(bound, proof.bound), is_complete

    @property
    def is_bounded_later(self) -> bool:
        """Whether the bound is worked out once somebody asks for it: where the search was too long for a proof."""
        return bool(self.later) and not self.is_relaxed

    def _proved_later(self, best: Candidate, known: float) -> Callable[[], float]:
        """What bounds the seconds of all plans then."""
        draft, ties, later, seconds = self.draft, self.ties, self.later, best.seconds
        return lambda: max(known, bound_on(draft, ties, seconds, later) - self.most_rent)

    def bounded(self, seconds: float) -> float:
        """A bound on all plans, none of which is made; no more than these seconds."""
        least = min(seconds, self.least_work)
        return max(least, bound_on(self.draft, self.ties, seconds, self.later) - self.most_rent) if self.later else least

    # --- one axis at a time -------------------------------------------------------------------------------------------

    def descents(self, is_begun: bool = False) -> tuple[float, bool]:
        """Price the plan where the first descent ends, or where it stands after a step if it `is_begun`; where no proof follows,
        those of all descents. A bound by the work alone; the search is not complete."""
        self.ahead = descend(self.draft, self.ties, self.deadline, is_told_early=is_begun)
        self._descend(1 if is_begun or self.effort > 0 or self.is_long else None)
        self.is_begun = is_begun
        return self.least_work, False

    def _descend(self, most: int | None = None) -> None:
        """Price plans where the descents that are ahead end."""
        self.is_begun = False
        for state in itertools.islice(self.ahead, most):
            if state.model is not None and state.seconds not in self.ends:
                self.ends.add(state.seconds)
                self.attempt(state.model, state.choices)

    @property
    def _further(self) -> int | None:
        """How many more may be gone once a proof is over: of long Programs only that which was begun, or all where the best plan
        is very far from a bound that was proved."""
        is_bounded = self.proof is not None or self.is_relaxed
        if not self.is_long or (self.later and is_bounded and self.most > VERY_FAR_OF_LONG * self.bound):
            return None
        return int(self.is_begun)

    @property
    def is_long(self) -> bool:
        """Whether one descent takes about as long as all else."""
        return len(self.draft.program.eqns) >= LONG

    @property
    def begins_early(self) -> bool:
        """Whether the first round of a proof goes on from the first step of a descent. It often finds more than further steps,
        which are taken only where its bound lets them gain something."""
        return self.later > 0 and self.effort > 0 and not has_many_axes(self.machine)
