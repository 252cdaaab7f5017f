"""Counters: the row-major position of every element of an array, as words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshjit.numpy.promote import ops
from meshjit.trace import bind

Shape = tuple[int, ...]
U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)


def positions(shape: Shape) -> tuple[Any, Any]:
    """The high and the low word of every element's row-major position."""
    if math.prod(shape) <= 2**32:
        return np.zeros((), U32), _position(shape, U32)
    place = _position(shape, U64)
    high = bind(ops("shift_right_logical"), place, full(32, shape, U64))
    return bind(ops("convert"), high, dtype=U32), bind(ops("convert"), place, dtype=U32)


def _position(shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Counted in every dim, so that each of them can be sharded."""
    total: Any = np.zeros(shape if 0 in shape else (), dtype)
    for dim, extent in enumerate(shape):
        if extent > 1 and 0 not in shape:
            count = bind(ops("iota"), dtype=dtype, shape=shape, dimension=dim)
            step = math.prod(shape[dim + 1 :])
            count = bind(ops("multiply"), count, full(step, shape, dtype)) if step != 1 else count
            total = count if isinstance(total, np.ndarray) else bind(ops("add"), total, count)
    return total


def full(number: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """A constant in just this dtype: u64 is used here whether users have enabled it or not."""
    scalar = bind(ops("constant"), value=np.asarray(number, dtype))
    return bind(ops("broadcast_in_dim"), scalar, shape=shape, dimensions=())
