"""How jaxlib calls a function of the host's: on a thread of XLA's, or of the caller in the middle of whatever it does."""

from __future__ import annotations

import logging
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.host import HostFunction
from meshjit.core.types import is_inexact
from meshjit.runtime import _jaxlib, client, noting
from meshjit.runtime.array import Array
from meshjit.runtime.contexts import waited_for
from meshjit.runtime.effects import calling
from meshjit.runtime.placing import place
from meshjit.trace import ensure_compile_time_eval
from sharding.named import SingleDeviceSharding

log = logging.getLogger("meshjit")


class Failures:
    """What callbacks of one program on several devices raised. XLA cannot be told: one device would stop, and the others would
    wait for it for ever in their next collective. So the program goes on with numbers that mean nothing, and who waits for it
    raises what is here."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, host: HostFunction, error: BaseException) -> tuple[np.ndarray[Any, Any], ...]:
        """Values instead of the results."""
        self.texts.append(_text(error))
        return tuple([np.full(t.shape, np.nan if is_inexact(t.dtype) else 0, t.dtype) for t in host.results])

    def raise_any(self) -> None:
        """Raise the first, as XLA would; the others are in the log."""
        if self.texts:
            text = self.texts[0]
            self.texts.clear()
            raise _jaxlib.XlaError(text)


def _text(error: BaseException) -> str:
    lines = "".join(traceback.format_exception(error)).rstrip()
    return f"INTERNAL: CpuCallback error calling callback: {lines}"


def as_callback(
    host: HostFunction, ordered: bool, devices: int, failures: Failures | None = None
) -> Callable[..., tuple[Any, ...]]:
    """What jaxlib is given: arrays to arrays. In order, the first of both stands for the token. `devices` run the program.
    What the function raises goes to `failures`, if there are such, else to jaxlib.

    It does not hold the function: Python does not see what jaxlib holds, and could never free a function that holds the program.
    The Executable holds it, and so does what is running (`effects.note_running`)."""
    alive = weakref.ref(host)

    def callback(*arrays: Any) -> tuple[Any, ...]:
        host = alive()
        assert host is not None, "it is running"
        try:
            with noting.host_call(host.name), calling(), waited_for(devices):
                with ensure_compile_time_eval():  # the thread may be in the middle of tracing
                    results = host(arrays[ordered:])
        except BaseException as error:
            log.exception("%s failed", host.name)
            if failures is None:
                raise
            results = failures.note(host, error)
        return (None, *results) if ordered else results

    return callback


def call_now(host: HostFunction, arrays: Sequence[np.ndarray[Any, Any]], wraps: bool) -> tuple[np.ndarray[Any, Any], ...]:
    """The results outside of any program. `wraps`: what the function raises comes as it does out of a compiled one."""
    try:
        return host(arrays)
    except Exception as error:
        log.exception("%s failed", host.name)
        if not wraps:
            raise
        raise _jaxlib.XlaError(_text(error)) from error


def host_array(array: np.ndarray[Any, Any]) -> Array:
    """A NumPy array, whose memory may be gone after the call, as users are given it: on this process's first CPU device."""
    return place(np.array(array), SingleDeviceSharding(host_device()), committed=False)


def host_device() -> Any:
    return client.local_devices(backend="cpu")[0]
