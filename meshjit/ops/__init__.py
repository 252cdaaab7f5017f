"""Importing this package fills the registry: every op stands in one of these files, with everything known about it.

The packages stand in layers, each above those that it needs:

    base < collective < slicing < {reduce, index, window} < {control, random, fft} < sort < linalg
"""

from meshjit.ops import base, collective, control, fft, index, linalg, random, reduce, slicing, sort, window
