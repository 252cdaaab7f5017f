"""How a process ends: each way out, in a process of its own, with stand-ins for the job."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest

START = """
import os, sys, threading
from launch.supervise import watch
leave = os._exit
def end_job(code, reason):
    print(f"END {code} {reason}", flush=True)
    leave(code)
supervisor = watch(5, end_job, lambda: print("FINISH"))
"""


def run(body: str, *flags: str) -> subprocess.CompletedProcess[str]:
    code = START + textwrap.dedent(body)
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("body", "code", "out"),
    [
        ("pass", 0, "FINISH\n"),
        ("sys.exit()", 0, "FINISH\n"),
        ("sys.exit(0)", 0, "FINISH\n"),
        ("sys.exit(3)", 3, "END 3 exit code 3\n"),
        ("exit(3)", 3, "END 3 exit code 3\n"),
        ("sys.exit('no such file')", 1, "END 1 exit code 1\n"),
        ("raise ValueError('why')", 1, "END 1 ValueError: why\n"),
        ("raise KeyboardInterrupt", 130, "END 130 KeyboardInterrupt\n"),
        ("def f():\n  try: sys.exit(3)\n  except SystemExit: pass\nf()", 0, "FINISH\n"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--no'])", 2, "END 2 exit code 2\n"),
        ("t = threading.Thread(target=lambda: {}[1]); t.start(); t.join()", 1, "END 1 KeyError: 1\n"),
        ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", 0, "FINISH\n"),
        ("raise SystemExit(0)", 0, "FINISH\n"),
        pytest.param(
            "raise SystemExit(4)", 4, "END 4 exit code 4\n",
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12"),
        ),
        ("supervisor.release(); sys.exit(3)", 3, ""),
    ],
)  # fmt: skip
def test_ways_out(body: str, code: int, out: str) -> None:
    result = run(body)
    assert (result.returncode, result.stdout) == (code, out), result.stderr


def test_every_line_is_under_the_rank() -> None:
    lines = run("def f():\n    raise ValueError('two\\nlines')\nf()").stderr.splitlines()
    assert all(line.startswith("[rank 5] ") for line in lines)
    assert lines[0] == "[rank 5] Traceback (most recent call last):"
    assert lines[-2:] == ["[rank 5] ValueError: two", "[rank 5] lines"]


def test_who_leaves_at_once_says_so() -> None:
    result = run("def f():\n    os._exit(4)\nf()")
    assert (result.returncode, result.stdout) == (4, "")
    assert re.fullmatch(r"\[rank 5\] leaves by os\._exit\(4\) at <string>:\d+ \(host \S+, pid \d+\)\n", result.stderr)
    forked = run("pid = os.fork()\nif pid == 0: os._exit(4)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)")
    assert (forked.stdout, forked.stderr) == ("4\nFINISH\n", "")
    assert run("supervisor.release(); os._exit(4)").stderr == ""


def test_a_users_own_hook_prints() -> None:
    result = run(
        """
        supervisor.release()
        sys.excepthook = lambda *args: print("MINE", args[0].__name__, file=sys.stderr)
        watch(5, end_job, lambda: None)
        raise ValueError
        """
    )
    assert (result.returncode, result.stderr) == (1, "[rank 5] ValueError:\nMINE ValueError\n")


def test_a_forked_child_is_its_parents_business() -> None:
    result = run(
        """
        pid = os.fork()
        if pid == 0:
            raise ValueError("child")
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """
    )
    assert (result.returncode, result.stdout) == (0, "1\nFINISH\n")


def test_at_a_prompt_an_exception_ends_nothing() -> None:
    result = subprocess.run(
        [sys.executable, "-i", "-c", START], input="1/0\nprint('on')\n", capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 0 and "on\n" in result.stdout and "END" not in result.stdout
