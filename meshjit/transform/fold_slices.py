"""Fold slices: computed starts that turn out to be constants, slices of slices and of pads.

    dynamic_slice(x, constant 3) {slice_sizes=(2,)}           ->  slice(x) {start=(3,), limit=(5,)}
    dynamic_update_slice(x, y, constant 1), y most of x       ->  update_slice(x, y) {start=(1,)}
    slice(slice(x)[2:9])[1:3]                                 ->  slice(x) {start=(3,), limit=(5,)}
    slice(pad(x, low 1, high 1))[2:]                          ->  pad(x, low -1, high 1)
    pad(x, constant 0) {low=(-1,), high=(1,)}                 ->  shift(x) {shift=-1, dimension=0}
    slice(concatenate(a, b, c))[2:]                           ->  concatenate(slice(b)[1:], c), a having 1 element
    concatenate(slice(x)[3:], slice(x)[:3])                   ->  roll(x) {shift=-3, dimension=0}
    dynamic_slice(concatenate(x, x), i), as long as x         ->  dynamic_roll(x, i) {dimension=0}
    dynamic_roll(x, constant 3)                               ->  roll(x) {shift=-3, dimension=0}

So what is taken of a sharded dim is seen whole, and a shift is one exchange of border rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.constants import constant
from meshjit.ops.index.dynamic_roll import dynamic_roll
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.roll import roll, shift
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.slicing.update_slice import is_most, update_slice
from meshjit.transform.rewriting import Rewriter, Rule, rewrite


def fold_slices(program: Program) -> Program:
    """The Program with parts of values taken and replaced at constant places where the places are constants."""
    return rewrite(program, _RULES)


def _starts(operands: Sequence[Var], here: Rewriter, shape: Sequence[int], sizes: Sequence[int]) -> Any:
    """The clamped starts, if all are constants."""
    makers = [here.makers.get(v) for v in operands]
    if any(eqn is None or eqn.op is not constant for eqn in makers):
        return None
    values = [int(np.asarray(eqn.params["value"])[()]) for eqn in makers if eqn is not None]
    return tuple(min(max(a, 0), n - m) for a, n, m in zip(values, shape, sizes, strict=True))


def _taken(eqn: Eqn, here: Rewriter) -> Eqn:
    x, *rest = eqn.inputs
    start = _starts(rest, here, x.shape, eqn.params["slice_sizes"])
    if start is None:
        return _taken_of_two(eqn, here)
    limit = tuple(a + m for a, m in zip(start, eqn.params["slice_sizes"], strict=True))
    cut = replace(eqn, op=slice_, inputs=(x,), params={"start": start, "limit": limit, "strides": (1,) * x.rank})
    return _sliced(cut, here)


def _taken_of_two(eqn: Eqn, here: Rewriter) -> Eqn:
    """As much of two copies of a value, one behind the other, as one has, is that value as a ring."""
    before = here.makers.get(eqn.inputs[0])
    if before is None or before.op is not concatenate or len(before.inputs) != 2:
        return eqn
    x, dim = before.inputs[0], before.params["dimension"]
    if before.inputs[1] is not x or eqn.outputs[0].type != x.type:
        return eqn
    return replace(eqn, op=dynamic_roll, inputs=(x, eqn.inputs[1 + dim]), params={"dimension": dim})


def _turned(eqn: Eqn, here: Rewriter) -> Eqn:
    x, place = eqn.inputs
    dim = eqn.params["dimension"]
    start = _starts([place], here, [2 * x.shape[dim]], [x.shape[dim]])
    if start is None or not x.shape[dim]:
        return eqn
    return replace(eqn, op=roll, inputs=(x,), params={"shift": -start[0] % x.shape[dim], "dimension": dim})


def _updated(eqn: Eqn, here: Rewriter) -> Eqn:
    x, update, *rest = eqn.inputs
    start = _starts(rest, here, x.shape, update.shape)
    if start is None or not is_most(x.shape, update.shape):
        return eqn
    return replace(eqn, op=update_slice, inputs=(x, update), params={"start": start})


def _sliced(eqn: Eqn, here: Rewriter) -> Eqn:
    before = here.makers.get(eqn.inputs[0])
    if before is None or 0 in eqn.outputs[0].shape or before.op not in (slice_, pad, concatenate):
        return eqn
    if before.op is slice_:
        return replace(eqn, inputs=before.inputs, params=_twice(before.params, eqn.params))
    if any(n != 1 for n in eqn.params["strides"]):
        return eqn
    if before.op is concatenate:
        return _slice_of_concatenation(eqn, before, here)
    return eqn if any(before.params["interior"]) else _slice_of_pad(eqn, before, here)


def _slice_of_concatenation(eqn: Eqn, before: Eqn, here: Rewriter) -> Eqn:
    """The parts that are left of the operands, put together."""
    dim, begin, cuts = before.params["dimension"], 0, list[Eqn]()
    low, high = eqn.params["start"][dim], eqn.params["limit"][dim]
    for var in before.inputs:
        first, last = max(low - begin, 0), min(high - begin, var.shape[dim])
        begin += var.shape[dim]
        if first < last:
            cuts.append(_cut(eqn, var, dim, first, last))
    if len(cuts) == 1:
        return _sliced(replace(cuts[0], outputs=eqn.outputs), here)
    parts = tuple([_placed(cut, here) for cut in cuts])
    return _joined(replace(eqn, op=concatenate, inputs=parts, params={"dimension": dim}), here)


def _placed(cut: Eqn, here: Rewriter) -> Var:
    """The value of a slice, which is put into the Program unless it is its operand."""
    if cut.outputs[0].type == cut.inputs[0].type:
        return cut.inputs[0]
    here.put(_sliced(cut, here))
    return cut.outputs[0]


def _cut(eqn: Eqn, var: Var, dim: int, first: int, last: int) -> Eqn:
    """The slice `eqn` of another value, of whose `dim` it takes these elements."""
    start, limit = (
        tuple(n if d == dim else m for d, m in enumerate(eqn.params[name])) for name, n in (("start", first), ("limit", last))
    )
    type = var.type.with_shape(tuple(n - m for n, m in zip(limit, start, strict=True)))
    params = {"start": start, "limit": limit, "strides": (1,) * var.rank}
    return Eqn(slice_, (var,), (Var(type),), params, eqn.source)


def _joined(eqn: Eqn, here: Rewriter) -> Eqn:
    """Concatenations of concatenations are one; a roll, if the end of a value stands before its beginning."""
    dim = eqn.params["dimension"]
    inputs = tuple(part for v in eqn.inputs for part in _parts(v, dim, here))
    eqn = eqn if inputs == eqn.inputs else replace(eqn, inputs=inputs)
    slices = [part for v in inputs if (part := here.makers.get(v)) is not None and part.op is slice_]
    if not len(inputs) == len(slices) == 2:
        return eqn
    end, begin = slices
    x = end.inputs[0]
    border = begin.params["limit"][dim]
    whole = begin.inputs[0] is x and eqn.outputs[0].type == x.type and begin.params["start"][dim] == 0
    plain = all(n == 1 for part in (end, begin) for n in part.params["strides"])
    if not whole or not plain or end.params["start"][dim] != border or end.params["limit"][dim] != x.shape[dim]:
        return eqn
    return replace(eqn, op=roll, inputs=(x,), params={"shift": -border % x.shape[dim], "dimension": dim})


def _twice(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Of elements a, a + s, … the elements b, b + t, …: a + b*s, a + (b + t)*s, …"""
    columns = zip(first["start"], first["strides"], then["start"], then["limit"], then["strides"], strict=True)
    rows = [(a + b * s, a + (end - 1) * s + 1, s * t) for a, s, b, end, t in columns]
    return dict(zip(("start", "limit", "strides"), zip(*rows, strict=True), strict=True)) if rows else dict(then)


