"""Splats: arrays with one value everywhere, which take the memory of one element however large their shape is.

A splat is a NumPy array whose strides are 0 along every dim of more than one element (`np.broadcast_to` of a scalar). Programs
hold them as values of constants, and no pass on the way to StableHLO text makes a whole array of one; only what computes values
(`evaluate`, `simulate`) does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 16  # elements compared at once: what is no splat is known to be none after the first of these that differs


def splat(value: Any, shape: Sequence[int]) -> Array:
    """An array of this shape with `value`, a NumPy scalar, everywhere; one element of memory."""
    element = np.asarray(value)
    if element.shape == () and 0 not in shape:  # as np.broadcast_to, in a tenth of its time
        return np.ndarray(tuple(shape), element.dtype, element.tobytes(), 0, (0,) * len(shape))
    return np.broadcast_to(element, tuple(shape))


def is_known_splat(value: Array) -> bool:
    """Whether the strides alone say that all elements are one."""
    return value.size <= 1 or not any(s for s, n in zip(value.strides, value.shape, strict=True) if n > 1)


def is_splat(value: Array) -> bool:
    """Whether all elements are one, bit for bit. What has strides 0 is known to be without a look."""
    if is_known_splat(value):
        return True
    seen = value[tuple([slice(1) if s == 0 else slice(None) for s in value.strides])]
    raw = np.ascontiguousarray(seen).reshape(-1).view(np.uint8).reshape(seen.size, -1)
    if raw[-1].tobytes() != raw[0].tobytes():
        return False
    return all(bool((raw[i : i + _CHUNK] == raw[0]).all()) for i in range(0, len(raw), _CHUNK))


def element_of(value: Array) -> Any:
    """The first element, as a NumPy scalar, of an array that is not empty."""
    return value[(0,) * value.ndim]


def own(value: Any) -> Array:
    """A copy whose elements nobody else changes: a splat of what is one, however it lies in memory."""
    array = np.asarray(value)
    if array.size > 1 and is_splat(array):
        return splat(element_of(array), array.shape)
    return np.array(array)
