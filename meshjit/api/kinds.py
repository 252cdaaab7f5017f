"""`meshjit.Array`: what all arrays are, concrete and traced ones (`jax.Array`), for isinstance and annotations."""

from __future__ import annotations

from typing import Any, NoReturn

from meshjit.runtime.array import Array as ConcreteArray
from meshjit.trace import Tracer

_KINDS: list[type] = [ConcreteArray, Tracer]


def register_array(kind: type) -> None:
    """Instances of this class are arrays, too (keys of random numbers)."""
    _KINDS.append(kind)


class _ArrayMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, tuple(_KINDS))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, tuple(_KINDS))


class Array(metaclass=_ArrayMeta):
    """What functions of meshjit take and give: `isinstance(x, meshjit.Array)` holds inside and outside of traced functions.

    Arrays are made by `meshjit.numpy.asarray`, `device_put` and the like; `meshjit.runtime.array.Array` is their class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "meshjit.Array is for isinstance and annotations; it makes no arrays\n"
            "  fix: meshjit.numpy.asarray(values), or meshjit.device_put(values, sharding)"
        )
