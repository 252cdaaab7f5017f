"""A step at which all processes stop together once any of them is told to end (SIGTERM), as before a cluster takes machines away.

The first word of it makes each process say at which step it is; while they do, none goes on. The greatest of these, plus one, is
the step at which all save.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

from meshjit.config import config
from meshjit.runtime import _jaxlib
from meshjit.runtime.distributed import Membership, membership

_NOTICE, _STEPS = "meshjit/preempt/notice", "meshjit/preempt/step/"
_POLL_SECONDS = 0.5


class _Preemption:
    """Of one process."""

    def __init__(self, joined: Membership) -> None:
        self.joined = joined
        self.told = threading.Event()
        self.going_on = threading.Lock()  # held while steps are compared
        self.step = -1
        self.stop_at: int | None = None
        if threading.current_thread() is threading.main_thread():
            self.previous: Any = signal.signal(signal.SIGTERM, self._on_signal)
        if joined.coordinator is not None:
            threading.Thread(target=self._listen, name="meshjit-preemption", daemon=True).start()

    def _on_signal(self, number: int, frame: Any) -> None:
        self.told.set()
        if callable(self.previous):
            self.previous(number, frame)

    def _listen(self) -> None:
        try:
            while not self._is_noticed():
                pass
            with self.going_on:
                self.stop_at = self._agree_on_step() + 1
        except (_jaxlib.XlaError, RuntimeError):
            return  # the job has ended

    def _is_noticed(self) -> bool:
        if self.told.wait(_POLL_SECONDS):
            _jaxlib.store_set(self.joined.coordinator, _NOTICE, str(self.joined.process_id), overwrite=True)
            return True
        return bool(_jaxlib.store_list(self.joined.coordinator, "meshjit/preempt/"))

    def _agree_on_step(self) -> int:
        _jaxlib.store_set(self.joined.coordinator, f"{_STEPS}{self.joined.process_id}", str(self.step), overwrite=True)
        end = time.monotonic() + config.agreement_timeout
        while time.monotonic() < end:
            steps = _jaxlib.store_list(self.joined.coordinator, _STEPS)
            if len(steps) == self.joined.num_processes:
                return max(map(int, steps.values()))
            time.sleep(0.02)
        raise RuntimeError("not all processes have said at which step they are")

    def reached(self, step: int) -> bool:
        with self.going_on:
            self.step = max(self.step, step)
        if self.joined.coordinator is None:
            return self.told.is_set()
        return self.stop_at is not None and step >= self.stop_at


_preemption: _Preemption | None = None


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes are to save at this step and end, because one of them was sent SIGTERM. All call it at every step,
    with the step's number; it is then true at the same step on all of them. The first call takes over SIGTERM, which does not
    end the process any more."""
    global _preemption
    if _preemption is None:
        _preemption = _Preemption(membership())
    return _preemption.reached(int(step_id))
