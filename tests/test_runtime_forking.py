"""Forks after the first use of devices: warned of, at the line that forks; nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[1])
FORK = """
    import os, sys, multiprocessing, subprocess
    import numpy as np
    import meshjit as mj
    def fork():
        sys.stderr.flush()
        if (child := os.fork()) == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    def nothing():
        pass
"""
USE = "    mj.jit(lambda x: x + 1)(np.ones(3, np.float32))\n"


def run(tmp_path: Path, body: str, *options: str) -> list[str]:
    """What a script says on stderr, in lines."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(FORK + body))
    environ = {**os.environ, "PYTHONPATH": ROOT, "MESHJIT_NUM_CPU_DEVICES": "2"}
    command = [sys.executable, *options, str(script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_a_fork_after_use_warns_at_its_line(tmp_path: Path) -> None:
    said = run(tmp_path, USE + "    fork()\n    fork()\n")
    assert said == [
        f"{tmp_path}/script.py:7: RuntimeWarning: os.fork() after the first use of devices: the child has none of XLA's threads, "
        "so what it compiles, runs op by op or runs on several devices hangs",
        '  fix: start processes by multiprocessing.get_context("spawn") or "forkserver", or fork before the first array is made',
        "  if (child := os.fork()) == 0:",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "    fork()\n",  # imported alone
        "    fork()\n" + USE,
        USE + "    subprocess.run(['true'], check=True)\n    os.posix_spawnp('true', ['true'], os.environ)\n",
        USE.replace("\n", "\n    mj.clear_caches()\n") + "    os.system('true')\n",
    ],
    ids=["not used", "used after", "other programs", "a shell"],
)
def test_what_does_not_warn(body: str, tmp_path: Path) -> None:
    assert run(tmp_path, body, "-W", "error") == []


def test_as_an_error_it_is_said_and_the_fork_goes_on(tmp_path: Path) -> None:
    said = run(tmp_path, USE + "    fork()\n", "-W", "error")
    assert any(line.startswith("RuntimeWarning: os.fork() after the first use of devices") for line in said)


def test_multiprocessing_warns_where_it_forks_and_not_where_it_spawns(tmp_path: Path) -> None:
    body = """
    if __name__ == "__main__":
        mj.devices()
        for method in sys.argv[1:]:
            process = multiprocessing.get_context(method).Process(target=nothing)
            process.start()
            process.join()
    """
    for method, count in (("fork", 1), ("spawn", 0), ("forkserver", 0)):
        said = run(tmp_path, body.replace("sys.argv[1:]", repr([method])))
        assert sum("RuntimeWarning" in line for line in said) == count, (method, said)


def test_the_child_of_a_fork_is_not_told_again(tmp_path: Path) -> None:
    body = USE + "    if os.fork() == 0:\n        if os.fork() == 0:\n            os._exit(0)\n        os._exit(0)\n    os.wait()\n"
    assert sum("RuntimeWarning" in line for line in run(tmp_path, body, "-W", "always")) == 1
