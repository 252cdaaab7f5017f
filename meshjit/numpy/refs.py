"""Refs: arrays that are changed in place (`jax.ref`). What is read and written are values, as of any other array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.api.constraint import reshard
from meshjit.api.tools import typeof
from meshjit.core.keys import PRNGKeyArray
from meshjit.core.ref import Ref
from meshjit.core.types import is_inexact, is_integer
from meshjit.numpy import creation
from meshjit.numpy.promote import cast, lifted, value, weak_of
from meshjit.runtime.array import Array
from meshjit.trace import Tracer, active_trace, line_of, user_source
from meshjit.trace.explicit import sharding_in_type
from meshjit.trace.refs import adds_apart, content_of, store, type_of_ref, value_of


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A Ref that holds the array `init_val` at first (`jax.new_ref`).

    memory_space: None; there is no other memory to choose. kind: None or "no_grad_no_remat", which changes nothing here: what
    derivatives need of a Ref's content are values, kept or computed again as others are.

    TypeError for what is no array or number: trees are Refs of their leaves, `jax.tree.map(jax.new_ref, tree)`."""
    if memory_space is not None:
        raise NotImplementedError(
            f"new_ref: memory_space={memory_space!r}, but arrays live in the memory of their devices\n  fix: leave it out"
        )
    if isinstance(init_val, Ref | list | tuple | dict):
        fix = "new_ref(ref[...])" if isinstance(init_val, Ref) else "jax.tree.map(jax.new_ref, tree), or jnp.array of a list"
        raise TypeError(
            f"new_ref needs an array or a number, was given {init_val!r:.60}\n  at {line_of(user_source())}\n  fix: {fix}"
        )
    keys = init_val.dtype if isinstance(init_val, PRNGKeyArray) else None
    array = init_val.words if isinstance(init_val, PRNGKeyArray) else init_val
    content, info, weak = value(array, "init_val")
    content = lifted(cast(content, info.dtype, weak))
    return Ref(info, weak, keys, active_trace(), content, user_source())


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A Ref of the shape and dtype of `ty`, with any content (`jax.empty_ref`): zeros here."""
    return new_ref(creation.zeros(ty.shape, ty.dtype), memory_space=memory_space)


def freeze(ref: Any) -> Any:
    """The array that a Ref holds, which is not to be used afterwards (`jax.freeze`). An array is given back."""
    if not isinstance(ref, Ref):
        return ref
    result = get(ref)
    _end(ref, "frozen")
    return result


def free_ref(ref: Ref) -> None:
    """Say that a Ref is not used any more (`jax.free_ref`)."""
    _end(ref, "freed")


def _end(ref: Ref, how: str) -> None:
    if ref.home is not active_trace():
        raise ValueError(
            f"a {type_of_ref(ref)} can be {how} only where it was made, at {line_of(ref.source)}\n"
            f"  at {line_of(user_source())}\n  fix: return ref[...]"
        )
    if ref.home is not None:  # outside of traced functions it stays what it is, as in JAX
        ref.freed = f"{how} at {line_of(user_source())}"


def get(ref: Ref, idx: Any = None) -> Any:
    """`ref[idx]`, all of it without an index (`jax.ref.get`). Of what lies outside the nearest element."""
    index = _index(ref, idx, "get")
    whole = value_of(ref)
    if index is None:
        return whole
    return whole[index] if _has_arrays(index) or ref.keys is not None else whole.at[index].get(mode="clip")


def swap(ref: Ref, idx: Any, value: Any) -> Any:
    """Write `ref[idx] = value`, and give what was there before (`jax.ref.swap`).

    ValueError where the value has another shape or dtype: nothing is broadcast; Python numbers take the Ref's dtype."""
    before = get(ref, idx)
    _write(ref, idx, value, before, "swap")
    return before


def set(ref: Ref, idx: Any, value: Any) -> None:  # noqa: A001
    """`ref[idx] = value` (`jax.ref.set`); errors as those of `swap`."""
    _write(ref, idx, value, None, "swap")


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """`ref[idx] += x`; what an index names twice is added twice (`jax.ref.addupdate`). Errors as those of `swap`."""
    if ref.keys is not None:
        raise TypeError(f"addupdate: keys are no numbers, this is a {type_of_ref(ref)}")
    index, new = _index(ref, idx, "addupdate"), _checked(ref, idx, x, None, "addupdate")
    whole = content_of(ref)
    if index is not None and adds_apart(ref):
        index, new = None, creation.zeros(ref.shape, ref.dtype).at[index].add(new, **_mode(index))
    result = whole + new if index is None else whole.at[index].add(new, **_mode(index))
    _store(ref, lifted(cast(result, ref.type.dtype, weak_of(result))))


def _write(ref: Ref, idx: Any, x: Any, before: Any, what: str) -> None:
    index, new = _index(ref, idx, what), _checked(ref, idx, x, before, what)
    if index is not None and ref.keys is not None:
        new = value_of(ref).at[index].set(new)
    elif index is not None:
        new = content_of(ref).at[index].set(new, **_mode(index))
    _store(ref, new.words if isinstance(new, PRNGKeyArray) else lifted(new))


def _store(ref: Ref, new: Any) -> None:
    """From now on it holds this, in whose type explicit axes shard what they sharded."""
    typed = sharding_in_type(content_of(ref)) if active_trace() is not None else None
    store(ref, new if typed is None or typed == sharding_in_type(new) else reshard(new, typed))


