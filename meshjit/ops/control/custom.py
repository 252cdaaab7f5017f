"""custom_jvp, custom_vjp: a Program under rules of the user's for its derivative; and the one-way tangents of custom_vjp.

    %y = custom_jvp(%c, %x) {body=program f(%c, %x) …, consts=1, jvp=rule('f_jvp')}

Params: body; consts, how many of the first operands the function closed over; closed, how many these and those are that only
its rules may have closed over; and the rules, which are asked only by who differentiates, and are functions until then
(`core/region.py`). Like a call they mean their body, which stands in their place before anything is planned.

    jvp(flags) -> (Program, flags)      (operands, tangents of those marked) -> (results, tangents of those marked)
    fwd(flags) -> (Program, bwd)        (operands) -> (results, residuals)
    bwd(flags) -> Program               (residuals, cotangents of the results marked) -> cotangents of the operands marked in fwd

Forwards nobody knows the tangents of a custom_vjp. They are results of `custom_tangent`, which can only be transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshjit.core.evaluate import evaluated
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Rule
from meshjit.core.types import TensorType, is_inexact
from meshjit.errors import UnexpectedTracerError
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.control.call import call_regions, call_steps, call_transpose, call_type
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, whole_rule


class CustomVJPException(TypeError):
    """A derivative with respect to a value that a custom_vjp function closes over, of which its rule says nothing."""


def closed_over(kind: str, name: str) -> Exception:
    """What is raised where a value that a custom function, or its rule, closes over has a tangent."""
    return (CustomVJPException if kind == "custom_vjp" else UnexpectedTracerError)(
        f"Detected differentiation of a {kind} function, {name}, with respect to a closed-over value. That isn't supported: "
        "its rule only says how to differentiate it with respect to its arguments\n"
        "  fix: pass the value to it as an argument, of which its rule says the derivative, too"
    )


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.program(params["body"], operands)


def written_out_at_last(operands: Sequence[Var], params: Params, final: bool) -> list[Var] | None:
    """The body in place of the op, once no transformation will ask for its rules."""
    return current_builder().inline(params["body"], operands) if final else None


def _inlined(params: Params, operands: Sequence[Var], body: Program) -> list[Var]:
    return current_builder().inline(body, operands)


def _directions(tangents: Sequence[Var | None]) -> list[Var]:
    return [t for t in tangents if t is not None]


def _name(params: Params) -> str:
    return params["body"].name


Batch = Callable[..., Program]
Dims = Sequence[int | None]
_SAMPLE = tuple(map(TensorType.parse, ("f32[6,4]", "f32[6,4]")))


def _sample_body() -> Program:
    with Builder("inner") as builder:
        a, b = (builder.input(t) for t in _SAMPLE)
        return builder.build([multiply(a, b), add(a, b)])


def member_count(operands: Sequence[Var], dims: Dims) -> int:
    return next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)


# -- custom_jvp


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    if any(t is not None for t in tangents[: params["consts"]]):
        raise closed_over("custom_jvp", _name(params))
    directions = _directions(tangents[params["closed"] :])
    program, flags = params["jvp"].of([*primals, *directions], tuple(t is not None for t in tangents))
    results = derivative.of_rule(program, primals, directions)
    rest = iter(results[len(flags) :])
    return results[: len(flags)], [next(rest) if flag else None for flag in flags]


def _batch_jvp(operands: Sequence[Var], dims: Dims, params: Params, batched: Batch) -> tuple[list[Var], list[int | None]]:
    """The body for all members, and the rule: results that may have a tangent have members, since their tangents may."""
    size, rule, closed = member_count(operands, dims), params["jvp"], params["closed"]
    differ = batched_outputs(params["body"], dims, size, batched)
    places = [0 if flag or is_inexact(v.dtype) else None for v, flag in zip(params["body"].outputs, differ, strict=True)]

    def make(flags: tuple[bool, ...]) -> tuple[Program, Flags]:
        program, out_flags = rule(flags)
        directions = chosen(dims[closed:], flags[closed:])
        tangents = [0] * (len(program.outputs) - len(places))
        return batched(program, [*dims, *directions], size, [*places, *tangents]), out_flags

    body = batched(params["body"], dims, size, places)
    settings = {**params, "body": body, "jvp": Rule(rule.name, make)}
    return list(current_builder().emit(custom_jvp, operands, settings)), places


def _sample_jvp(flags: tuple[bool, ...]) -> tuple[Program, Flags]:
    with Builder("inner_jvp") as builder:
        a, b = (builder.input(t) for t in _SAMPLE)
        da, db = (builder.input(t) if flag else zeros(t) for t, flag in zip(_SAMPLE, flags, strict=True))
        return builder.build([multiply(a, b), add(a, b), add(multiply(da, b), multiply(a, db)), add(da, db)]), (True, True)


def _samples_jvp() -> Iterator[Sample]:
    yield Sample(_SAMPLE, {"body": _sample_body(), "consts": 0, "closed": 0, "jvp": Rule("inner_jvp", _sample_jvp)})


custom_jvp = Op(
    name="custom_jvp",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples_jvp,
    batch=_batch_jvp,
    jvp=_jvp,
    transpose=call_transpose(_inlined),
    regions=call_regions,
    steps=call_steps,
    written_out=written_out_at_last,
)


# -- custom_vjp


def _vjp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    flags, types = tuple(t is not None for t in tangents), params["body"].output_types
    if any(flags[: params["consts"]]):
        raise closed_over("custom_vjp", _name(params))
    program, bwd = params["fwd"].of(primals, flags)
    results = current_builder().inline(program, primals)
    residuals, out_flags = results[len(types) :], [is_inexact(t.dtype) for t in types]
    settings = {"types": tuple(chosen(types, out_flags)), "residuals": len(residuals), "bwd": bwd}
    directions = _directions(tangents[params["closed"] :])
    pushed = current_builder().emit(custom_tangent, [*residuals, *directions], settings)
    rest = iter(pushed)
    return results[: len(types)], [next(rest) if flag else None for flag in out_flags]


def _batch_vjp(operands: Sequence[Var], dims: Dims, params: Params, batched: Batch) -> tuple[list[Var], list[int | None]]:
    size, count, rule = member_count(operands, dims), len(params["body"].outputs), params["fwd"]
    closed = params["closed"]

    def make(flags: tuple[bool, ...]) -> tuple[Program, Rule]:
        program, bwd = rule(flags)
        kept: list[int | None] = [0 if flag else None for flag in batched_outputs(program, dims, size, batched)[count:]]
        forward = batched(program, dims, size, [*[0] * count, *kept])
        own = chosen(dims[closed:], flags[closed:])
        return forward, Rule(bwd.name, lambda takes: batched_bwd(bwd(takes), kept, own, size, batched))

    places: list[int | None] = [0] * count
    body = batched(params["body"], dims, size, places)
    settings = {**params, "body": body, "fwd": Rule(rule.name, make)}
    return list(current_builder().emit(custom_vjp, operands, settings)), places


def batched_bwd(program: Program, kept: Dims, dims: Dims, size: int, batched: Batch) -> Program:
    """Cotangents of operands that all members share are added up."""
    in_dims = [*kept, *[0] * (len(program.inputs) - len(kept))]
    program = batched(program, in_dims, size, [0 if d is None else d for d in dims])
    with Builder(program.name) as builder:
        results = builder.inline(program, [builder.input(v.type, v.hint) for v in program.inputs])
        return builder.build([reduce_sum(v, axes=(0,)) if d is None else v for v, d in zip(results, dims, strict=True)])


def _sample_fwd(flags: tuple[bool, ...]) -> tuple[Program, Rule]:
    def bwd(takes: tuple[bool, ...]) -> Program:
        with Builder("inner_bwd") as builder:
            a, b = (builder.input(t) for t in _SAMPLE)
            first, second = (builder.input(t) if flag else zeros(t) for t, flag in zip(_SAMPLE, takes, strict=True))
            cotangents = [add(multiply(first, b), second), add(multiply(first, a), second)]
            return builder.build(chosen(cotangents, flags))

    body = _sample_body()
    return body.with_outputs([*body.outputs, *body.inputs]), Rule("inner_bwd", bwd)


def _samples_vjp() -> Iterator[Sample]:
    yield Sample(_SAMPLE, {"body": _sample_body(), "consts": 0, "closed": 0, "fwd": Rule("inner_fwd", _sample_fwd)})


custom_vjp = Op(
    name="custom_vjp",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples_vjp,
    batch=_batch_vjp,
    jvp=_vjp,
    transpose=call_transpose(_inlined),
    regions=call_regions,
    steps=call_steps,
    written_out=written_out_at_last,
)


# -- custom_tangent: (residuals, tangents) -> tangents of the types `types`, of which only the transpose is known

FORWARD = (
    "can't apply forward-mode autodiff (jvp) to a custom_vjp function.\n  fix: reverse mode (grad, vjp), or custom_jvp for both"
)


def _transpose(
    cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params
) -> list[Var | None]:
    count = params["residuals"]
    known = [x for x in operands[:count] if x is not None]
    if len(known) < count or any(x is not None for x in operands[count:]):
        raise TypeError(FORWARD)
    given = [*known, *_directions(cotangents)]
    results = current_builder().inline(params["bwd"].of(given, tuple(ct is not None for ct in cotangents)), given)
    return [*[None] * count, *results]


_ONE_WAY = Absent(FORWARD, "custom_tangent", "value")

custom_tangent = Op(
    name="custom_tangent",
    type_rule=lambda in_types, params: params["types"],
    factor_rule=whole_rule,
    evaluate=_ONE_WAY,
    emit=_ONE_WAY,
    samples=lambda: (),
    batch=_ONE_WAY,
    jvp=_ONE_WAY,
    linear=lambda in_types, params: (tuple(range(params["residuals"], len(in_types))),),
    transpose=_transpose,
    takes_none=True,
)
