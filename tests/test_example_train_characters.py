"""Data of several processes: the same losses for 1, 2 and 4 of them, and after a restart in the middle of an epoch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tools.processes import ROOT, environment

pytestmark = pytest.mark.device
EXAMPLE = str(Path(ROOT) / "examples/train_characters.py")
DEVICES = 4
SMALL = ("--steps", "10", "--batch", "1024", "--characters", "6000")  # five batches are an epoch


def losses(*command: str, processes: int = 1) -> tuple[list[tuple[int, float]], str]:
    told = environment(MESHJIT_NUM_CPU_DEVICES=str(DEVICES // processes))
    done = subprocess.run([sys.executable, *command], env=told, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(?:\[0\] )?step (\d+) loss ([\d.]+)$", done.stdout, re.MULTILINE)
    return [(int(step), float(loss)) for step, loss in lines], done.stderr


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, float]]:
    return losses(EXAMPLE, *SMALL)[0]


def test_losses_fall(expected: list[tuple[int, float]]) -> None:
    assert [step for step, _ in expected] == list(range(10)) and expected[-1][1] < expected[0][1] - 0.1


def test_four_processes(expected: list[tuple[int, float]]) -> None:
    run = ("-m", "meshjit.cli", "run", "-n", "4", EXAMPLE, *SMALL)
    np.testing.assert_allclose(losses(*run, processes=4)[0], expected, atol=2e-6)


def test_two_processes_that_start_again_in_the_middle_of_an_epoch(expected: list[tuple[int, float]], tmp_path: Path) -> None:
    run = ("-m", "meshjit.cli", "run", "-n", "2", "--restarts", "1", EXAMPLE, *SMALL)
    more = ("--folder", str(tmp_path / "run"), "--save-every", "3", "--fail-at", "8")
    told, error = losses(*run, *more, processes=2)
    steps = [step for step, _ in told]  # how many before it failed, and whether 6 was saved by then, is up to the machine
    assert steps[0] == 0 and {*steps} == {*range(10)} and steps[-4:] == [6, 7, 8, 9]
    np.testing.assert_allclose(told, [expected[step] for step, _ in told], atol=2e-6)
    assert "[meshjit run] restart 1 of 1 in 1 s" in error and "RuntimeError: fails at step 8, as it was told" in error
