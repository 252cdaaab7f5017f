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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from meshjit.core.plan import Optimum, Plan, equation_plan
from meshjit.core.program import Program
from meshjit.core.region import weighted_regions
from meshjit.core.rules import reading_of
from meshjit.core.target import Target
from meshjit.plan.assign import Assigner
from meshjit.plan.automatic.candidate import Candidate, candidate_of, propagated, refined, rent
from meshjit.plan.automatic.descend import State, descend
from meshjit.plan.automatic.eliminate import Elimination, TooWide
from meshjit.plan.automatic.frugal import CLOSE, is_preferred, preferred, slow_links
from meshjit.plan.automatic.memory import Prices, peak_of, with_memory
from meshjit.plan.automatic.model import Model
from meshjit.plan.automatic.prescribe import prescribe, prescribed_like
from meshjit.plan.automatic.price_list import PriceList
from meshjit.plan.automatic.problem import Problem
from meshjit.plan.automatic.prove import ROUND, Proof
from meshjit.plan.automatic.relax import KEPT, bound_on
from meshjit.plan.automatic.saved import saved_of
from meshjit.plan.automatic.small import is_small
from meshjit.plan.automatic.watch import WATCH
from meshjit.plan.cost import Machine
from meshjit.plan.draft import Draft, first_draft
from sharding.spec import PartitionSpec, placement_of

PLANS: Final = 256  # plans that are priced in full
UNFIT: Final = 64  # plans that do not fit, after which the memory gets a price
QUICK: Final = 1 << 21  # entries of a table while decisions are kept for last
LEFT: Final = 1 << 21  # entries of a table of the elimination of choices without rent
NEAR: Final = 1.01  # times the bound of the first round of a proof: a plan that descents need not better
REFINED: Final = 300  # equations up to which proposals refine the best plan
PRICED: Final = 10  # prices of memory that are tried
IN_VAIN: Final = 2  # prices in a row for which plans hold hardly less, after which none is tried where another plan fits
LEANER: Final = 0.01  # of what is held beyond the memory: less than that is hardly less
RETRIED: Final = 3  # of them, on each larger mesh where nothing fits, and whatever the time
STEPS: Final = 1 << 17  # choices of one decision on the way to assignments in order; some 2 s
ASSIGNMENTS: Final = 1 << 18  # that are gone through; many lead to the same plan
PRICE: Final = 0.05  # the first: this fraction of the time if all that is held at the peak were not
EQUAL: Final = 1 + 1e-9  # seconds that differ by less are the same
Choices: TypeAlias = Mapping[int, int] | Sequence[int]  # by number of the variable


