"""Seconds until a script can do something: the import, and a first small jit call. Each in fresh interpreters.

    python benchmarks/startup.py

CPU seconds of the process beside seconds on the clock: on a busy machine only the former are comparable. JAX is measured
next to it, by turns, where it is installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

ROUNDS = 7
SCRIPT = """
import time
wall, cpu = [time.perf_counter()], [time.process_time()]
import {library} as library
wall.append(time.perf_counter()); cpu.append(time.process_time())
library.jit(lambda x: x + 1)(1.0).block_until_ready()
wall.append(time.perf_counter()); cpu.append(time.process_time())
print(wall[1] - wall[0], cpu[1] - cpu[0], wall[2] - wall[1], cpu[2] - cpu[1])
"""


def measure(library: str) -> list[float]:
    """Seconds of one start: import (clock, CPU), first call (clock, CPU)."""
    command = [sys.executable, "-c", SCRIPT.format(library=library)]
    return [float(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def main() -> None:
    libraries = ["meshjit", *(["jax"] if importlib.util.find_spec("jax") else [])]
    for library in libraries:
        measure(library)  # writes the bytecode
    rounds = [[measure(library) for library in libraries] for _ in range(ROUNDS)]
    print(f"{'':10}{'import s':>10}{'CPU s':>10}{'first call s':>14}{'CPU s':>10}     best of {ROUNDS}")
    for i, library in enumerate(libraries):
        best = [min(turn[i][column] for turn in rounds) for column in range(4)]
        print(f"{library:10}{best[0]:>10.2f}{best[1]:>10.2f}{best[2]:>14.2f}{best[3]:>10.2f}")


if __name__ == "__main__":
    main()
