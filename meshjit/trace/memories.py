"""In which memory traced values lie: what `typeof` says of them, and that an op's operands lie in one.

A trace notes it once a value lies elsewhere than in the devices' own memory (`core/memories.py` says what follows); before,
there is no map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from meshjit.core.memories import Memories, check_agree, follow, memory_in, says_memory
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Source, Var
from meshjit.trace.source import line_of
from meshjit.trace.tracer import Tracer
from sharding.memory import DEVICE, HOST, memory_of


class Trace(Protocol):
    """What is asked of a trace here."""

    builder: Builder
    memories: dict[Var, Memories] | None


def memory_in_type(value: Any) -> str:
    """The memory that a value lies in."""
    if not isinstance(value, Tracer):
        return memory_of(getattr(value, "sharding", None)) if hasattr(value, "_key") else DEVICE
    memories = value.tracing.memories
    return DEVICE if memories is None else memory_in(memories.get(value.variable, frozenset()))


def behind_memory(trace: Trace, var: Var, memory: str) -> Var:
    """An input that lies in this memory, behind the equation that says so."""
    if memory == DEVICE:
        return var
    _begin(trace)
    (there,) = trace.builder.emit(REGISTRY["in_memory"], [var], {"memory": memory, "source": memory})
    follow(trace.builder.eqns[-1:], _begin(trace))
    return there


def note_memories(trace: Trace, operands: Sequence[Tracer], source: Source | None, described: Callable[[Tracer], str]) -> None:
    """Note where the results of the last equation lie. ValueError where its operands lie in several memories."""
    eqn = trace.builder.eqns[-1]
    if trace.memories is None and not says_memory(eqn):
        return
    facts = _begin(trace)
    memories = [facts.get(v, frozenset({DEVICE})) for v in eqn.inputs]
    if any(HOST in each for each in memories):
        check_agree(eqn, memories, [*map(described, operands)], line_of(source))
    follow(trace.builder.eqns[-1:], facts)


def note_inlined(trace: Trace, first: int) -> None:
    """Note where the values of the equations from number `first` on lie, which a transformation wrote."""
    eqns = trace.builder.eqns[first:]
    if trace.memories is not None:
        follow(eqns, trace.memories)
    elif any(map(says_memory, eqns)):
        _begin(trace)


def _begin(trace: Trace) -> dict[Var, Memories]:
    """The trace's map, of all that it has by now."""
    if trace.memories is None:
        trace.memories = {}
        follow(trace.builder.eqns, trace.memories)
    return trace.memories
