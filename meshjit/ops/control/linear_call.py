"""linear_call: a Program that is linear in its last operands, under a rule of the user's for the way back.

Params: body; consts, how many of the first operands it is not known to be linear in; transpose(flags), the rule: (the operands
that are not marked, cotangents of the results) -> cotangents of those marked, a Program that is made when it is asked for. The
transpose with respect to all operands from `consts` on is a linear_call again, whose rule gives this body. Like a call it is
written out in place before anything is planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.core.evaluate import evaluated
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Rule
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.constants import zeros
from meshjit.ops.control.call import call, call_regions, call_steps, call_type
from meshjit.ops.control.custom import Batch, Dims, batched_bwd, member_count, written_out_at_last
from meshjit.ops.control.nested import chosen, whole_rule


def _linear_call(operands: Sequence[Var], params: Params, body: Program, rule: Rule) -> list[Var]:
    return list(current_builder().emit(linear_call, operands, {**params, "body": body, "transpose": rule}))


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    """The same of the tangents; with respect to what it is not linear in, the derivative of the body."""
    count = params["consts"]
    if any(t is not None for t in tangents[:count]):
        return call.jvp(primals, tangents, {"body": params["body"]}, derivative)
    directions = [t or zeros(x.type) for x, t in zip(primals[count:], tangents[count:], strict=True)]
    body, rule = params["body"], params["transpose"]
    results = _linear_call(primals, params, body, rule)
    return results, list(_linear_call([*primals[:count], *directions], params, body, rule))


def _transpose(
    cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params, backward: Any
) -> list[Var | None]:
    count, body = params["consts"], params["body"]
    linear = tuple(x is None for x in operands)
    given = [zeros(t) if ct is None else ct for ct, t in zip(cotangents, body.output_types, strict=True)]
    given, program = [*(x for x in operands if x is not None), *given], params["transpose"](linear)
    if not any(linear[:count]) and all(linear[count:]):
        results = _linear_call(given, params, program, Rule(body.name, lambda _: body))
    else:
        results = current_builder().inline(program, given)
    rest = iter(results)
    return [next(rest) if flag else None for flag in linear]


def _batch(operands: Sequence[Var], dims: Dims, params: Params, batched: Batch) -> tuple[list[Var], list[int | None]]:
    size, rule = member_count(operands, dims), params["transpose"]
    places: list[int | None] = [0] * len(params["body"].outputs)

    def make(linear: tuple[bool, ...]) -> Program:
        kept, own = chosen(dims, [not flag for flag in linear]), chosen(dims, linear)
        return batched_bwd(rule(linear), kept, own, size, batched)

    body = batched(params["body"], dims, size, places)
    return _linear_call(operands, params, body, Rule(rule.name, make)), places


def _samples() -> Iterator[Sample]:
    types = tuple(map(TensorType.parse, ("f32[6,4]", "f32[6,4]")))
    with Builder("inner") as builder:
        a, b = (builder.input(t) for t in types)
        body = builder.build([multiply(a, b), add(b, b)])

    def transpose(_: tuple[bool, ...]) -> Program:
        with Builder("inner_transpose") as builder:
            a, first, second = (builder.input(types[0]) for _ in range(3))
            return builder.build([add(multiply(a, first), add(second, second))])

    yield Sample(types, {"body": body, "consts": 1, "transpose": Rule("inner_transpose", transpose)})


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.program(params["body"], operands)


linear_call = Op(
    name="linear_call",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=_transpose,
    regions=call_regions,
    steps=call_steps,
    written_out=written_out_at_last,
)
