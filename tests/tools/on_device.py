"""Every op, with all its samples, on a device of the platform at hand, compared with its NumPy meaning.

    python -m tests.tools.on_device cuda [op ...] [--workers 8]        needs a GPU and jaxlib's plugin
    python -m tests.tools.on_device cpu

An op's samples are one program; where it fails, every sample is one, so that those that fail are named. Ops that the platform does not
have count as refused. A scatter that sets one element twice leaves open which one stays, and differs on GPUs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import meshjit as mj
from meshjit.core.op import REGISTRY, Op, Sample
from meshjit.core.program import Builder
from meshjit.plan.make import Annotations
from meshjit.runtime.executable import Executable
from meshjit.runtime.lowering import lower
from sharding.mesh import Mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec
from tests.tools.op_harness import GLOBAL_OPS, assert_close, called, describe, evaluated, has_two_bits, samples

LOOSE = 8.0  # times what the CPU tests allow: GPUs sum up in another order


def differences(op: Op, chosen: Sequence[Sample], platform: str) -> Iterator[str]:
    """What differs between the device's results and NumPy's, one line per result."""
    mesh, generator = Mesh(np.array(mj.devices(platform)[:1]).reshape(1, 1), ("x", "y")), np.random.default_rng(0)
    with Builder(op.name) as builder:
        results = [called(op, [builder.input(t) for t in sample.types], sample.params) for sample in chosen]
        program = builder.build([var for each in results for var in each])
    arrays = [sample.arrays(generator) for sample in chosen]
    given = Annotations([PartitionSpec()] * len(program.inputs), [None] * len(program.outputs))
    executable = Executable(lower(program, mesh, given), [False] * len(program.outputs))
    memories = [s.params.get("source") if op.name == "in_memory" else None for s in chosen]
    placed = [
        mj.device_put(array, NamedSharding(mesh, PartitionSpec(), memory_kind=memory))
        for each, memory in zip(arrays, memories, strict=True)
        for array in each
    ]
    got = iter(executable(placed))
    for sample, operands in zip(chosen, arrays, strict=True):
        for expected in evaluated(op, operands, sample.params):
            try:
                assert_close(np.asarray(next(got)), expected, scale=LOOSE)
            except AssertionError as error:
                yield f"{describe(op, sample)}: {' '.join(str(error).split())[:300]}"


def check(name: str, platform: str) -> list[str]:
    """What is wrong with an op on this platform."""
    warnings.simplefilter("ignore")
    mj.config.update("enable_x64", True)
    op = REGISTRY[name]
    chosen = [s for s in samples(op) if platform == "cpu" or not has_two_bits(s)]
    try:
        return list(differences(op, chosen, platform))
    except Exception:  # whatever it is: each sample by itself says more
        return [line for sample in chosen for line in _alone(op, sample, platform)]


def _alone(op: Op, sample: Sample, platform: str) -> list[str]:
    try:
        return list(differences(op, [sample], platform))
    except Exception as error:  # as above
        return [f"{describe(op, sample)}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform", choices=("cpu", "cuda", "tpu"))
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the workers share the device's memory
    names = given.ops or [op.name for op in GLOBAL_OPS if samples(op)]
    wrong = 0
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        for name, lines in zip(names, pool.map(check, names, [given.platform] * len(names)), strict=True):
            wrong += bool(lines)
            print("\n".join([f"{name}: {len(lines)} wrong", *lines[:8]]) if lines else name, flush=True)
    print(f"{len(names)} ops, {wrong} of them wrong")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
