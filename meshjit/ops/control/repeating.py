"""Loops in Programs that ops are emitted as."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.comparison import compare
from meshjit.ops.base.constants import full_like, scalar
from meshjit.ops.control.while_loop import while_

_INT = DTYPES["i32"]


def repeat(state: Sequence[Var], end: int, step: int, body: Callable[..., list[Var]]) -> list[Var]:
    """`state = body(i, *state)` for i = 0, step, … below end."""
    types = [TensorType((), _INT), *(v.type for v in state)]
    cond = _program(types, lambda i, *_: [compare(i, full_like(i, end), direction="LT")])
    going = _program(types, lambda i, *values: [add(i, full_like(i, step)), *body(i, *values)])
    return list(while_(scalar(0, _INT), *state, cond=cond, body=going, cond_consts=0, body_consts=0))[1:]


def _program(types: Sequence[TensorType], body: Callable[..., list[Var]]) -> Program:
    with Builder("step") as builder:
        return builder.build(body(*[builder.input(type) for type in types]))
