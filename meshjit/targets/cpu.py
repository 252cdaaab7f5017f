"""XLA:CPU (jaxlib 0.10.2): what it does wrongly or slowly. docs/xla.md names the faults with their isolates."""

from __future__ import annotations

from meshjit.core.target import Target
from sharding.figures import Figures
from sharding.mesh import BaseMesh
from sharding.topology import topology_of

# XLA:CPU sums up at most 32 elements in one loop. Of a longer sum it writes the summands to memory first.
LONGEST_SUM = 32

# `searchsorted` compares a value with all entries of two rows of 32, or of more if these are up to 2**15 pairs. Both ways then
# take 0.12 to 0.13 ms (2 cores, f32), but halving is a loop, into which nothing is fused.
COMPARED_PAIRS = 1 << 15

# Running totals of 64 x 4096 f32 take 1.1 ms in windows of 16, 5.1 ms in windows of 33, 12 ms in windows of 256 (2 cores).
WINDOW = 16

# A sort along a dim over 8 devices, on 2 cores, f32: of 131,072 elements it takes 32 ms to select a device's own and sort
# these, 570 ms to sort all on every device; of 2,048 it is 1.2 against 2.4 ms, but twelve times the text to compile.
SELECTION_EXTENT = 2048

# XLA:CPU hands a convolution to YNNPACK if one side has more than 16 features. Eigen does the others, and copies their windows:
# 3 ns a place on a core that does 130 to 180 GFLOP/s then. A kernel's gradient of f32[64, 8, 32, 8] and f32[8, 32, 8, n], whose
# 147,456 places have 8 elements each, takes 0.55 ms for n = 16, and 1.03 ms for n = 64, which is four times the work.
NARROW_WINDOWS = 16
WINDOW_FLOPS = 400.0

# A place of the kernel at an element of the result takes 3 to 5 ns where features are in groups: of 1, 4 and 32 of 64 to 128
# features (f32[4, 28, 28, n], kernels of 3 and 7 places a side), and 1.7 ns for 64 features without groups.
GROUP_WIDTH = 128

# What is fused with a roll along the minor dim reads element by element: a stencil's step on f32[128, 1024] takes 91 us with
# two such rolls, 48 us with slices of a padded value instead, and 37 us with rolls along dim 0 (one core of two). Where the minor
# dim is sharded, and the roll two parts, it does not: five steps of f32[1024, 1024] take 7.8 ms, and 14.8 ms where it is whole.
BROKEN_LINES = 1.0

# A convolution whose features are not minor, as those of a kernel's gradient, begins by bringing them there: 0.6 ns a byte of a
# device, an eighth of two cores, which reads 15 GB/s. f32[8, 8, 32, 64] twice, to f32[3, 3, 64, 64], takes 3.8 ms; as many
# multiplications of images take 2.9. Of 17 such gradients measured, predictions are then within a fifth.
REORDERING = 9.0

# A product whose batches are not major begins by making them so: 0.1 ns a byte, in which a device alone reads 1.5. Scores of
# f32[8, 256, 8, 64] twice, heads behind places, take 3.4 ms, and 2.5 where heads come first (one device).
BATCH_REORDERING = 1.5

# In a block of iterations an update is of a part of what is carried, and its result is put to zeros: three copies, where the
# ordinary loop writes in place. The heat equation by `u.at[1:-1, 1:-1].set` on f32[1024, 1024] over 8 devices takes 1.5 ms an
# iteration in blocks, and 0.7 without; by rolls it takes as long either way.
MOVED_UPDATES = 6.0


def target(mesh: BaseMesh, figures: Figures) -> Target:
    """CPU devices, without the LAPACK that text for CPU alone may call.

    Faults: maxima over devices lose NaN; an all_to_all whose pieces are simplified before it is refused (docs/xla.md,
    pieces_of_all_to_all); no collective combines integers by `and` or `or`; an update that reads other elements of its
    operand is fused into the write (docs/xla.md, update_in_place); barriers are gone before it fuses.
    Shifts are fused into their readers, so k sweeps of a stencil take some 5**k steps unless shifts are shared.
    """
    return Target(
        "cpu",
        topology_of(figures, mesh),
        loses_nan=True,
        needs_barrier_before_all_to_all=True,
        lacks_bitwise_collectives=True,
        drops_barriers=True,
        materializes_updates=True,
        shares_shifts=True,
        moved_updates=MOVED_UPDATES,
        isolates_random_words=True,
        running_total_block=WINDOW,
        longest_sum=LONGEST_SUM,
        compared_entries=2 * LONGEST_SUM,
        broken_lines=BROKEN_LINES,
        narrow_windows=NARROW_WINDOWS,
        group_width=GROUP_WIDTH,
        window_flops=WINDOW_FLOPS,
        reordering=REORDERING,
        batch_reordering=BATCH_REORDERING,
        compared_pairs=COMPARED_PAIRS,
        selects_above=SELECTION_EXTENT,
    )
