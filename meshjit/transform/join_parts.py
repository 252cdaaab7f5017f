"""Join parts: a sum of parts at different places of a dim, each between zeros, is their concatenation.

    pad(a) {low=(0,), high=(3,)} + pad(b) {low=(2,), high=(0,)}, a of 2 elements, b of 3   ->  concatenate(a, b)
    pad(a) {high=(3,)} + pad(b) {low=(2,)} + pad(c) {high=(3,)}, c where a is              ->  concatenate(a + c, b)

The gradients of the parts that an array is split into are added up like this. Every pad is as long as the array, and so is every
sum: for gates or heads that are slices of one array, that is as much work again as the products that they come from. An element
of -0.0 stays so, where the sum with a zero is 0.0; XLA, too, takes an addition of zeros for nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from meshjit.core.ops_in import ops_in
from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.constants import is_zero
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, rewrite

Run: TypeAlias = tuple[int, int]  # begin and end along the dim
Sums: TypeAlias = Mapping[Var, tuple[int, tuple[Var, ...]]]  # sum of parts → the dim, its operands; a part has none


def join_parts(program: Program) -> Program:
    """The Program with concatenations for sums of parts that meet."""
    if pad not in ops_in(program):
        return program
    sums = _sums(program)
    if not any(parts for _, parts in sums.values()):
        return program
    inner = _inner(program, sums)
    if not any(parts and var not in inner for var, (_, parts) in sums.items()):
        return program

    makers = {eqn.outputs[0]: eqn for eqn in program.eqns if eqn.outputs and eqn.outputs[0] in sums}

    def joined(eqn: Eqn, here: Rewriter) -> Var | None:
        var = eqn.outputs[0]
        return _joined(var, sums, makers, here) if var in sums and var not in inner else None

    changed = rewrite(program, {add.name: joined})
    return program if changed is program else dce(changed)


def _sums(program: Program) -> Sums:
    """The parts between zeros along one dim, and what is added up of them along the same."""
    between = {eqn.inputs[1] for eqn in program.eqns if eqn.op is pad}
    zeros = {var for eqn in program.eqns if not eqn.inputs and (var := eqn.outputs[0]) in between and is_zero(eqn)}
    sums: dict[Var, tuple[int, tuple[Var, ...]]] = {}
    for eqn in program.eqns:
        if eqn.op is pad and eqn.inputs[1] in zeros and (dim := _padded_dim(eqn)) is not None:
            sums[eqn.outputs[0]] = dim, ()
        elif eqn.op is add and all(v in sums for v in eqn.inputs):
            dims = {sums[v][0] for v in eqn.inputs}
            if len(dims) == 1:
                sums[eqn.outputs[0]] = dims.pop(), eqn.inputs
    return sums


def _padded_dim(eqn: Eqn) -> int | None:
    """The one dim before and behind which there is padding, none of it negative."""
    low, high = eqn.params["low"], eqn.params["high"]
    dims = [d for d, counts in enumerate(zip(low, high, strict=True)) if any(counts)]
    fits = len(dims) == 1 and not any(eqn.params["interior"]) and min(*low, *high) >= 0 and eqn.inputs[0].type.size
    return dims[0] if fits else None


def _inner(program: Program, sums: Sums) -> set[Var]:
    """The sums that are read by one larger sum alone."""
    parts = {v for _, parts in sums.values() for v in parts}
    read = itertools.chain(itertools.chain.from_iterable([eqn.inputs for eqn in program.eqns]), program.outputs)
    uses = Counter(filter(parts.__contains__, read))
    return {v for v in parts if uses[v] == 1}


def _joined(var: Var, sums: Sums, makers: Mapping[Var, Eqn], here: Rewriter) -> Var | None:
    """The whole sum, of one part for each run of places that meet; None where parts overlap, or none meet."""
    dim, pads = sums[var][0], [makers[v] for v in _parts(var, sums)]
    runs = sorted({_run(each, dim) for each in pads})
    ends = list(zip(runs, runs[1:], strict=False))
    if any(first[1] > then[0] for first, then in ends) or not any(first[1] == then[0] for first, then in ends):
        return None
    values: dict[Run, Var] = {}
    for each in pads:
        part, run = here.new(each.inputs[0]), _run(each, dim)
        values[run] = add(values[run], part) if run in values else part
    zero, extent = here.new(pads[0].inputs[1]), var.shape[dim]
    total: Var | None = None
    while runs:
        count = next((i for i, (a, b) in enumerate(zip(runs, runs[1:], strict=False), 1) if a[1] != b[0]), len(runs))
        meeting, runs = runs[:count], runs[count:]
        begin, end = meeting[0][0], meeting[-1][1]
        part = concatenate(*[values[run] for run in meeting], dimension=dim) if count > 1 else values[meeting[0]]
        if (begin, end) != (0, extent):
            low, high = (tuple(n if d == dim else 0 for d in range(var.rank)) for n in (begin, extent - end))
            part = pad(part, zero, low=low, high=high, interior=(0,) * var.rank)
        total = part if total is None else add(total, part)
    return total


def _parts(var: Var, sums: Sums) -> list[Var]:
    """The pads that a sum is of, from the first to the last."""
    parts, waiting = list[Var](), [var]
    while waiting:
        var = waiting.pop()
        _, operands = sums[var]
        waiting += reversed(operands)
        if not operands:
            parts.append(var)
    return parts


def _run(eqn: Eqn, dim: int) -> Run:
    begin = eqn.params["low"][dim]
    return begin, begin + eqn.inputs[0].shape[dim]
