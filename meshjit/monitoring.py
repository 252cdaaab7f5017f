"""Events for those who watch what a program's libraries do (`jax.monitoring`): who listens is called for each, in this thread.

meshjit records how long it traces, plans and compiles, under the names of JAX's events of the same stages, with `fun_name`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from meshjit.missing import explain as _explain

TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"

__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span", "record_scalar",
    "register_event_duration_secs_listener", "register_event_listener", "register_event_time_span_listener",
    "register_scalar_listener", "unregister_event_duration_listener", "unregister_event_listener",
    "unregister_event_time_span_listener", "unregister_scalar_listener",
]  # fmt: skip

Listener = Callable[..., Any]


class _Listeners:
    """Who listens to one kind of event, in the order in which they came."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.all: tuple[Listener, ...] = ()

    def add(self, callback: Listener) -> None:
        with self.lock:
            self.all = (*self.all, callback)

    def remove(self, callback: Listener) -> None:
        """ValueError for one that does not listen."""
        with self.lock:
            if callback not in self.all:
                raise ValueError(f"{callback} does not listen to these events")
            left = list(self.all)
            left.remove(callback)
            self.all = tuple(left)

    def tell(self, event: str, *values: float, **kwargs: str | int) -> None:
        for listener in self.all:
            listener(event, *values, **kwargs)

    def clear(self) -> None:
        with self.lock:
            self.all = ()


_events, _durations, _spans, _scalars = _Listeners(), _Listeners(), _Listeners(), _Listeners()


def record_event(event: str, **kwargs: str | int) -> None:
    """Tell those who listen that something has happened; `kwargs` say more."""
    _events.tell(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tell those who listen to durations how many seconds something took."""
    _durations.tell(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Tell those who listen to spans from when to when something took place, in seconds since 1970."""
    _spans.tell(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Tell those who listen to scalars a number."""
    _scalars.tell(event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Call `callback(event, **kwargs)` for each event from now on."""
    _events.add(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call `callback(event, seconds, **kwargs)` for each duration from now on."""
    _durations.add(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call `callback(event, start, end, **kwargs)` for each span from now on."""
    _spans.add(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call `callback(event, value, **kwargs)` for each number from now on."""
    _scalars.add(callback)


def unregister_event_listener(callback: Listener) -> None:
    """ValueError for one that does not listen."""
    _events.remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """ValueError for one that does not listen."""
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """ValueError for one that does not listen."""
    _spans.remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """ValueError for one that does not listen."""
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Nobody listens to anything any more."""
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()


def record_stage(event: str, seconds: float, function: str) -> None:
    """That a stage of `function` has just ended: as a duration, and as a span."""
    if _durations.all or _spans.all:
        now = time.time()
        record_event_duration_secs(event, seconds, fun_name=function)
        record_event_time_span(event, now - seconds, now, fun_name=function)


_explain(__name__)
