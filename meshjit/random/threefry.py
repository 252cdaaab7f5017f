"""Random words from key data: Threefry-2x32 of counters, in the two forms that JAX knows.

The *partitionable* form (the default) hashes each element's row-major position, so every device makes its own shard
of the words from nothing but the key. The *original* form hashes the positions of one vector in two halves; its words
depend on the number of them, and a sharded result needs communication. Key data are u32[2] throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.numpy.promote import broadcast_to, cast, ops
from meshjit.trace import bind

Shape = tuple[int, ...]
U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)


def hashed(data: Any, high: Any, low: Any, shape: Shape) -> tuple[Any, Any]:
    """Two words for every counter, all of this shape."""
    return bind(ops("threefry2x32"), *(broadcast_to(x, shape) for x in (*_keys(data), high, low)))


def _keys(data: Any) -> list[Any]:
    keys = [bind(ops("slice"), data, start=(i,), limit=(i + 1,), strides=(1,)) for i in range(2)]
    return [bind(ops("reshape"), k, shape=()) for k in keys]


def positions(shape: Shape) -> tuple[Any, Any]:
    """The high and the low word of every element's row-major position."""
    if math.prod(shape) <= 2**32:
        return np.zeros((), U32), _position(shape, U32)
    place = _position(shape, U64)
    high = bind(ops("shift_right_logical"), place, _full(32, shape, U64))
    return bind(ops("convert"), high, dtype=U32), bind(ops("convert"), place, dtype=U32)


def _position(shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Counted in every dim, so that each of them can be sharded."""
    total: Any = np.zeros(shape if 0 in shape else (), dtype)
    for dim, extent in enumerate(shape):
        if extent > 1 and 0 not in shape:
            count = bind(ops("iota"), dtype=dtype, shape=shape, dimension=dim)
            step = math.prod(shape[dim + 1 :])
            count = bind(ops("multiply"), count, _full(step, shape, dtype)) if step != 1 else count
            total = count if isinstance(total, np.ndarray) else bind(ops("add"), total, count)
    return total


def _full(number: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """A constant in just this dtype: u64 is used here whether users have enabled it or not."""
    scalar = bind(ops("constant"), value=np.asarray(number, dtype))
    return bind(ops("broadcast_in_dim"), scalar, shape=shape, dimensions=())


# -- the original form


def original_words(data: Any, count: int) -> Any:
    """u32[count]: the words of the counters 0 … count - 1, hashed in pairs from the two halves of the vector."""
    if count >= 2**32 - 1:
        raise ValueError(
            f"the original form of threefry makes fewer than 2**32 - 1 words at once, {count} were asked for\n"
            '  fix: config.update("threefry_partitionable", True)'
        )
    half = -(-count // 2)
    if half == 0:
        return np.zeros((0,), U32)
    first = bind(ops("iota"), dtype=U32, shape=(half,), dimension=0)
    second = mnp.add(first, np.uint32(half))
    if count % 2:  # an odd vector is filled up with one 0
        second = mnp.where(mnp.equal(second, np.uint32(count)), np.uint32(0), second)
    words = mnp.concatenate(list(hashed(data, first, second, (half,))))
    return words[:count] if count % 2 else words


def _original_bits(data: Any, width: int, shape: Shape) -> Any:
    size = math.prod(shape)
    words = original_words(data, -(-width * size // 32))
    if width == 64:
        return mnp.reshape(_joined(words[:size], words[size:]), shape)
    if width < 32:
        words = _pieces(words, width)[:size]
    return mnp.reshape(words, shape)


def _joined(high: Any, low: Any) -> Any:
    """u64 from its two words."""
    wide = [bind(ops("convert"), x, dtype=U64) for x in (high, low)]
    shifted = bind(ops("shift_left"), wide[0], broadcast_to(np.uint64(32), tuple(wide[0].shape)))
    return bind(ops("or"), shifted, wide[1])


def _pieces(words: Any, width: int) -> Any:
    """Every word cut into pieces of 8 or 16 bits, lowest first."""
    count = 32 // width
    steps = mnp.multiply(bind(ops("iota"), dtype=U32, shape=(1, count), dimension=1), np.uint32(width))
    shape = (words.shape[0], count)
    wide = broadcast_to(mnp.reshape(words, (words.shape[0], 1)), shape)
    cut = bind(ops("shift_right_logical"), wide, broadcast_to(steps, shape))
    return mnp.reshape(cast(cut, f"uint{width}"), (-1,))


# -- what keys and distributions are made of


def random_bits(data: Any, width: int, shape: Shape, partitionable: bool) -> Any:
    """u8, u16, u32 or u64 of this shape, all bits random."""
    if not partitionable:
        return _original_bits(data, width, shape)
    if width == 64:
        return _joined(*hashed(data, *positions(shape), shape))
    words = bind(ops("threefry_word"), *_keys(data), *(broadcast_to(x, shape) for x in positions(shape)))
    return words if width == 32 else cast(words, f"uint{width}")


def split_data(data: Any, shape: Sequence[int], partitionable: bool) -> Any:
    """u32[*shape, 2]: the data of new keys."""
    shape = tuple(shape)
    if not partitionable:
        return mnp.reshape(original_words(data, 2 * math.prod(shape)), (*shape, 2))
    return mnp.stack(list(hashed(data, *positions(shape), shape)), -1)


def fold_data(data: Any, number: Any) -> Any:
    """u32[2]: the data of the key that this u32[] makes of a key. Both forms agree."""
    return mnp.stack(list(hashed(data, np.zeros((), U32), number, ())), -1)
