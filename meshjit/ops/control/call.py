"""call: a Program inside of another one; what a jitted function becomes when a traced function calls it.

Params: body. Operands are its inputs, results its outputs. It means what the Program's equations would mean in its
place, and `transform/inline_calls.py` puts them there before anything is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshjit.core.evaluate import evaluated
from meshjit.core.once import once_per_program
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Region, Steps
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.control.nested import Flags, batched_outputs, chosen, require_types, takes_cotangents, whole_rule


def call_type(in_types: Types, params: Params) -> Types:
    require_types("call", "input", params["body"].input_types, in_types)
    return params["body"].output_types


def call_regions(params: Params) -> tuple[Region, ...]:
    program = params["body"]
    return (Region(program, tuple(range(len(program.inputs))), tuple(range(len(program.outputs)))),)


def call_steps(*operands: Any, body: Program, **params: Any) -> Steps:
    return (yield body, operands)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.program(params["body"], operands)


def _call(operands: Sequence[Var], program: Program) -> list[Var]:
    return list(current_builder().emit(call, operands, {"body": program}))


def _jvp(
    primals: Sequence[Var], tangents: Sequence[Var | None], params: Params, derivative: Any
) -> tuple[list[Var], list[Var | None]]:
    program, flags = params["body"], [t is not None for t in tangents]
    directions, count = [t for t in tangents if t is not None], len(params["body"].outputs)
    if derivative.splits:
        part = derivative.parts(program, flags)
        results, out_flags = _call(primals, part.forward), part.flags
        rest = iter(_call([*results[count:], *directions], part.tangent))
    else:
        joint, out_flags = derivative.joint(program, flags)
        results = _call([*primals, *directions], joint)
        rest = iter(results[count:])
    return results[:count], [next(rest) if flag else None for flag in out_flags]


Write = Callable[[Params, Sequence[Var], Program], list[Var]]  # the same op on another body


def call_transpose(write: Write) -> Callable[..., list[Var | None]]:
    """(known operands, cotangents) -> cotangents, by the body backwards."""

    def transpose(
        cotangents: Sequence[Var | None], operands: Sequence[Var | None], in_types: Types, params: Params, backward: Any
    ) -> list[Var | None]:
        linear = [x is None for x in operands]
        takes = takes_cotangents(params["body"], linear)
        primals, directions = [x for x in operands if x is not None], [ct for ct in chosen(cotangents, takes) if ct is not None]
        rest = iter(write(params, [*primals, *directions], backward(params["body"], linear)))
        return [next(rest) if flag else None for flag in linear]

    return transpose


def call_batch(write: Write) -> Callable[..., tuple[list[Var], list[int | None]]]:
    """The body, batched."""

    def batch(
        operands: Sequence[Var], dims: Sequence[int | None], params: Params, batched: Callable[..., Program]
    ) -> tuple[list[Var], list[int | None]]:
        size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
        flags = batched_outputs(params["body"], dims, size, batched)
        places: list[int | None] = [0 if flag else None for flag in flags]
        return write(params, operands, batched(params["body"], dims, size, places)), places

    return batch


def call_prune(params: Params, used: Flags, dce: Callable[[Program], Program]) -> tuple[list[int], list[int], Params]:
    """Without results that nobody reads, and operands that only they need."""
    operands, body = _pruned(params["body"], tuple(used), dce=dce)
    return operands, [i for i, flag in enumerate(used) if flag], {**params, "body": body}


@once_per_program
def _pruned(body: Program, used: tuple[bool, ...], *, dce: Callable[[Program], Program]) -> tuple[list[int], Program]:
    small = dce(body.with_outputs(chosen(body.outputs, used)))
    read = {v for eqn in small.eqns for v in eqn.inputs} | set(small.outputs)
    needed = [v in read for v in small.inputs]
    return [i for i, flag in enumerate(needed) if flag], small.with_inputs(chosen(small.inputs, needed))


def _samples() -> Iterator[Sample]:
    for dtype in ("f32", "i32"):
        types = (TensorType.parse(f"{dtype}[6,4]"), TensorType.parse(f"{dtype}[6,4]"))
        with Builder("inner") as builder:
            a, b = (builder.input(t) for t in types)
            program = builder.build([add(a, b), multiply(a, b), b])
        yield Sample(types, {"body": program})


call = Op(
    name="call",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples,
    batch=call_batch(lambda params, operands, body: _call(operands, body)),
    jvp=_jvp,
    transpose=call_transpose(lambda params, operands, body: _call(operands, body)),
    regions=call_regions,
    steps=call_steps,
    prune=call_prune,
    written_out=lambda operands, params, final: current_builder().inline(params["body"], operands),
)
