"""Python's search for garbage in cycles, done rarely while Programs are made.

Tracing and planning make very many small objects that stay. Every 700 of them Python looks whether any have become
garbage, and now and then goes through everything that is loaded, which finds nothing and takes a sixth of the time.
What was made is then among the old objects, as if Python had looked: a look at it takes another tenth. All that became
old in this way is looked through together, once it is as much as would have been looked through before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

OBJECTS: Final = 1_000_000  # made and not freed until Python looks: some 100 MB
FEW: Final = 10_000  # objects that Python looks through in no time

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _State:
    """How many calls are under way, in all threads, and the thresholds from before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.before: tuple[int, int, int] = (0, 0, 0)
        self.aged = 0  # objects that became old without a look at them


_state = _State()


def rarely_collected(run: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, while whose calls run Python looks for garbage only where many objects were made.

    Thresholds that are higher, or that somebody sets meanwhile, are left alone.
    """

    @wraps(run)
    def running(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _enter()
        try:
            return run(*args, **kwargs)
        finally:
            _leave()

    return running


def _enter() -> None:
    with _state.lock:
        _state.running += 1
        if _state.running == 1:
            _state.before = gc.get_threshold()
            if 0 < _state.before[0] < OBJECTS:
                gc.set_threshold(OBJECTS, *_state.before[1:])


def _leave() -> None:
    with _state.lock:
        _state.running -= 1
        if _state.running == 0 and gc.get_threshold() == (OBJECTS, *_state.before[1:]):
            _age()
            gc.set_threshold(*_state.before)


def _age() -> None:
    """Put what is young among the old objects. Where a program has frozen objects of its own they stay frozen."""
    young = gc.get_count()[0]
    if young < FEW or not gc.isenabled() or gc.get_freeze_count():
        return
    gc.freeze()
    gc.unfreeze()
    _state.aged += young
    if _state.aged > OBJECTS:
        _state.aged = 0
        gc.collect()
