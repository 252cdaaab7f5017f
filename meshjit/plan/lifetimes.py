"""From when to when each version of each value is held, once it is known how all equations are computed.

`Flow` frees all versions of a value after its last use, which it knows beforehand. A weight that is updated in the end would be
held gathered until then, though its last use gathered is in the backward pass: here every version ends with its own last use.

Of repeats one of a kind is run. What the others hold inside themselves is what that one held, some equations further on.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_regions
from meshjit.core.repeats import Repeat
from meshjit.plan.cost import Machine
from meshjit.plan.flow import Flow
from meshjit.plan.nested import unstacked
from meshjit.plan.recall import FlowOutcome, FlowRecall
from sharding.reshard import Walk
from sharding.spec import Placement

Held = tuple[int, Placement, list[int]]  # position of a value, its version, numbers of equations from the repeat's first on


@dataclasses.dataclass(frozen=True, eq=False)
class Inside:
    """The versions that are held in a repeat: those of values that are read elsewhere, too, and the others."""

    model: Repeat  # the one that was run
    shared: tuple[Held, ...]
    own: tuple[Held, ...]
    changes: tuple[tuple[int, int], ...]  # of the bytes of `own`, by number of the equation


class Lifetimes(Flow):
    """`uses`: the numbers of the equations that make or read a version, in order; that of the outputs comes after all."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        plans: Sequence[EquationPlan],
        inputs: Sequence[Placement],
        outputs: Sequence[Placement],
        lent: frozenset[Var] = frozenset(),
    ) -> None:
        super().__init__(program, machine, lent=lent)
        self.uses: dict[tuple[Var, Placement], list[int]] = {}
        self.copies: dict[int, tuple[Repeat, Inside]] = {}  # by number of the first equation
        self.made_again = set[tuple[Var, Placement]]()  # versions that take no memory of their own
        self.taken = set[tuple[Var, Placement]]()  # versions whose memory a result of their last reader takes
        self.inside = [0] * (len(plans) + 1)  # bytes that nested Programs hold at most, by equation, beside what counts here
        self.read = dict[int, dict[Var, set[Placement]]]()  # versions that equations with nested Programs read, by number
        self.counted_inside: dict[int, list[Collection[tuple[Var, Placement]]]] = {}  # while each body runs, and at the end
        self.start(inputs)
        _Recall(program, self).run(plans)
        self.end(outputs)
        self.taken.update(self._brought_elsewhere())
        for var, placement in zip(program.inputs, inputs, strict=True):
            if var in machine.undonated:
                self.note_use(var, machine.normal(placement))

    def run(self, eqn: Eqn, plan: EquationPlan) -> None:
        at = self.at
        super().run(eqn, plan)
        self.at = at
        self.taken.update(self.overwritten(eqn, plan) if at in self.in_place else ())
        effect = self.machine.effect(eqn, plan)
        for var, placement in (*zip(eqn.inputs, effect.operands, strict=True), *zip(eqn.outputs, effect.results, strict=True)):
            self.note_use(var, placement if placement in self.versions[var] else placement.without_partial())
        if plan.bodies:
            self.inside[at] = self._inside(eqn, plan, at)
            self.read[at] = {v: {p for w, p in zip(eqn.inputs, effect.operands, strict=True) if w is v} for v in eqn.inputs}
        self.at = at + 1

    def _brought_elsewhere(self) -> Iterator[tuple[Var, Placement]]:
        """Versions whose last use is that another version is made of them, which nested Programs read: while these run, the first
        are gone."""
        for (var, placement), uses in self.uses.items():
            read = self.read.get(uses[-1], {}).get(var, ())
            if read and placement not in read and var not in self.machine.undonated:
                yield var, placement

    def _inside(self, eqn: Eqn, plan: EquationPlan, at: int) -> int:
        """What the bodies hold beside what counts here; at the end they hold nothing, nor do operands whose memory is taken."""
        taken = [*self.ceded(eqn, plan)]
        results = [(eqn.outputs[i], self.machine.normal(plan.results[i])) for i in unstacked(eqn)]
        sides = self.counted_inside[at] = [
            *[[*results, *(taken if region.carried else ())] for region in run_regions(eqn)], taken
        ]  # fmt: skip
        peaks = [int(body.cost.peak_bytes) for body in plan.bodies if body.cost is not None]
        return max(peak - self.bytes_of(side) for peak, side in zip([*peaks, 0], sides, strict=True))

    def bytes_of(self, versions: Iterable[tuple[Var, Placement]]) -> int:
        return sum([self.local_bytes(var, placement) for var, placement in versions])

    def enter(self, var: Var, placement: Placement, local: None) -> None:
        super().enter(var, placement, local)
        self.note_use(var, placement)

    def local_bytes(self, var: Var, placement: Placement) -> int:
        is_nothing = (var, placement) in self.made_again or self.is_lent(var, placement)
        return 0 if is_nothing else super().local_bytes(var, placement)

    def is_moved(self, var: Var) -> bool:
        return len([p for p in self.versions[var] if (var, p) not in self.made_again]) > 1

    def is_lent(self, var: Var, placement: Placement) -> bool:
        """Whether it is a version that counts around this Program."""
        return var in self.lent and placement == next(iter(self.versions[var]))

    def make_again(self, var: Var, placement: Placement) -> None:
        super().make_again(var, placement)
        if placement in self.versions[var]:
            self.made_again.add((var, placement))

    def travel(self, var: Var, walk: Walk, local: None) -> Sequence[None]:
        for placement in walk.placements:
            self.note_use(var, placement)
        return super().travel(var, walk, local)

    def bring(self, var: Var, placement: Placement) -> None:
        super().bring(var, placement)
        self.note_use(var, self.walks.normal(placement))

    def note_use(self, var: Var, placement: Placement) -> None:
        self.uses.setdefault((var, placement), []).append(self.at)

    def held_bytes(self) -> list[int]:
        """What is held while each equation runs, nested Programs included, and while the outputs are handed over."""
        return [held + inside for held, inside in zip(self.own_bytes(), self.inside, strict=True)]

    def own_bytes(self) -> list[int]:
        """The same without what nested Programs hold."""
        changes = [0] * (len(self.inside) + 1)
        for (var, placement), uses in self.uses.items():
            size = self.local_bytes(var, placement)
            changes[uses[0]] += size
            changes[uses[-1] + ((var, placement) not in self.taken)] -= size
        for start, (_, inside) in self.copies.items():
            for number, size in inside.changes:
                changes[start + number] += size
        return list(accumulate(changes))[: len(self.inside)]

    def kept(self, at: int) -> Iterator[tuple[Var, Placement, int]]:
        """Versions, but for those under which values were made, that are held at an equation that does not read them: with the
        number of the one that reads them next."""
        for var, placement, uses in self.alive(at):
            if uses[0] < at < uses[-1] and at not in uses and placement != next(iter(self.versions[var])):
                yield var, placement, next(n for n in uses if n > at)

    def alive(self, at: int) -> Iterator[tuple[Var, Placement, Sequence[int]]]:
        """Versions that are held at an equation, each with the equations that make or read it."""
        for start in [start for start, (repeat, _) in self.copies.items() if start <= at < repeat.stop]:
            self.write_out(*self.copies.pop(start))
        for (var, placement), uses in self.uses.items():
            if uses[0] <= at < uses[-1] + ((var, placement) not in self.taken):
                yield var, placement, uses

    def write_all_out(self) -> None:
        """Say of every value when it is held, in all repeats."""
        for start in [*self.copies]:
            self.write_out(*self.copies.pop(start))

    def write_out(self, repeat: Repeat, inside: Inside) -> None:
        """Say of the values inside of a repeat one by one what is known of those of the repeat that was run."""
        for i, placement, numbers in inside.own:
            var, model = repeat.inner[i], inside.model.inner[i]
            self.uses[var, placement] = [repeat.start + n for n in numbers]
            self.be_alike((var, placement), (model, placement))
            self.versions[var] = self.versions[model]
            if model in self.cheap:
                self.cheap[var] = self.cheap[model]

    def be_alike(self, version: tuple[Var, Placement], model: tuple[Var, Placement]) -> None:
        """Say of a version in a repeat what is known of the one in the repeat that was run."""
        for versions in (self.made_again, self.taken):
            versions.update([version] if model in versions else ())


