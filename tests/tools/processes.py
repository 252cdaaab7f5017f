"""Jobs of several processes on this host: under mpirun, and started by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from launch.rendezvous import free_port

MPIRUN = os.path.join(sys.prefix, "bin", "mpirun")
needs_mpi = pytest.mark.skipif(not os.path.exists(MPIRUN), reason="the mpich wheel is not installed")
ROOT = str(Path(__file__).parents[2])

PRELUDE = """
import os, sys, time
import numpy as np
from meshjit.runtime import _jaxlib, agreement, client, distributed

def all_reduce(label="sum"):
    devices, mine = client.devices(), client.local_devices()
    n = len(devices)
    text = f'''
module @m attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {n} : i32}} {{
  func.func public @main(%a: tensor<2xf32>) -> (tensor<2xf32>) {{
    %0 = "stablehlo.all_reduce"(%a) <{{replica_groups = dense<{[list(range(n))]}> : tensor<1x{n}xi64>}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }}
}}'''
    agreement.agree(label, text)
    executable = _jaxlib.compile(client.client(), text, devices)
    shards = [np.full(2, 10 * device.process_index + i, np.float32) for i, device in enumerate(mine)]
    (out,) = _jaxlib.execute(executable, [_jaxlib.put(shards, mine, row=devices)], [((2,), np.float32)], devices)
    return [array.tolist() for _, array in _jaxlib.fetch(out)]

rank = client.process_index()

def say(*words):  # into a file: mpirun mixes lines of stdout, and Gloo speaks there, too
    with open(f"{sys.argv[0]}.{rank}", "a") as file:
        print(*words, file=file)
"""


# Who has waited for 5 s says so; on a busy machine that is no fault.
_PATIENCE = re.compile(r"\[rank \d+\] .*(did not come so far; .*waiting at|waits for process|; still waiting).*\n")


def without_patience(error: str) -> str:
    """What was said on standard error, but that somebody waits for another who comes late."""
    return _PATIENCE.sub("", error)


class Ended(NamedTuple):
    """What came of a job, or of one process of it: exit code, what it said, stderr, seconds."""

    code: int
    said: list[str]
    error: str
    seconds: float


def said_by(script: str, rank: int) -> list[str]:
    path = Path(f"{script}.{rank}")
    return path.read_text().splitlines() if path.exists() else []


def environment(**more: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("MESHJIT_", "JAX_", "XLA_", "PMI", "OMPI", "SLURM"))
    }
    return {**kept, "MESHJIT_NUM_CPU_DEVICES": "2", "MESHJIT_PLATFORMS": "cpu", "PYTHONPATH": ROOT, **more}


def write(folder: Path, body: str, first: str = "") -> str:
    script = folder / "job.py"
    script.write_text(first + PRELUDE + textwrap.dedent(body))
    return str(script)


def under_mpirun(folder: Path, body: str, processes: int = 2, **environ: str) -> Ended:
    start, script = time.monotonic(), write(folder, body)
    command = [MPIRUN, "-n", str(processes), sys.executable, "-W", "error", script]
    environ = {"MESHJIT_STALL_REPORT": "60", **environ}
    done = subprocess.run(command, env=environment(**environ), capture_output=True, text=True, timeout=180)
    said = [line for rank in range(processes) for line in said_by(script, rank)]
    return Ended(done.returncode, said, without_patience(done.stderr), time.monotonic() - start)


def side_by_side(folder: Path, body: str, processes: int = 2, first: str = "", **environ: str) -> list[Ended]:
    """Started by hand, with explicit variables, as on hosts without MPI. `first` runs before anything is imported."""
    start, script = time.monotonic(), write(folder, body, first)
    told = {"MESHJIT_COORDINATOR": f"127.0.0.1:{free_port()}", "MESHJIT_NUM_PROCESSES": str(processes)}
    environ = {"MESHJIT_STALL_REPORT": "60", **environ}
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", script], env=environment(**told, MESHJIT_PROCESS_ID=str(rank), **environ),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(processes)
    ]  # fmt: skip
    errors = [without_patience(process.communicate(timeout=180)[1]) for process in running]
    seconds = time.monotonic() - start
    return [Ended(p.returncode, said_by(script, r), errors[r], seconds) for r, p in enumerate(running)]
