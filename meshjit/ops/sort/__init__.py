"""Sorted lines, their greatest elements, and searches in them. Imports every package above but window, random and fft."""

from meshjit.ops.sort import searchsorted, sort, sort_partition, top_k
