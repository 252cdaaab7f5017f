"""Bringing values into memories that users name (`jax.memory`)."""

from __future__ import annotations

from typing import Any

from meshjit.core.memories import MemorySpace
from meshjit.core.op import REGISTRY
from meshjit.runtime.array import Array
from meshjit.runtime.placing import asarray, default_sharding, move
from meshjit.trace import bind
from meshjit.trace.memories import memory_in_type
from sharding.memory import DEVICE, HOST
from sharding.named import Sharding

Value = Any


def named_memory(sharding: Any) -> str | None:
    """The memory that a sharding names; None for what names none, such as a spec."""
    return sharding.memory_kind if isinstance(sharding, Sharding) else None


def memory_of_space(space: MemorySpace, what: str) -> str:
    """The memory's name; ValueError for Any, which says nothing."""
    if space is MemorySpace.Any:
        fix = f"{MemorySpace.Device}, {MemorySpace.Host}, or a sharding with memory_kind="
        raise ValueError(f"{what}: {space} names no memory\n  fix: {fix}")
    return HOST if space is MemorySpace.Host else DEVICE


def brought(x: Value, memory: str | None) -> Value:
    """A traced value in a memory; itself where it lies there, or None is named."""
    source = memory_in_type(x)
    return x if memory in (None, source) else bind(REGISTRY["in_memory"], x, memory=memory, source=source)


def put_in_memory(x: Value, memory: str) -> Array:
    """A concrete value on the devices where it is, in this memory of theirs; on the default device if it is on none."""
    if isinstance(x, Array):
        return move(x, x.sharding.with_memory_kind(memory))
    return move(asarray(x), default_sharding().with_memory_kind(memory))
