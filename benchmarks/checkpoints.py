"""Checkpoints beside orbax: seconds that `save` keeps the step waiting, until it is on disk, and to restore under another mesh.

    python benchmarks/checkpoints.py [--megabytes 1024] [--processes 1] [--orbax PYTHON]

PYTHON has jax and orbax-checkpoint. Each library runs alone, in a job of its own, with eight devices in all. `memcpy` is a copy
of the same bytes by NumPy, and `save waits` is to be at most 1.2 times it.
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
import os, sys, time
import numpy as np
folder, megabytes, library = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LEAVES = 16
rows = megabytes * (1 << 20) // 4 // 1024 // LEAVES // 8 * 8
value = np.arange(rows * 1024, dtype=np.float32).reshape(rows, 1024)
def now(): return time.perf_counter()
"""
OURS = COMMON + """
import meshjit as mj
from meshjit import checkpoints
from meshjit.sharding import NamedSharding, PartitionSpec as P
mesh = mj.make_mesh((len(mj.devices()),), ("x",))
by_rows, by_columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
state = {f"w{i}": mj.make_array_from_callback(value.shape, by_rows, lambda index: value[index]) for i in range(LEAVES)}
parts = [np.asarray(s.data) for leaf in state.values() for s in leaf.addressable_shards]
[p.copy() for p in parts]
start = now(); kept = [p.copy() for p in parts]; copied = now() - start; del kept, parts
checkpoints.save(folder + "/first", state, 1).wait()
start = now(); saving = checkpoints.save(folder, state, 1); waits = now() - start; saving.wait(); saved = now() - start
start = now(); back = checkpoints.restore(folder, like={k: by_columns for k in state})
for leaf in back.values(): leaf.block_until_ready()
restored = now() - start
if mj.process_index() == 0: print("times", copied, waits, saved, restored, flush=True)
"""
ORBAX = COMMON + """
import jax, orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P
if os.environ.get("WORLD", "1") != "1":
    jax.distributed.initialize(os.environ["WHERE"], int(os.environ["WORLD"]), int(os.environ["RANK"]))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
by_rows, by_columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
state = {f"w{i}": jax.make_array_from_callback(value.shape, by_rows, lambda index: value[index]) for i in range(LEAVES)}
parts = [np.asarray(s.data) for leaf in state.values() for s in leaf.addressable_shards]
[p.copy() for p in parts]
start = now(); kept = [p.copy() for p in parts]; copied = now() - start; del kept, parts
saver = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
saver.save(folder + "/first", args=ocp.args.StandardSave(state)); saver.wait_until_finished()
start = now(); saver.save(folder + "/orbax", args=ocp.args.StandardSave(state)); waits = now() - start
saver.wait_until_finished(); saved = now() - start
like = {k: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=by_columns) for k in state}
start = now(); back = jax.block_until_ready(saver.restore(folder + "/orbax", args=ocp.args.StandardRestore(like)))
restored = now() - start
if jax.process_index() == 0: print("times", copied, waits, saved, restored, flush=True)
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
    print("| | memcpy | save waits | saved | restored |\n|---|--:|--:|--:|--:|")
    for _ in range(arguments.rounds):
        for name, python, text in (("meshjit", sys.executable, OURS), ("orbax", arguments.orbax, ORBAX)):
            if python:
                row = times(python, text, arguments.processes, arguments.megabytes)
                print(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in row)} |", flush=True)


if __name__ == "__main__":
    main()
