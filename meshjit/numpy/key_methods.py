"""Methods of arrays of keys: those of arrays that move elements, and what an array says of where it lives."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from meshjit.api import jit
from meshjit.api.shardings import cut
from meshjit.api.tools import typeof
from meshjit.core.keys import PRNGKeyArray, type_text
from meshjit.numpy import indexing, methods, rearranging, ufuncs, views
from meshjit.numpy.key_arrays import compares_keys, takes_keys
from meshjit.trace import Tracer, line_of, type_and_weak, user_source

_FEW = 64  # as many keys are taken apart by one compiled function


def _whole_words(keys: PRNGKeyArray, index: Any) -> tuple[Any, ...]:
    """An index into keys as one into their words."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    masks = [getattr(part, "ndim", 1) for part in parts if str(getattr(part, "dtype", "")) == "bool"]
    count = sum(part is not None for part in parts) - 1 - len(masks) + sum(masks)
    if count > keys.ndim:
        raise IndexError(f"{count} indices for {type_text(keys.dtype, keys.shape)}\n  at {line_of(user_source())}")
    return (*parts, slice(None))


def _getitem(keys: PRNGKeyArray, index: Any) -> PRNGKeyArray:
    return PRNGKeyArray(keys.dtype, keys.words[_whole_words(keys, index)])


def _iterate(keys: PRNGKeyArray) -> Iterator[PRNGKeyArray]:
    if not keys.shape:
        raise TypeError("iteration over a single key")
    if len(keys) > _FEW:
        return (_getitem(keys, i) for i in range(len(keys)))
    return iter([PRNGKeyArray(keys.dtype, words) for words in _rows(keys.words)])


def _astype(keys: PRNGKeyArray, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    dtype_name = getattr(dtype, "__name__", dtype)
    raise NotImplementedError(
        f"{type_text(keys.dtype, keys.shape)} has no other dtype to become, {dtype_name} was asked for\n"
        f"  at {line_of(user_source())}\n"
        "  fix: random.key_data(keys) are their words, random.wrap_key_data(words, impl=...) keys of words"
    )


class KeyUpdater:
    """`keys.at`: `keys.at[index].get()` and `keys.at[index].set(other)`."""

    def __init__(self, keys: PRNGKeyArray) -> None:
        self.keys = keys

    def __getitem__(self, index: Any) -> KeyUpdate:
        return KeyUpdate(self.keys, _whole_words(self.keys, index))


class KeyUpdate:
    """`keys.at[index]`, a place. Keys are no numbers: there is no add."""

    def __init__(self, keys: PRNGKeyArray, index: Any) -> None:
        self.keys, self.index = keys, index

    def get(self, **options: Any) -> PRNGKeyArray:
        return PRNGKeyArray(self.keys.dtype, self.keys.words.at[self.index].get(**options))

    def set(self, values: Any, **options: Any) -> PRNGKeyArray:
        if not isinstance(values, PRNGKeyArray) or values.dtype != self.keys.dtype:
            what = values.dtype if isinstance(values, PRNGKeyArray) else type(values).__name__
            raise TypeError(
                f"keys.at[...].set: keys of dtype {self.keys.dtype} were given a {what}\n  at {line_of(user_source())}\n"
                f"  fix: random.wrap_key_data(words, impl={self.keys.dtype.impl!r})"
            )
        return PRNGKeyArray(self.keys.dtype, self.keys.words.at[self.index].set(values.words, **options))

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"keys.at[...] has get and set alone: keys are no numbers\n  at {line_of(user_source())}")

    add = subtract = multiply = mul = divide = power = min = max = apply = _refuse


def _refusing(sign: str) -> Any:
    def refuse(self: PRNGKeyArray, other: Any = None) -> Any:
        raise TypeError(
            f"keys are no numbers: {sign} was applied to one\n  at {line_of(user_source())}\n"
            "  fix: random.fold_in(key, n) makes a key from a key and a number, random.split(key) new ones"
        )

    return refuse


