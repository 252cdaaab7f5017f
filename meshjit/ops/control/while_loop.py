"""while: a loop that runs as long as a condition on its carries holds.

Params: cond (a Program: its consts, carries -> bool), body (its consts, carries -> carries), cond_consts, body_consts
(how many). Operands: consts of cond, consts of body, carries; results: carries. As `jax.lax.while_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import is_ordered
from meshjit.core.evaluate import evaluated
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.region import Region, Steps
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.batching import batch_size, insert, move
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, scalar, zeros
from meshjit.ops.base.families import require
from meshjit.ops.base.reduction import reduce_or, reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, require_no_io, require_types, whole_rule, with_tangents

_BOOL = TensorType((), np.dtype(np.bool_))


def _split(params: Params, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """(consts of cond, consts of body, carries)."""
    first, second = params["cond_consts"], params["cond_consts"] + params["body_consts"]
    return list(values[:first]), list(values[first:second]), list(values[second:])


def _type(in_types: Types, params: Params) -> Types:
    cond, body = params["cond"], params["body"]
    cond_consts, body_consts, carries = _split(params, in_types)
    require_types("while", "input of the condition", [*cond_consts, *carries], cond.input_types)
    require_types("while", "input of the body", [*body_consts, *carries], body.input_types)
    require_types("while", "carry", carries, body.output_types)
    require(cond.output_types == (_BOOL,), "while", f"the condition must give one bool[], gives {cond.output_types}")
    return tuple(carries)


def _regions(params: Params) -> tuple[Region, ...]:
    count = len(params["body"].outputs)
    cond, body, carries = _split(params, range(params["cond_consts"] + params["body_consts"] + count))
    carried = tuple((len(body) + i, i) for i in range(count))
    changing = frozenset(range(len(cond), len(cond) + count))
    return (
        Region(params["cond"], (*cond, *carries), (None,), changing=changing, trips=None),
        Region(params["body"], (*body, *carries), tuple(range(count)), carried=carried, trips=None),
    )


def _steps(*operands: Any, **params: Any) -> Steps:
    cond, body, carry = _split(params, operands)
    while True:
        (more,) = yield params["cond"], [*cond, *carry]
        if not more:
            return carry
        carry = list((yield params["body"], [*body, *carry]))


def _with_invariants(
    operands: Sequence[Var], params: Params, region: int, values: Sequence[Var], program: Program
) -> tuple[Sequence[Var], Params]:
    cond, body, carry = _split(params, operands)
    if region == 0:
        return [*values, *operands], {**params, "cond": program, "cond_consts": len(cond) + len(values)}
    return [*cond, *values, *body, *carry], {**params, "body": program, "body_consts": len(body) + len(values)}


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """Consts go round with the carries, as XLA wants it. So does what the condition says, where it has an ordered effect: XLA's
    condition gives no token."""
    ordered = is_ordered(params["cond"], params["body"])
    asks_ahead = is_ordered(params["cond"])

    def ask(inner: Any, names: Sequence[str]) -> Sequence[str]:
        cond, _, carry = _split(params, names)
        return inner.program(params["cond"], [*cond, *carry])

    def step(inner: Any, names: list[str]) -> Sequence[str]:
        cond, body, carry = _split(params, names[: len(ins)])
        after = [*cond, *body, *inner.program(params["body"], [*body, *carry])]
        return [*after, *ask(inner, after)] if asks_ahead else after

    if asks_ahead:
        state = [*operands, *ask(e, operands)]
        results = e.while_(state, [*ins, _BOOL], lambda inner, names: names[-1:], step, ordered)[: len(ins)]
    else:
        results = e.while_(operands, ins, ask, step, ordered)
    return results[len(ins) - len(outs) :]


def _while(
    cond: Program, body: Program, cond_consts: Sequence[Var], body_consts: Sequence[Var], carry: Sequence[Var]
) -> list[Var]:
    counts = {"cond_consts": len(cond_consts), "body_consts": len(body_consts)}
    results = while_(*cond_consts, *body_consts, *carry, cond=cond, body=body, **counts)
    return [results] if isinstance(results, Var) else list(results)


# -- derivative: values and tangents go round together; nothing can be kept for a way back of unknown length


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    cond_consts, body_consts, carry = _split(params, primals)
    body, count = params["body"], len(carry)
    _, flags_consts, flags_carry = _split(params, [t is not None for t in tangents])
    while True:
        grown = [a or b for a, b in zip(flags_carry, derivative.flags(body, [*flags_consts, *flags_carry]), strict=True)]
        if grown == flags_carry:
            break
        flags_carry = grown
    joint, out_flags = derivative.joint(body, [*flags_consts, *flags_carry])
    _, consts_t, carry_t = _split(params, tangents)
    directions = [t or zeros(x.type) for x, t, flag in zip(carry, carry_t, flags_carry, strict=True) if flag]
    tangent_consts = [t for t in consts_t if t is not None]
    values = list(joint.inputs[: len(body.inputs)])
    inner = list(joint.inputs[len(body.inputs) :])
    first = len(body_consts)
    joint = joint.with_inputs([*values[:first], *inner[: len(tangent_consts)], *values[first:], *inner[len(tangent_consts) :]])
    joint = with_tangents(joint, count, out_flags, flags_carry)
    cond = _with_unread(params["cond"], [v.type for v in directions])
    results = _while(cond, joint, cond_consts, [*body_consts, *tangent_consts], [*carry, *directions])
    rest = iter(results[count:])
    if derivative.splits and any(flags_carry):  # nothing is kept of the iterations: the tangents' loop computes the values again
        return _while(params["cond"], body, cond_consts, body_consts, carry), [next(rest) if f else None for f in flags_carry]
    return results[:count], [next(rest) if flag else None for flag in flags_carry]


def _with_unread(program: Program, types: Sequence[TensorType]) -> Program:
    """The program with further inputs that it does not read."""
    return program.with_inputs([*program.inputs, *(Var(t) for t in types)])


_NO_WAY_BACK = Absent(
    "reverse-mode differentiation does not work for while_loop or fori_loop with a dynamic number of iterations:"
    " the values of every iteration would have to be kept\n"
    "  fix: use scan, fori_loop with Python ints as bounds, or forward mode (jvp, jacfwd)",
    error=ValueError,
)


# -- batch: while any member goes on; members that have ended keep their carries


def _batch(
    operands: Sequence[Var], dims: Sequence[int | None], params: Params, batched: Callable[..., Program]
) -> tuple[list[Var], list[int | None]]:
    cond, body, size = params["cond"], params["body"], batch_size(operands, dims)
    of_cond, of_body, of_carry = _split(params, [d is not None for d in dims])
    while True:
        (together,) = batched_outputs(cond, _first([*of_cond, *of_carry]), size, batched)
        after = batched_outputs(body, _first([*of_body, *of_carry]), size, batched)
        grown = [a or b or together for a, b in zip(of_carry, after, strict=True)]
        if grown == of_carry:
            break
        of_carry = grown
    flags = [*of_cond, *of_body, *of_carry]
    placed = [
        x if not flag else insert(x, 0, size) if d is None else move(x, d, 0)
        for x, d, flag in zip(operands, dims, flags, strict=True)
    ]
    cond_consts, body_consts, carry = _split(params, placed)
    places = _first(of_carry)
    each = batched(cond, _first([*of_cond, *of_carry]), size, [0 if together else None])
    step = batched(body, _first([*of_body, *of_carry]), size, places)
    if together:
        require_no_io("while", [cond, body])
        step = _kept_when_done(each, step, len(cond_consts))
        body_consts = [*cond_consts, *body_consts]
        each = _any(each)
    results = _while(each, step, cond_consts, body_consts, carry)
    return results, places


def _first(flags: Flags) -> list[int | None]:
    """Batch dims in front."""
    return [0 if flag else None for flag in flags]


def _any(cond: Program) -> Program:
    with Builder(cond.name) as builder:
        (more,) = builder.inline(cond, [builder.input(v.type, v.hint) for v in cond.inputs])
        return builder.build([reduce_or(more, axes=(0,))])


def _kept_when_done(cond: Program, body: Program, cond_consts: int) -> Program:
    with Builder(body.name) as builder:
        consts = [builder.input(v.type, v.hint) for v in cond.inputs[:cond_consts]]
        inputs = [builder.input(v.type, v.hint) for v in body.inputs]
        carry = inputs[len(inputs) - len(body.outputs) :]
        (more,) = builder.inline(cond, [*consts, *carry])
        after = builder.inline(body, inputs)
        spread = [broadcast_in_dim(more, shape=x.shape, dimensions=(0,)) for x in carry]
        return builder.build([select(m, new, old) for m, new, old in zip(spread, after, carry, strict=True)])


def _prune(params: Params, used: Flags, dce: Callable[[Program], Program]) -> tuple[list[int], list[int], Params]:
    """Every carry may decide how long the loop runs, so only those go that neither the rest nor the condition reads."""
    cond, body = dce(params["cond"]), params["body"]
    first_cond, first_body, count = params["cond_consts"], params["body_consts"], len(body.outputs)
    asked = {v for eqn in cond.eqns for v in eqn.inputs} | set(cond.outputs)
    live = [u or v in asked for u, v in zip(used, cond.inputs[first_cond:], strict=True)]
    while True:
        small = dce(body.with_outputs(chosen(body.outputs, live)))
        read = {v for eqn in small.eqns for v in eqn.inputs} | set(small.outputs)
        grown = [flag or v in read for flag, v in zip(live, body.inputs[first_body:], strict=True)]
        if grown == live:
            break
        live = grown
    kept_cond = [v in asked for v in cond.inputs[:first_cond]]
    kept_body = [v in read for v in body.inputs[:first_body]]
    keep = [*kept_cond, *kept_body, *live]
    cond = cond.with_inputs([*chosen(cond.inputs, kept_cond + live)])
    small = small.with_inputs(chosen(body.inputs, kept_body + live))
    counts = {"cond_consts": sum(kept_cond), "body_consts": sum(kept_body)}
    operands = [i for i, flag in enumerate(keep) if flag]
    return operands, [i for i in range(count) if live[i]], {**params, "cond": cond, "body": small, **counts}


def _samples() -> Iterator[Sample]:
    def sample(types: Sequence[str], condition: Any, step: Any, consts: tuple[int, int]) -> Sample:
        parsed = tuple(map(TensorType.parse, types))
        cond_types, body_types, carry = (
            parsed[: consts[0]], parsed[consts[0] : sum(consts)], parsed[sum(consts) :],
        )  # fmt: skip
        programs: list[Program] = []
        for name, own_types, write in (("cond", cond_types, condition), ("body", body_types, step)):
            with Builder(name) as builder:
                programs.append(builder.build(write(*[builder.input(t) for t in (*own_types, *carry)])))
        params = {"cond": programs[0], "body": programs[1], "cond_consts": consts[0], "body_consts": consts[1]}
        return Sample(parsed, params)

    def below(limit: float) -> Any:
        return lambda i, *rest: [compare(i, scalar(limit, i.dtype), direction="LT")]

    one = lambda i: add(i, scalar(1, i.dtype))  # noqa: E731
    yield sample(["i32[]", "f32[6]"], below(5), lambda i, x: [one(i), multiply(x, full_like(x, 0.5))], (0, 0))
    yield sample(["f32[6]", "i32[]", "f32[6]"], below(3), lambda w, i, x: [one(i), add(x, w)], (0, 1))
    grows = lambda limit, x: [compare(reduce_sum(x, axes=(0,)), limit, direction="LT")]  # noqa: E731
    yield sample(["f32[]", "f32[5]"], grows, lambda x: [add(x, full_like(x, 1.0))], (1, 0))


while_ = Op(
    name="while",
    type_rule=_type,
    factor_rule=whole_rule,
    evaluate=evaluated(_steps),
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=_jvp,
    transpose=_NO_WAY_BACK,
    regions=_regions,
    steps=_steps,
    prune=_prune,
    with_invariants=_with_invariants,
)

