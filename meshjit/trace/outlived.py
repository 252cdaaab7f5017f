"""What Python keeps of a function under vmap or grad when its trace has ended: a mask that a layer made, in an attribute, say.

JAX runs such a function as it is, so what it computes of constants and of values around it are arrays, or Tracers of what is
traced around it, and stay usable. Here they are Tracers of the function's own trace. Used later, one outside of all traces
becomes an array; inside of another trace the equations that it depends on are written again. What depends on an argument of the
function has no such meaning, and is an error there as in JAX.
"""

from __future__ import annotations

from typing import Any

from meshjit.core.effects import is_pure
from meshjit.core.op import REGISTRY
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.ref import Ref
from meshjit.trace.evaluators import run_op
from meshjit.trace.thread import active, traces
from meshjit.trace.tracer import Tracer, leaked

Value = Any
Trace = Any  # of trace/tracing.py, which reads this file


def is_usable(tracer: Tracer) -> bool:
    """Whether its trace is one of those that run here."""
    return not tracer.tracing.ended and tracer.tracing in traces.stack


def array_of(tracer: Tracer) -> Value:
    """A value that outlived its trace as an array; UnexpectedTracerError where it is none."""
    array = kept_array(tracer)
    if array is None:
        raise leaked(tracer)
    return array


def kept_array(tracer: Tracer) -> Value | None:
    """The same; None where it is none."""
    trace, var = tracer.tracing, tracer.variable
    if not trace.ended or trace.values is None:
        return None
    arrays = trace.values.outlived
    if var not in arrays:
        value = None if trace.is_differentiated(var) else trace.value(var)
        if value is None:
            return None
        with active(None):
            (arrays[var],) = run_op(REGISTRY["convert"], [value], {"dtype": tracer.dtype}, tracer.weak_type)
    return arrays[var]


def as_array(x: Value) -> Value:
    """Anything; what outlived its trace as an array."""
    return array_of(x) if isinstance(x, Tracer) and not is_usable(x) else x


def lifted(trace: Trace, tracer: Tracer) -> Tracer:
    """A value that outlived its own trace, in `trace`; UnexpectedTracerError where it depends on what has ended."""
    array = kept_array(tracer)
    if array is not None:
        return trace.lift(array)
    part = _part_of(tracer)
    if part is None:
        raise leaked(tracer)
    program, operands = part
    (result,) = trace.inline(program, operands, [tracer.weak_type])
    trace.stand_ins[id(tracer)] = (tracer, result)
    return result


def outlives(tracer: Tracer) -> bool:
    """Whether it can be used although its trace has ended."""
    if kept_array(tracer) is not None:
        return True
    part = _part_of(tracer)
    return part is not None and all(is_usable(x) or outlives(x) for x in part[1] if isinstance(x, Tracer))


def _part_of(tracer: Tracer) -> tuple[Program, list[Value]] | None:
    """The equations that it depends on, and what they read from around the function; None where that is an argument or a Ref."""
    trace = tracer.tracing
    if not (trace.ended and trace.transparent):
        return None
    makers = {var: place for place, eqn in enumerate(trace.builder.eqns) for var in eqn.outputs}
    around = {var: value for value, var in trace.captured.values()}
    read: dict[Var, Value] = {}
    places: set[int] = set()
    waiting = [tracer.variable]
    while waiting:
        var = waiting.pop()
        if var in around:
            if type(around[var]) is Ref:  # whose content may be another one by now
                return None
            read[var] = around[var]
        elif var not in makers or not is_pure(trace.builder.eqns[makers[var]]):
            return None
        elif makers[var] not in places:
            places.add(makers[var])
            waiting.extend(trace.builder.eqns[makers[var]].inputs)
    eqns: list[Eqn] = [trace.builder.eqns[place] for place in sorted(places)]
    return Program(trace.name, tuple(read), tuple(eqns), (tracer.variable,)), list(read.values())
