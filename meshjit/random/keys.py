"""Keys: typed ones (`key`), an array of which has a shape of its own, and raw ones (`PRNGKey`), which are u32[..., 2]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meshjit import numpy as mnp, tree
from meshjit.api import jit
from meshjit.config import config
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import array
from meshjit.numpy.dtypes import prng_key
from meshjit.numpy.promote import broadcast_shapes, cast, ops, value
from meshjit.random.threefry import U32, fold_data, split_data
from meshjit.trace import bind, line_of, type_and_weak, user_source

IMPLEMENTATIONS = ("threefry2x32", "fry")
_WORD = 0xFFFF_FFFF
_FEW = 64  # as many keys are taken apart by one compiled function


class KeyType:
    """The dtype of typed keys, `key<fry>`."""

    name = "key<fry>"
    itemsize = 8
    type = prng_key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyType)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class PRNGKeyArray:
    """An array of keys. A pytree with one leaf, its data: u32[*shape, 2]."""

    __slots__ = ("_data",)
    dtype = KeyType()

    def __init__(self, data: Any) -> None:
        self._data = data

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._data.shape[:-1])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a single key")
        return self.shape[0]

    def __getitem__(self, index: Any) -> PRNGKeyArray:
        """As of an array of this shape: keys[0], keys[1:3], keys[i, :]."""
        parts = index if isinstance(index, tuple) else (index,)
        if not any(part is Ellipsis for part in parts):
            parts = (*parts, Ellipsis)
        if len(parts) - 1 - sum(part is None for part in parts) > self.ndim:
            raise IndexError(f"{len(parts) - 1} indices for an array of keys of {self.ndim} dims")
        return PRNGKeyArray(self._data[(*parts, slice(None))])

    def __iter__(self) -> Iterator[PRNGKeyArray]:
        if len(self) > _FEW:
            return (self[i] for i in range(len(self)))
        return iter([PRNGKeyArray(row) for row in _rows(self._data)])

    def reshape(self, *shape: Any) -> PRNGKeyArray:
        extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return PRNGKeyArray(mnp.reshape(self._data, (*extents, 2)))

    def flatten(self) -> PRNGKeyArray:
        return self.reshape(-1)

    ravel = flatten

    def __eq__(self, other: object) -> Any:
        """Where keys are the same: an array of bools of the shape that both broadcast to; TypeError for numbers."""
        return self._compared(other, "==")

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "!=")

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as of any array

    def _compared(self, other: object, operator: str) -> Any:
        if isinstance(other, PRNGKeyArray):
            broadcast_shapes(self.shape, other.shape)  # whose error names the shapes of keys
            same = mnp.equal(self._data, other._data).all(-1)
            return same if operator == "==" else mnp.logical_not(same)
        typing = type_and_weak(other)
        if typing is None and not isinstance(other, bool | int | float | complex | list | tuple):
            return NotImplemented
        what = type(other).__name__ if typing is None else str(typing[0])
        raise TypeError(
            f"{operator}: keys of shape {self.shape} and {what}: keys are equal to keys alone\n  at {line_of(user_source())}\n"
            "  fix: compare random.key_data(keys)"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("keys are no numbers; take their words by random.key_data(keys)")

    def __repr__(self) -> str:
        return f"PRNGKeyArray({self.shape}, dtype={self.dtype}) overlaying:\n{self._data}"


def _refuse(operator: str) -> Any:
    def refuse(self: PRNGKeyArray, other: Any) -> Any:
        raise TypeError(
            f"keys are no numbers: {operator} was applied to one\n  at {line_of(user_source())}\n"
            "  fix: random.fold_in(key, n) makes a key from a key and a number, random.split(key) new ones"
        )

    return refuse


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("xor", "^")):
    setattr(PRNGKeyArray, f"__{_name}__", _refuse(_sign))
    setattr(PRNGKeyArray, f"__r{_name}__", _refuse(_sign))


@jit
def _rows(data: Any) -> Any:
    """All at once: `key, sub = split(key)` is one call of a compiled function."""
    return tuple(data[i] for i in range(data.shape[0]))


def _unflatten(aux: None, children: Any) -> PRNGKeyArray:
    return PRNGKeyArray(next(iter(children)))


tree.register_node(PRNGKeyArray, lambda keys: ((keys._data,), None), _unflatten)


# -- what functions make of their `key` argument


def data_of(key: Any, function: str) -> Any:
    """u32[..., 2] of a typed or a raw key; TypeError for anything else."""
    if isinstance(key, PRNGKeyArray):
        return key._data
    typing = type_and_weak(key)
    array_type = typing[0] if typing else None
    if array_type is None or array_type.dtype != U32 or array_type.shape[-1:] != (2,):
        raise TypeError(
            f"random.{function}: expected a key, got {array_type or type(key).__name__}\n  at {line_of(user_source())}\n"
            "  fix: random.key(seed), or raw key data u32[..., 2]"
        )
    return key


def single(key: Any, function: str) -> Any:
    """u32[2] of one key; ValueError for an array of keys."""
    data = data_of(key, function)
    if tuple(data.shape) != (2,):
        raise ValueError(
            f"random.{function} takes a single key, got an array of keys of shape {tuple(data.shape[:-1])}\n"
            f"  at {line_of(user_source())}\n  fix: keys[0], or vmap over the keys"
        )
    return data


def _like(key: Any, data: Any) -> Any:
    return PRNGKeyArray(data) if isinstance(key, PRNGKeyArray) else data


# -- making keys


def key(seed: Any, *, impl: str | None = None) -> PRNGKeyArray:
    """A typed key from an integer seed.

    seed: a Python int or an integer scalar, traced ones included. Without enable_x64 its low 32 bits count.
    impl: "threefry2x32" or None.  Raises TypeError for another seed, ValueError for another impl.  Source: jax.random.key.
    """
    return PRNGKeyArray(_seeded(seed, impl, "key"))


def PRNGKey(seed: Any, *, impl: str | None = None) -> Any:  # noqa: N802 - JAX's name
    """A raw key, u32[2], from an integer seed; see `key`."""
    return _seeded(seed, impl, "PRNGKey")


def _seeded(seed: Any, impl: str | None, function: str) -> Any:
    if impl is not None and impl not in IMPLEMENTATIONS:
        raise ValueError(f'random.{function}: unknown impl {impl!r}; there is "threefry2x32"')
    if isinstance(seed, int | np.integer | np.bool_):
        return array(_words(seed))
    operand, type, _ = value(seed, f"seed of random.{function}")
    if type.dtype.kind not in "iub":
        raise TypeError(f"random.{function}: the seed must be an integer, got {type}\n  at {line_of(user_source())}")
    if type.shape:
        raise TypeError(
            f"random.{function}: the seed must be a scalar, got {type}\n  at {line_of(user_source())}\n"
            f"  fix: vmap(random.{function})(seeds)"
        )
    return _seed_words(operand)


def _words(seed: Any) -> np.ndarray[Any, Any]:
    """High and low word; Python ints are as wide as the widest integer there is, NumPy's as wide as they are."""
    wide = isinstance(seed, int) or np.asarray(seed).dtype.itemsize == 8
    number = int(np.int64(seed)) if isinstance(seed, int) else int(seed)
    high = (number >> 32) & _WORD if wide and config.enable_x64 else 0
    return np.array([high, number & _WORD], U32)


