"""`jax.interpreters.ad`: tangents that are zero, and where libraries put derivative rules of their primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit import numpy as mnp
from meshjit.lax.custom_rules import SymbolicZero
from meshjit.missing import explain as _explain
from meshjit.trace import Tracer

primitive_jvps: dict[Any, Any] = {}
primitive_transposes: dict[Any, Any] = {}


class Zero(SymbolicZero):
    """A tangent that is zero, of the type `aval`."""

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        return Zero(SymbolicZero.from_primal_value(value).aval)


class _JVPTracerMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tracer)


class JVPTracer(metaclass=_JVPTracerMeta):
    """A traced value, for isinstance: in a function that is differentiated all are of one kind."""


class UndefinedPrimal:
    """In transpose rules, an operand that the op is linear in: its type `aval` alone is known."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


def is_undefined_primal(x: Any) -> bool:
    return type(x) is UndefinedPrimal


def instantiate_zeros(tangent: Any) -> Any:
    """An array in place of a `Zero`; others are themselves."""
    return mnp.zeros(tangent.aval.shape, tangent.aval.dtype) if isinstance(tangent, SymbolicZero) else tangent


def deflinear(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """A primitive that is linear in its operands, all together; `transpose_rule(cotangent, **params)` gives theirs."""
    deflinear2(primitive, lambda cotangent, *_, **params: transpose_rule(cotangent, **params))


def deflinear2(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """The same, where the rule is given the operands, too: `transpose_rule(cotangent, *operands, **params)`."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        value = primitive.bind(*primals, **params)
        if not all(isinstance(tangent, SymbolicZero) for tangent in tangents):
            return value, primitive.bind(*map(instantiate_zeros, tangents), **params)
        zeros = [Zero.from_primal_value(x) for x in (value if primitive.multiple_results else [value])]
        return value, zeros if primitive.multiple_results else zeros[0]

    def transpose(cotangent: Any, *operands: Any, **params: Any) -> Any:
        if isinstance(cotangent, SymbolicZero):
            return [Zero(x.aval) if is_undefined_primal(x) else None for x in operands]
        return transpose_rule(cotangent, *operands, **params)

    primitive_jvps[primitive], primitive_transposes[primitive] = jvp, transpose


_explain(__name__)
