"""How long the automatic planner takes for large steps, and how near its plans are to the optimum.

    python benchmarks/automatic.py                     2, 8 and 32 layers on 8x8 devices, 32 layers on 8x8x8
    python benchmarks/automatic.py --layers 32 --mesh 16x16
    python benchmarks/automatic.py --layers 32 --scan [--memory 30e9] [--checkpoints]      where memory is short
    python benchmarks/automatic.py --programs programs.py [--size small] [--device "TPU v5 lite" --devices 16]
    python benchmarks/automatic.py --programs programs.py --jax "PYTHON measure.py"       beside JAX's completions, too

The step is that of `lowering.py`: a Llama-shaped model of 8 billion parameters, Adam, every layer behind a checkpoint; without a
single annotation, for TPU v5p. Processor time of planning after tracing, simplification included. No device is needed.

`--programs`: a file with load_fw(name) and programs(fw, size), which gives annotated programs by name: each with
`axes`, `mesh_shape(devices)` and `build(mesh)`, which gives the function `fn`, `jit()` with its annotations, and `abstract()`
arguments. Each is planned as annotated, and without annotations.

`--jax`: a command that compiles such a program with JAX on CPU devices and prints a line of JSON with `wire_bytes`, what a device
sends. It is given `--fw jax --program NAME --size SIZE --ndev N --no-run --partitioner P`, where P is shardy or gspmd.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

from lowering import Model

import meshjit as mj
from sharding.mesh import AbstractDevice, AbstractMesh

CHIP = AbstractDevice("TPU v5p", None, "tpu")
SCANNED = 128  # examples, two a device
ROWS = ((2, (8, 8)), (8, (8, 8)), (32, (8, 8)), (32, (8, 8, 8)))


def row(layers: int, shape: tuple[int, ...]) -> str:
    model = Model("meshjit", layers, scan=False)
    types, _ = model.arguments()
    mesh = AbstractMesh(shape, ("x", "y", "z")[: len(shape)], abstract_device=CHIP)
    start = time.process_time()
    traced = mj.auto(model.step, mesh=mesh, donate_argnums=0).trace(*types)
    between = time.process_time()
    plan = traced.plan().plan
    end = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    mesh_text = "x".join(map(str, shape))
    times = f"{between - start:8.2f} {end - between:7.2f} {memory:7.0f}"
    return f"{layers:7} {mesh_text:>8} {len(plan.program.eqns):10} {times}  {plan.optimum}"


def scanned(layers: int, shape: tuple[int, ...], memory: float | None, checkpoints: bool) -> str:
    """Layers in a scan: what is computed again, if the step needs it to fit the memory."""
    model = Model("meshjit", layers, scan=True, batch=SCANNED, checkpoints=checkpoints)
    types, _ = model.arguments()
    mesh = AbstractMesh(shape, ("x", "y", "z")[: len(shape)], abstract_device=CHIP)
    traced = mj.auto(model.step, mesh=mesh, donate_argnums=0, effort=0, memory=memory).trace(*types)
    start = time.process_time()
    plan = traced.plan().plan
    seconds = time.process_time() - start
    assert plan.cost is not None
    again = [d.subject for d in plan.decisions if d.kind == "try" and d.choice == "kept"]
    return "\n  ".join([f"{seconds:.1f} s  {plan.cost.seconds * 1e3:.0f} ms  {plan.cost.peak_bytes / 1e9:.1f} GB", *again])


def programs_in(path: str, size: str) -> dict[str, Any]:
    """The annotated programs of a file, by name."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.programs(module.load_fw("meshjit"), size)


def by_jax(command: str, name: str, size: str, count: int) -> list[str]:
    """Bytes on the wire as Shardy and as GSPMD complete the annotations; what failed is a question mark."""
    texts = list[str]()
    for partitioner in ("shardy", "gspmd"):
        options = f"--fw jax --program {name} --size {size} --ndev {count} --no-run --partitioner {partitioner}"
        done = subprocess.run(shlex.split(f"{command} {options}"), capture_output=True, text=True, check=False)
        found = json.loads(done.stdout.splitlines()[-1]).get("wire_bytes") if done.stdout else None
        texts.append(f"{'?' if found is None else format(found, ','):>13}")
    return texts


def beside_annotations(name: str, program: Any, device: AbstractDevice, count: int, others: list[str]) -> str:
    """A row: predicted time and bytes on the wire, as annotated and automatic; between them the bytes of others."""
    built = program.build(AbstractMesh(program.mesh_shape(count), program.axes, abstract_device=device))
    by_hand = built.jit().trace(*built.abstract()).plan().plan.cost
    traced = mj.auto(built.fn, mesh=built.mesh).trace(*built.abstract())
    start = time.process_time()
    plan = traced.plan().plan
    seconds = time.process_time() - start
    assert by_hand is not None and plan.cost is not None
    sides = [f"{cost.seconds * 1e3:9.4f} {cost.wire_bytes:13,.0f}" for cost in (by_hand, plan.cost)]
    return f"{name:12} {len(plan.program.eqns):10} {seconds:7.2f} {' '.join([sides[0], *others, sides[1]])}  {plan.optimum}"


def compare(path: str, size: str, only: str | None, device: AbstractDevice, count: int, jax: str | None) -> None:
    heads = f"{'by hand ms':>9} {'bytes':>12} {'JAX, Shardy   JAX, GSPMD' if jax else ''} {'auto ms':>9} {'bytes':>13}"
    print(f"{'program':12} {'equations':>10} {'plan s':>7} {heads}  plan")
    for name, program in programs_in(path, size).items():
        if only is None or name in only.split(","):
            others = by_jax(jax, name, size, count) if jax else []
            print(beside_annotations(name, program, device, count, others), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--mesh", default="8x8")
    parser.add_argument("--scan", action="store_true", help="layers in a scan, not behind checkpoints")
    parser.add_argument("--memory", type=float, help="bytes a device, with --scan")
    parser.add_argument("--checkpoints", action="store_true", help="with --scan: behind checkpoints all the same")
    parser.add_argument("--programs", help="a file of annotated programs to compare with, see above")
    parser.add_argument("--size", default="small", help="of --programs")
    parser.add_argument("--jax", help="a command that compiles them with JAX, see above")
    parser.add_argument("--only", help="names of --programs, with commas")
    parser.add_argument("--device", default="cpu", help="its kind, as the runtime calls it, for --programs")
    parser.add_argument("--devices", type=int, default=8, help="how many, for --programs")
    arguments = parser.parse_args()
    if arguments.programs is not None:
        kind = arguments.device
        platform = "tpu" if kind.startswith("TPU") else "gpu" if kind.startswith("NVIDIA") else "cpu"
        device = AbstractDevice(kind, None, platform)
        compare(arguments.programs, arguments.size, arguments.only, device, arguments.devices, arguments.jax)
        return
    shape = tuple(int(n) for n in arguments.mesh.split("x"))
    if arguments.scan:
        print(scanned(arguments.layers or 32, shape, arguments.memory, arguments.checkpoints))
        return
    print(f"{'layers':>7} {'mesh':>8} {'equations':>10} {'trace s':>8} {'plan s':>7} {'RSS MB':>7}  plan")
    for layers, each in ROWS if arguments.layers is None else [(arguments.layers, shape)]:
        print(row(layers, each), flush=True)


if __name__ == "__main__":
    main()
