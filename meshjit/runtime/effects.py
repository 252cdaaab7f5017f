"""What runs of programs with effects leave behind: the token that the next ordered effect waits for, and what is still running.

A program that calls functions of the host's runs through Python (`Executable`), one without never gets here. Tokens belong to
a thread: what one thread does in order has no order with what others do. `meshjit.effects_barrier` waits for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from meshjit.runtime import _jaxlib

MOST_RUNNING: Final = 256  # runs that nobody has waited for; from then on a new one waits for the oldest


class _Tokens(threading.local):
    def __init__(self) -> None:
        self.row: tuple[Any, ...] = ()
        self.handle: Any = None
        self.calling = 0  # functions of the host's that this thread is in, for a program that waits for them


_tokens = _Tokens()
_lock = threading.Lock()
_running: deque[tuple[Any, Any]] = deque()
_failures: list[Exception] = []


@contextlib.contextmanager
def calling() -> Generator[None, None, None]:
    """Inside, this thread is in a function that a program calls."""
    _tokens.calling += 1
    try:
        yield
    finally:
        _tokens.calling -= 1


def token_for(row: tuple[Any, ...]) -> Any:
    """The handle that a program with ordered effects on these devices is given. Effects on other devices are over by then;
    one that failed holds up nothing."""
    if _tokens.handle is not None and (_tokens.row != row or _jaxlib.is_ready(_tokens.handle)):
        with contextlib.suppress(_jaxlib.XlaError):  # its run says so, to `barrier`
            _jaxlib.block(_tokens.handle)
        _tokens.handle = None
    if _tokens.handle is None:
        _tokens.row, _tokens.handle = row, _jaxlib.new_token(row)
    return _tokens.handle


def run_in_order(run: Callable[[Sequence[Any]], list[Any]], row: tuple[Any, ...], arguments: Sequence[Any]) -> list[Any]:
    """Run a program with ordered effects after those that this thread ran before."""
    _tokens.handle, *results = run([token_for(row), *arguments])
    return results


def note_running(functions: Any, raise_any: Callable[[], None] | None, waits: bool, run: Any) -> None:
    """Something with effects was started: the functions that it may call, which stay alive until somebody has waited for it, and
    jaxlib's token of the run, which is ready when it has ended. Then `raise_any` raises what went wrong in these functions.

    `waits`: that is now, because what the functions gave is in the results."""
    if waits:
        run.block_until_ready()
        if raise_any is not None:
            raise_any()
        return
    run = run if raise_any is None else _Checked(run, raise_any)
    with _lock:
        _running.append((functions, run))
        oldest = _running.popleft() if len(_running) > MOST_RUNNING and not _tokens.calling else None
    if oldest is not None:
        _wait(oldest[1])


class _Checked:
    """A run, whose end says what went wrong in its callbacks."""

    def __init__(self, run: Any, raise_any: Callable[[], None]) -> None:
        self.run, self.raise_any = run, raise_any

    def block_until_ready(self) -> None:
        self.run.block_until_ready()
        self.raise_any()


def _wait(run: Any) -> None:
    try:
        run.block_until_ready()
    except _jaxlib.XlaError as error:
        _failures.append(error)


def barrier() -> None:
    """Wait until all effects of programs that were called so far have happened (`jax.effects_barrier`). Raises the first
    failure among them. RuntimeError inside of a callback, whose own program would have to be over."""
    if _tokens.calling:
        raise RuntimeError(
            "effects_barrier: called inside of a callback, whose own program it would wait for\n"
            "  fix: call it behind the function that makes the callback"
        )
    while True:
        with _lock:
            run = _running.popleft() if _running else None
        if run is None:
            break
        _wait(run[1])
    _tokens.row, _tokens.handle = (), None
    if _failures:
        error = _failures[0]
        _failures.clear()
        raise error


atexit.register(barrier)
