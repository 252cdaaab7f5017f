"""Update a value as soon as what the update reads is there, where that frees at least what it takes, as compilers do.

    %g1 = dot(…)   %g2 = dot(…)   %p1' = add(%p1, %g1)   %p2' = add(%p2, %g2)      all gradients are there at once
    %g1 = dot(…)   %p1' = add(%p1, %g1)   %g2 = dot(…)   %p2' = add(%p2, %g2)      one at a time

Optimizers stand at the end of a step, behind all gradients. What leads to results alone, and goes element by element, is moved
together with what shares its values: the moments of a parameter with the parameter. What waits for all gradients, such as a
step whose gradients are scaled to a norm, stays where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from meshjit.core.ops_in import has_regions
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import run_regions, with_run_programs
from meshjit.core.rules import is_fusible

TINY: Final = 1 << 12  # bytes up to which values join no updates: rates, and counts of steps
START: Final = -1  # where inputs are there


def update_early(program: Program) -> Program:
    """The Program with its updates where they can be made; itself if they are there. Inputs count as donated: where one is not,
    the result that could replace it has its memory from the start, whenever it is made."""
    replaced = {*program.output_types}
    return _updated(program, {v for v in program.inputs if v.type not in replaced})


def _updated(program: Program, lent: Collection[Var]) -> Program:
    """`lent`: inputs whose memory no result takes. Of nested Programs those are all but carries."""
    eqns = tuple([_with_bodies_changed(eqn) for eqn in program.eqns]) if has_regions(program) else program.eqns
    places = _Updates(program, lent).places()
    if places:
        eqns = tuple(_moved(eqns, places))
    return program if eqns == program.eqns else replace(program, eqns=eqns)


def _moved(eqns: Sequence[Eqn], places: Mapping[int, int]) -> Iterator[Eqn]:
    """By number, those that have a place come after the equation that is there, in their order."""
    behind = defaultdict[int, list[Eqn]](list)
    for at in sorted(places):
        behind[places[at]].append(eqns[at])
    yield from behind[START]
    for at, eqn in enumerate(eqns):
        if at not in places:
            yield eqn
        if at in behind:
            yield from behind[at]


def _with_bodies_changed(eqn: Eqn) -> Eqn:
    regions = run_regions(eqn)
    if not regions:
        return eqn
    changed = dict[int, Program]()  # by identity: what is shared stays shared
    for region in regions:
        body, carries = region.program, {region.program.inputs[i] for i, _ in region.carried}
        changed[id(body)] = _updated(body, {v for v in body.inputs if v not in carries})
    if all(changed[id(region.program)] is region.program for region in regions):
        return eqn
    return eqn.with_params(with_run_programs(eqn, lambda body: changed[id(body)], device=False))


class _Updates:
    """Of the equations that lead to results alone, which are moved. `small`: values that are made of tiny ones; each is made with
    its first reader. The other equations are in groups that share values, and a group is moved as a whole."""

    def __init__(self, program: Program, lent: Collection[Var]) -> None:
        self.lent, self.outputs = lent, {*program.outputs}
        self.eqns, self.last_read = leading_to_results(program, _fuses(program.eqns))
        self.made_here = {eqn.outputs[0] for eqn in self.eqns.values()}
        self.made_at = {v: at for at, eqn in enumerate(program.eqns) if at not in self.eqns for v in eqn.outputs}
        self.small = set[Var]()
        self.joined = dict[Var, Var]()  # a value to another one of its group; one of each to itself
        self.ready = dict[Var, int]()  # of small values and of groups: after which equation all that they read is there

    def places(self) -> dict[int, int]:
        """By number, after which equation each one stands that is moved."""
        for eqn in self.eqns.values():
            self._join(eqn)
        groups = [self._group(eqn.outputs[0]) for eqn in self.eqns.values()]
        for group, eqn in zip(groups, self.eqns.values(), strict=True):
            self.ready[group] = max([self.ready.get(group, START), *[self._made(v) for v in eqn.inputs]])
        freed, places, first_read = self._freed(groups), dict[int, int](), dict[Var, int]()
        for group, (at, eqn) in zip(reversed(groups), reversed(self.eqns.items()), strict=True):
            if group in self.small:
                place = first_read.get(group, at)
            else:
                place = self.ready[group] if freed[group] >= 0 else at
            if place < at:
                places[at] = place
            for v in eqn.inputs:
                first_read[v] = min(place, at, first_read.get(v, at))
        return places

    def _join(self, eqn: Eqn) -> None:
        """The result is small if all operands are. Else it is in a group with its operands, but for inputs of the Program."""
        out, small = eqn.outputs[0], self.small
        large = [v for v in eqn.inputs if v not in small and (v in self.made_here or v.type.nbytes > TINY)]
        if not large and (out not in self.outputs or out.type.nbytes <= TINY):
            small.add(out)
            return
        for v in large:
            if v in self.made_here or v in self.made_at:
                self.joined[self._group(v)] = self._group(out)

    def _group(self, var: Var) -> Var:
        while (other := self.joined.setdefault(var, var)) is not var:
            self.joined[var] = var = self.joined.setdefault(other, other)
        return var

    def _made(self, var: Var) -> int:
        """After which equation a value is there that a group reads; START for one of the group's own, and for inputs."""
        return self.ready[var] if var in self.small else self.made_at.get(var, START)

    def _freed(self, groups: Sequence[Var]) -> dict[Var, int]:
        """By group, the bytes of what nobody needs any more, less those of its results. `groups`: those of the equations."""
        freed, counted = dict.fromkeys(self.ready, 0), self.made_here.union(self.outputs, self.lent)
        for group, eqn in zip(groups, self.eqns.values(), strict=True):
            if eqn.outputs[0] in self.outputs:
                freed[group] -= eqn.outputs[0].type.nbytes
            for v in eqn.inputs:
                if v not in counted:
                    counted.add(v)
                    freed[group] += 0 if self.last_read.get(v, START) > self.ready[group] else v.type.nbytes
        return freed


def leading_to_results(program: Program, fuses: Callable[[int], bool]) -> tuple[dict[int, Eqn], dict[Var, int]]:
    """The fusible equations that nothing but results is computed from, by their numbers; and by value the number of the last
    reader that is none of them. `fuses` says whether the equation with a number is fusible."""
    leading, last_read = dict[int, Eqn](), dict[Var, int]()
    for at, eqn in zip(range(len(program.eqns) - 1, -1, -1), reversed(program.eqns), strict=True):
        if len(eqn.outputs) == 1 and eqn.outputs[0] not in last_read and fuses(at):
            leading[at] = eqn
            continue
        for v in eqn.inputs:
            if v not in last_read:
                last_read[v] = at
    return dict(reversed(leading.items())), last_read


def _fuses(eqns: Sequence[Eqn]) -> Callable[[int], bool]:
    """Says of a number whether that equation is fusible; of copies, one is asked."""
    known = dict[tuple[int, ...], bool]()

    def fuses(at: int) -> bool:
        identity = eqns[at].identity
        is_known = known.get(identity)
        if is_known is None:
            is_known = known[identity] = is_fusible(eqns[at])
        return is_known

    return fuses
