"""What calls in C++ depend on besides their arguments: the current mesh, the options, and whether a function is being traced.

For C++ all of it is one object per thread, its `call_context`, which is part of what calls are found by there. Equal contexts are
one object, so that comparing them is quick. Each change of a part renews it:

    nothing is traced   one object per mesh and options
    traced              one for all: such calls are Python's

and for each depth of traces, and of blocks of `apart`, another one: a function that calls itself makes another call. In
a callback of a program on several devices it is another one, too, so that Python can refuse what would never end.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

from meshjit.config import config
from meshjit.runtime import _jaxlib
from meshjit.trace.stack import active_trace
from meshjit.trace.thread import depth, on_stack
from sharding import mesh


class _Context:
    """Compared by identity; the text is for people who debug."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def __repr__(self) -> str:
        return f"<context {self.what}>"


_contexts: dict[Any, _Context] = {}


def _context(what: Any) -> _Context:
    context = _contexts.get(what)
    return _contexts.setdefault(what, _Context(what)) if context is None else context


class _Thread(threading.local):
    apart = 0  # how many blocks of `apart` are open
    waited_for = False


_thread = _Thread()


def _renew() -> None:
    what = "traced" if active_trace() else (mesh.mesh_context(), config.context(), config.no_execution)
    _jaxlib.call_context.set_local(_context((what, depth() + _thread.apart, _thread.waited_for)))


def _renew_all() -> None:
    """An option changed for every thread. Those that have a mesh or options of their own keep an outdated context, in which
    nothing may be remembered of earlier calls."""
    _jaxlib.call_context.set_global(_context((((None, None, None), config.global_context(), config.no_execution), 0, False)))
    _renew()


@contextlib.contextmanager
def waited_for(devices: int) -> Generator[None]:
    """In here a program on so many devices waits for this thread, which runs its callback."""
    before, _thread.waited_for = _thread.waited_for, _thread.waited_for or devices > 1
    _renew()
    try:
        yield
    finally:
        _thread.waited_for = before
        _renew()


def is_waited_for() -> bool:
    """Whether a program on several devices waits for this thread. Programs on several devices run one after another (XLA:CPU,
    jaxlib 0.10), whichever devices these are, so another one would not begin before that one has ended."""
    return _thread.waited_for


@contextlib.contextmanager
def apart() -> Generator[None]:
    """In here no call looks like one around it: for functions that run as they are, without being traced."""
    _thread.apart += 1
    _renew()
    try:
        yield
    finally:
        _thread.apart -= 1
        _renew()


_renew_all()
mesh.on_current_mesh.append(_renew)
on_stack.append(_renew)
config.on_using.append(_renew)
config.on_update.append(_renew_all)
