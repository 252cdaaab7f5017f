"""Move before a loop what it takes of a value that is the same every time: parts of weights, such as the gates of a cell.

    scan(%w, %h, %xs) {body: %a = slice(%w)[0:4]; %b = reshape(%a); …}
    ->  %a = slice(%w)[0:4]    %b = reshape(%a)    scan(%b, %w, %h, %xs) {body: …}

Where %w is sharded along the dim that is cut, elements of the part lie on other devices than the part should: they are moved
once, and not in every iteration. Parts take memory besides what they are cut from, so who asks says where they are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from meshjit.core.ops_in import ops_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region, copied, run_regions
from meshjit.ops.base.shape import reshape, transpose
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, everywhere, rewrite

PART: Final = 1 / 2  # of a value, at most: most of one is where a stencil reads, beside what changes
Choice: TypeAlias = Callable[[Var, Sequence[Eqn]], bool]  # a value inside of a loop, and the slices that are parts of it


def move_before_loops(program: Program, is_chosen: Choice) -> Program:
    """The Program with parts of values that do not change taken before its loops, where wanted; in nested Programs too."""

    def moved(eqn: Eqn, here: Rewriter) -> Eqn | None:
        return _moved(eqn, here, is_chosen)

    def change(program: Program) -> Program:
        changed = rewrite(program, moved) if any([op.with_invariants for op in ops_in(program)]) else program
        return program if changed is program else dce(changed)

    return everywhere(program, change)


def leave_something_out(value: Var, parts: Sequence[Eqn]) -> bool:
    """Whether the parts are not all of the value: its gradient is then larger than theirs, in every iteration."""
    distinct = {(each.params["start"], each.params["limit"], each.params["strides"]): each for each in parts}
    return sum(each.outputs[0].type.size for each in distinct.values()) < value.type.size


def _moved(eqn: Eqn, here: Rewriter, is_chosen: Choice) -> Eqn | None:
    if eqn.op.with_invariants is None:
        return None
    after = eqn
    for number in range(len(run_regions(eqn))):
        region = run_regions(after)[number]
        moved = _parts(region, is_chosen)
        if moved:
            after = _without(after, number, region, moved, here)
    return None if after is eqn else after


def _parts(region: Region, is_chosen: Choice) -> list[Eqn]:
    """The slices that are parts of the region's invariants, and what they are turned into without any arithmetic."""
    parts: dict[Var, list[Eqn]] = {region.program.inputs[i]: [] for i in region.invariant} if region.loops else {}
    if not parts:
        return []
    for eqn in region.program.eqns:
        if eqn.op is slice_ and eqn.inputs[0] in parts and eqn.outputs[0].type.size <= PART * eqn.inputs[0].type.size:
            parts[eqn.inputs[0]].append(eqn)
    first = {each for value, cuts in parts.items() if cuts and is_chosen(value, cuts) for each in cuts}
    made, moved = set[Var](), list[Eqn]()
    for eqn in region.program.eqns if first else ():
        if eqn in first or (eqn.op in (slice_, reshape, transpose) and eqn.inputs[0] in made):
            made.update(eqn.outputs)
            moved.append(eqn)
    return moved


def _without(eqn: Eqn, number: int, region: Region, moved: Sequence[Eqn], here: Rewriter) -> Eqn:
    """The loop without these equations of its region, which are done before it."""
    program, gone = region.program, set(moved)
    left = tuple([each for each in program.eqns if each not in gone])
    read = {v for each in left for v in each.inputs}.union(program.outputs)
    names = {v: eqn.inputs[operand] for v, operand in zip(program.inputs, region.operands, strict=True)}
    for each in moved:
        outside = Var(each.outputs[0].type)
        here.put(Eqn(each.op, (names[each.inputs[0]],), (outside,), each.params, each.source))
        names[each.outputs[0]] = outside
    inside = [each.outputs[0] for each in moved if each.outputs[0] in read]
    body = copied(replace(program, inputs=(*inside, *program.inputs), eqns=left))
    assert eqn.op.with_invariants is not None
    operands, params = eqn.op.with_invariants(eqn.inputs, eqn.params, number, [names[v] for v in inside], body)
    return replace(eqn, inputs=tuple(operands), params=params)
