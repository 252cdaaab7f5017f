"""`jax.extend.core`: ops of a library's own, and which trace is running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshjit.api.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    jaxpr_as_fun as jaxpr_as_fun,
)
from meshjit.as_jax.jax.core import (
    Trace as Trace,
    TraceTag as TraceTag,
    concrete_or_error as concrete_or_error,
    mapped_aval as mapped_aval,
    set_current_trace as set_current_trace,
    take_current_trace as take_current_trace,
    unmapped_aval as unmapped_aval,
    valid_jaxtype as valid_jaxtype,
)
from meshjit.as_jax.jax.extend.core import primitives as primitives
from meshjit.as_jax.jax.interpreters.primitive import Primitive as Primitive
from meshjit.core.program import Var as Var
from meshjit.missing import explain as _explain
from meshjit.trace import active_trace

__all__ = [
    "ClosedJaxpr", "Effect", "Jaxpr", "JaxprEqn", "Literal", "Primitive", "Trace", "TraceTag", "Var", "concrete_or_error",
    "find_top_trace", "get_opaque_trace_state", "jaxpr_as_fun", "mapped_aval", "set_current_trace", "take_current_trace",
    "unmapped_aval", "valid_jaxtype",
]  # fmt: skip


class Effect:
    """The base of effects of a library's own. meshjit's ops have effects of their own (`meshjit.core.effects`)."""


@dataclass(frozen=True, eq=False)
class _TraceState:
    """Which trace is running. Equal while it is the same."""

    trace: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TraceState) and self.trace is other.trace

    def __hash__(self) -> int:
        return id(self.trace)


def get_opaque_trace_state(convention: str | None = None) -> _TraceState:
    """Something that is equal as long as the same function is traced; libraries ask whether an object is of this trace."""
    return _TraceState(active_trace())


def find_top_trace(xs: Any) -> Any:
    """The trace that is running: a value is its own where `x._trace.main` is the trace's `main`."""
    return active_trace()


_explain(__name__)
