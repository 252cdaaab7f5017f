"""What became of a process: its state as Linux tells it, and its exit status in words."""

from __future__ import annotations

import os
import signal
from pathlib import Path

_WORDS = {
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "a segmentation fault",
    signal.SIGABRT: "aborted itself",
    signal.SIGBUS: "a bus error",
    signal.SIGFPE: "an arithmetic fault",
    signal.SIGILL: "an illegal instruction",
    signal.SIGTERM: "asked to end",
    signal.SIGINT: "interrupted",
    signal.SIGHUP: "its terminal has gone",
    signal.SIGPIPE: "wrote to a closed pipe",
}


def exit_in_words(status: int, out_of_memory: bool = False) -> str:
    """`subprocess.Popen.returncode` for a person: "was ended by signal 9, SIGKILL: killed"; "left with exit code 3"."""
    if status >= 0:
        return f"left with exit code {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"was ended by signal {-status}"
    words = _WORDS.get(number, "")
    if number == signal.SIGKILL and out_of_memory:
        words = "killed by the kernel, for the memory of its control group was full (out of memory)"
    return f"was ended by signal {-status}, {number.name}{f': {words}' if words else ''}"


def start_time(pid: int) -> str:
    """When a process began, in the kernel's ticks: with its pid this names it for good. "" where that cannot be known."""
    return _stat(pid)[1]


def is_stopped(pid: int, started: str) -> bool:
    """Whether a process of this host was stopped (SIGSTOP, or by a debugger)."""
    state, since = _stat(pid)
    return state in ("T", "t") and since == started


def is_gone(pid: int, started: str) -> bool:
    """Whether a process of this host has ended. False where the system does not say."""
    if not started:
        return False
    state, since = _stat(pid)
    return state in ("", "Z", "X") or since != started


def _stat(pid: int) -> tuple[str, str]:
    """(state, start time) of /proc/<pid>/stat; the name before them may hold blanks and brackets."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return words[0], words[19]


def count_memory_kills() -> int | None:
    """Processes that the kernel has killed in this control group because its memory was full; None where that is not counted."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers in ("", "memory"):
            folder = "/sys/fs/cgroup" + ("/memory" if controllers else "")
            name = "memory.oom_control" if controllers else "memory.events"
            for place in (folder + path, folder):
                count = _field(os.path.join(place, name), "oom_kill")
                if count is not None:
                    return count
    return None


def _field(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)
