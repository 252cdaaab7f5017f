"""Two processes of four CPU devices each beside JAX's with the same Gloo: seconds until the first step is done, and each step.

    python benchmarks/processes.py --jax /path/to/a/python/with/jax [--rounds 5]

Both run the same script, by turns, in jobs of their own: loss and gradient of two layers, rows of the batch over all devices,
weights on each, and an update. Steps of three widths; `x + 1` is what a call costs that computes next to nothing.

    start   from the start of the processes until the first step is done: seconds on the clock, and processor time of process 0
    step    microseconds, the least of several rounds of 20; of the calling thread alone: what dispatch costs

The last line has the medians of ours over JAX's.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
WIDTHS = (32, 128, 512)
JOB = """
import os, sys, time
import numpy as np
library, rank, where, began = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
if library == "jax":
    import jax as mj
    from jax.sharding import NamedSharding, PartitionSpec as P
    mj.config.update("jax_cpu_collectives_implementation", "gloo")
    mj.config.update("jax_num_cpu_devices", 4)
    mj.distributed.initialize(where, 2, rank)
else:
    import meshjit as mj
    from meshjit.sharding import NamedSharding, PartitionSpec as P
mesh = mj.make_mesh((8,), ("x",))
rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

def put(value, sharding): return mj.make_array_from_callback(value.shape, sharding, lambda index: value[index])

def loss(w, x): return ((mj.numpy.tanh(x @ w["a"]) @ w["b"]) ** 2).mean()

def update(w, x):
    g = mj.grad(loss)(w, x)
    return {k: w[k] - 0.01 * g[k] for k in w}

step = mj.jit(update, out_shardings={"a": whole, "b": whole})

def state(width):
    a = np.random.default_rng(0).normal(size=(width, width)).astype(np.float32) / width
    return {"a": put(a, whole), "b": put(a, whole)}, put(np.ones((8 * width, width), np.float32), rows)

def timed(call):
    for _ in range(5): result = call()
    mj.block_until_ready(result)
    each, thread = [], []
    for _ in range(8):
        start, own = time.perf_counter(), time.thread_time()
        for _ in range(20): result = call()
        thread.append((time.thread_time() - own) / 20)
        mj.block_until_ready(result)
        each.append((time.perf_counter() - start) / 20)
    return min(each) * 1e6, min(thread) * 1e6

w, x = state(WIDTHS[0])
mj.block_until_ready(step(w, x))
told = [time.time() - began, time.process_time()]
for width in WIDTHS:
    kept, x = state(width)
    def next_step():
        global kept
        kept = step(kept, x)
        return kept
    told += timed(next_step)
plain = mj.jit(lambda x: x + 1)
told += timed(lambda: plain(x))
if rank == 0: print("told", *told, flush=True)
"""
COLUMNS = ["start s", "start CPU s", *(f"step {w} {what}" for w in (*WIDTHS, "x + 1") for what in ("µs", "thread µs"))]


def run(library: str, python: str, bytecode: str) -> list[float]:
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        script = Path(folder) / "job.py"
        script.write_text(f"WIDTHS = {WIDTHS}\n{JOB}")
        environ = {**os.environ, "MESHJIT_COORDINATOR": where, "MESHJIT_NUM_PROCESSES": "2", "MESHJIT_NUM_CPU_DEVICES": "4"}
        environ |= {"MESHJIT_PLATFORMS": "cpu", "JAX_PLATFORMS": "cpu"} | ({"PYTHONPATH": ROOT} if library != "jax" else {})
        environ["PYTHONPYCACHEPREFIX"] = bytecode  # pip writes that of what it installs
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [python, str(script), library]
        began = str(time.time())
        running = [
            subprocess.Popen(
                [*command, str(rank), where, began], env={**environ, "MESHJIT_PROCESS_ID": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        said = [process.communicate(timeout=300) for process in running]
    line = next((line for out, _ in said for line in out.splitlines() if "told " in line), None)
    if line is None:
        raise RuntimeError("\n".join(error[-2000:] for _, error in said))
    return [float(word) for word in line.partition("told ")[2].split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax", metavar="PYTHON", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'--:|' * len(COLUMNS)}")
    rows: dict[str, list[list[float]]] = {"meshjit": [], "jax": []}
    with tempfile.TemporaryDirectory() as bytecode:
        for turn in range(arguments.rounds + 1):
            for library, python in (("meshjit", sys.executable), ("jax", arguments.jax)):
                row = run(library, python, bytecode)
                if turn:  # the first writes the bytecode
                    rows[library].append(row)
                    print(f"| {library} | {' | '.join(f'{x:.2f}' if x < 20 else f'{x:.0f}' for x in row)} |", flush=True)
    ours, theirs = ([statistics.median(column) for column in zip(*rows[library], strict=True)] for library in rows)
    print(f"| ours / JAX's | {' | '.join(f'{a / b:.2f}' for a, b in zip(ours, theirs, strict=True))} |")


if __name__ == "__main__":
    main()
