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
from meshjit.core.keys import UNSAFE_RBG, PRNGKeyArray
from meshjit.numpy.promote import broadcast_to, cast, ops
from meshjit.random.counters import U32 as U32, U64, Shape as Shape, positions as positions
from meshjit.random.philox import words_of
from meshjit.trace import bind


def hashed(data: Any, high: Any, low: Any, shape: Shape) -> tuple[Any, Any]:
    """Two words for every counter, all of this shape."""
    return bind(ops("threefry2x32"), *(broadcast_to(x, shape) for x in (*_keys(data), high, low)))


def _keys(data: Any) -> list[Any]:
    keys = [bind(ops("slice"), data, start=(i,), limit=(i + 1,), strides=(1,)) for i in range(2)]
    return [bind(ops("reshape"), k, shape=()) for k in keys]


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


# -- what keys and distributions are made of: `data` are u32[2] of a key of Threefry, of others an array of one key


def random_bits(data: Any, width: int, shape: Shape, partitionable: bool) -> Any:
    """u8, u16, u32 or u64 of this shape, all bits random."""
    if isinstance(data, PRNGKeyArray):
        return _philox_bits(data.words, width, tuple(shape))
    if not partitionable:
        return _original_bits(data, width, shape)
    if width == 64:
        return _joined(*hashed(data, *positions(shape), shape))
    words = bind(ops("threefry_word"), *_keys(data), *(broadcast_to(x, shape) for x in positions(shape)))
    return words if width == 32 else cast(words, f"uint{width}")


def _philox_bits(key: Any, width: int, shape: Shape) -> Any:
    if width == 64:
        wide = words_of((*shape[:-1], 2 * shape[-1]) if shape else (2,))(key)
        wide = mnp.reshape(wide, (*shape, 2))
        return _joined(wide[..., 1], wide[..., 0])
    words = words_of(shape)(key)
    return words if width == 32 else cast(words, f"uint{width}")


APART = 10  # unsafe_rbg takes every tenth four of its words for a key


def split_data(data: Any, shape: Sequence[int], partitionable: bool) -> Any:
    """The data of new keys, of this shape."""
    shape = tuple(shape)
    if isinstance(data, PRNGKeyArray) and data.dtype == UNSAFE_RBG:
        words = words_of((APART * math.prod(shape), 4))(data.words)
        return PRNGKeyArray(data.dtype, mnp.reshape(words[::APART], (*shape, 4)))
    if isinstance(data, PRNGKeyArray):
        halves = [split_data(data.words[i : i + 2], shape, partitionable) for i in (0, 2)]
        return PRNGKeyArray(data.dtype, mnp.concatenate(halves, -1))
    if not partitionable:
        return mnp.reshape(original_words(data, 2 * math.prod(shape)), (*shape, 2))
    return mnp.stack(list(hashed(data, *positions(shape), shape)), -1)


def fold_data(data: Any, number: Any) -> Any:
    """The data of the key that this u32[] makes of a key. Both forms agree."""
    if isinstance(data, PRNGKeyArray) and data.dtype == UNSAFE_RBG:
        seed = mnp.stack([np.zeros((), U32), number] * 2)
        return PRNGKeyArray(data.dtype, mnp.bitwise_xor(data.words, words_of((APART, 4))(seed)[-1]))
    if isinstance(data, PRNGKeyArray):
        return PRNGKeyArray(data.dtype, mnp.concatenate([fold_data(data.words[i : i + 2], number) for i in (0, 2)], -1))
    return mnp.stack(list(hashed(data, np.zeros((), U32), number, ())), -1)
