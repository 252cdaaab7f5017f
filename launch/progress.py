"""How far the processes of a job have come, and who holds up the others: counts of calls, not heartbeats.

Processes that run one program make the same calls in the same order. Each notes its own (`Series.add`, in well under a
microsecond) and says now and then how far it is (`Report`). `launch/judge.py` compares the reports.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

MILESTONE = 64
REMEMBERED = 128  # calls of a series that are kept; more than devices ever run behind (XLA: 32)


class What(NamedTuple):
    """A call as it is told: the same text on every process for the same call. `raw` is the text as bytes."""

    text: str
    raw: bytes

    @staticmethod
    def of(text: str) -> What:
        return What(text, text.encode())


class Series:
    """The calls that some processes make together: how many, a checksum over all, and the last of them."""

    __slots__ = ("count", "check", "tail", "milestones")

    def __init__(self) -> None:
        self.count, self.check = 0, 0
        self.milestones: deque[tuple[int, int]] = deque(maxlen=8)  # the checksum after every MILESTONE-th call
        self.tail: deque[tuple[int, What, CodeType | None, int, Any, int]] = deque(maxlen=REMEMBERED)

    def add(self, what: What, code: CodeType | None = None, instruction: int = 0, result: Any = None) -> None:
        """Note one call, made by an instruction of `code`. `result()` gives something that can say whether it `is_ready`."""
        self.count = count = self.count + 1
        self.check = check = zlib.crc32(what.raw, self.check)
        self.tail.append((count, what, code, instruction, result, check))
        if not count % MILESTONE:
            self.milestones.append((count, check))

    def told(self, most: int = REMEMBERED) -> list[tuple[int, str, str]]:
        """(number, what, file:line) of the last calls."""
        return [(number, what.text, place_of(code, at)) for number, what, code, at, *_ in list(self.tail)[-most:]]


@functools.lru_cache(maxsize=4096)
def place_of(code: CodeType | None, instruction: int) -> str:
    """`file:line` of an instruction; "" where that is not known."""
    if code is None:
        return ""
    line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
    return f"{os.path.basename(code.co_filename)}:{line or code.co_firstlineno}"


@dataclass(frozen=True)
class Person:
    """Where a process is: for people, and for /proc."""

    rank: int
    host: str
    pid: int
    started: str = ""  # as `fate.start_time` says it
    machine: str = ""  # equal for processes whose /proc is one

    def __str__(self) -> str:
        return f"process {self.rank} (host {self.host}, pid {self.pid})"


@dataclass(frozen=True)
class Report:
    """What a process says of itself."""

    counts: Mapping[str, tuple[int, int]]  # series → (calls begun, checksum over them)
    tails: Mapping[str, Sequence[tuple[int, str, str]]] = field(default_factory=dict)
    milestones: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    is_pending: bool = False  # its last call has not ended
    idle: float = 0.0  # seconds since anything of this changed
    has_ended: bool = False  # it has left its program, and waits for the others
    waits: str = ""  # for what it waits outside of calls, as "the others, to compile `step`"
    waits_in: str = ""  # the series that it waits in
    silence: float = 0.0  # seconds since it said this
    at: str = ""  # the line of the user's where its main thread is
    calls: str = ""  # the Python function that its program has called and waits for
    calls_for: float = 0.0  # seconds since that function began
