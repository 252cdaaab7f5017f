"""Borders of a sharded dim that are set to other places of an array, as ghosts and mirrors are: copies of parts.

    %a = slice(%v) [62:63]                                     %u = copy_part(%v, %v) {shift=-62, start=0, limit=1}
    %u = dynamic_update_slice(%v, %a, 0, 0)             ->

What is put at a place that is computed has to be whole on each device, so a sum brings it to all of them. What is put at a known
place goes from the shard that has it to the one that wants it, and nowhere if these are one. A short mirror is copied element
by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.constants import constant
from meshjit.ops.index.dynamic import dynamic_update_slice
from meshjit.ops.slicing.copy_part import copy_part
from meshjit.ops.slicing.slices import slice_
from meshjit.transform.choose_frames import Shards
from meshjit.transform.dce import dce
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.rewriting import Rewriter, in_regions
from meshjit.transform.turn_one_by_one import one_by_one


def copy_parts(program: Program, shards: Shards) -> Program:
    """The Program with copies of parts along sharded dims, in nested Programs too; itself if there are none."""
    program = in_regions(program, lambda nested: copy_parts(nested, shards), device=False)
    copied = Rewriter(program).run({dynamic_update_slice.name: lambda eqn, here: _copied(eqn, here, shards)})
    return program if copied is program else dce(fold_slices(copied))


def _copied(eqn: Eqn, here: Rewriter, shards: Shards) -> Eqn | None:
    """The update as copies, if all of it is taken of one value along the one dim that it is a part of."""
    x, update, *places = eqn.inputs
    dims = [d for d, (n, m) in enumerate(zip(x.shape, update.shape, strict=True)) if n != m]
    if len(dims) != 1 or shards(eqn.outputs[0], dims[0]) < 2 or (start := _start(x, update, places, here)) is None:
        return None
    parts = [_taken(v, x, dims[0], here) for v in one_by_one(update, dims[0], here) or [update]]
    copies, at = list[tuple[Var, dict[str, int]]](), start[dims[0]]
    for part in parts:
        if part is None:
            return None
        whole, low, high = part
        copies.append((whole, {"shift": at - low, "dimension": dims[0], "start": at, "limit": at + high - low}))
        at += high - low
    for whole, params in copies[:-1]:
        x = copy_part(x, whole, **params)
    whole, params = copies[-1]
    return replace(eqn, op=copy_part, inputs=(x, whole), params=params)


def _start(x: Var, update: Var, places: Sequence[Var], here: Rewriter) -> tuple[int, ...] | None:
    """Where the update goes, if that is known."""
    makers = [here.makers.get(v) for v in places]
    values = [int(np.asarray(each.params["value"])[()]) for each in makers if each is not None and each.op is constant]
    if len(values) < len(makers):
        return None
    return tuple(min(max(a, 0), n - m) for a, n, m in zip(values, x.shape, update.shape, strict=True))


def _taken(var: Var, x: Var, dim: int, here: Rewriter) -> tuple[Var, int, int] | None:
    """Of which value, that is like x, slices take this one, and which places of the dim."""
    low, high = 0, var.shape[dim]
    while var.type != x.type:
        eqn = here.makers.get(var)
        if eqn is None or eqn.op is not slice_ or any(n != 1 for n in eqn.params["strides"]):
            return None
        begin = eqn.params["start"][dim]
        var, low, high = eqn.inputs[0], low + begin, high + begin
    return var, low, high
