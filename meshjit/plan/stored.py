"""What the peak of a plan holds for later although nothing reads it there, and sections of the Program that would make it again.

    forward                         peak          backward
    h = f(x)   y = g(h)   z = k(y)   |   reads y   reads h, x
    [ section ][       section      ]
      keeps x    keeps h

A section is computed again before the first equation behind the peak that reads what it makes. It reads what was made before it,
which is kept. Sections are cut where least is kept: the bytes that pass a cut, of all cuts, and what the largest section holds
while it is computed again, are to be few together (Chen et al., arXiv 1604.06174). Layers are cut between them.

Fused values (`plan/fused_values.py`) hold nothing, or what they are made of. They are computed again with that: it is kept as
long as any of them is. One that a section reads lies in memory.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Var
from meshjit.core.rules import rule_of, work_passes
from meshjit.plan.lifetimes import Lifetimes
from meshjit.transform.compute_again import Section

HALVINGS: Final = 8  # sizes of the largest section that are tried: all that is stored, half of it, …


class Stored:
    """Of a plan whose Lifetimes these are."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self.lifetimes, self.program, self.machine = lifetimes, lifetimes.program, lifetimes.machine
        self.held = lifetimes.held_bytes()
        self.peak = self.held.index(max(self.held))
        self.uses: dict[Var, list[tuple[int, Sequence[int]]]] = {}  # by value and version: bytes, and where it is made or read
        lifetimes.write_all_out()
        for var, placement, uses in lifetimes.alive(self.peak):
            self.uses.setdefault(var, []).append((lifetimes.local_bytes(var, placement), uses))
        self.made = {v: n for n, eqn in enumerate(self.program.eqns) for v in eqn.outputs}
        self.reads: dict[Var, list[int]] = {}
        for n, eqn in enumerate(self.program.eqns):
            for v in eqn.inputs:
                self.reads.setdefault(v, []).append(n)
        outputs = set(self.program.outputs)
        idle = [v for v in self.uses if v in self.made and v not in outputs and v not in lifetimes.cheap]
        self.bytes = {v: self._idle_bytes(v) for v in idle if self._next(v) is not None}

    @functools.cached_property
    def _fused(self) -> Mapping[Var, Collection[Var]]:
        """By value in memory, what is idle at the peak and computed of it where it is read: it is kept for as long as that is."""
        made_of, fused = dict[Var, Collection[Var]](), dict[Var, set[Var]]()
        for eqn in self.program.eqns[: self.peak]:
            if eqn.outputs[:1] and eqn.outputs[0] in self.lifetimes.parts:
                sources = made_of[eqn.outputs[0]] = {s for v in eqn.inputs for s in made_of.get(v, (v,))}
                for source in sources if eqn.outputs[0] in self.bytes else ():
                    fused.setdefault(source, set()).add(eqn.outputs[0])
        return fused

    def _next(self, var: Var) -> int | None:
        """The equation that reads a value next, behind the peak; None where none does, or the peak's own reads it."""
        if self.made[var] >= self.peak or self.peak in self.reads.get(var, ()):
            return None
        return next((n for n in self.reads.get(var, ()) if n > self.peak), None)

    def _idle_bytes(self, var: Var) -> int:
        return sum(size for size, uses in self.uses[var] if self.peak not in uses)

    @functools.cached_property
    def cuts(self) -> Sequence[Sequence[int]]:
        """Ways to cut the Program up to the peak into sections, the one that holds least first."""
        made, passing = np.zeros(self.peak + 1), np.zeros(self.peak + 1)
        for var, size in self.bytes.items():
            made[self.made[var]] += size
        for var, at in self.made.items():
            if at >= self.peak or var in self.lifetimes.cheap:
                continue
            last = max((n for n in self.reads.get(var, ()) if n < self.peak), default=at)
            size = self._whole(var)
            passing[at + 1] += size
            passing[last + 1] -= size
        totals, before = np.cumsum(made), np.concatenate([[0.0], np.cumsum(made)])
        rates = [least_cuts(before, np.cumsum(passing), float(totals[-1]) / 2**n) for n in range(HALVINGS)]
        return [*dict.fromkeys(tuple(cuts) for _, cuts in sorted(rates, key=lambda rate: rate[0]))]

    def sections(self, deep: bool, way: int = 0) -> Iterator[Section]:
        """In the order of the Program. `deep`: contractions, and what sends something, are computed again, too. `way`: which of
        the ways to cut."""
        ends = [0, *self.cuts[way], self.peak]
        for start, stop in itertools.pairwise(ends):
            section = self._section(start, stop, deep)
            if section is not None:
                yield section

    def _section(self, start: int, stop: int, deep: bool) -> Section | None:
        needed = {v for eqn in self.program.eqns[start:stop] for v in eqn.outputs if v in self.bytes}
        eqns = list[Eqn]()
        for eqn in reversed(self.program.eqns[start:stop]):
            if not needed.isdisjoint(eqn.outputs) and _can_be_repeated(eqn, deep):
                eqns.append(eqn)
                needed.update(eqn.inputs)
        again = [v for eqn in eqns for v in eqn.outputs if v in self.bytes]
        if not any([self.bytes[v] for v in again]):
            return None
        at = min(n for v in again for n in [self._next(v)] if n is not None)
        awaited = self._awaited(at)
        return None if awaited is None else Section(tuple(reversed(eqns)), at, awaited)

    def _awaited(self, at: int) -> Var | None:
        """What is made behind the peak and read by the equation; else the newest that is there by then and still read."""
        fresh = [v for v in self.program.eqns[at].inputs if self.made.get(v, -1) >= self.peak]
        if fresh:
            return max(fresh, key=lambda v: self.made[v])
        for eqn in reversed(self.program.eqns[self.peak : at]):
            for var in eqn.outputs:
                if self.reads.get(var, (0,))[-1] >= at:
                    return var
        return None

    # --- what would be held -------------------------------------------------------------------------------------------

    def peak_with(self, sections: Sequence[Section]) -> float:
        """The most bytes that are held, about, if these are computed again."""
        later: dict[Var, list[int]] = {}  # what a section reads is kept until then
        for section in sections:
            own = {v for eqn in section.eqns for v in eqn.outputs}
            for var in {v for eqn in section.eqns for v in eqn.inputs} - own - self.lifetimes.cheap.keys():
                later.setdefault(var, []).append(section.at)
        held = np.array([*self.held, 0], np.float64)
        change = np.zeros(len(held) + 1)
        for var, at in self._made_again(sections).items():
            for size, uses in self.uses[var]:
                last = max((n for n in (*uses, *later.get(var, ())) if n < at), default=at)
                change[last + 1] -= size
                change[max(at, last + 1)] += size
        for var, ats in later.items():
            for size, first, last in self._spans(var):
                change[last + 1] += size
                change[max(*ats, last) + 1] -= size
                change[first] += self._whole(var) - size
                change[max(*ats, last) + 1] -= self._whole(var) - size
        return float((held + np.cumsum(change)[:-1]).max())

    def _made_again(self, sections: Sequence[Section]) -> Mapping[Var, int]:
        """Of what the peak holds, what they make, and the constants that they read: from which equation on. Not what is kept all
        the same, because they do not make all that is computed of it."""
        again: dict[Var, int] = {}
        for section in sections:
            for eqn in section.eqns:
                constants = [v for v in eqn.inputs if v in self.lifetimes.cheap and v in self.uses]
                for var in (*constants, *(v for v in eqn.outputs if v in self.bytes)):
                    again[var] = min(section.at, again.get(var, section.at))
        return {var: at for var, at in again.items() if again.keys() >= {*self._fused.get(var, ())}}

    def _spans(self, var: Var) -> list[tuple[int, int, int]]:
        """Of the version under which a value was made: bytes, where it is made, and where it is read last."""
        placement = next(iter(self.lifetimes.versions[var]))
        uses = self.lifetimes.uses.get((var, placement))
        return [] if not uses else [(self.lifetimes.local_bytes(var, placement), uses[0], uses[-1])]

    def _whole(self, var: Var) -> int:
        """Bytes of that version if it lies in memory, as what sections read does."""
        return self.lifetimes.in_memory(var, next(iter(self.lifetimes.versions[var])))

    def saved(self, sections: Sequence[Section]) -> int:
        """Bytes that these make and that the peak would not hold."""
        return sum(self.bytes.get(v, 0) for section in sections for eqn in section.eqns for v in eqn.outputs)


