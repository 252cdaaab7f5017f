"""Keys: typed ones (`key`), arrays of keys with a shape of their own, and raw ones (`PRNGKey`), their words u32[..., words]."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api import jit
from meshjit.config import config
from meshjit.core.keys import FRY, IMPLEMENTATIONS, KeyType, PRNGKeyArray
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import array
from meshjit.numpy.promote import cast, ops, value
from meshjit.random.counters import U32
from meshjit.random.threefry import fold_data, split_data
from meshjit.trace import bind, line_of, type_and_weak, user_source

_WORD = 0xFFFF_FFFF


def implementation(impl: Any, function: str) -> KeyType:
    """The dtype of the keys of an implementation, by its name, a dtype of keys, or None for `default_prng_impl`."""
    if isinstance(impl, KeyType):
        return impl
    name = config.default_prng_impl if impl is None else impl
    if not isinstance(name, str):
        what = f"{type(name).__name__} {name!r:.60}"
        raise TypeError(f"random.{function}: an implementation is a string or a dtype of keys, got {what}")
    kind = IMPLEMENTATIONS.get(name) or next((k for k in IMPLEMENTATIONS.values() if k.tag == name), None)
    if kind is None:
        known = ", ".join(f'"{k}"' for k in IMPLEMENTATIONS)
        raise ValueError(f"random.{function}: unrecognized PRNG implementation {name!r}; there are {known}")
    return kind


def _one_of(dtype: Any, impl: Any, function: str) -> Any:
    if dtype is not None and impl is not None:
        raise ValueError(
            f"random.{function}: dtype and impl both say which keys\n  at {line_of(user_source())}\n  fix: give dtype alone"
        )
    return impl if dtype is None else dtype


def key_dtype(impl_spec: Any = None) -> KeyType:
    """The dtype of the keys of an implementation, by its name; None for `config.default_prng_impl`."""
    return implementation(impl_spec, "key_dtype")


# -- what functions make of their `key` argument


def keys_of(key: Any, function: str) -> PRNGKeyArray:
    """A typed key or keys; raw ones, u32[..., words], are of `default_prng_impl`. TypeError for anything else."""
    if isinstance(key, PRNGKeyArray):
        return key
    kind = FRY if config.default_prng_impl == FRY.impl else implementation(None, function)
    typing = type_and_weak(key)
    array_type = typing[0] if typing else None
    if array_type is None or array_type.dtype != U32 or array_type.shape[-1:] != (kind.words,):
        raise TypeError(
            f"random.{function}: expected a key, got {array_type or type(key).__name__}\n  at {line_of(user_source())}\n"
            f"  fix: random.key(seed), or raw key data u32[..., {kind.words}]"
        )
    if config.legacy_prng_key != "allow":
        _object_to_raw(function)
    return PRNGKeyArray(kind, key)


def _object_to_raw(function: str) -> None:
    text = (
        f"random.{function}: a raw key, and config.legacy_prng_key is {config.legacy_prng_key!r}\n"
        f"  at {line_of(user_source())}\n"
        "  fix: random.key(seed) makes a typed key, random.wrap_key_data(words) one of words"
    )
    if config.legacy_prng_key == "error":
        raise ValueError(text)
    source = user_source()
    warnings.warn_explicit(text, UserWarning, source.file if source else "", source.line if source else 0)


def single(key: Any, function: str) -> Any:
    """What random words are made of: u32[2] of one key of Threefry, others themselves. ValueError for an array of keys."""
    keys = keys_of(key, function)
    if len(keys.words.shape) != 1:
        raise ValueError(
            f"random.{function} takes a single key, got an array of keys of shape {keys.shape}\n"
            f"  at {line_of(user_source())}\n  fix: keys[0], or vmap over the keys"
        )
    return keys.words if keys.dtype is FRY else keys


def _like(key: Any, data: Any) -> Any:
    """New keys, typed if this one is."""
    typed = isinstance(key, PRNGKeyArray)
    if isinstance(data, PRNGKeyArray):
        return data if typed else data.words
    return PRNGKeyArray(key.dtype, data) if typed else data


# -- making keys


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> PRNGKeyArray:
    """A typed key from an integer seed.

    seed: a Python int or an integer scalar, traced ones included. Without enable_x64 its low 32 bits count.
    dtype, impl: "threefry2x32", "rbg", "unsafe_rbg", or None for `config.default_prng_impl`; one of the two.
    Raises TypeError for another seed, ValueError for another impl.  Source: jax.random.key.
    """
    kind = implementation(_one_of(dtype, impl, "key"), "key")
    return PRNGKeyArray(kind, _seeded(seed, kind, "key"))


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:  # noqa: N802 - JAX's name
    """A raw key, u32[2] (rbg: u32[4]), from an integer seed; see `key`. A typed one under `config.enable_custom_prng`."""
    kind = implementation(impl, "PRNGKey")
    words = _seeded(seed, kind, "PRNGKey")
    return PRNGKeyArray(kind, words) if config.enable_custom_prng else words


def _seeded(seed: Any, kind: KeyType, function: str) -> Any:
    seed = seed + config.random_seed_offset if config.random_seed_offset else seed
    if isinstance(seed, int | np.integer | np.bool_):
        return array(np.tile(_words(seed), kind.words // 2))
    operand, type, _ = value(seed, f"seed of random.{function}")
    if type.dtype.kind not in "iub":
        raise TypeError(f"random.{function}: the seed must be an integer, got {type}\n  at {line_of(user_source())}")
    if type.shape:
        raise TypeError(
            f"random.{function}: the seed must be a scalar, got {type}\n  at {line_of(user_source())}\n"
            f"  fix: vmap(random.{function})(seeds)"
        )
    words = _seed_words(operand)
    return words if kind.words == 2 else mnp.concatenate([words, words])


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
    """The words of keys, u32[*shape, 2] (rbg: 4); of raw keys, themselves. Source: jax.random.key_data."""
    return keys_of(keys, "key_data").words


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> PRNGKeyArray:
    """Typed keys of these words, u32[*shape, 2] (rbg: 4); the inverse of `key_data`. TypeError for others."""
    kind = implementation(_one_of(dtype, impl, "wrap_key_data"), "wrap_key_data")
    typing = None if isinstance(key_bits_array, PRNGKeyArray) else type_and_weak(key_bits_array)
    if typing is None or typing[0].dtype != U32 or typing[0].shape[-1:] != (kind.words,):
        raise TypeError(
            f"random.wrap_key_data: keys of {kind.impl} are made of u32[..., {kind.words}], got"
            f" {typing[0] if typing else type(key_bits_array).__name__}\n  at {line_of(user_source())}"
        )
    return PRNGKeyArray(kind, array(key_bits_array, copy=False))


def key_impl(keys: Any) -> str:
    """The name of what makes bits of the keys."""
    return keys_of(keys, "key_impl").dtype.impl


def clone(key: Any) -> Any:
    """The same key; for code that tracks the reuse of keys."""
    return _like(key, keys_of(key, "clone").words)
