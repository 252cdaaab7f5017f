"""Loops and branches for the fuzz: their bodies are drawn from the same steps as the program around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType

F32, I32 = DTYPES["f32"], DTYPES["i32"]
Step = Callable[[Any], Var | None]


def _scalar(value: Any, dtype: Any) -> Var:
    return REGISTRY["constant"](value=np.asarray(value, dtype))


def _largest(x: Var) -> Var:
    return REGISTRY["reduce_max"](x, axes=tuple(range(x.rank)))


def _body(
    d: Any, types: Sequence[TensorType], wanted: Sequence[TensorType], steps: Sequence[Step], first: int = 0
) -> Program:
    """A drawn Program of these input types; outputs of the wanted types, the first values that have them from the back.

    `first`: outputs from there on are sums with the inputs of the same place, as accumulators are.
    """
    inner = type(d)(d.generator)
    with Builder("body") as builder:
        inputs = [builder.input(t) for t in types]
        inner.values = [v for v in inputs if v.dtype == F32]
        goal = d.number(1, 5)
        while len(builder.eqns) < goal:
            result = steps[d.number(0, len(steps))](inner)
            if result is not None and result.type.size <= 512:
                inner.values.append(result)
        return builder.build([_last_of(inner, t) for t in wanted])


def _last_of(d: Any, type: TensorType) -> Var:
    fitting = [v for v in d.values if v.type == type]
    if not fitting:
        return REGISTRY["constant"](value=np.ones(type.shape, type.dtype))
    last = fitting[-1]
    if d.number(0, 2):
        return last
    return REGISTRY["add"](fitting[0], last) if d.number(0, 2) else _bounded(last)


def _bounded(x: Var) -> Var:
    low, high = (REGISTRY["constant"](value=np.full(x.shape, n, np.float32)) for n in (-3, 3))
    return REGISTRY["clamp"](low, x, high)


def scanned(steps: Sequence[Step]) -> Step:
    def draw(d: Any) -> Var | None:
        const, carry = d.pick(), d.pick()
        xs = d.pick(lambda v: v.rank > 0 and v.shape[0] <= 4)
        if xs is None:
            return None
        if d.number(0, 8) == 0:  # no iterations
            xs = REGISTRY["slice"](xs, start=(0,) * xs.rank, limit=(0, *xs.shape[1:]), strides=(1,) * xs.rank)
        consts = [const] if d.number(0, 2) else []
        carries = [carry] if d.number(0, 4) else [carry, d.pick()]
        slices = [xs] if d.number(0, 4) else [xs, xs]
        types = [v.type for v in (*consts, *carries)] + [v.type.with_shape(v.shape[1:]) for v in slices]
        made = [d.pick().type for _ in range(d.number(0, 2))]
        body = _body(d, types, [*(v.type for v in carries), *made], steps)
        results = REGISTRY["scan"](
            *consts, *carries, *slices, body=body, length=xs.shape[0], reverse=bool(d.number(0, 2)),
            unroll=d.number(1, 3), num_consts=len(consts), num_carry=len(carries),
        )  # fmt: skip
        results = [results] if isinstance(results, Var) else list(results)
        d.values += [r for r in results[1:] if r.type.size <= 512]
        return results[0]

    return draw


def repeated(steps: Sequence[Step]) -> Step:
    """A while loop that ends after at most three iterations, or before if its value grows."""

    def draw(d: Any) -> Var | None:
        x, other = d.pick(lambda v: v.type.size > 0), d.pick()
        if x is None or other is None:
            return None
        trips = d.number(0, 4)
        flat = x.type.with_shape((x.type.size,))
        measure = _body(d, [x.type], [flat if d.number(0, 2) else x.type], steps)
        with Builder("cond") as builder:
            count, value = builder.input(TensorType((), I32)), builder.input(x.type)
            early = REGISTRY["compare"](count, _scalar(trips, I32), direction="LT")
            (read,) = builder.inline(measure, [value]) if d.number(0, 2) else [REGISTRY["reshape"](value, shape=flat.shape)]
            small = REGISTRY["compare"](_largest(read), _scalar(50, F32), direction="LT")
            cond = builder.build([REGISTRY["and"](early, small)])
        step = _body(d, [other.type, x.type], [x.type], steps)
        with Builder("body") as builder:
            const = builder.input(other.type)
            count, value = builder.input(TensorType((), I32)), builder.input(x.type)
            after = builder.inline(step, [const, value])
            body = builder.build([REGISTRY["add"](count, _scalar(1, I32)), *after])
        return REGISTRY["while"](other, _scalar(0, I32), x, cond=cond, body=body, cond_consts=0, body_consts=1)[1]

    return draw


def branched(steps: Sequence[Step]) -> Step:
    def draw(d: Any) -> Var | None:
        x, other, decides = d.pick(), d.pick(), d.pick(lambda v: v.type.size > 0)
        if decides is None:
            return None
        index = REGISTRY["convert"](_largest(decides), dtype=I32)
        branches = tuple(_body(d, [x.type, other.type], [x.type], steps) for _ in range(d.number(1, 4)))
        return REGISTRY["case"](index, x, other, branches=branches)

    return draw


def control(steps: Sequence[Step], loops_of_unknown_length: bool = True) -> list[Step]:
    """Steps that draw loops and branches with bodies of `steps`, and such loops within loops."""
    plain = [scanned(steps), branched(steps)]
    nested = [scanned([*steps, *plain]), branched([*steps, *plain])]
    return [*plain, *nested, *([repeated(steps)] if loops_of_unknown_length else [])]