class Search:
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
    ) -> None:
        self.priced, self.later, self.is_frugal = priced, later, is_frugal
        self.draft, self.machine, self.ties, self.deadline, self.effort = draft, draft.machine, ties, deadline, effort
        self.memory = draft.machine.topology.memory
        self.best: Candidate | None = None  # of plans that fit
        self.leanest: Candidate | None = None  # of those that do not
        self.fastest: Candidate | None = None  # likewise
        self.close: list[Candidate] = []  # those that fit and are about as fast as the best
        self.searched = 0
        self.ahead: Iterator[State] = iter(())  # descents
        self.ends = set[float]()  # seconds of those that are behind
        self.rival = math.inf  # seconds of a plan of another Search: plans that take longer are not looked for
        self.bound, self.is_complete = 0.0, False  # of seconds and rent
        self.tried = set[tuple[int, ...]]()  # assignments of the proof's Model
        self.left: Callable[[], Problem] | None = None  # choices of all plans that may be faster than the best, without rent

    @functools.cached_property
    def rent_left(self) -> float:
        """Of plans that may be as fast as the best; a proof knows better."""
        return self.most_rent

    @functools.cached_property
    def most_rent(self) -> float:
        """Of all plans; that of one whose arguments and results are whole, where nobody says where they lie."""
        draft, (inputs, outputs) = self.draft, (self.draft.annotations.inputs, self.draft.annotations.outputs)
        sides = [*zip(draft.program.inputs, inputs, strict=True), *zip(draft.program.outputs, outputs, strict=True)]
        places = [placement_of(spec or PartitionSpec(), v.rank).without_partial() for v, spec in sides]
        return rent([v.type for v, _ in sides], places, self.machine)

    def known(self, enough: float) -> float:
        """Seconds below which there is no plan, or `enough` if those are more: the bound of seconds and rent, less what rent
        there may be; or what the choices that are left cost at least without it."""
        least = max(self.bound - self.rent_left, min(self.bound, self._least_work(self.draft.program)))
        if least >= enough:
            return enough
        left = self.model.without_rent if self.is_small and self.is_complete else self.left
        try:
            least = least if left is None else max(least, min(self.most, Elimination(left(), largest=LEFT).least))
        except TooWide:
            pass
        return min(least, enough)

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
            self.bound = self._least_work(self.draft.program)
            return
        if self.is_hopeless:
            return
        self.bound, self.is_complete = self.in_order() if self.is_small else self.descents(self.begins_early)
        if self.best is None:
            self._descend()
        if self.best is None and self.leanest is not None and self.bound < self.rival:
            self.within_memory(self._lighter())
            self.is_complete = False

    @functools.cached_property
    def is_hopeless(self) -> bool:
        """Whether the first round of the proof tells that no plan is close to one that another Search has."""
        if self.rival == math.inf or self.is_small or self.proof is None:
            return False
        self.prove(ROUND)
        return self.proof.bound >= CLOSE * self.rival

    def prove(self, effort: float = math.inf) -> bool:
        """Go on with the proof for so much effort; whether it goes on."""
        if self.proof is None or self.proof.is_over:
            return False
        self.proof.upper = min(self.proof.upper, self.fitting)
        self.proof.run(effort)
        return not self.proof.is_over

    @property
    def proved(self) -> float:
        """The bound of the proof so far."""
        return 0.0 if self.proof is None else self.proof.bound

    def conclude(self) -> None:
        """What follows from the proof, once it is over."""
        if self.proof is not None:
            bound, self.is_complete = self._proved(self.proof)
            self.bound = max(self.bound, bound)
        if self.proof is not None and self.most > NEAR * self.bound:
            self._descend()
        if self.begins_relaxed and self.best is not None:
            self.bound = max(self.bound, self._relaxed())

    def settle(self) -> Candidate:
        """The fastest plan, as proposals improve it."""
        best, lighter = self.best or self.leanest, self._lighter()
        if lighter is not None and best is not None and lighter.is_better_than(best, self.memory):
            best, self.bound, self.is_complete = lighter, self._least_work(self.draft.program), False
        if best is None or self.propagated.is_better_than(best, self.memory):
            best = self.propagated
        self.chosen = self._refined(best)
        return self.chosen

    def result(self, best: Candidate, fastest: Candidate | None = None) -> Plan:
        """The plan of a candidate, with its Optimum; of one that was preferred to the fastest, say which that is."""
        self.chosen = best
        fastest = fastest or best
        cost, quick = best.plan.cost, fastest.plan.cost
        assert cost is not None and quick is not None
        known = self.known(min(cost.seconds, quick.seconds))
        later = None if self.begins_relaxed and self.best is not None else self._proved_later(fastest, known)
        least = quick if best is not fastest else None
        optimum = Optimum(cost.seconds, known, self.searched, self.is_complete, later, least, cost.wire_bytes)
        saved = saved_of(self.draft if best.draft is None else best.draft, best.refined_by, best.plan)
        cost = dataclasses.replace(cost, peak_bytes=best.peak)
        return dataclasses.replace(best.plan, cost=cost, optimum=optimum, saved=saved)

    def _refined(self, best: Candidate) -> Candidate:
        if best.draft is None or (len(self.draft.program.eqns) > REFINED and best.peak <= self.memory):
            return best
        improved = refined(best, self.machine)
        return improved if improved.is_better_than(best, self.memory) else best

    def frugal(self, fastest: Candidate, most: float) -> Candidate | None:
        """The plan that sends least among those priced that are about as fast as the fastest, and take at most `most` seconds.
        Of a small Program the fastest is often the only one priced; there the plan that is best where links are slow is added."""

        def least() -> Candidate | None:
            return preferred([c for c in self.close if c.seconds <= most], fastest, self.memory)

        for target in slow_links(self.machine.target) if self.is_small else ():
            if not self.is_late and least() is None:
                self._try_on(target)
        rival = least()
        rival = None if rival is None else self._refined(rival)
        return rival if rival is not None and is_preferred(rival, fastest, self.memory) else None

    def _try_on(self, target: Target) -> None:
        """The plan that is best on another machine."""
        draft, machine = self.draft, self.machine
        slow = Machine(machine.mesh, target)
        search = Search(first_draft(draft.program, draft.annotations, Assigner(slow)), self.ties, self.deadline)
        search.in_order()
        if search.best is not None and search.best.draft is not None:
            self._consider(candidate_of(prescribed_like(draft, search.best.draft), machine))

    @property
    def fits(self) -> bool:
        return self.chosen.peak <= self.memory

    @functools.cached_property
    def propagated(self) -> Candidate:
        """Where some plan fits, nothing is computed again for this one to fit, too."""
        return propagated(self.draft, self.ties, "propagated" if self.most == math.inf else "propagated, none computed again")

    def _lighter(self) -> Candidate | None:
        """The fastest of the plans that do not fit, with values moved or computed again instead of kept, where all that fit are
        dearer."""
        if self.fastest is None or (self.best is not None and self.best.seconds <= self.fastest.seconds):
            return None
        return refined(self.fastest, self.machine, "memory")

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether everything can be gone through."""
        return is_small(self.draft)

    # --- exactly ------------------------------------------------------------------------------------------------------

    def in_order(self) -> tuple[float, bool]:
        """Price plans in the order of their lower bounds. The bound that is left, and whether the search came to its end."""
        try:
            elimination = self._elimination()
        except TooWide:
            return self.descents()
        bound, is_complete = self._gone_through(self.model, elimination.in_order(STEPS), elimination.least)
        return (bound, is_complete) if self.model.tables.is_whole else (self._least_work(self.draft.program), False)

    def _gone_through(
        self,
        model: Model,
        ordered: Iterator[tuple[float, Choices | None]],
        bound: float,
        tried: set[tuple[int, ...]] | None = None,
    ) -> tuple[float, bool]:
        """Price the plans of assignments, which come in the order of their lower bounds."""
        tried, most = tried or set(), self.searched + PLANS
        for number, (bound, choices) in enumerate(ordered):
            if bound >= self.most / EQUAL:
                return self.most, True
            is_spent = self.searched >= most or number >= ASSIGNMENTS or (self.best is None and self.searched >= UNFIT)
            if choices is None or is_spent or self.is_late:
                return bound, False
            key = model.key(choices)
            if key not in tried:
                tried.add(key)
                self._try(model, choices)
        return self.most, True

    @property
    def quickest(self) -> float:
        """Seconds of the best plan so far that fits."""
        return math.inf if self.best is None else self.best.seconds

    @property
    def most(self) -> float:
        """The same, whoever found it."""
        return min(self.rival, self.quickest)

    @property
    def is_late(self) -> bool:
        """The search ends in any case."""
        return time.perf_counter() > self.deadline

    def _elimination(self) -> Elimination:
        numbers = [decision.number for decision in self.model.decisions]
        try:
            return Elimination(self.model.problem, last=numbers, largest=QUICK)
        except TooWide:
            return Elimination(self.model.problem)

    def _try(self, model: Model, choices: Choices) -> Candidate:
        candidate = candidate_of(prescribe(self.draft, model, choices), self.machine)
        self.searched += 1
        self._consider(candidate)
        return candidate

    def _consider(self, candidate: Candidate) -> None:
        self._note(candidate)
        if candidate.peak > self.memory:
            if self.leanest is None or candidate.is_better_than(self.leanest, self.memory):
                self.leanest = candidate
            if not candidate.refined_by and (self.fastest is None or candidate.seconds < self.fastest.seconds):
                self.fastest = candidate
            return
        if self.best is None or candidate.seconds * EQUAL < self.best.seconds:
            self.best = candidate
        if self.is_frugal:
            self.close = [c for c in (*self.close, candidate) if c.seconds <= CLOSE * self.best.seconds]

    def _note(self, candidate: Candidate) -> None:
        """For who watches."""
        watch = WATCH.get()
        if watch is not None:
            watch.plans, watch.seconds = watch.plans + 1, min(watch.seconds, candidate.seconds)

    # --- with lower bounds first --------------------------------------------------------------------------------------

    @functools.cached_property
    def proof(self) -> Proof | None:
        """That no plan is cheaper, with better plans on the way to it; None where none is needed, or it would be too wide."""
        is_wide = self.later and len(self.machine.mesh.axis_names) > KEPT
        if self.is_complete or self.effort <= 0 or self.is_late or is_wide or not math.isfinite(self.fitting):
            return None
        draft, tried = self.draft, self.tried
        try:
            model = Model(
                draft.program, draft.flat, self.machine, draft.annotations, self.ties, bounds=PriceList(self.machine)
            )  # fmt: skip
        except TooWide:
            return None

        def attempt(choices: Sequence[int]) -> float:
            key = model.key(choices)
            if key not in tried:
                tried.add(key)
                self._try(model, choices)
            return self.fitting

        return Proof(model, self.fitting, attempt, self.effort, self.deadline, self.most_rent)

    @property
    def fitting(self) -> float:
        """Seconds of the best plan so far, propagation's among them."""
        return min(self.most, self.propagated.seconds if self.propagated.peak <= self.memory else math.inf)

    def _proved(self, proof: Proof) -> tuple[float, bool]:
        """A bound on all plans, and whether the best is optimal; what the proof left is gone through."""
        proof.upper = min(proof.upper, self.fitting)
        self.rent_left, self.left = min(self.most_rent, proof.rent_left), proof.without_rent
        if proof.is_closed:
            return self.fitting, True
        if self.later:  # a few rounds, for the plans that they find
            return proof.bound, False
        try:
            bound, is_complete = self._gone_through(proof.model, proof.in_order(STEPS), proof.bound, self.tried)
        except TooWide:
            return proof.bound, False
        return max(bound, proof.bound), is_complete

    def _relaxed(self) -> float:
        """A bound where axes are alike, and the plans that are best there."""
        assert self.best is not None
        return bound_on(self.draft, self.ties, self.best.seconds, self.later, self.deadline, self._try)

    def _proved_later(self, best: Candidate, known: float) -> Callable[[], float] | None:
        """What bounds the seconds of all plans, where the search was too long for a proof. Plans that compute something again are
        not among them."""
        if not self.later or best.refined_by == "memory":
            return None
        draft, ties, later, seconds = self.draft, self.ties, self.later, best.seconds
        return lambda: max(known, bound_on(draft, ties, seconds, later) - self.most_rent)

    def bounded(self, seconds: float) -> float:
        """A bound on all plans, none of which is made; no more than these seconds."""
        if not self.later:
            return min(seconds, self._least_work(self.draft.program))
        return max(0.0, bound_on(self.draft, self.ties, seconds, self.later) - self.most_rent)

    # --- one axis at a time -------------------------------------------------------------------------------------------

    def descents(self, is_begun: bool = False) -> tuple[float, bool]:
        """Price the plan where the first descent ends, or where it stands after a step if it `is_begun`; where no proof follows,
        those of all descents. A bound by the work alone; the search is not complete."""
        self.ahead = descend(self.draft, self.ties, self.deadline, is_told_early=is_begun)
        self._descend(1 if is_begun or self.effort > 0 else None)
        return self._least_work(self.draft.program), False

    def _descend(self, most: int | None = None) -> None:
        """Price plans where the descents that are ahead end."""
        for state in itertools.islice(self.ahead, most):
            if state.model is not None and state.seconds not in self.ends:
                self.ends.add(state.seconds)
                self._try(state.model, state.choices)

    @property
    def begins_early(self) -> bool:
        """Whether the first round of a proof goes on from the first step of a descent. It often finds more than further steps,
        which are taken only where its bound lets them gain something."""
        return self.later > 0 and self.effort > 0 and len(self.machine.mesh.axis_names) <= KEPT

    @property
    def begins_relaxed(self) -> bool:
        """Whether the bound of a relaxed problem is sought at once: on many axes it finds better plans than descents do, which go
        along one at a time."""
        return self.later > 0 and len(self.machine.mesh.axis_names) > KEPT

    # --- within the memory --------------------------------------------------------------------------------------------

    def within_memory(self, lighter: Candidate | None) -> None:
        """Plans that fit, where the fastest ones do not: bytes at the peak get a price. As long as they can still be faster than
        `lighter`, if that fits."""
        assert self.leanest is not None, "some plan was made"
        least, in_vain = math.inf if lighter is None or lighter.peak > self.memory else lighter.seconds, 0
        leanest = self.leanest.peak
        prices = Prices(PRICE * self.leanest.seconds / leanest)
        prices.equations.add(peak_of(self.leanest.plan, self.machine))
        for tried in range(self.priced):
            if self.is_late and tried >= RETRIED:
                return
            candidate = next(self._at_prices(prices.by_equation), None)
            if candidate is None:
                return
            if candidate.peak > self.memory and candidate.draft is not None and len(self.draft.program.eqns) <= REFINED:
                candidate = refined(candidate, self.machine, "memory")
                self._consider(candidate)
            prices.learn(candidate, self.memory, self.machine)
            if candidate.peak > self.memory:
                in_vain = in_vain + 1 if candidate.peak > leanest - LEANER * (leanest - self.memory) else 0
                leanest = min(leanest, candidate.peak)
                if least < math.inf and (in_vain >= IN_VAIN or candidate.seconds >= least):
                    return

    def _at_prices(self, prices: Mapping[int, float]) -> Iterator[Candidate]:
        if self.is_small and len(self.machine.mesh.axis_names) == 1:
            try:
                choices = Elimination(with_memory(self.model, prices)).best()
                yield self._try(self.model, choices)
                return
            except TooWide:
                pass
        for state in descend(self.draft, self.ties, self.deadline, prices):
            if state.model is not None:
                yield self._try(state.model, state.choices)
                return

    def _least_work(self, program: Program) -> float:
        """Seconds of the work if all devices share all of it."""
        seconds, known = 0.0, dict[tuple[int, ...], float]()
        for eqn in program.eqns:
            if eqn.op.regions is not None:
                seconds += sum(times * self._least_work(region.program) for region, times in weighted_regions(eqn))
            elif eqn.identity in known:
                seconds += known[eqn.identity]
            elif eqn.inputs and eqn.outputs and eqn.op.pinned is None:
                whole = equation_plan(self.draft.flat.rules[eqn], {}, self.machine.mesh)
                types, places = (*eqn.input_types, *eqn.output_types), (*whole.operands, *whole.results)
                own = self.machine.work(whole.rule, types, places, reading_of(eqn)) / self.machine.mesh.device_count
                seconds, known[eqn.identity] = seconds + own, own
        return seconds
