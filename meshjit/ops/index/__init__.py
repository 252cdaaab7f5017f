"""Parts of dims at places that are computed: dynamic slices, gathers and scatters. Imports base, collective and slicing."""

from meshjit.ops.index import (
    columns,
    dynamic,
    dynamic_partition,
    dynamic_roll,
    gather,
    gather_partition,
    scatter,
    scatter_derivatives,
    scatter_emission,
    scatter_partition,
    take,
)
