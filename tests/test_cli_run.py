"""`meshjit run` as a command: what it says before it runs anything, and a job of two processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshjit.cli import _processes, main
from tests.tools.processes import environment


def test_a_dry_run_says_what_would_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.environ", {"SLURM_JOB_ID": "1"})
    assert main(["run", "-n", "2", "--dry-run", "--devices-per-process", "4", "-m", "train", "--steps", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "would start 2 processes on this host, which meet at a free port of 127.0.0.1"
    assert lines[2].startswith("  rank 1: MESHJIT_COORDINATOR=127.0.0.1:<port> MESHJIT_NUM_PROCESSES=2 MESHJIT_PROCESS_ID=1 ")
    assert lines[2].endswith(f"MESHJIT_NUM_CPU_DEVICES=4 {sys.executable} -m train --steps 3")
    assert lines[3].startswith("Not believed: SLURM: SLURM_PROCID")


def test_without_n_it_says_who_this_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.environ", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    assert main(["run", "--dry-run", "train.py"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "This is process 1 of 2, started by Open MPI's mpirun; on this host it is 0 of 1.",
        "That is what these variables say: OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2.",
        "MPI tells them where they meet: at a free port of process 0's host.",
        f"would run in this process: {sys.executable} train.py",
    ]


def test_n_under_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.environ", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    assert main(["run", "-n", "2", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "meshjit run: this is process 1 of 2 of open mpi already (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2)\n"
        "  fix: leave -n and --host out, so that each of these processes runs the script once\n"
    )


def test_a_job_of_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport meshjit as mj\nprint(mj.process_index(), len(mj.devices()), sys.argv[1:])\n"
        "if mj.process_index(): raise ValueError('why')\n"
    )
    command = [sys.executable, "-m", "meshjit.cli", "run", "-n", "2", "--devices-per-process", "3", str(script), "--a", "b"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and sorted(done.stdout.splitlines()) == ["[0] 0 6 ['--a', 'b']", "[1] 1 6 ['--a', 'b']"]
    error = done.stderr.splitlines()
    assert "[1] ValueError: why" in error and "[0] ends, because process 1 failed: ValueError: why" in error
    assert error[-2] == "[meshjit run]   [rank 1] ValueError: why" and error[-1].startswith("[meshjit run] rank 1 (host ")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "This process is alone: no variables say that a launcher has started it.\nSeveral are started by: meshjit run -n 4 script.py, mpirun, srun."),
        ({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "2"}, "The variables contradict one another: OMPI_COMM_WORLD_RANK='x' is not a number."),
        (
            {"MESHJIT_COORDINATOR": "a:1", "MESHJIT_NUM_PROCESSES": "2", "MESHJIT_PROCESS_ID": "1"},
            "This is process 1 of 2, started by somebody who set MESHJIT_ variables; on this host it is 0 of 1.\n"
            "That is what these variables say: MESHJIT_COORDINATOR=a:1, MESHJIT_NUM_PROCESSES=2, MESHJIT_PROCESS_ID=1.\n"
            "The processes meet at a:1.",
        ),
    ],
)  # fmt: skip
def test_the_doctor_says_in_words_who_this_is(environ: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", environ)
    assert _processes() == text
