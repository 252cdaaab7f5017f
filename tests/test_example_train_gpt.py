"""The main job: the same losses on every mesh, and under mpirun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.device
ROOT = Path(__file__).parent.parent
SMALL = "--layers 2 --width 32 --heads 4 --length 16 --batch 8 --steps 4 --sample 0 --print-losses".split()
MESHES = ["data=4,model=2", "data=8", "data=2,model=4", "data=1"]

# What a new user has: nobody has said how many devices there are.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "MESHJIT_NUM_CPU_DEVICES"}


def losses(*command: str, mesh: str = MESHES[0]) -> list[float]:
    done = subprocess.run(
        [*command, str(ROOT / "examples/train_gpt.py"), *SMALL, "--mesh", mesh],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [float(x) for x in re.findall(r"^step \d+ loss ([-\d.e]+)$", done.stdout, re.MULTILINE)]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return losses(sys.executable)


def test_losses_fall(expected: list[float]) -> None:
    assert len(expected) == 4
    assert expected[-1] < expected[0] - 0.1


@pytest.mark.parametrize("mesh", MESHES[1:])
def test_every_mesh_gives_the_same_losses(expected: list[float], mesh: str) -> None:
    np.testing.assert_allclose(losses(sys.executable, mesh=mesh), expected, rtol=1e-5)


def test_two_processes_give_the_same_losses(expected: list[float]) -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python: pip install mpich")
    np.testing.assert_allclose(losses(str(mpirun), "-n", "2", sys.executable), expected, rtol=1e-5)


def test_inspect_prints_placements_collectives_and_memory() -> None:
    command = [sys.executable, "-m", "meshjit.cli", "inspect", str(ROOT / "examples/train_gpt.py"), *SMALL, "--steps", "1"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"train_gpt.py:\d+ +f32\[8@data, 16, \d+@?\w*\]", done.stdout)
    assert "all_reduce" in done.stdout and "model" in done.stdout and "memory a device" in done.stdout