def _can_be_repeated(eqn: Eqn, deep: bool) -> bool:
    if not is_pure(eqn) or eqn.op.regions is not None or eqn.op.pinned is not None:
        return False
    return deep or (rule_of(eqn).is_passthrough and not eqn.op.exchanges and not work_passes(eqn))


def least_cuts(before: np.ndarray, passing: np.ndarray, most: float) -> tuple[float, Sequence[int]]:
    """Cuts between which at most so much is stored, or a single equation is, and over which least passes in sum: (that and the
    largest part, cuts)."""
    count = len(passing) - 1
    best, back = np.full(count + 1, np.inf), np.zeros(count + 1, int)
    best[0] = 0.0
    window = deque[int]([0])  # cuts that may come before, the best first
    for cut in range(1, count + 1):
        while len(window) > 1 and before[cut] - before[window[0]] > most:
            window.popleft()
        best[cut] = best[window[0]] + (passing[cut] if cut < count else 0.0)
        back[cut] = window[0]
        while window and best[window[-1]] >= best[cut]:
            window.pop()
        window.append(cut)
    cuts, at = list[int](), int(back[count])
    while at:
        cuts.append(at)
        at = int(back[at])
    cuts.reverse()
    parts = [before[b] - before[a] for a, b in itertools.pairwise([0, *cuts, count])]
    return float(best[count] + max(parts)), cuts
