"""Jobs in which one process holds up the others: the culprit is named, and the job ends in seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.rendezvous import free_port
from meshjit.runtime import noting
from meshjit.runtime.watchdog import tell_stacks
from tests.tools import faults
from tests.tools.processes import environment, without_patience

LIMIT = 60  # seconds from the fault to the end of the job; `tests/tools/faults.py` measures the ten that we promise


def run(tmp_path: Path, fault: str, victim: int = 1, first: str = "", **environ: str) -> tuple[list[int], str, float]:
    """Exit codes, all that was said, seconds after the fault. The job does `first` before all else."""
    script = tmp_path / "job.py"
    script.write_text(first + faults.JOB)
    told = {"MESHJIT_COORDINATOR": f"127.0.0.1:{free_port()}", "MESHJIT_NUM_PROCESSES": "2"}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(script), fault, str(victim), "steps"],
            env=environment(**told, MESHJIT_PROCESS_ID=str(rank), MESHJIT_NUM_CPU_DEVICES="1", **environ),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=180)[1] for process in running]
    end, began = time.time(), float((tmp_path / "fault").read_text())
    return [process.returncode for process in running], without_patience("".join(said)), end - began


@pytest.mark.parametrize(
    ("fault", "victim", "words"),
    [
        ("exit 0", 1, "has left its program, without an error, after 8 calls"),
        ("SIGSTOP", 1, "is stopped (SIGSTOP, or a debugger) for "),
        ("SIGSTOP", 0, "is stopped (SIGSTOP, or a debugger) for "),
        ("SIGKILL", 1, "has died: it was killed, crashed, or left by os._exit"),
        ("diverge", 1, "the processes have gone different ways at call 9\n"),
        ("new program", 1, "waits for the others, to compile `third` at job.py:"),
        ("one step more", 1, "process 0 (host {host}, pid {pid}) has left its program, without an error, after 12 calls"),
        ("skip", 1, "has left its program, without an error, after 11 calls"),
    ],
)
def test_the_culprit_is_named(tmp_path: Path, fault: str, victim: int, words: str) -> None:
    codes, said, seconds = run(tmp_path, fault, victim)
    assert all(code != 0 for code in codes) and seconds < LIMIT, said
    first = words.split("{host}")[0]
    assert first in said, said
    if "different" not in words and "{" not in words:
        assert f"process {victim} (host " in said, said


def test_calls_that_ended_before_anybody_compared_them_are_told_at_the_end(tmp_path: Path) -> None:
    """The same collectives in other programs meet one another, and a short job is over before the next word."""
    codes, said, _ = run(tmp_path, "diverge", first="from meshjit.runtime import watchdog; watchdog._PERIOD = 60\n")
    assert codes == [1, 1]
    assert "[rank 0] the processes have gone different ways at call 9\n" in said, said
    assert "call 9, `step → f32[24]` at job.py:" in said and "call 9, `other → f32[24]` at job.py:" in said, said


def test_who_is_stuck_is_named_with_everybodys_stack(tmp_path: Path) -> None:
    codes, said, seconds = run(tmp_path, "endless loop", MESHJIT_STALL_REPORT="6", MESHJIT_STALL_TIMEOUT="12")
    assert codes == [1, 1] and seconds < LIMIT, said
    assert "has not begun call 9; it is at job.py:" in said and "in stuck, and has not moved for " in said, said
    assert "[rank 0] stack of process 1:\n" in said and "in stuck: while time.time() < end: pass" in said, said
    assert "the job is ended after 12 s of this (config.stall_timeout, MESHJIT_STALL_TIMEOUT)" in said


def test_without_faults_nothing_is_said(tmp_path: Path) -> None:
    assert run(tmp_path, "none", MESHJIT_STALL_REPORT="60")[:2] == ([0, 0], "")


def test_stacks_that_are_alike_are_told_once() -> None:
    assert tell_stacks({0: "  a", 2: "  a", 1: "  b"}, [3]) == [
        "stack of processes 0, 2:", "  a", "stack of process 1:", "  b", "no stack came from process 3",
    ]  # fmt: skip


def test_groups_have_one_name() -> None:
    assert [noting.group_name(group) for group in ([0, 1], [3, 2, 1, 0], [0, 2, 5], [4])] == ["0,1", "0-3", "0,2,5", "4"]
