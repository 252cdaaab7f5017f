"""Collect apart: where a loop adds up what it puts together, each part is added up by itself, and put together after it.

    scan(%c, %xs) {body: %p = concatenate(%a, %b); %d = add(%c, %p); return %d}
    ->  %c1 = slice(%c)[:m]    %c2 = slice(%c)[m:]
        %d1, %d2 = scan(%c1, %c2, %xs) {body: return add(%c1, %a), add(%c2, %b)}    %d = concatenate(%d1, %d2)

Where %c is sharded along the dim of the concatenation, elements of the parts lie on other devices than in the whole: they are
moved once, and not in every iteration. Gradients of gates that are columns of one array are such parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TypeAlias

from meshjit.core.ops_in import ops_in
from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import Region, run_regions
from meshjit.ops.base.arithmetic import add
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, everywhere, rewrite, uses_of

Choice: TypeAlias = Callable[[Var, int], bool]  # a carry, and the dim along which its parts lie


@dataclass(frozen=True)
class _Collected:
    """The carry at input `i` of a body, to which `total` adds what `parts` put together."""

    i: int
    output: int
    total: Eqn
    parts: Eqn

    @property
    def dim(self) -> int:
        return self.parts.params["dimension"]

    @property
    def borders(self) -> list[int]:
        return list(accumulate((v.shape[self.dim] for v in self.parts.inputs), initial=0))


def collect_apart(program: Program, is_chosen: Choice) -> Program:
    """The Program with parts in the place of carries that collect them, where that is wanted; in nested Programs too."""

    def apart(eqn: Eqn, here: Rewriter) -> Sequence[Var] | None:
        return _apart(eqn, is_chosen)

    def change(program: Program) -> Program:
        changed = rewrite(program, apart) if any([op.with_carries for op in ops_in(program)]) else program
        return program if changed is program else dce(changed)

    return everywhere(program, change)


def _apart(eqn: Eqn, is_chosen: Choice) -> Sequence[Var] | None:
    if eqn.op.with_carries is None:
        return None
    (region,) = run_regions(eqn)
    collected = {each.i: each for each in _collected(region) if is_chosen(region.program.inputs[each.i], each.dim)}
    if not collected:
        return None
    starts = {i: _parts_of(eqn.inputs[region.operands[i]], each) for i, each in collected.items()}
    operands, params = eqn.op.with_carries(eqn.inputs, eqn.params, starts, _body(region, collected))
    results = eqn.op(*operands, **params)
    rest, values = iter((results,) if isinstance(results, Var) else results), list[Var]()
    by_output = {each.output: each for each in collected.values()}
    for output in range(len(region.program.outputs)):
        each = by_output.get(output)
        values.append(next(rest) if each is None else concatenate(*[next(rest) for _ in each.parts.inputs], dimension=each.dim))
    return values


def _collected(region: Region) -> list[_Collected]:
    """The carries that only add up concatenations, each read by nobody else."""
    program, uses = region.program, uses_of(region.program)
    makers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
    collected = list[_Collected]()
    for i, output in region.carried:
        carry, total = program.inputs[i], makers.get(program.outputs[output])
        if total is None or total.op is not add or carry not in total.inputs or uses[carry] != 1 or uses[total.outputs[0]] != 1:
            continue
        (addend,) = [v for v in total.inputs if v is not carry]
        parts = makers.get(addend)
        if parts is not None and parts.op is concatenate and uses[addend] == 1 and addend.type == carry.type:
            collected.append(_Collected(i, output, total, parts))
    return collected


def _parts_of(value: Var, each: _Collected) -> list[Var]:
    return [cut(value, each.dim, begin, end) for begin, end in pairwise(each.borders)]


def _body(region: Region, collected: dict[int, _Collected]) -> Program:
    """The region's Program with a carry for each part."""
    program, gone = region.program, {eqn for each in collected.values() for eqn in (each.total, each.parts)}
    with Builder(program.name) as builder:
        inputs, carries = list[Var](), dict[int, list[Var]]()
        for i, v in enumerate(program.inputs):
            each = collected.get(i)
            own = [builder.input(v.type, v.hint)] if each is None else [builder.input(part.type) for part in each.parts.inputs]
            carries[i] = own
            inputs.append(own[0])
        left = replace(program, eqns=tuple([eqn for eqn in program.eqns if eqn not in gone]))
        by_output = {each.output: each for each in collected.values()}
        kept = [o for o in range(len(program.outputs)) if o not in by_output]
        addends = [v for each in collected.values() for v in each.parts.inputs]
        values = builder.inline(replace(left, outputs=(*[program.outputs[o] for o in kept], *addends)), inputs)
        others, parts = dict(zip(kept, values, strict=False)), iter(values[len(kept) :])
        sums = dict[int, list[Var]]()
        for i, each in collected.items():
            with builder.at(each.total.source):
                sums[each.output] = [add(c, next(parts)) for c in carries[i]]
        outputs = [v for o in range(len(program.outputs)) for v in (sums[o] if o in sums else [others[o]])]
        return builder.build(outputs)
