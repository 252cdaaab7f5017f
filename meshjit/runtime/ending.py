"""How a job ends that no MPI holds together: who fails tells the store, the others listen to it."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, NoReturn

from meshjit.runtime import _jaxlib

_FAILED = "meshjit/failed"
_NOBODY = "nobody"
_FAREWELL_SECONDS = 2.0  # for the others to read why
_PARTING_SECONDS = 0.2  # for the last of them to end, once it has said that it will
JUDGED = "for "  # begins a reason that names another process than the one that says it


def failure_of_another(coordinator: Any, rank: int) -> str:
    """`process 1 failed: ValueError: why`, where another process has said so; else ""."""
    try:
        message = _jaxlib.store_list(coordinator, f"{_FAILED}/").get(f"{_FAILED}/first", _NOBODY)
    except _jaxlib.XlaError:
        return ""
    if message == _NOBODY or int(message.split()[0]) == rank:
        return ""
    first, _, reason = message.split(" ", 2)
    return f"process {first} failed: {reason}"


class EndThroughStore:
    """End a job that no MPI holds together: the one that fails tells the store, the others listen to it.

    Process 0 goes last: the store ends with it, and jaxlib aborts a process whose store is gone."""

    def __init__(self, coordinator: Any, rank: int, size: int) -> None:
        self.coordinator, self.rank, self.size = coordinator, rank, size
        self.is_ending = False
        self.listener = threading.Thread(target=self.listen, name="meshjit-failures", daemon=True)

    def __call__(self, code: int, reason: str) -> NoReturn:
        self.is_ending = True
        try:
            _jaxlib.store_set(self.coordinator, f"{_FAILED}/first", f"{self.rank} {code} {reason}")
        except _jaxlib.XlaError:
            pass  # somebody failed before us, or the coordinator is gone; the others will notice that
        self._part(code)

    def leave(self, code: int, reason: str) -> NoReturn:
        """End this process alone, where the store does not answer."""
        os._exit(code)

    def _part(self, code: int) -> NoReturn:
        try:
            if self.rank:
                _jaxlib.store_set(self.coordinator, f"{_FAILED}/ends/{self.rank}", "", overwrite=True)
            else:
                self._wait_for_the_others()
        except _jaxlib.XlaError:
            pass  # the coordinator is gone
        os._exit(code)

    def _wait_for_the_others(self) -> None:
        end = time.monotonic() + _FAREWELL_SECONDS
        while time.monotonic() < end and len(_jaxlib.store_list(self.coordinator, f"{_FAILED}/ends/")) < self.size - 1:
            time.sleep(0.02)
        time.sleep(_PARTING_SECONDS)

    def listen(self) -> None:
        """Wait for another's failure, in a thread."""
        try:
            message = None
            while message is None:
                message = _jaxlib.store_get(self.coordinator, f"{_FAILED}/first", 3600)
            if message == _NOBODY or int(message.split()[0]) == self.rank:
                return
            self.is_ending = True
        except _jaxlib.XlaError:
            return
        rank, code, reason = message.split(" ", 2)
        why = reason[len(JUDGED) :] if reason.startswith(JUDGED) else f"because process {rank} failed: {reason}"
        os.write(2, f"[rank {self.rank}] ends, {why}\n".encode())
        self._part(int(code))

    def stop_listening(self) -> None:
        """All are done: end the thread, which must not be inside jaxlib when Python goes down."""
        _jaxlib.store_set(self.coordinator, f"{_FAILED}/first", _NOBODY, overwrite=True)
        self.listener.join()
