"""Python's search for garbage in cycles, done rarely while Programs are made.

Tracing and planning make very many small objects that stay. Every 700 of them Python looks whether any have become
garbage, and now and then goes through everything that is loaded, which finds nothing and takes a sixth of the time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

OBJECTS: Final = 1_000_000  # made and not freed until Python looks: some 100 MB

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _State:
    """How many calls are under way, in all threads, and the thresholds from before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.before: tuple[int, int, int] = (0, 0, 0)


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
            gc.set_threshold(*_state.before)
