"""Array: a global array. A logical shape, a sharding, and the shards that this process can reach.

Users see logical shapes only: where an extent does not divide, the padding at the end of the last shards is known to
jaxlib and nowhere else. Operators and methods are attached by `meshjit.numpy.methods`. Methods that make
other Arrays import what makes them when they run: those files stand above this one.

Instances are of jaxlib's own class, to which the attributes of the one here are attached (`_jaxlib.array_class`): so a call of a
compiled function runs from Arrays to Arrays in C++.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.explicit import typed
from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib
from meshjit.runtime.array_shards import ArrayShards, Shard as Shard
from meshjit.runtime.array_values import ArrayValues
from meshjit.runtime.leaf_key import LeafKey as LeafKey, leaf_key as leaf_key
from meshjit.trace.shaped import shaped_array_of
from meshjit.trace.types import ShapedArray
from sharding.named import NamedSharding, Sharding
from sharding.spec import spec_text


class Array(ArrayShards, ArrayValues, metaclass=_jaxlib.ArrayMeta):
    """A global array over the devices of its sharding. Made by `device_put`, `meshjit.numpy` and compiled functions."""

    __array_priority__ = 100
    _sharding: Any  # jaxlib's: the layout of the key
    _deleted_by: str  # this one and those below are only set where they say something
    _host: np.ndarray[Any, Any]
    _shared: Any  # the first Array over this memory
    _sharing: list[weakref.ref[Array]]  # the others, known to the first

    def __new__(cls, key: LeafKey, handle: Any) -> Array:
        """The handle itself if it has the key's layout, else another over the same memory."""
        return _jaxlib.in_layout(handle, key.layout)

    @classmethod
    def over(cls, key: LeafKey, other: Array) -> Array:
        """`other` under another key, with the same memory: both are gone once one is deleted or donated."""
        other._require_live()
        array = cls(key, other)
        if array is not other:
            array._shared = first = other.memory
            sharing = vars(first).get("_sharing", ())
            first._sharing = [*(ref for ref in sharing if ref() is not None), weakref.ref(array)]
            _sharing[id(array)] = array
        return array

    @property
    def memory(self) -> Any:
        """One object for all Arrays over the same memory."""
        return vars(self).get("_shared", self)

    _key: LeafKey = property(operator.attrgetter("_sharding.key"))  # pyright: ignore[reportAssignmentType]

    # -- what it is

    @property
    def type(self) -> TensorType:
        return self._key.type

    @property
    def aval(self) -> ShapedArray:
        _jaxlib.refuse_jax(sys._getframe(1))
        return shaped_array_of(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._key.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._key.type.dtype

    @property
    def ndim(self) -> int:
        return len(self._key.type.shape)

    @property
    def size(self) -> int:
        return self._key.type.size

    @property
    def nbytes(self) -> int:
        return self._key.type.nbytes

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        return self._key.weak

    @property
    def sharding(self) -> Sharding:
        assert self._key.sharding is not None
        return self._key.sharding

    @property
    def committed(self) -> bool:
        """Whether the user (or a compiled function with a mesh) decided where it lives."""
        return self._key.committed

    _committed = committed

    @property
    def is_fully_addressable(self) -> bool:
        return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        return self.sharding.is_fully_replicated

    @property
    def _is_readable(self) -> bool:
        """Whether this process has all elements."""
        return self.sharding.is_fully_addressable or self.sharding.holds_all_here(self.shape)

    @property
    def _is_whole_on_each(self) -> bool:
        """Whether each process of its devices has all elements. Processes decide alike by it."""
        sharding = self.sharding
        return sharding.is_fully_addressable or (sharding.is_fully_replicated and sharding.has_addressable_devices)

    def devices(self) -> set[Any]:
        return set(self.sharding.device_set)

    @property
    def device(self) -> Any:
        """The device if there is one, else the sharding (Array API standard)."""
        devices = self.devices()
        return next(iter(devices)) if len(devices) == 1 else self.sharding

    # -- shards

    def _require_live(self) -> None:
        """RuntimeError, naming who took its memory, once the array is deleted."""
        if self.is_deleted():
            raise RuntimeError(self._deleted_message())

    def _live(self) -> Array:
        self._require_live()
        return self

    def _deleted_message(self) -> str:
        deleted_by = vars(self).get("_deleted_by", "")
        if deleted_by == "delete()":
            return f"Array {self.type} has been deleted by its delete()\n  fix: delete it after its last use"
        by = f"{deleted_by} (donated)" if deleted_by else "a call that another Array of it was donated to"
        return (
            f"Array {self.type} has been deleted: its memory was given to {by}\n"
            "  a donated argument is gone after the call, because its memory holds a result\n"
            "  fix: use the function's result instead, pass x.copy(), or do not donate it"
        )

    # -- values

    def numpy(self) -> np.ndarray[Any, Any]:
        """The whole logical array, read-only. Needs a copy of every shard to be on this process."""
        self._require_live()
        value = vars(self).get("_host")
        if value is None:
            value = self._host = self._assemble()
            value.flags.writeable = False
        return value

    def _assemble(self) -> np.ndarray[Any, Any]:
        self.require_finished()
        local = _jaxlib.fetch(self)
        if self.is_fully_replicated and local:
            return local[0][1].view()
        if not self._is_readable:
            raise RuntimeError(self._elsewhere())
        whole = np.empty(self.shape, self.dtype)
        places = self.sharding.devices_indices_map(self.shape)
        done: set[Any] = set()
        for device, shard in local:
            index = places[device]
            key = tuple((s.start, s.stop) for s in index)
            if key not in done:
                part = whole[index]
                whole[index] = shard[tuple(slice(0, n) for n in part.shape)]
                done.add(key)
        return whole

    def require_finished(self) -> None:
        """NotImplementedError where shards are addends of the elements."""
        sharding = self.sharding
        if not isinstance(sharding, NamedSharding) or not sharding.spec.unreduced:
            return
        raise NotImplementedError(
            f"Array {typed(self.type, sharding.spec)} is an unfinished sum: each device along"
            f" {', '.join(map(repr, sorted(sharding.spec.unreduced)))} holds an addend, and reading it sends nothing\n"
            f"  fix: meshjit.sharding.reshard(x, {spec_text(sharding.spec)}) finishes the sum;"
            " x.addressable_shards are the addends"
        )

    def _elsewhere(self) -> str:
        owners = sorted({device.process_index for device in self.sharding.device_set})
        held = "only a part" if self.sharding.has_addressable_devices else "nothing"
        return (
            f"Array {self.type} with {self.sharding} spans processes {owners}; this one holds {held} of it\n"
            "  fix: read `x.addressable_shards`, or replicate it first: meshjit.device_put(x, NamedSharding(mesh, P()))"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.numpy()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to turn {self.dtype} into {np.dtype(dtype)}")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the same memory; see `meshjit.runtime.exchange`. BufferError on several devices."""
        from meshjit.runtime.exchange import to_capsule

        return to_capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from meshjit.runtime.exchange import dlpack_device

        return dlpack_device(self)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the elements on their device; ValueError where they lie on several."""
        if len(self.devices()) > 1:
            raise ValueError(
                f"Array {self.type} lies on {len(self.devices())} devices, each with memory of its own\n"
                "  fix: x.addressable_shards[i].data.unsafe_buffer_pointer()"
            )
        return _jaxlib.buffer_address(self._live())

    def on_device_size_in_bytes(self) -> int:
        """Bytes on all devices of this process: copies count each, and so does padding."""
        return _jaxlib.size_on_devices(self._live())

    def platform(self) -> str:
        """Of its devices: "cpu", "cuda" or "tpu"."""
        return next(iter(self.sharding.device_set)).platform

    def in_place_of(self, other: Array) -> Array:
        """The array where another is that somebody placed, as it is assigned to a Ref that holds that one."""
        from meshjit.runtime.placing import in_place_of

        return in_place_of(self, other)

    def __reduce__(self) -> Any:
        return _unpickled, (np.array(self.numpy()), self.weak_type)

    def copy(self) -> Array:
        """The same elements under the same sharding, in memory of their own: safe from a donation of this array."""
        from meshjit.runtime.resharding import copied

        return copied(self)

    __copy__ = clone = copy

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    # -- waiting and letting go

    def block_until_ready(self) -> Array:
        """Wait until the shards of this process are computed; raises what their computation raised."""
        _jaxlib.block(self._live())
        return self

    def is_ready(self) -> bool:
        return _jaxlib.is_ready(self._live())

    def copy_to_host_async(self) -> None:
        _jaxlib.copy_to_host_async(self._live())

    def delete(self) -> None:
        """Give the memory back now."""
        if not self.is_deleted():
            self._give_up("delete()")

    if TYPE_CHECKING:  # jaxlib's own

        def is_deleted(self) -> bool: ...

    def _give_up(self, by: str) -> None:
        """Delete it, if it is not, and note who did. Others over its memory are deleted, too: C++ asks each of them only
        whether it was deleted itself, and with the memory gone some versions crash."""
        first = self.memory
        for other in (first, *(ref() for ref in vars(first).get("_sharing", ()))):
            if other is not None:
                _jaxlib.delete(other)
        vars(self).pop("_host", None)
        self._deleted_by = by

    def __jax_array__(self) -> Any:
        """What functions of jax take it for, where it is imported: a copy, by way of the host."""
        return sys.modules["jax.numpy"].asarray(self.numpy())


_jaxlib.attach(Array)


def type_and_weak(value: Any) -> tuple[TensorType, bool] | None:
    """What ops see of an Array; None for an array of jax's."""
    key = getattr(value, "_key", None)
    return None if key is None else (key.type, key.weak)


_sharing: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()  # Arrays over the memory of others
_shared_memory: Callable[[], int] = _sharing.data.__len__  # pyright: ignore - whether there are any: quicker than its own


def give_up(arrays: Sequence[Array], by: str) -> None:
    """After a call in C++: these were donated to it, and are gone also where XLA found no use for their memory."""
    if _shared_memory():
        for array in arrays:
            array._give_up(by)
        return
    delete, attributes = _jaxlib.raw_delete, {"_deleted_by": by}  # no copy on the host among them
    for array in arrays:
        delete(array)
        array.__dict__ = attributes  # pyright: ignore[reportAttributeAccessIssue]


def memories(values: Sequence[Any]) -> set[int]:
    """A number for each value; the same for Arrays over the same memory. Others may have the number once nobody has it."""
    owners = [x.memory if isinstance(x, Array) else x for x in values] if _shared_memory() else values
    return set(map(id, owners))


def _unpickled(value: np.ndarray[Any, Any], weak: bool) -> Array:
    """A pickle holds the elements alone: devices are those of the process that reads it."""
    from meshjit.runtime.placing import asarray_host, default_sharding, place

    return place(asarray_host(value)[0], default_sharding(), committed=False, weak=weak)