@jit
def _seed_words(seed: Any) -> Any:
    low = cast(seed, U32)
    if seed.dtype.itemsize < 8:
        return mnp.stack([np.zeros((), U32), low])
    high = bind(ops("shift_right_logical"), seed, np.asarray(32, seed.dtype))
    return mnp.stack([cast(high, U32), low])


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """`num` new keys (or as many as a shape says) from one, typed if it is. Source: jax.random.split."""
    data = single(key, "split")
    return _like(key, _split(data, shape=shape_tuple(num), partitionable=config.threefry_partitionable))


@jit(static_argnames=("shape", "partitionable"))
def _split(data: Any, *, shape: tuple[int, ...], partitionable: bool) -> Any:
    return split_data(data, shape, partitionable)


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer below 2**32, a traced one included. Source: jax.random.fold_in."""
    words = single(key, "fold_in")
    if isinstance(data, int):
        if not 0 <= data <= _WORD:
            raise OverflowError(f"random.fold_in: {data} does not fit into 32 bits\n  at {line_of(user_source())}")
        data = np.uint32(data)
    number, type, _ = value(data, "data of random.fold_in")
    if type.shape or type.dtype.kind not in "iub":
        raise TypeError(f"random.fold_in: data must be an integer scalar, got {type}\n  at {line_of(user_source())}")
    return _like(key, _fold(words, number))


@jit
def _fold(data: Any, number: Any) -> Any:
    return fold_data(data, cast(number, U32))


def key_data(keys: Any) -> Any:
    """u32[*shape, 2]: the words of keys; of raw keys, themselves."""
    return data_of(keys, "key_data")


def wrap_key_data(key_bits_array: Any, *, impl: str | None = None) -> PRNGKeyArray:
    """Typed keys of these words, u32[*shape, 2]; the inverse of `key_data`."""
    if impl is not None and impl not in IMPLEMENTATIONS:
        raise ValueError(f'random.wrap_key_data: unknown impl {impl!r}; there is "threefry2x32"')
    data = data_of(key_bits_array, "wrap_key_data")
    return PRNGKeyArray(array(data))


def key_impl(keys: Any) -> str:
    """The name of what makes bits of the keys."""
    data_of(keys, "key_impl")
    return "threefry2x32"


def clone(key: Any) -> Any:
    """The same key; for code that tracks the reuse of keys."""
    data_of(key, "clone")
    return key
