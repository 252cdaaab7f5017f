"""Slice late: what is put together from most of a value is part of what is put together from all of it. For local Programs.

    concatenate(a, slice(x)[0:n-1])   ->  slice(concatenate(a, x))[0:n]
    concatenate(slice(x)[1:n], b)     ->  slice(concatenate(x, b))[1:n+1]
    roll(x) {shift=1}                 ->  the first of these, where a is slice(x)[n-1:n]

The compiler for TPUs writes parts to memory before it puts them together, and fuses whole values: a step of a stencil
would write a shifted copy of its grid for each neighbour that it reads.
"""

from __future__ import annotations

import functools

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import cut
from meshjit.ops.slicing.roll import roll
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite


def slice_late(program: Program, besides: float) -> Program:
    """The Program with whole values in concatenations where there was all of them but for such a part of an extent, which is read
    besides (`Target.slices_late`); in nested Programs too."""
    program = in_regions(program, functools.partial(slice_late, besides=besides))
    rules = {concatenate.name: _joined, roll.name: _rolled}
    changed = rewrite(program, {name: functools.partial(rule, besides=besides) for name, rule in rules.items()})
    return program if changed is program else dce(changed)


def _joined(eqn: Eqn, here: Rewriter, besides: float) -> Var | None:
    """What the first operand lacks before it, and the last one behind it, is cut off the result instead."""
    dim, operands = eqn.params["dimension"], list(eqn.inputs)
    cuts = [0, 0]
    if len(operands) == 1:
        return None
    for side, at in enumerate((0, -1)):
        value, lacks = _most_of(operands[at], dim, here, besides)
        if lacks[side] and not lacks[1 - side]:
            operands[at], cuts[side] = value, lacks[side]
    if not any(cuts):
        return None
    whole = concatenate(*operands, dimension=dim)
    return cut(whole, dim, cuts[0], whole.shape[dim] - cuts[1])


def _most_of(part: Var, dim: int, here: Rewriter, besides: float) -> tuple[Var, tuple[int, int]]:
    """The value of which this is most, along one dim, and how many elements it lacks before and behind; else itself."""
    eqn = here.makers.get(part)
    if eqn is None or eqn.op is not slice_ or any(n != 1 for n in eqn.params["strides"]):
        return part, (0, 0)
    (value,) = eqn.inputs
    lacks = eqn.params["start"][dim], value.shape[dim] - eqn.params["limit"][dim]
    is_whole = all(a == b for d, (a, b) in enumerate(zip(part.shape, value.shape, strict=True)) if d != dim)
    return (value, lacks) if is_whole and sum(lacks) <= besides * value.shape[dim] else (part, (0, 0))


def _rolled(eqn: Eqn, here: Rewriter, besides: float) -> Var | None:
    """The border is put where it comes to lie."""
    (x,), dim = eqn.inputs, eqn.params["dimension"]
    extent = x.shape[dim]
    ahead = eqn.params["shift"] % max(1, extent)
    if 0 < ahead <= besides * extent:
        return cut(concatenate(cut(x, dim, extent - ahead, extent), x, dimension=dim), dim, 0, extent)
    back = extent - ahead
    if 0 < back <= besides * extent:
        return cut(concatenate(x, cut(x, dim, 0, back), dimension=dim), dim, back, extent + back)
    return None
