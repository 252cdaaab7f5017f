"""Random words from the keys of `rbg` and `unsafe_rbg`: Philox-4x32-10 of counters, as XLA's RngBitGenerator makes them on CPUs.

A key is u32[4]: two words of Philox's key, then the low half of a counter of 128 bits, whose high half is the key again. Every
count gives four words, so element i of an array is word i % 4 of count i // 4. Under vmap the first key makes the words of the
whole batch, as in JAX.
Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011); jax.lax.rng_bit_generator.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.lax.custom_batching import custom_vmap
from meshjit.numpy.promote import broadcast_to, ops
from meshjit.random.counters import U32, U64, Shape, full, positions
from meshjit.trace import bind

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


@functools.cache
def words_of(shape: Shape) -> Any:
    """A function of a key, u32[4], that gives random words of this shape."""

    @custom_vmap
    def random_words(key: Any) -> Any:
        return _words(key, shape)

    @random_words.def_vmap
    def of_batch(size: int, batched: list[bool], keys: Any) -> tuple[Any, bool]:
        return words_of((size, *shape))(keys[0]), True

    return random_words


def _words(key: Any, shape: Shape) -> Any:
    """u32 of this shape. Where the last dim holds whole counts every device makes its own part."""
    if 0 in shape:
        return mnp.zeros(shape, U32)
    if shape and shape[-1] % 4 == 0:
        counts = (*shape[:-1], shape[-1] // 4)
        return mnp.reshape(mnp.stack(_hashed(key, counts), -1), shape)
    size = math.prod(shape)
    flat = mnp.reshape(mnp.stack(_hashed(key, (-(-size // 4),)), -1), (-1,))
    return mnp.reshape(flat[:size], shape)


def _hashed(key: Any, shape: Shape) -> list[Any]:
    """The four words of every count, by row-major position."""
    words = [mnp.reshape(key[i : i + 1], ()) for i in range(4)]
    state = _counters(words, shape)
    keys = words[:2]
    for _ in range(ROUNDS):
        high, low = zip(*(_product(state[i], m) for i, m in zip((0, 2), MULTIPLIERS, strict=True)), strict=True)
        first, second = (broadcast_to(k, shape) for k in keys)
        state = [_xor(high[1], state[1], first), low[1], _xor(high[0], state[3], second), low[0]]
        keys = [mnp.add(k, np.uint32(step)) for k, step in zip(keys, KEY_STEPS, strict=True)]
    return state


def _counters(words: list[Any], shape: Shape) -> list[Any]:
    """The counter that the key says, plus the position, as four words, lowest first."""
    added = [*positions(shape), None, None]
    added[:2] = added[1::-1]  # low word first
    result, carry = [], None
    for start, more in zip((*words[2:], *words[:2]), added, strict=True):
        start = broadcast_to(start, shape)
        total, overflow = start, None
        for summand in (more, carry):
            if summand is not None:
                total, before = mnp.add(total, broadcast_to(summand, shape)), total
                over = mnp.less(total, before)
                overflow = over if overflow is None else mnp.logical_or(overflow, over)
        result.append(total)
        carry = None if overflow is None else bind(ops("convert"), overflow, dtype=U32)
    return result


def _product(x: Any, multiplier: int) -> tuple[Any, Any]:
    """The high and the low word of x times a number."""
    wide = bind(ops("multiply"), bind(ops("convert"), x, dtype=U64), full(multiplier, tuple(x.shape), U64))
    high = bind(ops("shift_right_logical"), wide, full(32, tuple(x.shape), U64))
    return bind(ops("convert"), high, dtype=U32), bind(ops("convert"), wide, dtype=U32)


def _xor(*xs: Any) -> Any:
    return functools.reduce(mnp.bitwise_xor, xs)
