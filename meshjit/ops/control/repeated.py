"""repeated: one of several calls of a body that stands once in a local Program, though its equations stand as often in the text.

    %4 = repeated(%x, %w1) {body=…}    %5 = repeated(%4, %w2) {body=…}

Params: body. Partitioning writes equal layers so (`partition/bodies.py`), and passes, checks and emission then see them once.
Unlike a `call` it is never inlined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshjit.core.evaluate import evaluated
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.control.call import call_batch, call_prune, call_regions, call_steps, call_type
from meshjit.ops.control.nested import whole_rule


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.copy_of(params["body"], operands)


def _call(params: Params, operands: Sequence[Var], body: Program) -> list[Var]:
    return list(current_builder().emit(repeated, operands, {"body": body}))


def _samples() -> Iterator[Sample]:
    types = (TensorType.parse("f32[6,4]"), TensorType.parse("f32[6,4]"))
    with Builder("inner") as builder:
        a, b = (builder.input(t) for t in types)
        program = builder.build([add(a, b), multiply(a, b), b])
    yield Sample(types, {"body": program})


repeated = Op(
    name="repeated",
    type_rule=call_type,
    factor_rule=whole_rule,
    evaluate=evaluated(call_steps),
    emit=_emit,
    samples=_samples,
    batch=call_batch(_call),
    jvp=Absent("only local Programs have it"),
    transpose=Absent("only local Programs have it"),
    regions=call_regions,
    steps=call_steps,
    prune=call_prune,
)
