"""How jaxlib calls a function of the host's: on a thread of XLA's, or of the caller in the middle of whatever it does."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.host import HostFunction
from meshjit.runtime import _jaxlib, client
from meshjit.runtime.array import Array
from meshjit.runtime.effects import calling
from meshjit.runtime.placing import place
from meshjit.trace import ensure_compile_time_eval
from sharding.named import SingleDeviceSharding

log = logging.getLogger("meshjit")


def as_callback(host: HostFunction, ordered: bool) -> Callable[..., tuple[Any, ...]]:
    """What jaxlib is given: arrays to arrays. In order, the first of both stands for the token."""

    def callback(*arrays: Any) -> tuple[Any, ...]:
        try:
            with calling(), ensure_compile_time_eval():  # the thread may be in the middle of tracing
                results = host(arrays[ordered:])
        except BaseException:
            log.exception("%s failed", host.name)
            raise
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
        text = "".join(traceback.format_exception(error)).rstrip()
        raise _jaxlib.XlaError(f"INTERNAL: CpuCallback error calling callback: {text}") from error


def host_array(array: np.ndarray[Any, Any]) -> Array:
    """A NumPy array, whose memory may be gone after the call, as users are given it: on this process's first CPU device."""
    return place(np.array(array), SingleDeviceSharding(host_device()), committed=False)


def host_device() -> Any:
    return client.local_devices(backend="cpu")[0]
