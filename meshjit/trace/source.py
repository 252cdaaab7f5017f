"""Which line of the user's code is running: the innermost frame outside of the package's own directories."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import replace
from types import CodeType, FrameType

import sharding
from meshjit.core.program import Source

# Frames of these directories are ours, not the user's.
_OWN = tuple(
    os.path.join(os.path.dirname(os.path.abspath(path)), "")
    for path in (os.path.dirname(os.path.abspath(__file__)), sharding.__file__)
)

# Files and folders of libraries that asked not to be taken for the user's code (`exclude`).
excluded: list[str] = []

# Keyed by id: hashing a code object reads all of its bytecode. The code object is kept, so its id stays its own.
_seen: dict[int, tuple[CodeType, dict[int, Source] | None]] = {}
_LIMIT = 20_000


def user_frame() -> FrameType | None:
    """The innermost frame that is not ours, or None (a thread that only runs our code)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _lines(frame.f_code) is not None:
            return frame
        frame = frame.f_back
    return None


def user_source() -> Source | None:
    """The user's current line. Cached by instruction, so it costs a walk up the stack and two look-ups."""
    frame: FrameType | None = sys._getframe(1)
    seen = _seen
    while frame is not None:
        code = frame.f_code
        entry = seen.get(id(code))
        lines = entry[1] if entry is not None else _lines(code)
        if lines is not None:
            source = lines.get(frame.f_lasti)
            if source is None:
                source = lines[frame.f_lasti] = Source(code.co_filename, frame.f_lineno, code.co_qualname)
            return _scoped(source) if _scopes.names else source
        frame = frame.f_back
    return None


def is_own(code: CodeType) -> bool:
    """Whether the code is ours, not the user's."""
    return _lines(code) is None


def exclude(path: str) -> None:
    """Take the code of this file, or of the folder that the path begins, for ours: messages name the line that calls it."""
    excluded.append(path)
    _seen.clear()


def _lines(code: CodeType) -> dict[int, Source] | None:
    """The lines met so far in this code object by instruction, or None when the code is ours."""
    entry = _seen.get(id(code))
    if entry is None:
        if len(_seen) > _LIMIT:
            _seen.clear()
        entry = _seen[id(code)] = (code, None if code.co_filename.startswith((*_OWN, *excluded)) else {})
    return entry[1]


class named_scope(contextlib.ContextDecorator):  # noqa: N801
    """`with named_scope("attention"):` — ops traced inside carry the name, behind that of their function (`jax.named_scope`).

    Printed Programs, reports, HLO and profiles show it: `train.py:31 block/attention`. Also a decorator. Names nest."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"named_scope: the name must be a string, got {name!r}")
        self.name = name

    def __enter__(self) -> None:
        _scopes.names.append(self.name)

    def __exit__(self, *exc: object) -> None:
        _scopes.names.pop()


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.names: list[str] = []


_scopes = _Scopes()


def _scoped(source: Source) -> Source:
    return replace(source, function="/".join([source.function, *_scopes.names]))


def line_of(source: Source | None) -> str:
    """`train.py:31 (loss)`, as error messages name a line."""
    return f"{os.path.basename(source.file)}:{source.line} ({source.function})" if source is not None else "an unknown line"
