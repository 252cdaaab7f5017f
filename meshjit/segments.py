"""Reductions of rows by segment, JAX's `jax.ops`: also as `meshjit.ops.segment_sum`, …, for code that is carried over."""

from meshjit.numpy.segments import (
    segment_max as segment_max,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
)
