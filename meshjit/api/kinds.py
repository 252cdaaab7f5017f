"""`meshjit.Array`: what all arrays are, concrete and traced ones (`jax.Array`), for isinstance and annotations."""

from __future__ import annotations

from typing import Any, NoReturn

from meshjit.core.keys import PRNGKeyArray
from meshjit.runtime.array import Array as ConcreteArray
from meshjit.trace import Tracer

_KINDS = (ConcreteArray, Tracer, PRNGKeyArray)


class _ArrayMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _KINDS)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _KINDS)

    def __getattr__(cls, name: str) -> Any:
        """What all arrays have, as `jax.Array.reshape`."""
        return getattr(ConcreteArray, name)

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *dir(ConcreteArray)})


class Array(metaclass=_ArrayMeta):
    """What functions of meshjit take and give: `isinstance(x, meshjit.Array)` holds inside and outside of traced functions.

    Arrays are made by `meshjit.numpy.asarray`, `device_put` and the like; `meshjit.runtime.array.Array` is their class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "meshjit.Array is for isinstance and annotations; it makes no arrays\n"
            "  fix: meshjit.numpy.asarray(values), or meshjit.device_put(values, sharding)"
        )


class _TracedMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tracer) or (isinstance(instance, PRNGKeyArray) and isinstance(instance.words, Tracer))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, Tracer)


class TracedArray(metaclass=_TracedMeta):
    """`core.Tracer`, for isinstance: values of a function that is being traced, keys among them."""
