"""Waits for this host's processes where MPI is to bring them together: MPI_Init waits for ever, and says nothing meanwhile.

Each process that comes holds an address that only it can hold (Linux's abstract sockets: they go with their process). Who waits
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

from launch.cluster import Cluster
from launch.rendezvous import RendezvousError
from launch.roll_call import name_processes

_NOTICE_SECONDS = 5.0
_LOOK_SECONDS = 0.5  # between two looks whether a process that has not come still runs
_GONE_LOOKS = 3  # in a row at which it does not: it may just be about to
_FIX = "  fix: look at what that process said last, and whether every process uses meshjit's devices"


@contextlib.contextmanager
def arrival(cluster: Cluster, timeout: float) -> Generator[None]:
    """Once all processes of this host have come, what makes them wait for one another may run inside.

    Raises RendezvousError where one does not come within `timeout` seconds, or has ended before."""
    end = time.monotonic() + timeout
    variable = next((fact.partition("=")[0] for fact in cluster.evidence if _LOCAL_RANK.match(fact)), "")
    if sys.platform != "linux" or not variable:
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
        self.held = _hold(self._address(cluster.local_rank))
        self.looked_at, self.looks = 0.0, 0

    def _address(self, local_rank: int) -> str:
        return f"\0meshjit/{self.launcher}/{os.geteuid()}/{local_rank}"

    def wait(self, timeout: float) -> None:
        start, notice, pause = time.monotonic(), _NOTICE_SECONDS, 0.001
        while absent := [rank for rank in range(self.cluster.local_size) if not _is_held(self._address(rank))]:
            waited = time.monotonic() - start
            if gone := self._gone(absent):
                raise RendezvousError(f"{self._name(gone)} has ended before it came to the others\n{_FIX}")
            if waited > timeout:
                why = f"{self._name(absent)} did not come within {waited:.0f} s"
                self._say(why)  # before mpirun ends this process, too
                self._kill(absent)  # mpirun would wait for who is stopped or stuck
                raise RendezvousError(f"{why}\n{_FIX}")
            if waited > notice:
                notice = float("inf")
                self._say(f"waits for {self._name(absent)}")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _gone(self, absent: Sequence[int]) -> list[int]:
        """Who neither has come nor runs, at several looks."""
        if time.monotonic() < self.looked_at + _LOOK_SECONDS:
            return []
        self.looked_at = time.monotonic()
        gone = [rank for rank in absent if not _running(self.variable, rank, self.launcher)]
        self.looks = self.looks + 1 if gone else 0
        return gone if self.looks >= _GONE_LOOKS else []

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


def _hold(address: str) -> socket.socket | None:
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(address)
    except OSError:  # another process says that it is this one: MPI will say so
        held.close()
        return None
    return held


def _is_held(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


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
