"""jaxlib's guards: whether arrays may move between host and devices without being asked to, per thread."""

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
    for direction in directions:
        setattr(state, direction, getattr(_guards.TransferGuardLevel, level.upper()))
    try:
        yield
    finally:
        for direction, outer in before.items():
            setattr(state, direction, outer)


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
