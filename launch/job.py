"""Start a job of several processes, on this host or by ssh on others, and stay with it: `run_job`. Needs no MPI.

What its processes say comes out under their ranks. The first that fails is named last, with what it said last; its exit code is
the job's. Nothing outlives the job: processes run in groups of their own, which are killed at its end, and by `launch/guard.py`
should the launcher itself be killed.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from launch import fate, remote
from launch.absent import Absent
from launch.child import Child, prefixed
from launch.hosts import HostError, Hosts
from launch.rendezvous import job_token

_FAREWELL_SECONDS = 4.0  # in which the others end by themselves once one has failed
_NAMING_SECONDS = 1.0  # after which it is named, if others still run
_POLL_SECONDS = 0.02
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


@dataclass(frozen=True)
class Job:
    """What to run: `command`, `processes` times."""

    command: Sequence[str]
    processes: int
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    devices: int | None = None  # CPU devices of each process
    timeout: float | None = None  # seconds
    restarts: int = 0
    log_folder: str | os.PathLike[str] | None = None
    only_first: bool = False  # what process 0 says, and nothing of the others
    colored: bool = False
    grace: float = 5.0  # seconds between asking to end and killing
    hosts: Hosts = Hosts()

    def environment(self, rank: int, port: int, token: str, attempt: int = 0) -> dict[str, str]:
        """The variables that process `rank` is given."""
        local_rank, local_size = self.hosts.local(rank, self.processes)
        more = {
            "MESHJIT_COORDINATOR": f"{self.hosts.first}:{port}", "MESHJIT_NUM_PROCESSES": str(self.processes),
            "MESHJIT_PROCESS_ID": str(rank), "MESHJIT_LOCAL_RANK": str(local_rank), "MESHJIT_LOCAL_SIZE": str(local_size),
            "MESHJIT_JOB_TOKEN": self.environ.get("MESHJIT_JOB_TOKEN", token), "MESHJIT_RESTART": str(attempt),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        if self.devices is not None:
            more["MESHJIT_NUM_CPU_DEVICES"] = str(self.devices)
        return {**self.environ, **more}


def run_job(job: Job) -> int:
    """Run it, again where it fails and may; the exit code of the process that failed first, 0 where none did.

    124: it took longer than `timeout`; 128 + n: the launcher was sent signal n; 2: the first host cannot be reached."""
    for attempt in range(job.restarts + 1):
        run = _Run(job, attempt)
        try:
            code = run.go()
        except HostError as error:
            say(str(error))
            return 2
        if code == 0 or run.asked_to_end or attempt == job.restarts:
            return code
        pause = min(2.0**attempt, 30.0)
        say(f"restart {attempt + 1} of {job.restarts} in {pause:g} s")
        time.sleep(pause)
    return 1


def say(text: str) -> None:
    os.write(2, "".join(f"[meshjit run] {line}\n" for line in text.split("\n")).encode())


class _Run:
    """One attempt at a job."""

    def __init__(self, job: Job, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self.children: list[Child] = []
        self.asked_to_end = 0  # by this signal
        self.kill_at = float("inf")
        self.failed_at = float("inf")
        self.is_named = False
        self.absent_words = ""  # who has kept the others from meeting, and how
        self.memory_kills = fate.count_memory_kills()
        self.selector = selectors.DefaultSelector()

    def go(self) -> int:
        guard = subprocess.Popen([sys.executable, "-I", "-S", _GUARD], stdin=subprocess.PIPE, process_group=0)
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM, *FORWARDED)}
        try:
            self._start(guard)
            self._stay()
        finally:
            for child in self.children:
                child.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            guard.communicate()
            self.selector.close()
        return self._verdict()

    def _start(self, guard: subprocess.Popen[bytes]) -> None:
        hosts, token = self.job.hosts, secrets.token_hex(16)
        port = hosts.free_port()
        assert guard.stdin is not None
        for rank in range(self.job.processes):
            environ = self.job.environment(rank, port, token, self.attempt)
            command, letter, host = self.job.command, b"", hosts.of(rank)
            if host:
                command, letter = hosts.command(host), remote.letter(command, environ, os.getcwd())
            child = Child(rank, command, self.job.environ if host else environ, self._log(rank), host, letter)
            self.children.append(child)
            guard.stdin.write(f"+{child.pid}\n".encode())
            guard.stdin.flush()
            for descriptor in child.streams:
                self.selector.register(descriptor, selectors.EVENT_READ, child)
        self.deadline = time.monotonic() + (self.job.timeout or float("inf"))
        environ = self.job.environment(0, port, token)
        self.absent = Absent(self.children, job_token(environ), environ["MESHJIT_COORDINATOR"])

    def _log(self, rank: int) -> IO[bytes] | None:
        if self.job.log_folder is None:
            return None
        folder = Path(self.job.log_folder)
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / f"rank-{rank}.{self.attempt}.log" if self.attempt else folder / f"rank-{rank}.log", "wb")

    def _stay(self) -> None:
        """Until all have ended and everything was heard."""
        while any(child.status is None for child in self.children):
            self._hear(_POLL_SECONDS)
            for child in self.children:
                if child.poll() and child.status and self.failed_at == float("inf"):
                    self.failed_at = time.monotonic()
            self._name()
            self._look_for_absent()
            self._press()
        quiet_at = time.monotonic() + 0.5  # what a process has started may hold its output open
        while any(child.open for child in self.children) and time.monotonic() < quiet_at:
            self._hear(_POLL_SECONDS)

    def _hear(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            child = key.data
            lines = child.read(key.fd)
            if key.fd not in child.open:
                self.selector.unregister(key.fd)
            if lines and not (self.job.only_first and child.rank):
                width = len(str(self.job.processes - 1))
                _write(child.streams[key.fd], b"".join(prefixed(child.rank, x, width, self.job.colored) for x in lines))

    def _name(self) -> None:
        """Say once who has failed, while others still run: they may take their time to end."""
        if self.is_named or time.monotonic() < self.failed_at + _NAMING_SECONDS:
            return
        self.is_named, others_run = True, any(child.status is None for child in self.children)
        if others_run and not self.asked_to_end:
            cause = self._cause()
            say(f"{cause.who} {cause.fate(self._lacked_memory())}; the others are ended")

    def _look_for_absent(self) -> None:
        """End the job of processes that cannot meet."""
        if self.asked_to_end or self.kill_at < float("inf") or not (absence := self.absent.look()):
            return
        child, words = absence
        self.absent_words = f"{child.who} {words}, and the others wait for it: they have not met"
        say(f"{self.absent_words}; the job is ended")
        self._ask_to_end(0, signal.SIGTERM)

    def _press(self) -> None:
        """End those that are left: after a failure, at the timeout, or as we were told."""
        now = time.monotonic()
        if now > self.deadline and not self.asked_to_end:
            say(f"the job has taken longer than {self.job.timeout:g} s (--timeout): it is ended")
            self._ask_to_end(signal.SIGALRM, signal.SIGTERM)
        elif now > self.failed_at + _FAREWELL_SECONDS and self.kill_at == float("inf"):
            self._ask_to_end(0, signal.SIGTERM)
        if now > self.kill_at:
            self._send(signal.SIGKILL)

    def _ask_to_end(self, why: int, number: int) -> None:
        self.asked_to_end = why or self.asked_to_end
        self.kill_at = time.monotonic() + self.job.grace
        self._send(number)

    def _send(self, number: int) -> None:
        for child in self.children:
            if child.status is None:
                child.send(number)
                if number == signal.SIGTERM:
                    child.send(signal.SIGCONT)  # who is stopped takes no other signal

    def _on_signal(self, number: int, frame: object) -> None:
        if number in FORWARDED:
            self._send(number)
        elif self.asked_to_end:
            self.kill_at = 0.0  # asked twice
        else:
            self._ask_to_end(number, number)

    def _verdict(self) -> int:
        if self.asked_to_end:
            return 124 if self.asked_to_end == signal.SIGALRM else 128 + self.asked_to_end
        if self.absent_words:
            say(self.absent_words)
            return 1
        if all(child.status == 0 for child in self.children):
            return 0
        cause = self._cause()
        say(self._account(cause))
        status = cause.status or 0
        return status if status > 0 else 128 - status

    def _failed(self) -> list[Child]:
        return [child for child in self.children if child.status]

    def _cause(self) -> Child:
        """The one that failed by itself, as far as one can tell: the one that others, or it, say they end for."""
        failed = self._failed()
        blamed = {child.blames() for child in failed} - {None}
        for child in failed:
            if blamed == {child.rank}:
                return child
        first = min(child.ended_at for child in failed)
        soon = [child for child in failed if child.ended_at < first + _FAREWELL_SECONDS / 2]
        return min(soon, key=lambda child: (child.is_collateral(), child.ended_at))

    def _account(self, cause: Child) -> str:
        lines = [f"after it rank {child.rank} {child.fate(False)}" for child in self._failed() if child is not cause]
        if cause.last:
            lines += [f"the last lines of rank {cause.rank}:", *(f"  {line}" for line in cause.last)]
        return "\n".join([*lines, f"{cause.who} {cause.fate(self._lacked_memory())}"])

    def _lacked_memory(self) -> bool:
        """Whether the kernel has killed a process meanwhile because memory was full."""
        kills = fate.count_memory_kills()
        return kills is not None and self.memory_kills is not None and kills > self.memory_kills


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        pass  # nobody listens to us; the job goes on


_GUARD = str(Path(__file__).with_name("guard.py"))
