"""Who holds up a job: tables of what processes say of themselves, and the paragraph that must come of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from launch import fate
from launch.judge import judge
from launch.progress import MILESTONE, REMEMBERED, Person, Report, Series, What

PEOPLE = {rank: Person(rank, "h", 100 + rank) for rank in range(4)}
Tail = Sequence[tuple[int, str, str]]


def at(count: int, what: str = "step", line: int = 31, **more: Any) -> Report:
    """A process that has begun so many calls, the last of them `what`."""
    tail: Tail = [(n, "step" if n < count else what, f"train.py:{31 if n < count else line}") for n in range(1, count + 1)]
    return Report({"0-2": (count, hash((count, what)))}, {"0-2": tail}, **more)


def text(*reports: Report, fates: Mapping[int, str] | None = None, patience: float = 8) -> tuple[str, bool] | None:
    verdict = judge(dict(enumerate(reports)), PEOPLE, fates or {}, patience)
    return None if verdict is None else (verdict.text, verdict.is_certain)


WAITING = at(5, is_pending=True, idle=9)
IN_CALL_5 = "  processes 0, 2: waits for 9 s in call 5, `step` at train.py:31"


def test_who_is_in_time_is_not_named() -> None:
    assert text(at(5), at(4), at(5)) is None
    assert text(at(5, is_pending=True, idle=7), at(4), at(5, is_pending=True, idle=7)) is None
    assert text(WAITING, WAITING, WAITING) is None  # a long call: all are in it


def test_who_is_late_is_named_with_its_line() -> None:
    late = at(4, idle=12, at="train.py:40 in load")
    assert text(WAITING, late, WAITING) == (
        f"process 1 (host h, pid 101) has not begun call 5; it is at train.py:40 in load, and has not moved for 12 s\n{IN_CALL_5}",
        False,
    )


def test_whose_function_does_not_come_back() -> None:
    held = at(5, is_pending=True, idle=9, calls="load", calls_for=8.5)
    assert text(WAITING, held, WAITING) == (
        f"process 1 (host h, pid 101) waits for `load`, which its program has called and which has not come back for 8 s\n{IN_CALL_5}",
        False,
    )
    assert text(held, held, held) is None  # all do the same
    assert text(WAITING, at(5, is_pending=True, idle=9, calls="load", calls_for=7), WAITING) is None


def test_who_has_gone_another_way() -> None:
    assert text(WAITING, at(5, "other", 33), WAITING) == (
        "the processes have gone different ways at call 5\n"
        "  process 1 (host h, pid 101): call 5, `other` at train.py:33\n"
        "  processes 0, 2: call 5, `step` at train.py:31",
        True,
    )


def test_different_ways_long_ago() -> None:
    def far(check: int) -> Report:
        return Report({"0-2": (900, 0)}, milestones={"0-2": [(832, check), (896, check)]})

    said = text(far(1), far(1), far(2))
    assert (
        said is not None
        and said[1]
        and said[0].splitlines()[:2]
        == [
            "the processes have made different calls among the first 832",
            "  process 2 (host h, pid 102) went one way; it had begun 900 calls",
        ]
    )


def test_who_has_left_is_named() -> None:
    left = "process 1 (host h, pid 101) has left its program, without an error, after 4 calls"
    assert text(WAITING, at(4, has_ended=True), WAITING) == (f"{left}\n{IN_CALL_5}", True)
    assert text(at(5, is_pending=True, idle=1), at(4, has_ended=True), at(5)) is None  # it may be about to end
    assert text(WAITING, at(5, has_ended=True), WAITING) is None


def test_who_meets_where_nobody_comes() -> None:
    lost = at(4, waits="the others, to compile `other`", waits_in="0-2", idle=3, at="train.py:37 in main")
    lines = "process 1 (host h, pid 101) waits for the others, to compile `other` at train.py:37 in main"
    assert text(WAITING, lost, WAITING) == (f"{lines}\n{IN_CALL_5}", True)
    silent = at(4, waits="the others, to compile `other`", waits_in="0-2", idle=3, silence=3)
    assert text(at(5, is_pending=True, idle=3), silent, at(5)) is None  # it said so before the others began


def test_what_the_system_says() -> None:
    assert text(WAITING, at(4), WAITING, fates={1: "is stopped"}) == (
        f"process 1 (host h, pid 101) is stopped; its last call was call 4, `step` at train.py:31\n{IN_CALL_5}",
        True,
    )
    assert text(WAITING, at(5, has_ended=True), WAITING, fates={1: "has died"}) is None


def test_a_series_tells_calls_and_lines() -> None:
    series, what = Series(), What.of("step → f32[4]")
    for _ in range(REMEMBERED + MILESTONE):
        series.add(what, test_a_series_tells_calls_and_lines.__code__, 0)
    told = series.told()
    assert len(told) == REMEMBERED and told[-1][:2] == (REMEMBERED + MILESTONE, "step → f32[4]")
    assert told[-1][2].startswith("test_launch_judge.py:") and [n for n, _ in series.milestones] == [64, 128, 192]
    other = Series()
    for _ in range(REMEMBERED + MILESTONE):
        other.add(what)
    assert other.check == series.check  # of what is called, not of where


# --- what became of a process ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "memory", "words"),
    [
        (3, False, "left with exit code 3"),
        (-9, False, "was ended by signal 9, SIGKILL: killed"),
        (
            -9,
            True,
            "was ended by signal 9, SIGKILL: killed by the kernel, for the memory of its control group was full (out of memory)",
        ),
        (-11, False, "was ended by signal 11, SIGSEGV: a segmentation fault"),
        (-99, False, "was ended by signal 99"),
    ],
)
def test_exit_in_words(status: int, memory: bool, words: str) -> None:
    assert fate.exit_in_words(status, memory) == words


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
def test_stopped_and_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        started = fate.start_time(process.pid)
        assert not fate.is_stopped(process.pid, started) and not fate.is_gone(process.pid, started)
        assert fate.is_gone(process.pid, "another's")  # a pid that was given to somebody else
        process.send_signal(signal.SIGSTOP)
        while not fate.is_stopped(process.pid, started):
            time.sleep(0.01)
        process.kill()
        while not fate.is_gone(process.pid, started):
            time.sleep(0.01)
