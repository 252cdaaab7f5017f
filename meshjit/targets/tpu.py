"""TPUs under XLA: slow where elements are fetched one by one, good at windows.

Figures are libtpu 0.0.51's estimates for v5e:4x4. `top_k` of 64 x 50257 over 4 devices takes 22 microseconds where candidates are
sorted with their places, 68 where places are gathered.
"""

from __future__ import annotations

from meshjit.core.target import Target
from sharding.figures import Figures
from sharding.mesh import BaseMesh
from sharding.topology import slice_axes, topology_of

# A slice of one element takes 2 microseconds, as long as one of a thousand. A step of a small vision transformer had eight.
CHOICES = 16

LANES = 128  # of a vector register: blocks of running totals are as wide. The compiler cuts longer windows by itself.

# A register has 8 times LANES elements of any type up to 4 bytes; the compiler chooses which dims lie along it. Running totals of
# 4,194,304 floats take, in thousand cycles: (32768, 128) 188, (262144, 16) 147, (1048576, 4) 224, (4194304, 1) 958. Other ops are
# priced by their bytes: an FFT of (1048576, 4) takes no longer; to double one column takes 5 times as long, but is mostly fused,
# and of 8,192 elements it takes 2.2 thousand cycles as (2, 4096), 2.0 as (8, 1024) (libtpu 0.0.52, v5e).
SUBLANES = 8

# Of an extent, that may be read besides where a value stays whole: rolls of f32[4096, 4096] by 128 places take 1 % more cycles
# so, by 512 places 10 %.
LATE = 1 / 16

# A convolution reads and writes images whose features, or whose batch if that wastes less, fill LANES, while it multiplies.
# Of fewer than 8 images, rows of 16 places and more are cut into more images, and put together again. Steps of two layers
# (forward and backward, five convolutions of 3 x 3) are estimated at, in microseconds for every 1,024 places (libtpu 0.0.52):
#
#     f32[b, 32, 32, 64]   b = 4: 30    8: 7.6    16: 7.4    32: 5.6    64: 5.8    128: 4.0
#     f32[b, 32, 32, 16]   b = 4: 20    16: 5.2   64: 2.0    128: 1.0
#     f32[b, 64, 8, 64]    b = 1: 16    2: 9      4: 7.1     8: 6.1     16: 5.6
#     f32[16, 32, 32, c]   c = 64: 7.4  128: 9.9  256: 35, which its multiplications take
#
# 43 such steps are predicted between 0.55 and 1.8 of the estimate, in their order by 0.98.
SMALL_BATCH = 8
CUT_ROWS = 16
CUT_PASSES = 7.0

# A gather of 16,384 elements takes 91 microseconds, of rows of 4 or 64 as long beside what brings them into order, of 256 twice
# as long; adding rows to a table twice as long as fetching them. The tables do not count (libtpu 0.0.52, v5e).
ROW_SECONDS = 6e-9

# A pad of f32[4104, 4104] by one place on each side takes 414 thousand cycles, in which it could be read 5.4 times.
# 20 steps of the heat equation, f32[1024, 1024] a device, take 1.96 million cycles in blocks and 1.25 without.
PAD_PASSES = 5.0

# Features in groups, kernels of 7 x 7, by the cycles of what is compiled for a v5e: f32[64, 56, 56, 96], each feature a group,
# 2.8 million, as many as 315 features of each group take at the peak rate; f32[64, 14, 14, 384] 0.47 million, as many as 207.
GROUP_WIDTH = 256

# A step of what goes by columns: a guess, such that 1,024 x 1,024 take 1.5 ms (cholesky) to 170 ms (svd). No TPU was there to
# measure it.
STEP_SECONDS = 9e-6


def target(mesh: BaseMesh, figures: Figures) -> Target:
    """TPUs of a chip of `sharding.figures.DEVICES`, or of a file.

    Parts that are put together are written to memory first: the sum of the four neighbours of every place of f32[4096, 4096], by
    rolls, takes 2.06 million cycles where a roll is two parts, 0.83 where it is cut from a border and the whole (libtpu 0.0.52).
    """
    return Target(
        "tpu",
        topology_of(figures, mesh, slice_axes(mesh)),
        has_host_memory=True,
        has_slow_gathers=True,
        slices_late=LATE,
        pad_passes=PAD_PASSES,
        step_seconds=STEP_SECONDS,
        group_width=GROUP_WIDTH,
        lanes=LANES,
        sublanes=SUBLANES,
        small_batch=SMALL_BATCH,
        cut_rows=CUT_ROWS,
        cut_passes=CUT_PASSES,
        row_seconds=ROW_SECONDS,
        most_choices=CHOICES,
        running_total_block=LANES,
        blocks_running_totals=True,
    )
