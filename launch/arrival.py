"""Waits for this host's processes where MPI is to bring them together: MPI_Init waits for ever, and says nothing meanwhile.

Each process that comes makes a mark (`launch/mark.py`), which goes with it. Who waits
looks whose are missing, and whether those processes still run. Other hosts' processes do the same there; should one of them not
come, MPI_Init is ended at the timeout.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from launch import fate
from launch.cluster import Cluster
from launch.mark import HAS_MARKS, hold, is_held
from launch.rendezvous import RendezvousError
from launch.roll_call import name_processes

_NOTICE_SECONDS = 5.0
_LOOK_SECONDS = 0.5  # between two looks whether a process that has not come still runs
_GONE_LOOKS = 3  # in a row at which it does not: it may just be about to
_STOPPED_LOOKS = 11  # in a row at which it is stopped: somebody may have stopped it for a moment
_FIX = "  fix: look at what that process said last, and whether every process uses meshjit's devices"


@contextlib.contextmanager
def arrival(cluster: Cluster, timeout: float) -> Generator[None]:
    """Once all processes of this host have come, what makes them wait for one another may run inside.

    Raises RendezvousError where one does not come within `timeout` seconds, or has ended before."""
    end = time.monotonic() + timeout
    variable = next((fact.partition("=")[0] for fact in cluster.evidence if _LOCAL_RANK.match(fact)), "")
    if not HAS_MARKS or not variable:
        yield
        return
    neighbours = _Neighbours(cluster, variable)
    with neighbours.held or contextlib.nullcontext():
        neighbours.wait(timeout)
        faulthandler.dump_traceback_later(max(1.0, end - time.monotonic()), exit=True)  # MPI_Init keeps Python's lock
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


class _Neighbours:
    """The processes that one launcher has started on this host."""

    def __init__(self, cluster: Cluster, variable: str) -> None:
        self.cluster, self.variable, self.launcher = cluster, variable, _launcher(variable)
        self.held = hold(self._mark(cluster.local_rank))  # None where another says that it is this one: MPI will say so
        self.looked_at, self.gone_looks, self.stopped_looks = 0.0, 0, 0

    def _mark(self, local_rank: int) -> str:
        return f"{self.launcher}/{os.geteuid()}/{local_rank}"

    def wait(self, timeout: float) -> None:
        start, notice, pause = time.monotonic(), _NOTICE_SECONDS, 0.001
        while absent := [rank for rank in range(self.cluster.local_size) if not is_held(self._mark(rank))]:
            waited = time.monotonic() - start
            if time.monotonic() >= self.looked_at + _LOOK_SECONDS:
                self._look(absent)
            if waited > timeout:
                why = f"{self._name(absent)} did not come within {timeout:g} s"
                self._say(why)  # before mpirun ends this process, too
                self._kill(absent)  # mpirun would wait for who is stopped or stuck
                raise RendezvousError(f"{why}\n{_FIX}")
            if waited > notice:
                notice = float("inf")
                self._say(f"waits for {self._name(absent)}")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _look(self, absent: Sequence[int]) -> None:
        """Raises RendezvousError for who, at several looks, neither has come nor runs."""
        self.looked_at = time.monotonic()
        running = {rank: _running(self.variable, rank, self.launcher) for rank in absent}
        gone = [rank for rank, pids in running.items() if not pids]
        stopped = [rank for rank, pids in running.items() if pids and all(map(_is_stopped, pids))]
        self.gone_looks = self.gone_looks + 1 if gone else 0
        self.stopped_looks = self.stopped_looks + 1 if stopped else 0
        if self.gone_looks >= _GONE_LOOKS:
            raise RendezvousError(f"{self._name(gone)} has ended before it came to the others\n{_FIX}")
        if self.stopped_looks >= _STOPPED_LOOKS:
            why = f"{self._name(stopped)} is stopped (SIGSTOP, or a debugger)"
            self._say(why)  # as below
            self._kill(stopped)
            raise RendezvousError(f"{why}\n{_FIX}")

    def _kill(self, absent: Sequence[int]) -> None:
        for pid in (pid for rank in absent for pid in _running(self.variable, rank, self.launcher)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _say(self, text: str) -> None:
        print(f"[rank {self.cluster.rank}] {text}", file=sys.stderr, flush=True)

    def _name(self, local_ranks: Sequence[int]) -> str:
        if self.cluster.local_size == self.cluster.size:
            return f"{name_processes(local_ranks)} of {self.cluster.size} (host {socket.gethostname()})"
        return f"{name_processes(local_ranks)} of the {self.cluster.local_size} on host {socket.gethostname()}"


_LOCAL_RANK = re.compile(r"(MPI_LOCALRANKID|\w*_LOCAL_RANK)=")


def _launcher(variable: str) -> int:
    """The nearest ancestor that was not told a local rank: what has started this process and its neighbours."""
    pid = os.getpid()
    while pid > 1 and _told(pid, variable) is not None:
        pid = _parent(pid)
    return pid


def _running(variable: str, local_rank: int, launcher: int) -> list[int]:
    """The processes that this launcher has told that they are this one."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _told(pid, variable) == str(local_rank) and _is_below(pid, launcher)]


def _is_stopped(pid: int) -> bool:
    return fate.is_stopped(pid, fate.start_time(pid))


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = _parent(pid)
    return pid == ancestor


def _told(pid: int, variable: str) -> str | None:
    """What a process that has not ended was told in its environment."""
    with contextlib.suppress(OSError):
        start = f"{variable}=".encode()
        facts = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((fact[len(start) :].decode() for fact in facts if fact.startswith(start)), None)
    return None


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
