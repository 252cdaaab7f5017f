"""Memories that an array can lie in, by the names that they have in JAX: a device's own, and its host's.

    device          the device's own, in which it computes
    pinned_host     its host's, pages that stay where they are, so that the device copies them itself
    unpinned_host   its host's, as the operating system manages it
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from sharding.mesh import is_addressable

DEVICE: Final = "device"
HOST: Final = "pinned_host"
KINDS: Final = (DEVICE, HOST, "unpinned_host")


def checked_memory(kind: str | None, devices: Sequence[Any] | None) -> str | None:
    """The kind, None being "device" where there are devices. ValueError for one that they do not have, or nobody has."""
    if kind is None:
        return None if devices is None else DEVICE
    if not isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'memory_kind is {kind!r} of type {type(kind).__name__}\n  fix: a name such as "pinned_host", or None')
    if kind == DEVICE:
        return kind
    device = next(filter(is_addressable, devices or ()), None)
    there = KINDS if device is None else _kinds_of(device)
    if kind not in there:
        whose = "there are memories" if device is None else f"{device} has memories"
        raise ValueError(f"memory_kind is {kind!r}; {whose} {', '.join(there)}\n  fix: one of them")
    return kind


@functools.lru_cache(maxsize=256)
def _kinds_of(device: Any) -> tuple[str, ...]:
    """What the device says; all kinds for one that says nothing, as GPUs of topologies."""
    memories = getattr(device, "addressable_memories", None)
    return KINDS if memories is None else tuple(memory.kind for memory in memories()) or KINDS


def memory_of(sharding: Any) -> str:
    """The memory that a sharding, or none, names."""
    return getattr(sharding, "memory_kind", None) or DEVICE