def _comparison(function: Any) -> Any:
    compared = compares_keys(function)

    def method(self: PRNGKeyArray, other: Any) -> Any:
        if not isinstance(other, PRNGKeyArray | bool | int | float | complex | list) and type_and_weak(other) is None:
            return NotImplemented
        return compared(self, other)

    return method


# -- where keys live


def _sharding(keys: PRNGKeyArray) -> Any:
    return cut(keys.words.sharding, keys.ndim)


def _shards(keys: PRNGKeyArray, shards: Any) -> list[Any]:
    def of_keys(shard: Any) -> Any:
        data = None if shard.data is None else PRNGKeyArray(keys.dtype, shard.data)
        return types.SimpleNamespace(device=shard.device, index=shard.index[:-1], replica_id=shard.replica_id, data=data)

    return [of_keys(shard) for shard in shards]


@jit
def _rows(words: Any) -> Any:
    """All at once: `key, sub = split(key)` is one call of a compiled function."""
    return tuple(words[i] for i in range(words.shape[0]))


_MOVING = {
    "diagonal": rearranging.diagonal, "ravel": views.ravel, "flatten": views.ravel, "repeat": rearranging.repeat,
    "squeeze": views.squeeze, "swapaxes": views.swapaxes, "take": indexing.take, "reshape": methods.reshape,
    "transpose": methods.transpose,
}  # fmt: skip
_OF_WORDS = ("delete", "is_deleted", "on_device_size_in_bytes", "unsafe_buffer_pointer", "copy_to_host_async")
_PROPERTIES_OF_WORDS = ("committed", "is_fully_addressable", "is_fully_replicated")
_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and": "&",
    "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
def _repr(keys: PRNGKeyArray) -> str:
    if isinstance(keys.words, Tracer):
        return f"Traced<{type_text(keys.dtype, keys.shape)}>"
    if not hasattr(keys.words, "shape"):  # what is said of the leaf, in a structure
        return f"{keys.dtype}({keys.words!r})"
    return f"Array({keys.shape}, dtype={keys.dtype}) overlaying:\n{keys.words}"


_METHODS = {
    "__getitem__": _getitem,
    "__iter__": _iterate,
    "__repr__": _repr,
    "__eq__": _comparison(ufuncs.equal),
    "__ne__": _comparison(ufuncs.not_equal),
    "astype": _astype,
    "copy": lambda keys: PRNGKeyArray(keys.dtype, keys.words.copy()),
    "addressable_data": lambda keys, index: PRNGKeyArray(keys.dtype, keys.words.addressable_data(index)),
    "devices": lambda keys: keys.words.devices(),
    **{name: lambda keys, _name=name: getattr(keys.words, _name)() for name in _OF_WORDS},
}
_PROPERTIES = {
    "aval": typeof,
    "T": lambda keys: keys.transpose(),
    "at": KeyUpdater,
    "sharding": _sharding,
    "addressable_shards": lambda keys: _shards(keys, keys.words.addressable_shards),
    "global_shards": lambda keys: _shards(keys, keys.words.global_shards),
    **{name: lambda keys, _name=name: getattr(keys.words, _name) for name in _PROPERTIES_OF_WORDS},
}


def _block_until_ready(keys: PRNGKeyArray) -> PRNGKeyArray:
    keys.words.block_until_ready()
    return keys


def _install(kind: type) -> None:
    for name, function in _MOVING.items():
        setattr(kind, name, takes_keys(function))
    for name, function in {**_METHODS, "block_until_ready": _block_until_ready}.items():
        setattr(kind, name, function)
    for name, function in _PROPERTIES.items():
        setattr(kind, name, property(function))
    for name, sign in _SIGNS.items():
        setattr(kind, f"__{name}__", _refusing(sign))
        setattr(kind, f"__r{name}__", _refusing(sign))
    for name, sign in {"neg": "-", "invert": "~", "abs": "abs"}.items():
        setattr(kind, f"__{name}__", _refusing(sign))


_install(PRNGKeyArray)
