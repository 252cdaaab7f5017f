"""Discrete Fourier transforms. Imports base, collective and slicing."""

from meshjit.ops.fft import fft, four_steps
