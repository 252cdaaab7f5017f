"""Functions that become bodies of loops, branches and calls are traced once for equal arguments, as in JAX.

What a trace depends on is its key: the function, its arguments, and the context (mesh, options, named axes). JAX stops there.
Here a function that would read other values now than when it was traced is traced again: variables of functions around it,
globals, attributes of objects (`trace/reads.py`), and elements of NumPy arrays, which became constants.

A trace that captured traced values is kept by the function that they belong to, and ends with it; others by the function traced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from meshjit.config import config
from meshjit.core.attached import attached_to
from meshjit.core.ref import Ref
from meshjit.core.region import copied
from meshjit.trace.members import member_sizes
from meshjit.trace.program import Traced
from meshjit.trace.reads import Read, is_current, reads_of
from meshjit.trace.stack import active_traces, note_copies
from meshjit.trace.tracer import Tracer
from sharding.mesh import mesh_context

MOST = 256  # traces that are kept of one function


@dataclass(frozen=True)
class _Entry:
    traced: Traced
    reads: list[Read]

    @property
    def is_current(self) -> bool:
        return all(map(is_current, self.reads)) and all(c.is_current for c in self.traced.copies)


def traced_once(fun: Any, key: Hashable, trace: Callable[[], Traced], share: bool = False) -> Traced:
    """What `trace()` gives, or gave for an equal key, for the same function in the same context: then with Vars of its own; with
    `share` it is the same Program.

    `fun` is the user's function that is traced; `key` all else that the caller's trace depends on."""
    whole = (key, *context_key())
    try:
        hash(whole)
    except Exception:  # of whatever a user's object says instead of a hash
        return trace()
    entry = _look_up(fun, whole)
    if entry is not None:
        note_copies(entry.traced.copies)
        return entry.traced if share else replace(entry.traced, program=copied(entry.traced.program))
    reads = reads_of(fun)
    traced = trace()
    if not traced.by_value:  # what the function changes itself while it is traced, such as a count of its calls, says nothing
        _keep(fun, whole, _Entry(traced, [r for r in reads if is_current(r)]))
    return traced


def context_key() -> tuple[Hashable, ...]:
    """What a function that is traced now can find out beside its arguments and what it reads."""
    return mesh_context(), config.context(), member_sizes()


def _look_up(fun: Any, key: Hashable) -> _Entry | None:
    own = attached_to(fun)
    entry = None if own is None else own.get(_PLACE, {}).get(key)
    if entry is not None and entry.is_current:
        return entry
    entries = (trace.bodies.get((id(fun), key)) for trace in active_traces())
    return next((entry for _, entry in filter(None, entries) if entry.is_current), None)


def _keep(fun: Any, key: Hashable, entry: _Entry) -> None:
    """With the innermost trace whose values were captured; else with the function, if something can hang on that."""
    captured = entry.traced.captured
    owners = {id(x.home if isinstance(x, Ref) else x.tracing) for x in captured if isinstance(x, Tracer | Ref)}
    traces, own = active_traces(), attached_to(fun)
    owner = next((trace for trace in traces if id(trace) in owners), None)
    if owner is None and own is None:
        owner = traces[-1] if traces else None
    if owner is not None:
        owner.bodies[id(fun), key] = fun, entry  # which keeps it alive
    elif own is not None:
        place = own.setdefault(_PLACE, {})
        place.pop(key, None)
        place[key] = entry
        while len(place) > MOST:
            place.pop(next(iter(place)))


_PLACE = "traced"
