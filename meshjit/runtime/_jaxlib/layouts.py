"""What jaxlib is told of an array: the shard's shape, and a row of devices under a MANUAL sharding; one device has it all."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

DeviceList = _jax.DeviceList


class Aval:
    """All that jaxlib reads of an abstract value."""

    __slots__ = ("dtype", "ndim", "shape", "weak_type")

    def __init__(self, shape: Iterable[int], dtype: Any) -> None:
        self.shape, self.dtype, self.weak_type = tuple(shape), np.dtype(dtype), False
        self.ndim = len(self.shape)

    def __repr__(self) -> str:
        """As jaxlib's own errors show it."""
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def _sharding(type: Any) -> Any:
    proto = xla_client.OpSharding()
    proto.type = type
    return xla_client.HloSharding.from_proto(proto)


_MANUAL = _sharding(xla_client.OpSharding.Type.MANUAL)
_WHOLE = _sharding(xla_client.OpSharding.Type.REPLICATED)  # without it Python cannot read the memory of one device in place


class Layout(_jax.GSPMDSharding):
    """All that jaxlib reads of a sharding: one shard per device of the row, whatever the shards mean together.

    Two layouts are never equal: `fast_function` tells arrays of equal shards apart by them. (Its C++ asks classes that
    it does not know for their devices the slow way, hence the base class.)"""

    memory_kind: str | None = None  # None: the device's own
    key: Any = None  # what arrays of this layout are; None: they are bare handles
    _internal_device_list = num_devices = device_set = None  # with jax in the process these are read-only properties

    def __init__(self, row: tuple[Any, ...], memory: str | None = None) -> None:
        self._means = _WHOLE if len(row) == 1 else _MANUAL
        super().__init__(device_list(row), self._means)
        self.memory_kind = memory
        self._internal_device_list = device_list(row)
        self.num_devices, self.device_set, self.row = len(row), row, _one_of_equal(row)
        self.local = tuple(self._internal_device_list.addressable_device_list)

    def _to_xla_hlo_sharding(self, ndim: int) -> Any:
        return self._means

    __eq__, __hash__ = object.__eq__, object.__hash__


@functools.lru_cache(maxsize=256)
def device_list(row: tuple[Any, ...]) -> Any:
    return DeviceList(row)


@functools.lru_cache(maxsize=256)
def _one_of_equal(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Equal rows as one object, so that comparing them is quick."""
    return row


@functools.lru_cache(maxsize=256)
def shared_layout(row: tuple[Any, ...], memory: str | None = None) -> Layout:
    """The layout of handles that need no layout of their own."""
    return Layout(row, memory)
