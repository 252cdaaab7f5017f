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


# f32[16, 64, 32, i] by f32[3, 3, i, o] is estimated at 74 to 103 us for i and o from 16 to 128, in which both images, features
# rounded up to LANES, could be read 2.2 times; its multiplications take 0.8 to 49 us (libtpu 0.0.52).
WINDOW_PASSES = 2.2

# A pad of f32[4104, 4104] by one place on each side takes 414 thousand cycles, in which it could be read 5.4 times.
# 20 steps of the heat equation, f32[1024, 1024] a device, take 1.96 million cycles in blocks and 1.25 without.
PAD_PASSES = 5.0


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
        slices_late=True,
        pad_passes=PAD_PASSES,
        lanes=LANES,
        window_passes=WINDOW_PASSES,
        most_choices=CHOICES,
        running_total_block=LANES,
        blocks_running_totals=True,
    )
