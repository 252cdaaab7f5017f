"""On which hosts the processes of a job run: blocks of ranks, the first on the first."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass

from launch import remote
from launch.rendezvous import free_port, is_loopback

_ASK_SECONDS = 30.0  # for ssh to say which port is free
_FREE_PORT = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"


class HostError(RuntimeError):
    """Hosts that cannot be what was asked for; the text says which, and what to do."""


@dataclass(frozen=True)
class Hosts:
    """Names that ssh knows, with the number of processes on each. None: all are on this host, and there is no ssh."""

    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    shell: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes")
    python: str = sys.executable

    @staticmethod
    def read(text: str, processes: int | None, shell: str | None = None, python: str | None = None) -> Hosts:
        """Of `h1,h2` or `h1:4,user@h2:2`. Raises HostError where counts and `processes` do not fit."""
        parts = [part.rpartition(":") if ":" in part else (part, "", "") for part in text.split(",") if part]
        names = tuple(name for name, _, _ in parts)
        texts = [count for _, colon, count in parts if colon]
        if not names or len(set(names)) < len(names) or (texts and (len(texts) < len(names) or not all(map(_is_count, texts)))):
            raise HostError(f"--host {text}: not of the form h1,h2 or h1:4,h2:4, each host once")
        if any(map(_is_here, names)) and not all(map(_is_here, names)):
            here = next(filter(_is_here, names))
            raise HostError(f"--host {text}: the other hosts cannot reach {here}\n  fix: this host's name")
        counts = tuple(map(int, texts)) or _shares(processes or len(names), len(names))
        if (processes or sum(counts)) != sum(counts) or 0 in counts:
            raise HostError(
                f"--host {text}: has {sum(counts)} processes on {len(names)} hosts, -n says {processes}\n"
                "  fix: leave -n out, or the counts"
            )
        words = tuple(shlex.split(shell)) if shell else Hosts.shell
        return Hosts(names, counts, words, python or sys.executable)

    @property
    def processes(self) -> int:
        return sum(self.counts)

    @property
    def first(self) -> str:
        """Where the processes meet."""
        if not self.names or all(map(_is_here, self.names)):
            return "127.0.0.1"
        return self.names[0].rpartition("@")[2]

    def of(self, rank: int) -> str:
        """The host of a process; "" for this one."""
        return self.names[self._place(rank)[0]] if self.names else ""

    def local(self, rank: int, processes: int) -> tuple[int, int]:
        """(number among those of its host, how many these are)."""
        if not self.names:
            return rank, processes
        host, number = self._place(rank)
        return number, self.counts[host]

    def _place(self, rank: int) -> tuple[int, int]:
        for host, count in enumerate(self.counts):
            if rank < count:
                return host, rank
            rank -= count
        raise IndexError(rank)

    def command(self, host: str) -> list[str]:
        return remote.command_line(self.shell, host, self.python)

    def free_port(self) -> int:
        """A port that is free on the first host. Raises HostError where ssh does not get there."""
        if not self.names:
            return free_port()
        command = [*self.shell, self.names[0], shlex.join([self.python, "-c", _FREE_PORT])]
        try:
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_SECONDS)
            port, reason = answer.stdout, answer.stderr.strip() or f"exit code {answer.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            port, reason = "", str(error)
        if not port.strip().isdigit():
            raise HostError(
                f"host {self.names[0]} cannot be reached, or has no {self.python}: {reason}\n"
                f"  fix: {shlex.join([*self.shell, self.names[0]])} has to work without a password; --python names another Python"
            )
        return int(port)


def _is_count(text: str) -> bool:
    return text.isdigit() and int(text) > 0


def _is_here(name: str) -> bool:
    return is_loopback(name.rpartition("@")[2])


def _shares(total: int, parts: int) -> tuple[int, ...]:
    """`total` in blocks, the first ones larger by one: 5 in 2 is 3, 2."""
    return tuple(total // parts + (i < total % parts) for i in range(parts))

