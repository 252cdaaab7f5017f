"""Parts at places that are known: computed starts that turn out to be constants, slices of slices and of pads.

    dynamic_slice(x, constant 3) {slice_sizes=(2,)}           ->  slice(x) {start=(3,), limit=(5,)}
    dynamic_update_slice(x, y, constant 1), y most of x       ->  update_slice(x, y) {start=(1,)}
    slice(slice(x)[2:9])[1:3]                                 ->  slice(x) {start=(3,), limit=(5,)}
    slice(pad(x, low 1, high 1))[2:]                          ->  pad(x, low -1, high 1)
    pad(x, constant 0) {low=(-1,), high=(1,)}                 ->  shift(x) {shift=-1, dimension=0}

So what is taken of a sharded dim is seen whole, and a shift is one exchange of border rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.constants import constant
from meshjit.ops.roll import shift
from meshjit.ops.slicing import pad, slice_
from meshjit.ops.update_slice import is_most, update_slice

_KNOWN = ("constant", "slice", "pad")


def place(program: Program) -> Program:
    """The Program with parts of values taken and replaced at known places where the places are known."""
    made: dict[Var, Eqn] = {}
    eqns: list[Eqn] = []
    for old in program.eqns:
        rule = _RULES.get(old.op.name)
        eqn = old if rule is None else rule(old, made)
        if eqn.op.name in _KNOWN:
            made[eqn.outputs[0]] = eqn
        eqns.append(eqn)
    return replace(program, eqns=tuple(eqns))


def _starts(operands: Sequence[Var], made: Mapping[Var, Eqn], shape: Sequence[int], sizes: Sequence[int]) -> Any:
    """The clamped starts, if all are constants."""
    found = [made.get(v) for v in operands]
    if any(eqn is None or eqn.op is not constant for eqn in found):
        return None
    values = [int(np.asarray(eqn.params["value"])[()]) for eqn in found if eqn is not None]
    return tuple(min(max(a, 0), n - m) for a, n, m in zip(values, shape, sizes, strict=True))


def _taken(eqn: Eqn, made: Mapping[Var, Eqn]) -> Eqn:
    x, *rest = eqn.inputs
    start = _starts(rest, made, x.shape, eqn.params["slice_sizes"])
    if start is None:
        return eqn
    limit = tuple(a + m for a, m in zip(start, eqn.params["slice_sizes"], strict=True))
    known = replace(eqn, op=slice_, inputs=(x,), params={"start": start, "limit": limit, "strides": (1,) * x.rank})
    return _sliced(known, made)


def _updated(eqn: Eqn, made: Mapping[Var, Eqn]) -> Eqn:
    x, update, *rest = eqn.inputs
    start = _starts(rest, made, x.shape, update.shape)
    if start is None or not is_most(x.shape, update.shape):
        return eqn
    return replace(eqn, op=update_slice, inputs=(x, update), params={"start": start})


def _sliced(eqn: Eqn, made: Mapping[Var, Eqn]) -> Eqn:
    before = made.get(eqn.inputs[0])
    if before is None or 0 in eqn.outputs[0].shape or before.op is constant:
        return eqn
    if before.op is slice_:
        return replace(eqn, inputs=before.inputs, params=_twice(before.params, eqn.params))
    apart = any(before.params["interior"]) or any(n != 1 for n in eqn.params["strides"])
    return eqn if apart else _slice_of_pad(eqn, before, made)


def _twice(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Of elements a, a + s, … the elements b, b + t, …: a + b*s, a + (b + t)*s, …"""
    columns = zip(first["start"], first["strides"], then["start"], then["limit"], then["strides"], strict=True)
    rows = [(a + b * s, a + (end - 1) * s + 1, s * t) for a, s, b, end, t in columns]
    return dict(zip(("start", "limit", "strides"), zip(*rows, strict=True), strict=True)) if rows else dict(then)


def _slice_of_pad(eqn: Eqn, before: Eqn, made: Mapping[Var, Eqn]) -> Eqn:
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
    return _padded(replace(eqn, op=pad, inputs=before.inputs, params=params), made)


def is_zero(eqn: Eqn) -> bool:
    """Whether the equation makes the scalar 0, which -0.0 is not."""
    return eqn.op is constant and eqn.params["value"].shape == () and not any(eqn.params["value"].tobytes())


def _padded(eqn: Eqn, made: Mapping[Var, Eqn]) -> Eqn:
    """A shift, if zeros come in on one side of a dim and as much goes out on the other."""
    low, high = eqn.params["low"], eqn.params["high"]
    dims = [d for d, pair in enumerate(zip(low, high, strict=True)) if any(pair)]
    value = made.get(eqn.inputs[1])
    if value is None or not is_zero(value) or any(eqn.params["interior"]):
        return eqn
    if len(dims) != 1 or low[dims[0]] != -high[dims[0]]:
        return eqn
    return replace(eqn, op=shift, inputs=eqn.inputs[:1], params={"shift": low[dims[0]], "dimension": dims[0]})


_RULES = {"dynamic_slice": _taken, "dynamic_update_slice": _updated, "slice": _sliced, "pad": _padded}
