"""One process of a job: started in a group of its own, heard at the level of file descriptors, so that C++ is heard, too. One on
another host is the ssh that has gone there (`launch/remote.py`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from launch import fate, remote

LAST_LINES = 20  # that are shown of the process that failed first
_FAR_SECONDS = 3.0  # in which the other host does what it was told
_COLORS = (36, 33, 32, 35, 34, 31)
_PR_SET_PDEATHSIG = 1
_BLAMES = re.compile(r"\] ends, (?:because )?process (\d+)\b")  # as `meshjit/runtime/ending.py` says it


class Child:
    """A running process. `status` is None until it has ended, then as `subprocess.Popen.returncode`."""

    def __init__(
        self, rank: int, command: Sequence[str], environ: Mapping[str, str], log: IO[bytes] | None, host: str = "",
        letter: bytes = b"",
    ) -> None:  # fmt: skip
        """`letter` is what a process on another `host` is told first."""
        self.rank, self.log, self.host, self.is_far = rank, log, host or socket.gethostname(), bool(letter)
        self.process = subprocess.Popen(
            list(command), env=dict(environ), stdin=subprocess.PIPE if letter else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, process_group=0, preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )  # fmt: skip
        self.kill_here_at = float("inf")
        self._write(letter)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.streams = {self.process.stdout.fileno(): 1, self.process.stderr.fileno(): 2}
        self.open = set(self.streams)
        self.parts = dict.fromkeys(self.streams, b"")
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.status: int | None = None
        self.ended_at = 0.0
        for descriptor in self.streams:
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self, descriptor: int) -> list[bytes]:
        """The whole lines that have come; at the end also one without a line feed."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return []
        *lines, self.parts[descriptor] = (self.parts[descriptor] + data).split(b"\n")
        if not data:
            self.open.discard(descriptor)
            lines, self.parts[descriptor] = [line for line in [self.parts[descriptor]] if line], b""
        self.last.extend(line.decode(errors="replace") for line in lines)
        if self.log is not None and lines:
            self.log.write(b"".join(line + b"\n" for line in lines))
            self.log.flush()
        return lines

    def poll(self) -> bool:
        """Whether it has ended just now."""
        if self.status is not None or self.process.poll() is None:
            return False
        status, self.ended_at = self.process.returncode, time.monotonic()
        by_signal = self.is_far and 128 < status < remote.FAR_FAILED  # as a shell says it
        self.status = 128 - status if by_signal else status
        return True

    @property
    def who(self) -> str:
        """Of one on another host only ssh's pid is known."""
        return f"rank {self.rank} (host {self.host}{'' if self.is_far else f', pid {self.pid}'})"

    def _write(self, data: bytes) -> None:
        if self.process.stdin is not None and data:
            try:
                self.process.stdin.write(data)
                self.process.stdin.flush()
            except OSError:
                pass  # ssh has gone

    def send(self, number: int) -> None:
        """A signal to it and all that it has started; ssh itself is killed where the other host does not answer."""
        if self.is_far and time.monotonic() < self.kill_here_at:
            if number == signal.SIGKILL:
                self.kill_here_at = min(self.kill_here_at, time.monotonic() + _FAR_SECONDS)
            return self._write(f"{int(number)}\n".encode())
        self._send_here(number)

    def _send_here(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # gone already

    def close(self) -> None:
        """End what it may have left behind, and hear no more of it."""
        self._send_here(signal.SIGKILL)  # where ssh goes, the far end kills what is left there
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr, self.log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def is_collateral(self) -> bool:
        """Whether it has ended only because another one did."""
        return self.status == -signal.SIGABRT or any("] ends, " in line for line in list(self.last)[-3:])

    def blames(self) -> int | None:
        """The rank of the process for which it says that it ends; None where it says nothing of the kind."""
        blames = [match for line in list(self.last)[-3:] if (match := _BLAMES.search(line))]
        return int(blames[-1][1]) if blames else None

    def fate(self, out_of_memory: bool) -> str:
        assert self.status is not None
        if self.is_far and self.status == remote.FAR_FAILED:
            return f"could not be started, or was lost: ssh left with exit code {self.status}"
        return fate.exit_in_words(self.status, out_of_memory)


def prefixed(rank: int, line: bytes, width: int, colored: bool) -> bytes:
    """`[ 3] line`, in the rank's colour; a line that begins with its rank does so once."""
    line = line.removeprefix(f"[rank {rank}] ".encode())
    label = f"[{rank:>{width}}] "
    return (f"\033[{_COLORS[rank % len(_COLORS)]}m{label}\033[0m" if colored else label).encode() + line + b"\n"


def _die_with_parent() -> None:
    """Linux kills it when the launcher has gone, however it went. (What it has started itself is the guard's.)"""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