def _checked(ref: Ref, idx: Any, x: Any, before: Any, what: str) -> Any:
    """The value in the Ref's dtype; ValueError for another shape or dtype."""
    index = _index(ref, idx, what)
    expected = ref.shape if index is None else tuple((get(ref, idx) if before is None else before).shape)
    if isinstance(x, PRNGKeyArray) or ref.keys is not None:
        shape, fits = tuple(np.shape(x) if not hasattr(x, "shape") else x.shape), getattr(x, "dtype", None) == ref.dtype
        dtype = getattr(x, "dtype", type(x).__name__)
    else:
        if isinstance(x, list | tuple | Ref):
            raise TypeError(f"{what}: {x!r:.60} is not an array\n  at {line_of(user_source())}\n  fix: jnp.array of it")
        x, info, weak = value(x, "value")
        shape, dtype = info.shape, info.dtype
        fits = dtype == ref.type.dtype or (weak and _kind(dtype) == _kind(ref.type.dtype))
        x = x if not fits else cast(x, ref.type.dtype, weak and ref.weak)
    if shape != expected:
        raise ValueError(
            f"Invalid shape for `{what}`. Ref shape: {ref.shape}. Expected shape: {expected}. Value shape: {shape}.\n"
            f"  at {line_of(user_source())}\n  fix: jnp.broadcast_to(value, {expected}): refs broadcast nothing"
        )
    if not fits:
        raise ValueError(
            f"Invalid dtype for `{what}`. Ref dtype: {ref.dtype}. Value dtype: {dtype}.\n"
            f"  at {line_of(user_source())}\n  fix: value.astype(ref.dtype), or a Ref of another dtype"
        )
    return x


def _kind(dtype: np.dtype[Any]) -> str:
    """`f` also for bfloat16 and the small floats, which are of kind V for NumPy."""
    return "f" if is_inexact(dtype) and dtype.kind != "c" else dtype.kind


def _mode(index: tuple[Any, ...]) -> dict[str, str]:
    """Numbers that lie outside mean the nearest element, as slices do; arrays of them what they mean for arrays."""
    return {} if _has_arrays(index) else {"mode": "clip"}


def _has_arrays(index: tuple[Any, ...]) -> bool:
    return any(getattr(i, "ndim", 0) > 0 for i in index)


def _index(ref: Ref, idx: Any, what: str) -> tuple[Any, ...] | None:
    """The index as a tuple, None for all; errors for what indexes no Ref."""
    if not isinstance(ref, Ref):
        raise ValueError(f"`{what}` must be called on `Ref` types: {type(ref).__name__}\n  at {line_of(user_source())}")
    if ref.freed:
        at = line_of(user_source())
        raise ValueError(f"`{what}` of a {type_of_ref(ref)} that was {ref.freed}\n  at {at}\n  fix: read it before")
    parts = idx if isinstance(idx, tuple) else () if idx is None else (idx,)
    if all(i is Ellipsis or (isinstance(i, slice) and i == slice(None)) for i in parts) and len(parts) <= max(1, ref.ndim):
        return None
    given = [i for i in parts if i is not Ellipsis]
    if len(given) > ref.ndim:
        raise ValueError(
            f"`indices` must not be longer than `shape`: indices={given!r}, shape={ref.shape}\n  at {line_of(user_source())}"
        )
    before = parts.index(Ellipsis) if any(i is Ellipsis for i in parts) else len(parts)
    for n, i in enumerate(given):
        extent = ref.shape[n if n < before else n - len(given)]
        _check_entry(i, extent)
    return tuple(i if isinstance(i, slice | Tracer) or i is Ellipsis else _entry(i) for i in parts)


def _check_entry(i: Any, extent: int) -> None:
    at = f"\n  at {line_of(user_source())}"
    if isinstance(i, slice) and isinstance(i.step, int) and i.step < 1:
        raise ValueError(f"slice must have a step >= 1 (found: {i.step}){at}\n  fix: jnp.flip of what is read")
    number = _known_number(i)
    if number is not None and number >= extent:
        raise ValueError(f"Out of bound indexer: idx={number}, dim={extent}.{at}")
    if i is None or isinstance(i, str):
        raise TypeError(f"{i!r} is no index of a Ref{at}\n  fix: ref[...][{i!r}] indexes the array")


def _known_number(i: Any) -> int | None:
    """The value of an integer, or of an array of one; None of anything else, and where it is not known here."""
    if isinstance(i, np.ndarray) or (isinstance(i, Array) and i._is_whole_on_each):
        return int(i) if not i.shape and is_integer(i.dtype) else None
    return int(i) if isinstance(i, int | np.integer) and not isinstance(i, bool) else None


def _entry(i: Any) -> Any:
    return np.asarray(i) if isinstance(i, list) else i


def _repr(ref: Ref) -> str:
    content = content_of(ref)
    if isinstance(content, Tracer):
        return f"Tracer({type_of_ref(ref)})"
    return repr(value_of(ref)).replace("Array", "Ref", 1)


def _of_array(name: str) -> property:
    return property(lambda ref: getattr(content_of(ref), name))


def _install() -> None:
    methods: dict[str, Callable[..., Any] | property] = {
        "__getitem__": get,
        "__setitem__": set,
        "addupdate": lambda ref, x, idx=(): addupdate(ref, idx, x),
        "__repr__": _repr,
        "aval": property(typeof),
        **{name: _of_array(name) for name in ("sharding", "committed", "format", "unsafe_buffer_pointer")},
    }
    for name, method in methods.items():
        setattr(Ref, name, method)


_install()
