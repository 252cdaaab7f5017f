"""Seconds until a script can do something: the import, a first small jit call, a first call with 2,000 arrays as arguments.

    python benchmarks/startup.py [--jax /path/to/a/python/with/jax]

Each in fresh interpreters. CPU seconds of the process beside seconds on the clock: on a busy machine only the former are
comparable. JAX is measured next to it, by turns, and the last line is the ratio of the two.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile

ROUNDS = 7
SCRIPT = """
import time
wall, cpu = [time.perf_counter()], [time.process_time()]
import {library} as library
wall.append(time.perf_counter()); cpu.append(time.process_time())
library.jit(lambda x: x + 1)(1.0).block_until_ready()
wall.append(time.perf_counter()); cpu.append(time.process_time())
import numpy
leaves = {{f"w{{i}}": numpy.ones(3, numpy.float32) for i in range({arguments})}}
wall.append(time.perf_counter()); cpu.append(time.process_time())
step = library.jit(lambda p, g: library.tree.map(lambda p, g: p - 0.1 * g, p, g))
for result in step(leaves, leaves).values():
    result.block_until_ready()
wall.append(time.perf_counter()); cpu.append(time.process_time())
print(*(x for i in (0, 1, 3) for x in (wall[i + 1] - wall[i], cpu[i + 1] - cpu[i])))
"""
ARGUMENTS = 1000  # of each of two


def measure(library: str, python: str, folder: str) -> list[float]:
    """Seconds of one start: import (clock, CPU), first call (clock, CPU), first call with many arguments (clock, CPU).
    Bytecode goes to `folder`, also where the environment asks for none: pip writes that of what it installs."""
    command = [python, "-c", SCRIPT.format(library=library, arguments=ARGUMENTS)]
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    return [float(word) for word in printed.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", default=sys.executable if importlib.util.find_spec("jax") else None, metavar="PYTHON")
    jax = parser.parse_args().jax
    libraries = {"meshjit": sys.executable, **({"jax": jax} if jax else {})}
    with tempfile.TemporaryDirectory() as folder:
        for library, python in libraries.items():
            measure(library, python, folder)  # writes the bytecode
        rounds = [[measure(*item, folder) for item in libraries.items()] for _ in range(ROUNDS)]
    best = [[min(turn[i][column] for turn in rounds) for column in range(6)] for i in range(len(libraries))]
    columns = ("import s", "CPU s", "first call s", "CPU s", f"{2 * ARGUMENTS} args s", "CPU s")
    print(f"{'':10}{''.join(f'{column:>14}' for column in columns)}     best of {ROUNDS}")
    for library, row in zip(libraries, best, strict=True):
        print(f"{library:10}{''.join(f'{x:>14.2f}' for x in row)}")
    if jax:
        print(f"{'ratio':10}{''.join(f'{ours / theirs:>14.2f}' for ours, theirs in zip(*best, strict=True))}")


if __name__ == "__main__":
    main()
