"""The automatic plan beside the hand-annotated one, both compiled ahead by the machine's own compiler. Needs libtpu, no TPU.

    python benchmarks/automatic_ahead.py --programs FILE mlp_2d xf_block_tp        for v5e:4x4

FILE is a Python file with `load_fw(name)` and `programs(fw, size)`, whose programs give `mesh(devices)` and `build(mesh)`; what
is built has `fn`, the function, and `abstract()`, its arguments' types with the shardings that an expert gave them. The
automatic plan gets the same function and types without those shardings. Estimates are the compiler's, which price no links.
As it compiles by default they count what is fetched ahead of its use once more for every step of that, by slices several times,
and leave out what fusions read in which a collective runs. "once": of the same program compiled without either, so that all that
instructions read and write counts once. Cycles are the sum of what the compiled text says of its instructions. All count a loop
once. The predicted times are those of `meshjit/plan/cost.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import time
from typing import Any, Final

import meshjit as mj
from meshjit.experimental.topologies import get_topology_desc, in_order_of_links
from meshjit.inspect.ahead import absent_accelerators, estimated_seconds, held_bytes

ONCE: Final = {
    "xla_tpu_enable_async_collective_fusion": "false",
    "xla_msa_max_outstanding_prefetches": "0",
    "xla_msa_max_cross_program_prefetches": "0",
}  # options under which the estimate leaves nothing out, and counts nothing twice


def module_of(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("programs", os.path.abspath(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(name: str, program: Any, devices: Any, time_limit: float) -> str:
    mesh = program.mesh(devices)
    built = program.build(mesh)
    shapes = built.abstract()
    types = mj.tree.map(lambda t: mj.ShapeDtypeStruct(t.shape, t.dtype), shapes)
    by_hand = built.jit().lower(*shapes)
    start = time.process_time()
    automatic = mj.auto(built.fn, mesh=mesh, time_limit=time_limit).trace(*types).lower()
    seconds = time.process_time() - start
    texts = [f"{name:>12}"]
    for lowered in (by_hand, automatic):
        compiled, once, cost = lowered.compile(), lowered.compile(compiler_options=ONCE), lowered.plan.cost
        assert cost is not None
        cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', compiled.as_text())))
        texts.append(f"{estimated_seconds(compiled) * 1e3:8.3f} {estimated_seconds(once) * 1e3:8.3f} {cycles / 1e6:8.3f}")
        texts.append(f"{cost.seconds * 1e3:9.3f} {cost.wire_bytes / 1e6:8.2f}")
        texts.append(f"{held_bytes(compiled) / 1e6:7.0f}")
    return " ".join([*texts, f"{seconds:6.1f}", str(automatic.plan.optimum)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", required=True)
    parser.add_argument("--topology", default="v5e:4x4")
    parser.add_argument("--size", default="large")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    module = module_of(arguments.programs)
    programs = module.programs(module.load_fw("meshjit"), arguments.size)
    with absent_accelerators():
        compare(programs, arguments)


def compare(programs: Any, arguments: argparse.Namespace) -> None:
    devices = in_order_of_links(get_topology_desc(arguments.topology, "tpu").devices)
    columns = f"{'est. ms':>8} {'once':>8} {'M cycles':>8} {'predicted':>9} {'wire MB':>8} {'held MB':>7}"
    print(f"{'':>12} {'by hand':<53} automatic\n{'program':>12} {columns} {columns} {'plan s':>6}")
    for name in arguments.names or programs:
        print(row(name, programs[name], devices, arguments.time_limit), flush=True)


if __name__ == "__main__":
    main()