def _parts(var: Var, dim: int, here: Rewriter) -> tuple[Var, ...]:
    """What the value was put together from along this dim."""
    eqn = here.makers.get(var)
    return eqn.inputs if eqn is not None and eqn.op is concatenate and eqn.params["dimension"] == dim else (var,)


def _slice_of_pad(eqn: Eqn, before: Eqn, here: Rewriter) -> Eqn:
    """A slice of a padded value; a slice of the value itself where none of the padding is left."""
    x, inner, outer = before.inputs[0], before.params, eqn.params
    low = tuple(a - b for a, b in zip(inner["low"], outer["start"], strict=True))
    ends = zip(inner["high"], before.outputs[0].shape, outer["limit"], strict=True)
    high = tuple(a - (n - end) for a, n, end in ends)
    if any(a < -n or b < -n for a, b, n in zip(low, high, x.shape, strict=True)):
        return eqn  # nothing of x is left
    if all(n <= 0 for n in (*low, *high)):
        start, limit = tuple(-a for a in low), tuple(n + b for b, n in zip(high, x.shape, strict=True))
        return replace(eqn, inputs=(x,), params={"start": start, "limit": limit, "strides": (1,) * x.rank})
    params = {"low": low, "high": high, "interior": (0,) * x.rank}
    return _padded(replace(eqn, op=pad, inputs=before.inputs, params=params), here)


def is_zero(eqn: Eqn) -> bool:
    """Whether the equation makes the scalar 0, which -0.0 is not."""
    return eqn.op is constant and eqn.params["value"].shape == () and not any(eqn.params["value"].tobytes())


def _padded(eqn: Eqn, here: Rewriter) -> Eqn:
    """A shift, if zeros come in on one side of a dim and as much goes out on the other."""
    low, high = eqn.params["low"], eqn.params["high"]
    dims = [d for d, pair in enumerate(zip(low, high, strict=True)) if any(pair)]
    value = here.makers.get(eqn.inputs[1])
    if value is None or not is_zero(value) or any(eqn.params["interior"]):
        return eqn
    if len(dims) != 1 or low[dims[0]] != -high[dims[0]]:
        return eqn
    return replace(eqn, op=shift, inputs=eqn.inputs[:1], params={"shift": low[dims[0]], "dimension": dims[0]})


_RULES: dict[str, Rule] = {
    "dynamic_slice": _taken,
    "dynamic_roll": _turned,
    "dynamic_update_slice": _updated,
    "slice": _sliced,
    "pad": _padded,
    "concatenate": _joined,
}
