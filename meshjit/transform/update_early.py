"""Update a value as soon as what the update reads is there, where that frees at least what it takes, as compilers do.

    %g1 = dot(…)   %g2 = dot(…)   %p1' = add(%p1, %g1)   %p2' = add(%p2, %g2)      all gradients are there at once
    %g1 = dot(…)   %p1' = add(%p1, %g1)   %g2 = dot(…)   %p2' = add(%p2, %g2)      one at a time

Optimizers stand at the end of a step, behind all gradients. What leads to results alone, and goes element by element, is moved
together with what shares its values: the moments of a parameter with the parameter. What waits for all gradients, such as a
step whose gradients are scaled to a norm, stays where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
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
        self.program, self.lent, self.outputs = program, lent, {*program.outputs}
        self.eqns, self.last_read = leading_to_results(program)
        self.made_at = dict.fromkeys(program.inputs, START) | {v: at for at, eqn in enumerate(program.eqns) for v in eqn.outputs}
        self.small = set[Var]()
        self.joined = dict[Var, Var]()  # a value to another one of its group; one of each to itself
        self.ready = dict[Var, int]()  # of small values and of groups: after which equation all that they read is there

    def places(self) -> dict[int, int]:
        """By number, after which equation each one stands that is moved."""
        for eqn in self.eqns.values():
            self._join(eqn)
        for eqn in self.eqns.values():
            group = self._group(eqn.outputs[0])
            self.ready[group] = max([self.ready.get(group, START), *[self._made(v) for v in eqn.inputs]])
        freed, places, first_read = self._freed(), dict[int, int](), dict[Var, int]()
        for at, eqn in reversed(self.eqns.items()):
            (out,) = eqn.outputs
            if out in self.small:
                place = first_read.get(out, at)
            else:
                group = self._group(out)
                place = self.ready[group] if freed[group] >= 0 else at
            if place < at:
                places[at] = place
            first_read.update([(v, min(place, at, first_read.get(v, at))) for v in eqn.inputs])
        return places

    def _join(self, eqn: Eqn) -> None:
        """The result is small if all operands are. Else it is in a group with its operands, but for inputs of the Program."""
        (out,) = eqn.outputs
        if all(self._is_small(v) for v in eqn.inputs) and (out not in self.outputs or out.type.nbytes <= TINY):
            self.small.add(out)
            return
        for v in eqn.inputs:
            if not self._is_small(v) and self.made_at[v] != START:
                self.joined[self._group(v)] = self._group(out)

    def _is_small(self, var: Var) -> bool:
        return var in self.small or (var.type.nbytes <= TINY and self.made_at[var] not in self.eqns)

    def _group(self, var: Var) -> Var:
        while (other := self.joined.setdefault(var, var)) is not var:
            self.joined[var] = var = self.joined.setdefault(other, other)
        return var

    def _made(self, var: Var) -> int:
        """After which equation a value is there that a group reads; START for one of the group's own."""
        if var in self.small:
            return self.ready[var]
        return START if self.made_at[var] in self.eqns else self.made_at[var]

    def _freed(self) -> dict[Var, int]:
        """By group, the bytes of what nobody needs any more, less those of its results."""
        freed, counted = dict.fromkeys(self.ready, 0), set[Var]()
        for eqn in self.eqns.values():
            group = self._group(eqn.outputs[0])
            freed[group] -= sum([v.type.nbytes for v in eqn.outputs if v in self.outputs])
            for v in eqn.inputs:
                is_read_later = self.last_read.get(v, START) > self.ready[group]
                if v not in counted and self.made_at[v] not in self.eqns and v not in self.outputs and v not in self.lent:
                    counted.add(v)
                    freed[group] += 0 if is_read_later else v.type.nbytes
        return freed


def leading_to_results(program: Program) -> tuple[dict[int, Eqn], dict[Var, int]]:
    """The fusible equations that nothing but results is computed from, by their numbers; and by value the number of the last
    reader that is none of them."""
    leading, last_read = dict[int, Eqn](), dict[Var, int]()
    known = dict[tuple[int, ...], bool]()  # of copies, one is asked
    for at, eqn in reversed([*enumerate(program.eqns)]):
        if len(eqn.outputs) == 1 and eqn.outputs[0] not in last_read:
            fuses = known.get(eqn.identity)
            if fuses is None:
                fuses = known[eqn.identity] = is_fusible(eqn)
            if fuses:
                leading[at] = eqn
                continue
        for v in eqn.inputs:
            last_read.setdefault(v, at)
    return dict(reversed(leading.items())), last_read
