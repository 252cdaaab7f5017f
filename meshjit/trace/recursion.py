"""Functions that are traced inside one another, many levels deep: room on Python's stack for them, and an end to it.

Each level takes some eleven frames of ours, so a hundred jitted functions inside one another would reach Python's limit of 1000.
Below the first few levels the limit therefore grows by what is ours; the user's frames count as ever. It is Python's
for all threads, so it is computed from how many such levels there are in all of them. The C stack has no limit that
Python could raise, so the number of levels has one.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import threading
import types

from meshjit.trace.source import is_own

SHALLOW = 16  # levels that need no room of their own: no ordinary program has more
FRAMES = 13  # of ours at each level: 11 where a jitted function calls another, fewer for bodies of loops and branches
MOST_LEVELS = 500  # 4.6 kB of C stack each (measured on x86-64), of 8 MB that a thread has
_REPEATED = 50  # times that a line stands on the stack from which on it is the reason


class _State:
    """How many levels have room, in all threads; the limit before the first of them, and what we set last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.levels = 0
        self.before = self.set = 0


_state = _State()


class Level:
    """One function being traced, `depth` others around it. A context manager; RecursionError where there are too many."""

    __slots__ = ("needs_room",)

    def __init__(self, depth: int) -> None:
        if depth >= MOST_LEVELS:
            raise RecursionError(f"{depth} functions are traced inside one another")
        self.needs_room = depth >= SHALLOW

    def __enter__(self) -> None:
        if self.needs_room:
            _change(1)

    def __exit__(self, *exc: object) -> None:
        if self.needs_room:
            _change(-1)


def _change(levels: int) -> None:
    """A limit that somebody else sets meanwhile is left alone. One that is too low for where we are is set at the next end."""
    with _state.lock:
        if _state.levels == 0:
            _state.before = _state.set = sys.getrecursionlimit()
        _state.levels += levels
        if sys.getrecursionlimit() == _state.set:
            limit = _state.before + FRAMES * _state.levels
            with contextlib.suppress(RecursionError):
                sys.setrecursionlimit(limit)
                _state.set = limit


def explained(error: RecursionError, name: str) -> RecursionError:
    """The same for people, where lines of the user's stand on the stack again and again; else the error itself."""
    line, count = _most_repeated(error.__traceback__)
    if count < _REPEATED:
        return error
    return RecursionError(
        f"tracing {name}: a function calls itself without end, or too many are traced inside one another\n"
        f"  at {line}, {count} times inside of itself\n"
        "  tracing runs each function once, whatever arrays hold, so a recursion that an array's value ends does not end\n"
        "  fix: lax.while_loop, lax.fori_loop or lax.scan; or let a Python number end it (a static argument, x.ndim)"
    )


def _most_repeated(traceback: types.TracebackType | None) -> tuple[str, int]:
    """The user's line that occurs most often in a traceback, as messages name it, and how often."""
    counts: collections.Counter[tuple[types.CodeType, int]] = collections.Counter()
    while traceback is not None:
        if not is_own(traceback.tb_frame.f_code):
            counts[traceback.tb_frame.f_code, traceback.tb_lineno] += 1
        traceback = traceback.tb_next
    for (code, line), count in counts.most_common(1):
        return f"{os.path.basename(code.co_filename)}:{line} ({code.co_qualname})", count
    return "", 0
