"""Slice operands: part of a converted value is taken before the conversion. For local Programs, after partitioning.

    %a = all_gather(%x) {dim=0};  %b = convert(%a)                  %a = all_gather(%x) {dim=0};  %b = convert(%a)
    %c = dynamic_slice(%b, own place, 0)                     ->     %c = convert(%x)

Where a plan has two versions of a value, the whole and a device's part of it, the part is a slice of the whole. Of what the
value is made of there is often a part already. And the compiler for TPUs, which fuses %b into whatever reads it, writes all of
%b to memory to take a slice of it.

Ops of one operand are done again that are linear in it: they cost less than to read their results, and give the same ones. Where
several operands are involved a product and its sum may be rounded once in one place, and twice in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from meshjit.core.access import Places, Same
from meshjit.core.effects import is_pure
from meshjit.core.op import Op, Params
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.rules import access_of, goes_by_element, resized
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.constants import integer_of, scalar
from meshjit.ops.collective.collectives import all_gather, axis_index
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite

Range: TypeAlias = tuple[Var, int] | None  # of a dim: from where, how much; None: all of it
Ranges: TypeAlias = Sequence[Range]


def slice_operands(program: Program) -> Program:
    """The Program with slices taken of operands instead of results, in nested Programs too."""
    program = in_regions(program, slice_operands)
    changed = rewrite(program, {dynamic_slice.name: _sliced})
    return program if changed is program else dce(changed)


def _sliced(eqn: Eqn, here: Rewriter) -> Var | None:
    """A slice of what lies in memory anyway, on which the ops in between are done again; None if that reads more bytes."""
    x, *starts = eqn.inputs
    ranges: Ranges = [
        None if n == m else (v, m) for v, n, m in zip(starts, x.shape, eqn.params["slice_sizes"], strict=True)
    ]
    again: list[tuple[Op, Params]] = []  # what is done again, the last one first
    while (maker := here.makers.get(x)) is not None and (before := _before(maker, ranges)) is not None:
        ranges, params = before
        again.append((maker.op, params))
        (x,) = maker.inputs
    if not again or (maker is not None and goes_by_element(maker)):  # such a value may lie nowhere
        return None
    if maker is not None and _is_own_part(maker, ranges, here):
        part = maker.inputs[0]
    elif _type_of(x, ranges).nbytes <= eqn.outputs[0].type.nbytes:
        part = _slice(x, ranges)
    else:
        return None
    for op, params in reversed(again):
        part = op(part, **params)
    return part


def _before(eqn: Eqn, ranges: Ranges) -> tuple[Ranges, Params] | None:
    """What a light equation reads of its operand for these elements of its result, and the params with which it makes them."""
    if len(eqn.inputs) != 1 or len(eqn.outputs) != 1 or not goes_by_element(eqn) or not is_pure(eqn):
        return None
    (access,), (x,), (out,) = access_of(eqn), eqn.inputs, eqn.outputs
    if not eqn.op.linear_groups((x.type,), eqn.params) or any(ranges[d] is not None for d in access.positions):
        return None
    before = _read(x, access.operands[0], out, ranges)
    if before is None or not any(before):
        return None
    params = resized(eqn.op, eqn.params, (_type_of(x, before),), (_type_of(out, ranges),))
    return None if params is None else (before, params)


def _read(x: Var, places: Sequence[Places], out: Var, ranges: Ranges) -> Ranges | None:
    """The ranges of an operand's dims, if these are the result's, in their order, or of extent 1, and broadcast."""
    own, last = list[Range](), -1
    for extent, place in zip(x.shape, places, strict=True):
        if isinstance(place, Same) and place.dim > last and extent == out.shape[place.dim]:
            own.append(ranges[place.dim])
            last = place.dim
        elif extent == 1:
            own.append(None)
        else:
            return None
    return own


def _type_of(x: Var, ranges: Ranges) -> TensorType:
    return x.type.with_shape(tuple([n if r is None else r[1] for n, r in zip(x.shape, ranges, strict=True)]))


def _slice(x: Var, ranges: Ranges) -> Var:
    zero = scalar(0, next(r[0].dtype for r in ranges if r is not None))
    starts = [zero if r is None else r[0] for r in ranges]
    return dynamic_slice(x, *starts, slice_sizes=_type_of(x, ranges).shape)


def _is_own_part(gather: Eqn, ranges: Ranges, here: Rewriter) -> bool:
    """Whether these elements are what the device itself gave to be gathered."""
    if gather.op is not all_gather:
        return False
    dim, (given,) = gather.params["dim"], gather.inputs
    taken = ranges[dim]
    if taken is None or sum([r is not None for r in ranges]) > 1 or taken[1] != given.shape[dim]:
        return False
    start = here.makers.get(taken[0])
    if start is None or start.op is not multiply:
        return False
    index, size = [here.makers.get(v) for v in start.inputs]
    is_index = index is not None and index.op is axis_index and index.params["axes"] == gather.params["axes"]
    return is_index and size is not None and integer_of(size) == taken[1]
