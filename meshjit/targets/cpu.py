"""XLA:CPU (jaxlib 0.10.2): what it does wrongly or slowly. docs/xla.md names the faults with their isolates."""

from __future__ import annotations

from meshjit.core.target import Target
from sharding.mesh import BaseMesh
from sharding.topology import Topology

# XLA:CPU sums up at most 32 elements in one loop. Of a longer sum it writes the summands to memory first.
LONGEST_SUM = 32

# A halving search gathers one element per value and round; on a CPU a gather is cheap and starting a round is not.
# Comparing with all entries wins up to two rows of 32 for any number of values, and up to 2**15 pairs in all.
COMPARED_PAIRS = 1 << 15

# Elements from which computing threefry's rounds twice takes longer than a loop of one trip. XLA fuses these hundred
# cheap operations into every kernel that reads the words.
RANDOM_WORDS = 1024

# One window of 33 places takes XLA's loop five times as long as one of 16, where twice is its share.
WINDOW = 16

# Sorting goes through the elements one by one; selecting a device's own elements is some 90 reads of the keys, and from
# 2048 elements on faster than sorting all of them. (8 devices on 2 cores.)
SELECTION_EXTENT = 2048
SELECTION_PASSES = 90.0


def target(mesh: BaseMesh) -> Target:
    """CPU devices, without the LAPACK that text for CPU alone may call.

    Faults: maxima over devices lose NaN; an all_to_all whose pieces are simplified before it is refused (docs/xla.md,
    pieces_of_all_to_all); an update that reads other elements of its operand is fused into the write.
    Shifts are fused into their readers, so k sweeps of a stencil take some 5**k steps unless shifts are shared.
    """
    return Target(
        "cpu",
        Topology.cpu(mesh),
        loses_nan=True,
        needs_barrier_before_all_to_all=True,
        materializes_updates=True,
        shares_shifts=True,
        isolates_random_words=RANDOM_WORDS,
        running_total_block=WINDOW,
        longest_sum=LONGEST_SUM,
        compared_entries=2 * LONGEST_SUM,
        compared_pairs=COMPARED_PAIRS,
        selects_above=SELECTION_EXTENT,
        selection_passes=SELECTION_PASSES,
    )
