"""checkpoint: a Program whose derivative keeps the operands, and what `policy` says, and computes the rest again.

Params: body, policy (the name of one of POLICIES and its arguments, or a function of the user's), prevent_cse, again
(whether this is a way back of which nothing may be merged with the way forth: an optimization_barrier on the operands sees
to that). As `jax.checkpoint`. Like a call it is written out in place before anything is planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.effects import Effect, effect_of
from meshjit.core.evaluate import evaluated
from meshjit.core.once import once_per_program
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.primitives import params_of, primitive_of
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.region import Rule
from meshjit.core.types import TensorType
from meshjit.ops.base.annotations import in_memory, optimization_barrier
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.families import elementwise
from meshjit.ops.base.transcendental import tanh
from meshjit.ops.control.call import call_batch, call_prune, call_regions, call_steps, call_transpose, call_type
from meshjit.ops.control.nested import whole_rule

Policy = tuple[Any, ...] | Rule  # the name of one of POLICIES, then its arguments; or (prim, *avals, **params) -> whether to keep

# Which values the derivative keeps, by the primitive that makes them, in JAX's words, and its params.
POLICIES: dict[str, Callable[..., bool]] = {
    "nothing_saveable": lambda prim, params: False,
    "everything_saveable": lambda prim, params: True,
    "dots_saveable": lambda prim, params: prim in ("dot_general", "conv_general_dilated"),
    "dots_with_no_batch_dims_saveable": lambda prim, params: (
        prim == "dot_general" and params["dimension_numbers"][1] == ((), ())
    ),
    "save_only_these_names": lambda prim, params, *names: prim == "name" and params["name"] in names,
    "save_anything_except_these_names": lambda prim, params, *names: not (prim == "name" and params["name"] in names),
    "save_any_names_but_these": lambda prim, params, *names: prim == "name" and params["name"] not in names,
}


Move = Mapping[str, str]  # the params of `in_memory` by which a value is offloaded


def _saves(policy: Policy, eqn: Eqn) -> bool | Move:
    """Whether the policy keeps what this equation makes, and in which memory, if it names one."""
    prim, params = primitive_of(eqn), params_of(eqn)
    if isinstance(policy, tuple):
        return POLICIES[policy[0]](prim.name, params, *policy[1:])
    assert policy.make is not None
    answer: Any = policy.make(prim, *eqn.input_types, **params)
    if hasattr(answer, "dst"):
        return {"memory": answer.dst, "source": answer.src}
    if not (isinstance(answer, bool | np.bool_) or hasattr(answer, "keeps")):
        raise TypeError(
            f"checkpoint: the policy {policy.name} answered {answer!r} for {prim.name}, of type {type(answer).__name__}\n"
            "  fix: return a bool, or ad_checkpoint.Saveable, Recompute or Offloadable(src, dst)"
        )
    return bool(answer)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    again = params["again"] and bool(operands)
    return e.program(params["body"], e.op("optimization_barrier", operands, ins) if again else operands)


def _checkpoint(params: Params, operands: Sequence[Var], body: Program, again: bool = False) -> list[Var]:
    """The op on another body; `again`: on the way back."""
    settings = {**params, "body": body, "again": params["again"] or (again and params["prevent_cse"])}
    return list(current_builder().emit(checkpoint, operands, settings))


def _written_out(operands: Sequence[Var], params: Params, final: bool) -> list[Var] | None:
    """The body's equations in place of the op, once nobody will ask for its derivative."""
    if not final:
        return None
    if params["again"] and operands:
        barred = optimization_barrier(*operands)
        operands = barred if isinstance(barred, tuple) else (barred,)
    return current_builder().inline(params["body"], operands)


# -- derivative


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    body, flags = params["body"], [t is not None for t in tangents]
    directions, count = [t for t in tangents if t is not None], len(body.outputs)
    if not derivative.splits:
        joint, out_flags = derivative.joint(body, flags)
        results = _checkpoint(params, [*primals, *directions], joint)
        values, pushed = results[:count], results[count:]
    else:
        forward, tangent, out_flags = _halves(body, tuple(flags), params["policy"], derivative=derivative)
        results = _checkpoint(params, primals, forward)
        values, pushed = results[:count], _checkpoint(params, [*primals, *results[count:], *directions], tangent, again=True)
    rest = iter(pushed)
    return values, [next(rest) if flag else None for flag in out_flags]


