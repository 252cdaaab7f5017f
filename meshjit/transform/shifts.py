"""Shifts of one value as parts of one padded value: local Programs for CPU, after partitioning.

    %a = shift(%u) {shift=1, dimension=0}                %p = pad(%u, 0) {low=(1, 0), high=(1, 0)}
    %b = shift(%u) {shift=-1, dimension=0}         ->    %a = slice(%p) [0:n];  %b = slice(%p) [2:n + 2]

XLA:CPU fuses shifts into what reads them, and computes what they read again for each: k sweeps of a stencil take some
5**k steps, as far as it goes. A padded value is written once. Only what is itself computed from shifts is worth that, and
what is not written anyway because its borders are sent. Shifts along several dims one after the other are one, so that a
stencil with corners has one padded value, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshjit.core.program import Builder, Eqn, Program, Var
from meshjit.core.region import depending, with_programs
from meshjit.ops.base.constants import scalar
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.roll import shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.transform.dce import dce

Offset = tuple[int, ...]  # by how many places per dim


def share_shifts(program: Program) -> Program:
    """The Program with several shifts of a value taken from one padded value, in nested Programs too."""
    eqns = tuple(e.with_params(with_programs(e.params, share_shifts)) if e.op.regions else e for e in program.eqns)
    offsets = _offsets(eqns)
    shared: dict[Var, list[Offset]] = {}
    for root, offset in offsets.values():
        shared.setdefault(root, []).append(offset)
    nested, sent = depending(eqns, list(offsets)), _sent(eqns)
    shared = {v: found for v, found in shared.items() if len(set(found)) > 1 and v in nested and v not in sent}
    if not shared:
        return replace(program, eqns=eqns)
    return _rewritten(replace(program, eqns=eqns), offsets, shared)


def _offsets(eqns: Sequence[Eqn]) -> dict[Var, tuple[Var, Offset]]:
    """What is a shift → of which value, and by how much. None is longer than its dim."""
    found: dict[Var, tuple[Var, Offset]] = {}
    for eqn in eqns:
        if eqn.op is not shift:
            continue
        (var,), amount, dim = eqn.inputs, eqn.params["shift"], eqn.params["dimension"]
        if not amount or abs(amount) >= var.shape[dim]:
            continue
        root, before = found.get(var, (var, (0,) * var.rank))
        if before[dim]:  # twice along one dim loses elements that one shift keeps
            root, before = var, (0,) * var.rank
        found[eqn.outputs[0]] = root, tuple(amount if d == dim else n for d, n in enumerate(before))
    return found


def _sent(eqns: Sequence[Eqn]) -> set[Var]:
    """Values that are sent to other devices, or parts of them."""
    found: set[Var] = set()
    for eqn in reversed(eqns):
        if eqn.op is collective_permute or (eqn.op in (slice_, reshape, concatenate) and eqn.outputs[0] in found):
            found.update(eqn.inputs)
    return found


def _rewritten(
    program: Program, offsets: Mapping[Var, tuple[Var, Offset]], shared: Mapping[Var, Sequence[Offset]]
) -> Program:
    """A value is padded where the first of its shifts stood."""
    padded: dict[Var, Var] = {}
    names: dict[Var, Var] = {}
    with Builder(program.name) as builder:
        builder.inputs = list(program.inputs)
        for eqn in program.eqns:
            root, offset = offsets.get(eqn.outputs[0], (None, ())) if eqn.op is shift else (None, ())
            if root is None or root not in shared:
                builder.eqns.append(replace(eqn, inputs=tuple(names.get(v, v) for v in eqn.inputs)))
                continue
            with builder.at(eqn.source):
                low = tuple(max(0, *by) for by in zip(*shared[root], strict=True))
                high = tuple(max(0, *(-n for n in by)) for by in zip(*shared[root], strict=True))
                if root not in padded:
                    value = names.get(root, root)
                    zero = scalar(np.zeros((), value.dtype)[()], value.dtype)
                    padded[root] = pad(value, zero, low=low, high=high, interior=(0,) * value.rank)
                start = tuple(a - n for a, n in zip(low, offset, strict=True))
                limit = tuple(a + n for a, n in zip(start, root.shape, strict=True))
                names[eqn.outputs[0]] = slice_(padded[root], start=start, limit=limit, strides=(1,) * root.rank)
        return dce(builder.build([names.get(v, v) for v in program.outputs]))
