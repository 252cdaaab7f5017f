"""Where the threads of this process are, as far as that is the user's code."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import FrameType

import launch
from meshjit.trace.source import is_own

_LIBRARIES = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_LAUNCH = os.path.join(os.path.dirname(os.path.abspath(launch.__file__)), "")
_MOST_FRAMES = 12


def main_line() -> str:
    """`train.py:31 in step`: the line of the user's that the main thread is in; "" where there is none."""
    frame = next(_user_frames(sys._current_frames().get(threading.main_thread().ident or 0)), None)
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


def stacks() -> str:
    """The frames of every thread that runs code of the user's, innermost last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != threading.main_thread().ident):
        own = list(_user_frames(frame))[:_MOST_FRAMES][::-1]
        if own:
            name = names.get(ident, "?")
            lines += [f"  thread {name}:"] if name != "MainThread" else []
            lines += [_line(each) for each in own]
    return "\n".join(lines) or "  (no line of the user's)"


def _line(frame: FrameType) -> str:
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"  {os.path.basename(path)}:{number} in {frame.f_code.co_name}: {linecache.getline(path, number).strip()}"


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost outwards, without frames of ours and of libraries."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_own(frame.f_code) and not path.startswith((*_LIBRARIES, _LAUNCH, "<")):
            yield frame
        frame = frame.f_back