@once_per_program
def _halves(
    body: Program, flags: tuple[bool, ...], policy: Policy, *, derivative: Any
) -> tuple[Program, Program, Sequence[bool]]:
    """The body with the values that are kept as further results; its tangents from the operands and those; which there are."""
    parts, count = derivative.parts(body, flags), len(body.outputs)
    values, residuals = parts.forward.outputs[:count], parts.forward.outputs[count:]
    kept, again = _kept(parts.forward, residuals, policy)
    forward = parts.forward.with_outputs([*values, *kept])
    if any(kept.values()):
        forward, again = _offloaded(forward, [{}] * count + [*kept.values()]), _fetched(again, [*kept.values()])
    return forward, _after(again, parts.tangent), parts.flags


def _kept(forward: Program, residuals: Sequence[Var], policy: Policy) -> tuple[dict[Var, Move], Program]:
    """The values that are kept, those that are offloaded with where to; and (operands, kept values) -> residuals, which makes the
    others again."""
    answers: dict[Eqn, bool | Move] = {eqn: True if effect_of(eqn) & Effect.IO else _saves(policy, eqn) for eqn in forward.eqns}
    needed, again, kept = set(residuals), list[Eqn](), dict[Var, Move]()
    for eqn in reversed(forward.eqns):
        results, answer = [v for v in eqn.outputs if v in needed], answers[eqn]
        if answer:
            kept.update(dict.fromkeys(results, {} if answer is True else answer))
        elif results or effect_of(eqn):
            needed.update(eqn.inputs)
            again.append(eqn)
    values = {v: kept[v] for eqn in forward.eqns for v in eqn.outputs if v in kept}
    return values, Program(forward.name, (*forward.inputs, *values), tuple(reversed(again)), tuple(residuals))


def _offloaded(forward: Program, moves: Sequence[Move]) -> Program:
    """The Program, whose outputs are handed over in these memories."""
    with Builder(forward.name) as builder:
        outputs = builder.inline(forward, [builder.input(v.type, v.hint) for v in forward.inputs])
        return builder.build([in_memory(v, **move) if move else v for v, move in zip(outputs, moves, strict=True)])


def _fetched(again: Program, moves: Sequence[Move]) -> Program:
    """The Program, whose last inputs come from there."""
    with Builder(again.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in again.inputs]
        first = len(inputs) - len(moves)
        back = [{"memory": move["source"], "source": move["memory"]} if move else move for move in moves]
        values = [in_memory(v, **move) if move else v for v, move in zip(inputs[first:], back, strict=True)]
        return builder.build(builder.inline(again, [*inputs[:first], *values]))


def _after(first: Program, second: Program) -> Program:
    """(inputs of first, inputs of second but the first's outputs) -> outputs of second."""
    count = len(first.outputs)
    with Builder(second.name) as builder:
        inputs = [builder.input(v.type, v.hint) for v in first.inputs]
        rest = [builder.input(v.type) for v in second.inputs[count:]]
        return builder.build(builder.inline(second, [*builder.inline(first, inputs), *rest]))


def _samples() -> Iterator[Sample]:
    for dtype in ("f32", "c64"):
        types = tuple(map(TensorType.parse, (f"{dtype}[6,4]", f"{dtype}[6,4]")))
        with Builder("inner") as builder:
            a, b = (builder.input(t) for t in types)
            body = builder.build([multiply(tanh(add(a, b)), b), a])
        for policy in (("nothing_saveable",), ("everything_saveable",)):
            yield Sample(types, {"body": body, "policy": policy, "prevent_cse": True, "again": False}, "unit")


checkpoint = Op(
    name="checkpoint",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples,
    batch=call_batch(_checkpoint),
    jvp=_jvp,
    transpose=call_transpose(functools.partial(_checkpoint, again=True)),
    regions=call_regions,
    steps=call_steps,
    prune=call_prune,
    written_out=_written_out,
)


# -- name: a value that policies can speak about

name = elementwise(
    "name",
    lambda x, name: x,
    arity=1,
    accepts="any",
    emit=lambda e, operands, ins, outs, params: operands,
    linear=((0,),),
    transpose=lambda cts, operands, in_types, params: [cts[0]],
    sample_params=({"name": "here"},),
    widen=False,
)
