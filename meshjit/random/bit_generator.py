"""XLA's generator of random bits, for those who keep its state themselves (`jax.lax.rng_bit_generator`)."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy.arguments import shape_tuple
from meshjit.random.philox import words_of
from meshjit.trace import line_of, user_source


class RandomAlgorithm(enum.IntEnum):
    """Which words come (`jax.lax.RandomAlgorithm`)."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: int | RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """(the key that comes next, bits of this shape): words of Philox-4x32-10, as XLA makes them on CPUs, the same
    on all platforms.

    key: u32[4] or u64[2]. dtype: uint8, uint16, uint32 or uint64, which is uint32 without enable_x64. out_sharding: of the bits.
    Raises TypeError for others, ValueError for Threefry, which `random.bits` gives.  Source: jax.lax.rng_bit_generator; Salmon et
    al., 2011."""
    if RandomAlgorithm(algorithm) == RandomAlgorithm.RNG_THREE_FRY:
        raise ValueError(
            f"rng_bit_generator: there is no Threefry with a counter in its key\n  at {line_of(user_source())}\n"
            "  fix: RNG_PHILOX, or random.bits(random.key(seed), shape)"
        )
    return _generated(mnp.asarray(key), shape, dtype, out_sharding)


def _generated(words: Any, shape: Sequence[int], dtype: Any, out_sharding: Any) -> tuple[Any, Any]:
    if (words.dtype.name, words.shape) == ("uint64", (2,)):
        split = mnp.stack([words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)], axis=1)
        following, bits = _generated(mnp.ravel(split.astype(np.uint32)), shape, dtype, out_sharding)
        low, high = (following[n::2].astype(np.uint64) for n in range(2))
        return low | (high << np.uint64(32)), bits
    if (words.dtype.name, words.shape) != ("uint32", (4,)):
        raise TypeError(
            f"rng_bit_generator: the key must be uint32[4] or uint64[2], got {words.dtype.name}{list(words.shape)}\n"
            f"  at {line_of(user_source())}"
        )
    shape, dtype = shape_tuple(shape), canonical(np.dtype(dtype), config.enable_x64)
    if dtype.name not in ("uint8", "uint16", "uint32", "uint64"):
        raise TypeError(f"rng_bit_generator: bits of dtype {dtype.name}; uint8, uint16, uint32 and uint64 can be had")
    counts = -(-math.prod(shape) * (2 if dtype.itemsize == 8 else 1) // 4)
    return _following(words, counts), _bits(words, shape, dtype, out_sharding=out_sharding)


@takes_out_sharding
def _bits(words: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    if dtype.itemsize < 8:
        return words_of(shape)(words).astype(dtype)
    drawn = words_of((*shape, 2))(words)
    return drawn[..., 0].astype(dtype) | (drawn[..., 1].astype(dtype) << dtype.type(32))


def _following(words: Any, counts: int) -> Any:
    """The key whose counter, words 2 and 3, is so many counts later."""
    low = words[2] + np.uint32(counts & 0xFFFFFFFF)
    high = words[3] + np.uint32(counts >> 32) + (low < words[2]).astype(np.uint32)
    return mnp.stack([words[0], words[1], low, high])
