"""Python function → Program: Tracers, the stack of traces, `bind`, source lines."""

from meshjit.trace.concrete import concrete_info, register_concrete, set_put, type_and_weak
from meshjit.trace.evaluators import set_eager
from meshjit.trace.names import function_name
from meshjit.trace.program import Argument, Traced, argument_of, as_operand, trace_to_program
from meshjit.trace.source import line_of, named_scope, user_source
from meshjit.trace.stack import (
    active_trace,
    array_paths,
    bind,
    bind_program,
    ensure_compile_time_eval,
    require_mesh,
    staging,
    trace_for,
    vary,
)
from meshjit.trace.tracer import Tracer
from meshjit.trace.tracing import Trace, varying_of

__all__ = [
    "Argument",
    "Trace",
    "Traced",
    "Tracer",
    "active_trace",
    "argument_of",
    "as_operand",
    "bind",
    "bind_program",
    "concrete_info",
    "ensure_compile_time_eval",
    "function_name",
    "array_paths",
    "line_of",
    "named_scope",
    "register_concrete",
    "require_mesh",
    "set_eager",
    "set_put",
    "staging",
    "trace_for",
    "trace_to_program",
    "type_and_weak",
    "user_source",
    "vary",
    "varying_of",
]
