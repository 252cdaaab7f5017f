"""Reductions of rows by segment, JAX's `jax.ops`: also as `meshjit.ops.segment_sum`, …, for code that is carried over."""

from meshjit.numpy.segments import segment_max as segment_max
from meshjit.numpy.segments import segment_min as segment_min
from meshjit.numpy.segments import segment_prod as segment_prod
from meshjit.numpy.segments import segment_sum as segment_sum
