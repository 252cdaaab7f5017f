"""Every op compiled for GPUs or TPUs that are not there: does the platform's own compiler take the text? Nothing is run.

    python -m tests.tools.compile_ahead cuda [op ...]                 needs jax-cuda12-pjrt, nvidia-cuda-nvcc-cu12 (ptxas in PATH)
    python -m tests.tools.compile_ahead tpu [op ...]                  needs libtpu
    python -m tests.tools.compile_ahead cuda --programs --minutes 5   random programs instead, drawn as for tests.tools.fuzz_compiled

Each op with all its samples in one program, twice: on one device, and on eight with the first dim of every operand sharded. No
driver is needed for a GPU, but XLA_FLAGS=--xla_gpu_autotune_level=0, since there is none to tune on. libtpu's environment is in
`meshjit/experimental/topologies.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY, Op
from meshjit.core.program import Builder, Program
from meshjit.experimental.topologies import get_topology_desc
from meshjit.plan.make import Annotations
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower
from sharding.mesh import Mesh
from sharding.spec import PartitionSpec
from tests.tools.fuzz import CONTROL, case
from tests.tools.fuzz_memory import IN_MEMORY
from tests.tools.laws import random_spec
from tests.tools.op_harness import GLOBAL_OPS, called, has_two_bits, samples

# An H100 SXM, as NVIDIA publishes it; fields as in XLA's `stream_executor/device_description.proto`.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } device_description_str: "NVIDIA H100 80GB HBM3"
"""


def absent_devices(platform: str) -> Sequence[Any]:
    if platform == "cuda":
        return get_topology_desc("", "cuda", target_config=H100, topology="1x1x8").devices
    return get_topology_desc("v5e:4x4", "tpu").devices[:8]


def of_op(op: Op, platform: str) -> Program:
    """All samples of an op, one after the other; for GPUs without those of 2 bits, which are refused."""
    chosen = [sample for sample in samples(op) if platform == "tpu" or not has_two_bits(sample)]
    with Builder(op.name) as builder:
        results = [called(op, [builder.input(t) for t in sample.types], sample.params) for sample in chosen]
        return builder.build([var for each in results for var in each])


def sharded(program: Program) -> Annotations:
    specs = [PartitionSpec(*["x"][: var.rank]) for var in program.inputs]
    return Annotations(specs, [None] * len(program.outputs))


def refusal(program: Program, mesh: Mesh, annotations: Annotations) -> str | None:
    """What the compiler, or the way to it, said; None where it compiled."""
    try:
        Executable(lower(program, mesh, annotations), [False] * len(program.outputs))
    except Exception as error:  # whatever it is, the rest is of interest, too
        return f"{type(error).__name__}: {error}"
    return None


def cases(names: Sequence[str], devices: Sequence[Any], platform: str) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for op in [REGISTRY[name] for name in names] or [op for op in GLOBAL_OPS if samples(op)]:
        for shape in ((1, 1), (4, 2)):
            mesh = Mesh(np.array(devices[: shape[0] * shape[1]]).reshape(shape), ("x", "y"))
            yield f"{op.name} on {shape}", lambda op=op, mesh=mesh: refusal(program := of_op(op, platform), mesh, sharded(program))


def drawn(devices: Sequence[Any]) -> Iterator[tuple[str, Callable[[], str | None]]]:
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    for seed in range(1 << 30):
        program = case(seed, 2 + seed % 9, CONTROL if seed % 5 == 4 else IN_MEMORY)[0]
        generator = np.random.default_rng(seed)
        shape = mesh.abstract_mesh
        inputs, outputs = ([random_spec(generator, v.rank, shape) for v in vs] for vs in (program.inputs, program.outputs))
        given = Annotations(inputs, outputs)
        yield f"seed {seed}", lambda program=program, given=given: refusal(program, mesh, given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform", choices=("cuda", "tpu"))
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--names", action="store_true", help="print the name of each beforehand: compilers may end the process")
    given = parser.parse_args()
    devices, end, compiled, refused = absent_devices(given.platform), time.time() + 60 * given.minutes, 0, 0
    for name, run in drawn(devices) if given.programs else cases(given.ops, devices, given.platform):
        if time.time() > end:
            break
        if given.names:
            print(name, flush=True)
        message = run()
        compiled, refused = compiled + (message is None), refused + (message is not None)
        if message:
            print(f"{name}: {message[:1000]}", flush=True)
    print(f"{compiled} compiled, {refused} refused")
    raise SystemExit(refused > 0)


if __name__ == "__main__":
    main()
