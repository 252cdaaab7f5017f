"""jaxlib's guards: of moves between host and devices, of arrays that the garbage collector lets go, of threads."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

_guards = _jax.guard_lib
DIRECTIONS = ("host_to_device", "device_to_device", "device_to_host")
LEVELS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")


@contextlib.contextmanager
def guarding(directions: Sequence[str], level: str) -> Generator[None]:
    """Inside, in this thread, moves in these directions are allowed, logged or refused."""
    state = _guards.thread_local_state()
    before = {direction: getattr(state, direction) for direction in directions}
    guard_moves(directions, level)
    try:
        yield
    finally:
        for direction, outer in before.items():
            setattr(state, direction, outer)


def guard_moves(directions: Sequence[str], level: str | None, everywhere: bool = False) -> None:
    """From now on, in this thread or everywhere, such moves are allowed, logged or refused; None: as if nobody had said it."""
    state = _guards.global_state() if everywhere else _guards.thread_local_state()
    for direction in directions:
        setattr(state, direction, None if level is None else getattr(_guards.TransferGuardLevel, level.upper()))


def guard_collection(level: str | None, everywhere: bool = False) -> None:
    """From now on, arrays that the garbage collector lets go are "allow", "log" or "fatal"; None: as if nobody had said it."""
    state = _guards.global_state() if everywhere else _guards.thread_local_state()
    state.garbage_collect_array = None if level is None else getattr(_guards.GarbageCollectionGuardLevel, level.upper())


def guard_threads(is_on: bool) -> None:
    """From now on, only this thread may run programs of several processes; or every thread again."""
    _guards.update_thread_guard_global_state(is_on)


@contextlib.contextmanager
def asked_for(is_put: bool) -> Generator[None]:
    """Inside, in this thread, moves to devices (or, not is_put, to the host) are what the user asks for."""
    state, name = _guards.thread_local_state(), "explicit_device_put" if is_put else "explicit_device_get"
    before = getattr(state, name)
    setattr(state, name, True)
    try:
        yield
    finally:
        setattr(state, name, before)
