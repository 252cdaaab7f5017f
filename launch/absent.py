"""Who keeps a job's processes from meeting, as their launcher sees it: one that has left without an error, or that was stopped.

The others would wait for it until their timeout. Once all have met, the watchdog looks (`meshjit/runtime/watchdog.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from launch import fate
from launch.child import Child
from launch.mark import is_waiting

_LOOK_SECONDS = 0.5
_LEFT_SECONDS = 2.0  # that the others still wait for one that has left: they may have met, and be about to go on
_STOPPED_SECONDS = 5.0  # somebody may have stopped it for a moment


class Absent:
    """Looks now and then. `token` and `address` are where the processes meet, as `rendezvous.meeting_at` says it."""

    def __init__(self, children: Sequence[Child], token: bytes, address: str) -> None:
        self.children, self.token, self.address = children, token, address
        self.began = {child.rank: fate.start_time(child.pid) for child in children if not child.is_far}
        self.looked_at = 0.0
        self.stopped_since: dict[int, float] = {}

    def look(self) -> tuple[Child, str] | None:
        """(who keeps the others waiting, what it has done). None where nobody does, or has not for long."""
        now = time.monotonic()
        if now < self.looked_at + _LOOK_SECONDS:
            return None
        self.looked_at = now
        away = {child.rank: (child, words) for child in self.children if (words := self._words(child, now))}
        if not away:
            return None
        waiting = [c.rank for c in self.children if c.status is None and is_waiting(self.token, self.address, c.rank)]
        return next((absence for rank, absence in away.items() if any(other != rank for other in waiting)), None)

    def _words(self, child: Child, now: float) -> str:
        if child.status == 0:
            return "has left with exit code 0" if now > child.ended_at + _LEFT_SECONDS else ""
        if child.status is not None or child.is_far or not fate.is_stopped(child.pid, self.began[child.rank]):
            self.stopped_since.pop(child.rank, None)
            return ""
        since = self.stopped_since.setdefault(child.rank, now)
        return f"is stopped (SIGSTOP, or a debugger) for {now - since:.0f} s" if now > since + _STOPPED_SECONDS else ""
