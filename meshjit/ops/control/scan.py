"""scan: a loop that runs a known number of times, carries values on, reads one slice of each xs and makes one of each ys.

Params: body (a Program: consts, carries, slices of xs -> carries, slices of ys), length, reverse, num_consts, num_carry,
unroll (how many iterations are one step of the compiled loop).
Operands: consts, carries, xs; results: carries, ys. As `jax.lax.scan`, with xs and ys along dim 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import is_ordered
from meshjit.core.evaluate import evaluated
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.region import Region, Steps
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import add, multiply, negate
from meshjit.ops.base.constants import emit_splat
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.control.nested import require_types, whole_rule
from meshjit.ops.control.scan_rules import batch_scan, differentiate_scan, parts, prune_scan, transpose_scan
from meshjit.ops.control.two_buffers import apart, has_two_buffers
from meshjit.ops.reduce.contraction import dot_general

_COUNTER = TensorType((), np.dtype(np.int32))


def _scan_type(in_types: Types, params: Params) -> Types:
    body, length, count = params["body"], params["length"], params["num_carry"]
    consts, carries, xs = parts(params, in_types)
    for i, x in enumerate(xs):
        require(x.rank > 0 and x.shape[0] == length, "scan", f"xs {i} is {x}, its dim 0 must have the length {length}")
    slices = [x.with_shape(x.shape[1:]) for x in xs]
    require_types("scan", "input of the body", [*consts, *carries, *slices], body.input_types)
    require_types("scan", "carry", carries, body.output_types[:count])
    return (*carries, *(y.with_shape((length, *y.shape)) for y in body.output_types[count:]))


def _scan_regions(params: Params) -> tuple[Region, ...]:
    body, consts, carries = params["body"], params["num_consts"], params["num_carry"]
    return (
        Region(
            body,
            operands=tuple(range(len(body.inputs))),
            results=tuple(range(len(body.outputs))),
            sliced=frozenset(range(consts + carries, len(body.inputs))),
            stacked=frozenset(range(carries, len(body.outputs))),
            carried=tuple((consts + i, i) for i in range(carries)),
            trips=params["length"],
        ),
    )


def _scan_steps(*operands: Any, **params: Any) -> Steps:
    body, length, count = params["body"], params["length"], params["num_carry"]
    consts, carry, xs = parts(params, operands)
    types = body.output_types[count:]
    ys = [np.zeros((length, *t.shape), t.dtype) for t in types]
    for i in reversed(range(length)) if params["reverse"] else range(length):
        outputs = yield body, [*consts, *carry, *(x[i] for x in xs)]
        carry = list(outputs[:count])
        for y, piece in zip(ys, outputs[count:], strict=True):
            y[i] = piece
    return [*carry, *ys]


def _with_invariants(
    operands: Sequence[Var], params: Params, region: int, values: Sequence[Var], program: Program
) -> tuple[Sequence[Var], Params]:
    return [*values, *operands], {**params, "body": program, "num_consts": params["num_consts"] + len(values)}


def _with_carries(
    operands: Sequence[Var], params: Params, starts: Mapping[int, Sequence[Var]], program: Program
) -> tuple[Sequence[Var], Params]:
    count = params["num_carry"] + sum(len(values) - 1 for values in starts.values())
    return [v for i, x in enumerate(operands) for v in starts.get(i, (x,))], {**params, "body": program, "num_carry": count}


def _scan_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """A while loop over (counter, operands, ys so far), `unroll` iterations a step, and the iterations left over after it.

    What never changes goes round with the rest, as XLA wants it."""
    length, count, consts, is_double = params["length"], params["num_carry"], params["num_consts"], has_two_buffers(params)
    unroll = 2 if is_double else params["unroll"]
    ys = [emit_splat(e, t, 0) for t in outs[count:]]
    state, types = [e.constant(np.zeros((), np.int32)), *operands, *ys], [_COUNTER, *ins, *outs[count:]]
    looped = length - length % unroll

    def condition(inner: Any, names: list[str]) -> Sequence[str]:
        return compare_less(inner, names[0], inner.constant(np.array(looped, np.int32)))

    def step(inner: Any, names: list[str]) -> Sequence[str]:
        for n in range(unroll):
            names = _apart(inner, names, params) if is_double and n else names
            names = _iteration(inner, names, ins, outs, params)
        return names

    if looped > unroll:
        state = e.while_(state, types, condition, step, is_ordered(params["body"]))
    elif looped:
        state = list(step(e, state))
    for _ in range(length - looped):
        state = _iteration(e, state, ins, outs, params)
    return [*state[1 + consts : 1 + consts + count], *state[1 + len(ins) :]]


def _apart(e: Any, state: Sequence[str], params: Params) -> list[str]:
    """The state, its large carries behind a barrier."""
    first = 1 + params["num_consts"]
    last = first + params["num_carry"]
    return [*state[:first], *apart(e, state[first:last]), *state[last:]]


def _iteration(e: Any, state: Sequence[str], ins: Types, outs: Types, params: Params) -> list[str]:
    """The state (counter, operands, ys so far) one iteration later."""
    consts, count = params["num_consts"], params["num_carry"]
    index = _place(e, state[0], params)
    kept, carry, xs = parts(params, state[1 : 1 + len(ins)])
    slices = [_slice(e, x, t, index) for x, t in zip(xs, ins[consts + count :], strict=True)]
    results = e.program(params["body"], [*kept, *carry, *slices])
    pieces = zip(state[1 + len(ins) :], results[count:], outs[count:], strict=True)
    ys = [_update(e, y, piece, t, index) for y, piece, t in pieces]
    following = e.op("add", [state[0], e.constant(np.ones((), np.int32))], [_COUNTER])
    return [*following, *kept, *results[:count], *xs, *ys]


def compare_less(e: Any, a: str, b: str) -> list[str]:
    attributes = "comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>"
    return e.op("compare", [a, b], [TensorType((), np.dtype(np.bool_))], attributes)


def _place(e: Any, counter: str, params: Params) -> str:
    """Which slice this iteration is about."""
    if not params["reverse"]:
        return counter
    last = e.constant(np.array(params["length"] - 1, np.int32))
    return e.op("subtract", [last, counter], [_COUNTER])[0]


def _starts(e: Any, index: str, rank: int) -> list[str]:
    zero = e.constant(np.zeros((), np.int32)) if rank > 1 else ""
    return [index, *[zero] * (rank - 1)]


def _slice(e: Any, x: str, type: TensorType, index: str) -> str:
    one = type.with_shape((1, *type.shape[1:]))
    cut = e.op("dynamic_slice", [x, *_starts(e, index, type.rank)], [one], f"slice_sizes = {integers(one.shape)}")
    return e.op("reshape", cut, [type.with_shape(type.shape[1:])])[0]


def _update(e: Any, y: str, piece: str, type: TensorType, index: str) -> str:
    one = e.op("reshape", [piece], [type.with_shape((1, *type.shape[1:]))])
    return e.op("dynamic_update_slice", [y, *one, *_starts(e, index, type.rank)], [type])[0]


# -- samples


def _program(name: str, types: Sequence[str], write: Callable[..., Sequence[Var]]) -> Program:
    with Builder(name) as builder:
        return builder.build(write(*[builder.input(TensorType.parse(t)) for t in types]))


def _samples() -> Iterator[Sample]:
    def sample(
        body: Program, types: Sequence[str], length: int, consts: int, carry: int, reverse: bool = False, unroll: int = 1
    ) -> Sample:
        params = {"body": body, "length": length, "reverse": reverse, "num_consts": consts, "num_carry": carry}
        params["unroll"] = unroll
        return Sample(tuple(map(TensorType.parse, types)), params)

    for dtype in ("f32", "i32", "c64"):
        total = _program("total", [f"{dtype}[5]", f"{dtype}[5]"], lambda c, x: [add(c, x), multiply(c, x)])
        yield sample(total, [f"{dtype}[5]", f"{dtype}[4,5]"], 4, 0, 1)
        yield sample(total, [f"{dtype}[5]", f"{dtype}[5,5]"], 5, 0, 1, unroll=2)
        yield sample(total, [f"{dtype}[5]", f"{dtype}[3,5]"], 3, 0, 1, reverse=True)
    empty = _program("empty", ["f32[2]", "f32[2]"], lambda c, x: [add(c, x), x])
    yield sample(empty, ["f32[2]", "f32[0,2]"], 0, 0, 1)
    swap = _program("swap", ["f32[3]", "f32[3]"], lambda a, b: [b, negate(a)])
    yield sample(swap, ["f32[3]", "f32[3]"], 3, 0, 2)
    yield sample(_program("map", ["f32[4]"], lambda x: [reduce_sum(x, axes=(0,)), x]), ["f32[6,4]"], 6, 0, 0)

    def layer(w: Var, scale: Var, h: Var, b: Var) -> list[Var]:
        product = dot_general(h, w, contract=((1,), (0,)), batch=((), ()))
        return [add(multiply(product, scale), b), scale]

    layers = _program("layer", ["f32[4,4]", "f32[6,4]", "f32[6,4]", "f32[6,4]"], layer)
    yield sample(layers, ["f32[4,4]", "f32[6,4]", "f32[6,4]", "f32[3,6,4]"], 3, 2, 1)
    yield sample(layers, ["f32[4,4]", "f32[6,4]", "f32[6,4]", "f32[2,6,4]"], 2, 2, 1, reverse=True, unroll=4)


scan = Op(
    name="scan",
    type_rule=_scan_type,
    factor_rule=whole_rule,
    evaluate=evaluated(_scan_steps),
    emit=_scan_emit,
    samples=_samples,
    batch=batch_scan,
    jvp=differentiate_scan,
    transpose=transpose_scan,
    regions=_scan_regions,
    steps=_scan_steps,
    prune=prune_scan,
    with_invariants=_with_invariants,
    with_carries=_with_carries,
)
