"""Checkpoints beside orbax: seconds that `save` keeps the step waiting, until it is on disk, and to restore under another mesh.

    python benchmarks/checkpoints.py [--megabytes 1024] [--processes 1] [--orbax PYTHON]

PYTHON has jax and orbax-checkpoint. Each library runs alone, in a job of its own, with eight devices in all. `memcpy` is a copy
of the same bytes by NumPy, into fresh memory and into memory that it has used before; `save waits` for the first time, and later:
by turns with the copies, the median of three. It is to be at most 1.2 times the copy of its kind.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
COMMON = """
import os, shutil, statistics, sys, time
import numpy as np
folder, megabytes, library = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LEAVES = 16
rows = megabytes * (1 << 20) // 4 // 1024 // LEAVES // 8 * 8
value = np.arange(rows * 1024, dtype=np.float32).reshape(rows, 1024)
def now(): return time.perf_counter()
times = []

def timed(state, save, wait, first):
    # seconds: copying into fresh memory, into used memory; waiting for the first save, for a later one, and until that is there
    parts = [np.asarray(s.data) for leaf in state.values() for s in leaf.addressable_shards]
    start = now(); kept = [p.copy() for p in parts]; fresh = now() - start
    start = now(); saving = save(first); first_waits = now() - start; wait(saving)
    rows = []
    for step in range(first + 1, first + 4):
        start = now()
        for target, part in zip(kept, parts): np.copyto(target, part)
        copied = now() - start
        start = now(); saving = save(step); waits = now() - start; wait(saving); rows.append((copied, waits, now() - start))
    copied, waits, saved = map(statistics.median, zip(*rows))
    times.extend([fresh, copied, first_waits, waits, saved])
"""
OURS = COMMON + """
import meshjit as mj
from meshjit import checkpoints
from meshjit.sharding import NamedSharding, PartitionSpec as P
mesh = mj.make_mesh((len(mj.devices()),), ("x",))
by_rows, by_columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
state = {f"w{i}": mj.make_array_from_callback(value.shape, by_rows, lambda index: value[index]) for i in range(LEAVES)}
def save(step): return checkpoints.save(folder, state, step, keep=1)
timed(state, save, lambda saving: saving.wait(), 1)
start = now(); back = checkpoints.restore(folder, like={k: by_columns for k in state})
for leaf in back.values(): leaf.block_until_ready()
times.append(now() - start)
if mj.process_index() == 0: print("times", *times, flush=True)
"""
ORBAX = COMMON + """
import jax, orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P
if os.environ.get("WORLD", "1") != "1":
    jax.distributed.initialize(os.environ["WHERE"], int(os.environ["WORLD"]), int(os.environ["RANK"]))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
by_rows, by_columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
state = {f"w{i}": jax.make_array_from_callback(value.shape, by_rows, lambda index: value[index]) for i in range(LEAVES)}
saver = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
def save(step):
    if step > 1 and jax.process_index() == 0: shutil.rmtree(f"{folder}/orbax{step - 1}")
    return saver.save(f"{folder}/orbax{step}", args=ocp.args.StandardSave(state))
timed(state, save, lambda _: saver.wait_until_finished(), 1)
like = {k: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=by_columns) for k in state}
start = now(); back = jax.block_until_ready(saver.restore(f"{folder}/orbax4", args=ocp.args.StandardRestore(like)))
times.append(now() - start)
if jax.process_index() == 0: print("times", *times, flush=True)
"""


def times(python: str, text: str, processes: int, megabytes: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(text)
        environ = {**os.environ, "PYTHONPATH": ROOT, "MESHJIT_NUM_CPU_DEVICES": str(8 // processes), "MESHJIT_PLATFORMS": "cpu"}
        environ |= {"JAX_NUM_CPU_DEVICES": str(8 // processes), "JAX_PLATFORMS": "cpu", "WORLD": str(processes)}
        environ |= {"WHERE": "127.0.0.1:61999", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
        arguments = [str(script), f"{folder}/data", str(megabytes), "x"]
        os.mkdir(f"{folder}/data")
        if text is OURS and processes > 1:
            jobs = [([python, "-m", "meshjit.cli", "run", "-n", str(processes), *arguments], environ)]
        else:
            jobs = [([python, *arguments], {**environ, "RANK": str(rank)}) for rank in range(processes)]
        running = [subprocess.Popen(c, env=e, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c, e in jobs]
        said = [process.communicate(timeout=600) for process in running]
    line = next((line for out, _ in said for line in out.splitlines() if "times " in line), None)
    if line is None:
        raise RuntimeError("\n".join(error[-2000:] for _, error in said))
    return [float(word) for word in line.partition("times ")[2].split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--orbax", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{arguments.megabytes} MB, {arguments.processes} processes")
    print("| | memcpy, fresh | memcpy, used | first save waits | later ones | saved | restored |\n|---|--:|--:|--:|--:|--:|--:|")
    for _ in range(arguments.rounds):
        for name, python, text in (("meshjit", sys.executable, OURS), ("orbax", arguments.orbax, ORBAX)):
            if python:
                row = times(python, text, arguments.processes, arguments.megabytes)
                print(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in row)} |", flush=True)


if __name__ == "__main__":
    main()
