"""GPUs under XLA. A GPU sorts and shifts all elements side by side; NCCL's reductions are sum, product, maximum and minimum.

Every op with all its samples ran on an H200 (jaxlib 0.11.2). Collectives of several GPUs were compiled for H100 that were not
there (`tests/tools/compile_ahead.py`), and never ran.
"""

from __future__ import annotations

import os
import re

from meshjit.core.target import Target
from sharding.figures import Figures
from sharding.mesh import BaseMesh
from sharding.topology import topology_of

# A product whose batches are not major reads and writes its operand first: where keys and values of a decoding step lie as
# bf16[32, 4096, 8, 128], a transposition of each stands before cuBLAS's products in what XLA compiles for an H100.
BATCH_REORDERING = 2.0

STEP_SECONDS = 3e-6  # what `ops/linalg/column_work.py` counts steps in: cuSOLVER's times for 1,024 x 1,024 on an H200

COMPARES = 4  # the level of tuning at which XLA takes no kernel whose results differ from a library's; its default


def target(mesh: BaseMesh, figures: Figures) -> Target:
    """GPUs of a model of `sharding.figures.DEVICES`, or of a file.

    Faults (docs/xla.md): an all-reduce of a constant ends the process; elements of 2 bits come out wrong, those of 4 go to the
    wrong places of an update; convolutions are cuDNN's, of floats; Triton's products of int8 with sums of int32 come out doubled.

    Two matrices of int8, 8,192 x 8,192, take 228 ms on an H200 with sums of int8, and 1.25 ms with sums of int32 (jaxlib 0.11.2).
    """
    return Target(
        "gpu",
        topology_of(figures, mesh),
        has_host_memory=True,
        lacks_bitwise_collectives=True,
        ends_at_sums_of_constants=True,
        lacks_two_bits=True,
        updates_bytes=True,
        doubles_products_of_int8=True,
        compares_kernels=tuning_level() >= COMPARES,
        convolves_floats_only=True,
        adds_int8_in_int32=True,
        batch_reordering=BATCH_REORDERING,
        step_seconds=STEP_SECONDS,
    )


def tuning_level() -> int:
    """How far XLA tunes its kernels, by XLA_FLAGS, where the last flag counts."""
    levels = re.findall(r"--xla_gpu_autotune_level=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(levels[-1]) if levels else COMPARES
