"""The machine that a Program is planned, partitioned and emitted for.

A Target is made once, from devices, an abstract mesh or `lowering_platforms` (`meshjit/targets`), and handed down.
Code that depends on the machine asks a field by name, never the platform. A field's default is what XLA does well
by itself; `meshjit/targets/cpu.py`, `gpu.py` and `tpu.py` say where a platform differs, and by which measurement.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from sharding.topology import Topology

NO_KERNELS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Target:
    """Hashable. `platform` is for messages and for those who choose devices: "cpu", "gpu" or "tpu"."""

    platform: str
    topology: Topology  # what collectives, work and memory cost
    kernels: Container[str] = NO_KERNELS  # which custom calls emitted text may make; none in text for several platforms

    has_host_memory: bool = False  # whether arrays can lie in its host's memory, beside the device's own

    # Faults of a compiler. Text that it may ever read avoids them.
    loses_nan: bool = False  # collectives of maxima and minima give the largest number where there is a NaN
    needs_barrier_before_all_to_all: bool = False
    lacks_bitwise_collectives: bool = False  # none combines integers by `and` or `or`
    ends_at_sums_of_constants: bool = False  # transform/hide_constants: an all-reduce of a constant ends the process
    lacks_two_bits: bool = False  # elements of 2 bits come out wrong, so programs with such are refused
    updates_bytes: bool = False  # elements of 4 bits are written to the wrong places of what an update replaces
    doubles_products_of_int8: bool = False  # added in int32, by the compiler's own kernels (ops/reduce/products_of_int8)
    compares_kernels: bool = True  # the compiler's own with a library's, where there are both, and takes none that differs
    convolves_floats_only: bool = False  # convolutions of integers and complex numbers are refused
    drops_barriers: bool = False  # before it fuses: only a call that it does not inline keeps two computations apart
    isolates_random_words: bool = False  # hashing that is fused into a reduction may compile for ever (ops/random/threefry)
    materializes_updates: bool = False  # transform/materialize_updates: one may be fused into the buffer that it reads

    # What the compiler writes poorly, and what is written instead.
    adds_int8_in_int32: bool = False  # products of int8 with sums of int8 are slow, those with sums of int32 are not
    shares_shifts: bool = False  # transform/share_shifts: shifts of one value are slices of one padded value
    slices_late: float = 0.0  # transform/slice_late: parts that are put together are written to memory first. What part of an
    # extent may be read besides, so that a value stays whole
    pad_passes: float = 0.0  # how often a pad reads what it makes longer, where it is not fused with what makes that
    moved_updates: float = 0.0  # how often what an update changes could be read where that does not happen in place
    has_slow_gathers: bool = False  # elements are gathered one by one, so few are sorted along instead
    most_choices: int = 0  # up to so many choices between scalars replace a lookup in a table
    running_total_block: int = 16  # places of one window of a running total
    blocks_running_totals: bool = False  # the compiler cuts such windows into blocks itself

    broken_lines: float = 0.0  # how often a roll along the minor dim reads its operand besides
    narrow_windows: int = 0  # features up to which a convolution copies its windows, place by place
    reordering: float = 0.0  # how often an operand could be read while a convolution brings its dims into the best order
    batch_reordering: float = 0.0  # the same where a product's batches are not its major dims
    lanes: int = 1  # features or batch of the images that a convolution reads and writes are rounded up to a multiple of so many,
    sublanes: int = 1  # as is a dim of what a running total reads, and another of its dims to a multiple of so many
    small_batch: int = 0  # images below which a convolution cuts rows into more,
    cut_rows: int = 0  # of so many places or more,
    cut_passes: float = 0.0  # and so often images of 2 bytes, rounded up, could be read meanwhile
    group_width: int = 1  # features: a convolution in groups of fewer takes as long as in groups of so many
    row_seconds: float = 0.0  # to fetch as many elements as there are lanes, or fewer, from a place that an index says
    step_seconds: float = 0.0  # to begin the next of steps that follow one another, such as columns of a factorization
    window_flops: float = 0.0  # what copying a place takes, in multiplications and additions

    # Searching and sorting.
    longest_sum: float = float("inf")  # elements that are summed up in one loop; a longer sum writes what it sums
    compared_entries: int = 256  # table entries up to which `searchsorted` compares a value with all of them
    compared_pairs: int = 0  # comparisons up to which it does so for longer tables
    # A round of halving takes 3.4 ns for each value on two cores (2**18 values, 2**16 entries), and it is read 8 times in that;
    # 36 comparisons with entries of a short table take as long, 0.1 ns each.
    search_reads: float = 8.0
    search_comparisons: float = 36.0
    selects_above: float = float("inf")  # extent above which a sharded sort selects its own elements (sort_partition)

    @property
    def may_call_kernels(self) -> bool:
        """Whether text for this target may call kernels at all."""
        return self.kernels != NO_KERNELS

    def compares(self, entries: int, values: int) -> bool:
        """Whether `searchsorted` compares each of so many values with all entries; else it halves the table."""
        return entries <= self.compared_entries or entries * values <= self.compared_pairs

    def __str__(self) -> str:
        return self.topology.name
