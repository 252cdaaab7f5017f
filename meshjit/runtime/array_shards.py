"""The shards of an Array: which device holds which slice of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshjit.runtime import _jaxlib
from sharding.named import Sharding, SingleDeviceSharding

Index = tuple[slice, ...]


@dataclass(frozen=True)
class Shard:
    """One device's part: where it is, which slice of the logical array it is, and which copy of that slice."""

    device: Any
    index: Index
    replica_id: int
    fetch: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def data(self) -> Any:
        """The slice as an Array on that device alone; None where another process holds it."""
        return None if self.fetch is None else self.fetch()

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


class ArrayShards:
    """Methods of `meshjit.runtime.array.Array` that take it apart."""

    if TYPE_CHECKING:
        shape: tuple[int, ...]
        sharding: Sharding
        committed: bool
        weak_type: bool

        def _require_live(self) -> None: ...
        def _live(self) -> Any: ...

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on this process's devices, in mesh order. `data` is the logical slice (without padding)."""
        here = self._here()
        return [self._with_data(s, here[s.device]) for s in self._shards(here)]

    @property
    def global_shards(self) -> list[Shard]:
        """All shards; those of other processes have no data."""
        here = self._here()
        return [self._with_data(s, here[s.device]) if s.device in here else s for s in self._shards(None)]

    def _here(self) -> dict[Any, int]:
        self._require_live()
        return {device: i for i, device in enumerate(_jaxlib.handle_devices(self))}

    def addressable_data(self, index: int) -> Any:
        return self.addressable_shards[index].data

    def _shards(self, only: Any) -> list[Shard]:
        seen: dict[Any, int] = {}
        shards: list[Shard] = []
        for device, index in self.sharding.devices_indices_map(self.shape).items():
            key = tuple((s.start, s.stop) for s in index)
            seen[key] = seen.get(key, -1) + 1
            if only is None or device in only:
                shards.append(Shard(device, index, seen[key]))
        return shards

    def _with_data(self, shard: Shard, position: int) -> Shard:
        return Shard(shard.device, shard.index, shard.replica_id, functools.partial(self._shard_data, shard, position))

    def _shard_data(self, shard: Shard, position: int) -> Any:
        from meshjit.runtime.placing import place

        local = _jaxlib.fetch(_jaxlib.shard(self._live(), position))[0][1]
        extents = [len(range(*s.indices(n))) for s, n in zip(shard.index, self.shape, strict=True)]
        own = local[tuple(slice(0, n) for n in extents)]
        sharding = SingleDeviceSharding(shard.device, memory_kind=self.sharding.memory_kind)
        return place(own, sharding, committed=self.committed, weak=self.weak_type)
