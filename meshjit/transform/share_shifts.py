"""Share shifts: several shifts of one value are parts of one padded value. For local Programs for CPU, after partitioning.

    %a = shift(%u) {shift=1, dimension=0}                %p = pad(%u, 0) {low=(1, 0), high=(1, 0)}
    %b = shift(%u) {shift=-1, dimension=0}         ->    %a = slice(%p) [0:n];  %b = slice(%p) [2:n + 2]

XLA:CPU fuses shifts into what reads them, and computes what they read again for each: k sweeps of a stencil take some
5**k steps, as far as it goes. A padded value is written once. That pays only for values computed from other shifts, and not
for values whose borders are sent, which are written anyway. Successive shifts along several dims count as one, so that a
stencil with corners has one padded value, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import depending
from meshjit.ops.base.constants import scalar
from meshjit.ops.base.shape import reshape
from meshjit.ops.collective.collectives import collective_permute
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.roll import shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite

Offset = tuple[int, ...]  # by how many places per dim


def share_shifts(program: Program) -> Program:
    """The Program with several shifts of a value taken from one padded value, in nested Programs too."""
    program = in_regions(program, share_shifts)
    offsets = _offsets(program.eqns)
    shared: dict[Var, list[Offset]] = {}
    for root, offset in offsets.values():
        shared.setdefault(root, []).append(offset)
    nested, sent = depending(program.eqns, list(offsets)), _sent(program.eqns)
    shared = {v: each for v, each in shared.items() if len(set(each)) > 1 and v in nested and v not in sent}
    if not shared:
        return program
    padded: dict[Var, Var] = {}
    return dce(rewrite(program, {shift.name: lambda eqn, here: _taken(eqn, here, offsets, shared, padded)}))


def _offsets(eqns: Sequence[Eqn]) -> dict[Var, tuple[Var, Offset]]:
    """What is a shift → of which value, and by how much. None is longer than its dim."""
    offsets: dict[Var, tuple[Var, Offset]] = {}
    for eqn in eqns:
        if eqn.op is not shift:
            continue
        (var,), amount, dim = eqn.inputs, eqn.params["shift"], eqn.params["dimension"]
        if not amount or abs(amount) >= var.shape[dim]:
            continue
        root, before = offsets.get(var, (var, (0,) * var.rank))
        if before[dim]:  # twice along one dim loses elements that one shift keeps
            root, before = var, (0,) * var.rank
        offsets[eqn.outputs[0]] = root, tuple(amount if d == dim else n for d, n in enumerate(before))
    return offsets


def _sent(eqns: Sequence[Eqn]) -> set[Var]:
    """Values that are sent to other devices, or parts of them."""
    sent: set[Var] = set()
    for eqn in reversed(eqns):
        if eqn.op is collective_permute or (eqn.op in (slice_, reshape, concatenate) and eqn.outputs[0] in sent):
            sent.update(eqn.inputs)
    return sent


def _taken(
    eqn: Eqn,
    here: Rewriter,
    offsets: Mapping[Var, tuple[Var, Offset]],
    shared: Mapping[Var, Sequence[Offset]],
    padded: dict[Var, Var],
) -> Var | None:
    """The shift as a slice of a padded value, which stands where the first of the shifts stood."""
    root, offset = offsets.get(eqn.outputs[0], (None, ()))
    if root is None or root not in shared:
        return None
    low = tuple(max(0, *by) for by in zip(*shared[root], strict=True))
    high = tuple(max(0, *(-n for n in by)) for by in zip(*shared[root], strict=True))
    if root not in padded:
        value = here.new(root)
        zero = scalar(np.zeros((), value.dtype)[()], value.dtype)
        padded[root] = pad(value, zero, low=low, high=high, interior=(0,) * value.rank)
    start = tuple(a - n for a, n in zip(low, offset, strict=True))
    limit = tuple(a + n for a, n in zip(start, root.shape, strict=True))
    return slice_(padded[root], start=start, limit=limit, strides=(1,) * root.rank)
