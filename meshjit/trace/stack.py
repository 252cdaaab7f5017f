"""The stack of traces of each thread, and `bind`: the one door through which functions of arrays apply ops.

While a trace is active every op is staged, also one without traced operands (`trace/tracing.py`). Without a trace the op runs at
once, through the evaluator that the runtime installed (`trace/evaluators.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from meshjit.core.op import Op
from meshjit.core.program import Program
from meshjit.core.ref import Ref
from meshjit.core.stored import types_in_wider
from meshjit.core.varying import Axes
from meshjit.trace.concrete import Copy, Value, type_and_weak
from meshjit.trace.evaluators import run_op, run_program
from meshjit.trace.explicit import brought
from meshjit.trace.outlived import array_of
from meshjit.trace.refs import resolved
from meshjit.trace.source import user_source
from meshjit.trace.thread import active, traces
from meshjit.trace.tracer import Tracer
from meshjit.trace.tracing import Trace, located
from sharding.named import NamedSharding


def active_trace() -> Trace | None:
    """The innermost trace of this thread, or None when ops run at once."""
    stack = traces.stack
    return stack[-1] if stack else None


def active_traces() -> list[Trace]:
    """Those of this thread, the innermost first."""
    return [trace for trace in reversed(traces.stack) if trace is not None]


def note_copies(copies: Sequence[Copy]) -> None:
    """Tell the active trace that what it uses of another has constants made of these arrays."""
    trace = active_trace()
    if trace is not None:
        trace.copies.extend(copies)


def array_paths() -> Mapping[int, str]:
    """Paths by id of the arrays that reach the function which is being traced as they are (see `Trace.paths`)."""
    trace = active_trace()
    return trace.paths if trace is not None else {}


def vary(value: Value, axes: Axes) -> Value:
    """The value, taken to vary over these axes, too, where it is known which values vary."""
    trace = active_trace()
    if not axes or trace is None or trace.varying is None:
        return value
    return trace.agreeing([trace.lift(value)], axes)[0]


@contextlib.contextmanager
def ensure_compile_time_eval() -> Generator[None, None, None]:
    """Inside, ops on concrete values run at once, also while a function is traced (`jax.ensure_compile_time_eval`).

    Ops on traced values are staged as ever."""
    with active(None):
        yield


def trace_for(values: Iterable[Value]) -> Trace | None:
    """The trace that stages an op on these values: the active one; inside ensure_compile_time_eval only if one is traced."""
    stack = traces.stack
    if not stack or stack[-1] is not None:
        return stack[-1] if stack else None
    if any(isinstance(x, Tracer) for x in values):
        return next((trace for trace in reversed(stack) if trace is not None), None)
    return None


@contextlib.contextmanager
def staging(values: Iterable[Value]) -> Generator[Trace | None, None, None]:
    """Makes `trace_for(values)` the active trace."""
    trace = trace_for(values)
    with active(trace) if trace is not None else contextlib.nullcontext():
        yield trace


def require_mesh(mesh: Any) -> None:
    """Record on the active trace, if there is one, that the function needs this mesh."""
    trace = active_trace()
    if trace is not None:
        trace.require_mesh(mesh)


def bind(op: Op, *operands: Value, weak_type: bool | None = None, **params: Any) -> Any:
    """Apply an op: staged by the active trace, or run at once. One result comes bare, several as a tuple.

    Operands must already agree in dtype and shape as the op's type rule asks; promotion and broadcasting are the
    business of `meshjit.numpy`. A TypeError of the type rule names the user's line.
    """
    trace = active_trace() or trace_for(operands)
    if trace is not None:
        outputs: Sequence[Value] = trace.emit(op, operands, params, weak_type)
    else:
        outputs = _eager(op, operands, params, weak_type)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def bind_program(
    program: Program,
    operands: Sequence[Value],
    weak: Sequence[bool] | None = None,
    mesh: Any = None,
    shardings: Sequence[NamedSharding | None] | None = None,
) -> list[Value]:
    """Apply a whole Program: its equations are inlined into the active trace, or it runs at once.

    `mesh`: whose axes its constraints name, if it has any. `shardings`: where the types of its results have to say that they
    are, None for one that its operands' placements decide."""
    if shardings is not None:
        program = brought(program, operands, shardings, mesh)
    flags = [False] * len(program.outputs) if weak is None else list(weak)
    trace = active_trace() or trace_for(operands)
    if trace is not None:
        return list(trace.inline(trace.translated(program, mesh), operands, flags))
    if Ref.made:
        operands = resolved(operands)
    return list(run_program(program, _arrays(operands), flags, mesh))


def _eager(op: Op, operands: Sequence[Value], params: Mapping[str, Any], weak: bool | None) -> Sequence[Value]:
    operands = _arrays(operands)
    infos = [type_and_weak(x) for x in operands]
    for value, info in zip(operands, infos, strict=True):
        if info is None:
            raise TypeError(f"{type(value).__name__} is not an array: {value!r}")
    types = tuple(info[0] for info in infos if info is not None)
    try:
        outputs = op.type_rule(types, params)
    except TypeError as error:
        outputs = types_in_wider(op, types, params)
        if outputs is None:
            raise located(error, user_source()) from None
    if weak is None:
        weak = bool(infos) and all(info[1] for info in infos if info) and outputs[0].dtype == types[0].dtype
    return run_op(op, operands, params, weak)


def _arrays(operands: Sequence[Value]) -> Sequence[Value]:
    return [array_of(x) if isinstance(x, Tracer) else x for x in operands]
