"""Key arrays: arrays whose elements are keys of random numbers, each a few words of 32 bits.

Users see an array of dtype `key<fry>` and of a shape of its own, a leaf of trees. Programs see the words, u32[*shape, count]:
where arrays enter and leave them, a key array is a node with its words as the one leaf (`meshjit/trees.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


class extended(np.generic):  # noqa: N801 - JAX's name
    """The kind of dtypes that NumPy does not have, for `issubdtype` alone."""


class prng_key(extended):  # noqa: N801
    """The kind of the dtypes of typed keys: `issubdtype(key.dtype, dtypes.prng_key)`."""


@dataclass(frozen=True)
class KeyType:
    """The dtype of the keys of one implementation. `impl` is its name, `tag` short for it, a key has `words` words."""

    impl: str
    tag: str
    words: int

    type = prng_key
    kind = "V"

    @property
    def name(self) -> str:
        return f"key<{self.tag}>"

    @property
    def itemsize(self) -> int:
        return 4 * self.words

    def __repr__(self) -> str:
        return self.name


FRY, RBG, UNSAFE_RBG = KeyType("threefry2x32", "fry", 2), KeyType("rbg", "rbg", 4), KeyType("unsafe_rbg", "urbg", 4)
IMPLEMENTATIONS = {kind.impl: kind for kind in (FRY, RBG, UNSAFE_RBG)}


class NotNumbersError(TypeError):
    """Keys were given to a function of numbers."""


class PRNGKeyArray:
    """An array of keys (`jax.random.key`). `words` are its data, u32[*shape, dtype.words]: an Array, a Tracer or NumPy's.

    Methods are those of arrays that move elements and do not compute with them; numpy/key_methods.py attaches them."""

    __slots__ = ("dtype", "words", "__weakref__")
    __array_priority__ = 100
    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of any array

    def __init__(self, dtype: KeyType, words: Any) -> None:
        self.dtype = dtype
        self.words = words

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.words.shape[:-1])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object: a single key")
        return self.shape[0]

    def __reduce__(self) -> Any:
        return PRNGKeyArray, (self.dtype, self.words)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotNumbersError("keys are no numbers, and NumPy has no array of them\n  fix: random.key_data(keys) are their words")

    def __bool__(self) -> bool:
        raise TypeError("a key is neither true nor false\n  fix: keys are compared with ==")


def type_text(dtype: Any, shape: tuple[int, ...]) -> str:
    """`key<fry>[6]`."""
    return f"{dtype}[{','.join(map(str, shape))}]"