class _Recall(FlowRecall):
    """Outcomes say what is held, too, so those of other Flows are of no use."""

    def __init__(self, program: Program, flow: Lifetimes) -> None:
        super().__init__(program, flow)
        self.lifetimes, self.outcomes = flow, {}

    def end(self, repeat: Repeat, held: int, peak: int, live: Sequence[Var]) -> FlowOutcome | None:
        outcome = super().end(repeat, held, peak, live)
        return None if outcome is None else dataclasses.replace(outcome, notes=self.inside(repeat, outcome))

    def inside(self, repeat: Repeat, outcome: FlowOutcome) -> Inside:
        """What is held in a repeat that has just been run."""
        lifetimes, read_elsewhere = self.lifetimes, {i for i, *_ in outcome.versions}
        shared, own, changes = list[Held](), list[Held](), defaultdict[int, int](int)
        for i, var in enumerate((*repeat.inner, *repeat.outer)):
            for placement in lifetimes.versions[var]:
                uses = lifetimes.uses.get((var, placement), ())
                numbers = [at - repeat.start for at in uses if at >= repeat.start]
                if numbers and (i in read_elsewhere or i >= len(repeat.inner)):
                    shared.append((i, placement, numbers))
                elif numbers:
                    own.append((i, placement, numbers))
                    size = lifetimes.local_bytes(var, placement)
                    end = numbers[-1] + ((var, placement) not in lifetimes.taken)
                    changes[numbers[0]] += size
                    changes[end] -= size
        return Inside(repeat, tuple(shared), tuple(own), tuple([change for change in changes.items() if change[1]]))

    def apply(self, repeat: Repeat, outcome: FlowOutcome) -> None:
        super().apply(repeat, outcome)
        values, inside = (*repeat.inner, *repeat.outer), outcome.notes
        assert isinstance(inside, Inside)
        self.lifetimes.copies[repeat.start] = repeat, inside
        models = (*inside.model.inner, *inside.model.outer)
        for i, placement, numbers in inside.shared:
            self.lifetimes.be_alike((values[i], placement), (models[i], placement))
            self.lifetimes.uses.setdefault((values[i], placement), []).extend([repeat.start + n for n in numbers])
