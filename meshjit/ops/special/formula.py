"""Formulas as people write them: `Value` gives Vars of one shape arithmetic with one another and with numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.evaluate import evaluate
from meshjit.core.op import Params, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, type_of
from meshjit.ops.base import arithmetic, transcendental
from meshjit.ops.base.bits import and_, not_, or_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.reduction import reduce_or
from meshjit.ops.control.while_loop import while_

Array = np.ndarray[Any, Any]


def _binary(op: Callable[[Var, Var], Var]) -> Any:
    """The methods for `x op other` and `other op x`."""

    def forward(x: Value, other: Any) -> Value:
        return Value(op(x.var, x.like(other).var))

    def backward(x: Value, other: Any) -> Value:
        return Value(op(x.like(other).var, x.var))

    return forward, backward


def _compared(direction: str) -> Any:
    return _binary(functools.partial(compare, direction=direction))[0]


class Value:
    """A Var in a formula. Numbers are of its dtype and shape."""

    __slots__ = ("var",)
    __hash__ = None  # pyright: ignore[reportAssignmentType] - `==` compares elements

    def __init__(self, var: Var) -> None:
        self.var = var

    def like(self, number: Any) -> Value:
        """This number everywhere; a Value stays."""
        return number if isinstance(number, Value) else Value(full_like(self.var, number))

    __add__, __radd__ = _binary(arithmetic.add)
    __sub__, __rsub__ = _binary(arithmetic.subtract)
    __mul__, __rmul__ = _binary(arithmetic.multiply)
    __truediv__, __rtruediv__ = _binary(arithmetic.divide)
    __pow__ = _binary(arithmetic.power)[0]
    __and__, __or__ = _binary(and_)[0], _binary(or_)[0]
    __lt__, __le__, __gt__, __ge__, __eq__, __ne__ = map(_compared, ("LT", "LE", "GT", "GE", "EQ", "NE"))

    def __neg__(self) -> Value:
        return Value(arithmetic.negate(self.var))

    def __invert__(self) -> Value:
        return Value(not_(self.var))

    def __abs__(self) -> Value:
        return Value(arithmetic.abs_(self.var))


def _function(op: Callable[[Var], Var]) -> Callable[[Value], Value]:
    return lambda x: Value(op(x.var))


exp, log, log1p, sqrt = map(
    _function, (transcendental.exponential, transcendental.log, transcendental.log_plus_one, transcendental.sqrt)
)
lgamma, digamma, erf_inv = map(_function, (transcendental.lgamma, transcendental.digamma, transcendental.erf_inv))


def where(holds: Any, a: Any, b: Any) -> Value:
    """a where it holds, else b, of which one is a Value."""
    form = a if isinstance(a, Value) else b
    return Value(select(holds.var, form.like(a).var, form.like(b).var))


def iterate(
    step: Callable[..., tuple[Value, Sequence[Value]]], active: Value, state: Sequence[Value], consts: Sequence[Value] = ()
) -> list[Value]:
    """Every element's state after steps of its own. `step(*consts, *state)` gives (which go on, their next state); elements that
    are not `active`, or do not go on any more, keep theirs."""
    types = [v.var.type for v in (active, *state)]
    with Builder("more") as builder:
        flags, *_ = [builder.input(type) for type in types]
        cond = builder.build([reduce_or(flags, axes=tuple(range(flags.rank)))])
    with Builder("step") as builder:
        inner = [Value(builder.input(v.var.type)) for v in consts]
        flags, *old = [Value(builder.input(type)) for type in types]
        going, new = step(*inner, *old)
        kept = [where(flags, b, a) for a, b in zip(old, new, strict=True)]
        body = builder.build([v.var for v in (flags & going, *kept)])
    operands = [v.var for v in (*consts, active, *state)]
    results = while_(*operands, cond=cond, body=body, cond_consts=0, body_consts=len(consts))
    return [Value(var) for var in list(results)[1:]]


# -- ops that are such a formula


def written(formula: Callable[..., Value], widen: bool = True) -> tuple[Any, Any]:
    """An op's `evaluate` and `emit` rules, by the Program of a formula. widen: floats of 8 and 16 bits are computed in 32."""

    @functools.lru_cache(maxsize=256)
    def program(types: Types, params: tuple[tuple[str, Any], ...]) -> Program:
        with Builder(formula.__name__.strip("_")) as builder:
            inputs = [builder.input(type) for type in types]
            result = formula(*(Value(wide(var) if widen else var) for var in inputs), **dict(params)).var
            return builder.build([convert(result, dtype=types[-1].dtype) if result.dtype != types[-1].dtype else result])

    def run(*arrays: Array, **params: Any) -> Array:
        types = tuple(type_of(a) for a in arrays)
        with np.errstate(all="ignore"):
            return evaluate(program(types, tuple(sorted(params.items()))), arrays)[0]

    def emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
        return e.program(program(ins, tuple(sorted(params.items()))), operands)

    return run, emit


def wide(var: Var) -> Var:
    """A float of 8 or 16 bits in 32, anything else as it is."""
    narrow = var.dtype.kind not in "iub" and var.dtype.itemsize < 4
    return convert(var, dtype=DTYPES["f32"]) if narrow else var


def infos(x: Value) -> Any:
    """`np.finfo` of a value's dtype."""
    return np.finfo(x.var.dtype)
