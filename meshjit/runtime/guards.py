"""Options whose effect is elsewhere: jaxlib's guards, and the level of the logger "meshjit"."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from meshjit.config import config
from meshjit.runtime import _jaxlib

_LOGGER, _HANDLER = logging.getLogger("meshjit"), logging.StreamHandler(sys.stderr)
_HANDLER.setFormatter(logging.Formatter("{levelname}:{asctime}:{name}:{lineno}: {message}", style="{"))

# How the value of an option takes effect: `effect(value, everywhere)`, or in this thread alone. Later ones go over earlier ones.
_EFFECTS: Mapping[str, Callable[[Any, bool], None]] = {
    "transfer_guard": functools.partial(_jaxlib.guard_moves, _jaxlib.DIRECTIONS),
    **{f"transfer_guard_{d}": functools.partial(_jaxlib.guard_moves, (d,)) for d in _jaxlib.DIRECTIONS},
    "array_garbage_collection_guard": _jaxlib.guard_collection,
    "thread_guard": lambda value, everywhere: _jaxlib.guard_threads(bool(value)),
    "logging_level": lambda value, everywhere: _log_from(value),
}


def _log_from(level: str | None) -> None:
    _LOGGER.removeHandler(_HANDLER)
    _LOGGER.setLevel(level or "NOTSET")
    if level not in (None, "NOTSET"):
        _LOGGER.addHandler(_HANDLER)


class _Taken(threading.local):
    """The values that have taken effect in this thread alone."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}


_here = _Taken()
_everywhere: dict[str, Any] = {"thread_guard": False}


def _take_here() -> None:
    own = config.of_thread()
    for name, effect in _EFFECTS.items():
        if own.get(name) != _here.values.get(name):
            _here.values[name] = own.get(name)
            effect(own.get(name), False)


def _take_everywhere() -> None:
    values = {name: config.of_all_threads(name) for name in _EFFECTS}
    for name, effect in _EFFECTS.items():
        if values[name] != _everywhere.get(name):
            _everywhere[name] = values[name]
            effect(values[name], True)


def begin() -> None:
    """Let these options take effect: now what the environment says, and then whenever one changes."""
    _take_everywhere()
    config.on_update.append(_take_everywhere)
    config.on_using.append(_take_here)
