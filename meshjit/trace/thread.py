"""The stack of traces of each thread, as it is kept: for types and rules of its use see `trace/stack.py`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any


class Traces(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []  # of Trace; None: ensure_compile_time_eval


traces = Traces()  # for code that looks at `.stack` at every call; others ask `active_trace`
on_stack: list[Callable[[], None]] = []  # called in a thread whose stack of traces has another depth now


def push(trace: Any) -> None:
    """`trace` None: ops on concrete values run at once."""
    traces.stack.append(trace)
    for tell in on_stack:
        tell()


def pop() -> None:
    traces.stack.pop()
    for tell in on_stack:
        tell()


def depth() -> int:
    """How many functions are being traced in this thread, one inside of the other."""
    return len(traces.stack)


@contextlib.contextmanager
def active(trace: Any) -> Generator[None, None, None]:
    push(trace)
    try:
        yield
    finally:
        pop()


def innermost() -> Any:
    """The trace that stages ops, or None."""
    stack = traces.stack
    return stack[-1] if stack else None
