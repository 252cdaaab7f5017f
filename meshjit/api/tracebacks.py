"""Tracebacks without our own frames: what users want to see of an error is their own lines and its message.

`config.traceback_filtering`: "off" shows all; "tracebackhide" marks our frames for IPython and pytest; the others drop
them. A failure that is not meant for users (an AssertionError, a KeyError deep inside) keeps every frame.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from meshjit.config import config
from meshjit.errors import InternalError
from meshjit.trace.source import is_own

_BUGS = (AssertionError, KeyError, AttributeError, IndexError, NameError, ZeroDivisionError, InternalError)


def boundary(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that users call: what it raises comes without our frames."""

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise

    return call


def hide_own_frames(error: BaseException) -> None:
    """Take our frames out of the traceback of an error that is on its way to the user, who must re-raise it bare."""
    if config.traceback_filtering == "off":
        return
    frames = _frames(error.__traceback__)
    if not frames or (isinstance(error, _BUGS) and is_own(frames[-1].tb_frame.f_code)):
        return
    if config.traceback_filtering == "tracebackhide":
        for entry in frames:
            if is_own(entry.tb_frame.f_code):
                entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    kept = [entry for entry in frames if not is_own(entry.tb_frame.f_code)]
    error.__traceback__ = _chained(kept)
    if len(kept) < len(frames) and config.traceback_filtering in ("auto", "remove_frames"):
        _note(error)


def _note(error: BaseException) -> None:
    text = "(frames of meshjit are hidden; MESHJIT_TRACEBACK_FILTERING=off shows them)"
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def _frames(traceback: types.TracebackType | None) -> list[types.TracebackType]:
    frames: list[types.TracebackType] = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    return frames


def _chained(entries: list[types.TracebackType]) -> types.TracebackType | None:
    result: types.TracebackType | None = None
    for entry in reversed(entries):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result
