"""custom_vmap: a Program under a rule of the user's for many of it at once.

Params: body; consts and closed, as of custom_jvp; rule(size, flags) -> (Program, flags):
operands, those marked with a batch dim in front -> results, those marked likewise. Forward mode is a custom_vmap of values
and tangents. In reverse mode the body is a Program like any other. It is written out in place before anything is planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.core.evaluate import evaluated
from meshjit.core.needed import needed_by
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Rule
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.batching import insert, move
from meshjit.ops.base.constants import zeros
from meshjit.ops.control.call import call, call_regions, call_steps, call_transpose, call_type
from meshjit.ops.control.custom import Batch, Dims, member_count, written_out_at_last
from meshjit.ops.control.nested import Flags, chosen, whole_rule


def _batch(operands: Sequence[Var], dims: Dims, params: Params, batched: Batch) -> tuple[list[Var], list[int | None]]:
    size, closed = member_count(operands, dims), params["closed"]
    placed = [x if d is None else move(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    apart = [i for i in range(closed) if dims[i] is not None]  # closed values that differ between the members
    if any(i < params["consts"] for i in apart):
        raise _closed_over(params)
    for i in apart:
        placed[i] = zeros(params["body"].inputs[i].type)

    def rule(size: int, flags: Flags) -> tuple[Program, Flags]:
        program, out_flags = params["rule"](size, flags)
        needed = needed_by(program)
        if any(program.inputs[i] in needed for i in apart):
            raise _closed_over(params)
        return program, out_flags

    if all(d is None for d in dims[closed:]):  # the arguments are those of all members
        results = current_builder().emit(custom_vmap, placed, {**params, "rule": Rule(params["rule"].name, rule)})
        return list(results), [None] * len(results)
    program, flags = rule(size, tuple(d is not None and i >= closed for i, d in enumerate(dims)))
    return current_builder().inline(program, placed), [0 if flag else None for flag in flags]


def _closed_over(params: Params) -> ValueError:
    return ValueError(
        f"vmap: {params['body'].name} has a rule of its own for batches, which says nothing of values that the function "
        "closes over, and one of them differs between the members\n  fix: pass it as an argument"
    )


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    if derivative.splits:
        return call.jvp(primals, tangents, {"body": params["body"]}, derivative)
    body, nonzero, rule = params["body"], [t is not None for t in tangents], params["rule"]
    joint, out_flags = derivative.joint(body, nonzero)

    def make(size: int, flags: tuple[bool, ...]) -> tuple[Program, Flags]:
        return _batched_jvp(rule, size, flags, nonzero, out_flags, derivative)

    operands = [*primals, *(t for t in tangents if t is not None)]
    settings = {"body": joint, "consts": params["consts"], "closed": params["closed"], "rule": Rule(rule.name, make)}
    results = current_builder().emit(custom_vmap, operands, settings)
    rest = iter(results[len(body.outputs) :])
    return list(results[: len(body.outputs)]), [next(rest) if flag else None for flag in out_flags]


def _batched_jvp(
    rule: Rule, size: int, flags: Flags, nonzero: Flags, out_flags: Flags, derivative: Any
) -> tuple[Program, list[bool]]:
    """The derivative of the rule's Program. A value and its tangent have members if either has."""
    count = len(nonzero)
    of_tangents = iter(flags[count:])
    together = tuple(f or (n and next(of_tangents)) for f, n in zip(flags, nonzero, strict=False))
    program, results = rule(size, together)
    joint, pushed = derivative.joint(program, nonzero)
    with Builder(joint.name) as builder:
        inputs: list[Var] = []
        for v, flag, batched in zip(joint.inputs, flags, [*together, *chosen(together, nonzero)], strict=True):
            own = v.type if flag or not batched else v.type.with_shape(v.shape[1:])
            inputs.append(builder.input(own) if flag or not batched else insert(builder.input(own), 0, size))
        outputs = builder.inline(joint, inputs)
        values, rest = outputs[: len(results)], iter(outputs[len(results) :])
        slopes = [next(rest) if flag else None for flag in pushed]
        due = [(t, v) for t, v, flag in zip(slopes, values, out_flags, strict=True) if flag]
        tangents = [zeros(v.type) if t is None else t for t, v in due]
        return builder.build([*values, *tangents]), [*results, *chosen(results, out_flags)]


def _samples() -> Iterator[Sample]:
    types = tuple(map(TensorType.parse, ("f32[6,4]", "f32[6,4]")))

    def body(own: Sequence[TensorType]) -> Program:
        with Builder("inner") as builder:
            a, b = (builder.input(t) for t in own)
            return builder.build([multiply(a, b), add(a, b)])

    def rule(size: int, flags: Flags) -> tuple[Program, Flags]:
        with Builder("inner_batch") as builder:
            ins = [builder.input(t.with_shape((size, *t.shape)) if flag else t) for t, flag in zip(types, flags, strict=True)]
            a, b = (x if flag else insert(x, 0, size) for x, flag in zip(ins, flags, strict=True))
            return builder.build([multiply(a, b), add(a, b)]), (True, True)

    yield Sample(types, {"body": body(types), "consts": 0, "closed": 0, "rule": Rule("inner_batch", rule)})


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.program(params["body"], operands)


custom_vmap = Op(
    name="custom_vmap",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=call_transpose(lambda params, operands, body: current_builder().inline(body, operands)),
    regions=call_regions,
    steps=call_steps,
    written_out=written_out_at_last,
)
