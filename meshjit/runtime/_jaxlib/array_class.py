"""jaxlib's own class of arrays, with our attributes: C++ makes Arrays and takes them apart, none of it in Python.

The class cannot have subclasses, but attributes can be attached to it. An instance is an Array of ours if its layout has
a key; without one it is a bare handle, which no user sees. Where jax is in the process, before or after us, it attaches
its attributes to the same class: then both sets stand side by side (`_Either`), and each array has its own.
"""

from __future__ import annotations

from typing import Any

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.layouts import Layout
from meshjit.runtime._jaxlib.without_jax import after_import, jax_is_here

ArrayImpl: Any = _jax.ArrayImpl


def _raw(*names: str) -> Any:
    """jaxlib's own attributes, under the names of which arrays get others. Kept in the class: this file may be read again."""
    if "_raw" not in vars(ArrayImpl):
        ArrayImpl._raw = {}
    return [ArrayImpl._raw.setdefault(name, getattr(ArrayImpl, name)) for name in names]


_NAMES = _raw("__name__", "__module__")
raw_aval = _raw("aval")[0].fget
raw_address, raw_size_on_devices = _raw("unsafe_buffer_pointer", "on_device_size_in_bytes")
raw_block, raw_is_ready, raw_delete = _raw("block_until_ready", "is_ready", "delete")

_ABSENT: Any = object()
_NOT_ATTACHED = {*vars(type("_", (), {})), "__annotations__", "__firstlineno__", "__init__", "__new__", "__static_attributes__"}
_FOR_ANY_ARRAY = {"__array_priority__", "__reversed__"}
_ours: dict[str, Any] = {}
_theirs: dict[str, Any] = {}  # what stood under our names: jaxlib's own, or jax's
_attached: dict[str, Any] = {}


class ArrayMeta(type):
    """`isinstance` and `issubclass` of the class that is attached mean jaxlib's, as far as its instances are ours."""

    def __instancecheck__(cls, value: Any, kind: Any = ArrayImpl, layout: Any = Layout) -> bool:  # asked often: names at hand
        return type(value) is kind and type(of := value._sharding) is layout and of.key is not None

    def __subclasscheck__(cls, kind: type) -> bool:
        return kind is ArrayImpl or kind is cls


def is_ours(sharding: Any) -> bool:
    return type(sharding) is Layout and sharding.key is not None


def attach(kind: type) -> None:
    """Give Arrays the attributes of `kind` and of its bases. Again, for attributes that it got since."""
    for base in reversed(kind.__mro__[:-1]):
        _ours.update((name, value) for name, value in vars(base).items() if name not in _NOT_ATTACHED)
    _attach_all()


def _attach_all() -> None:
    beside = jax_is_here()
    ArrayImpl.__name__, ArrayImpl.__module__ = _NAMES if beside else ("Array", "meshjit")
    ArrayImpl.__qualname__ = ArrayImpl.__name__
    for name, ours in _ours.items():
        here = vars(ArrayImpl).get(name, _ABSENT)
        if here is not _attached.get(name, ours):
            _theirs[name] = here
        theirs = _theirs.get(name, _ABSENT)
        if beside and theirs is None:  # `__hash__`: who asks whether the class is Hashable wants to find None
            _attached[name] = None
        else:
            _attached[name] = _Either(name, ours, theirs) if beside and name not in _FOR_ANY_ARRAY else ours
            setattr(ArrayImpl, name, _attached[name])


class _Either:
    """An attribute of Arrays, and what others have under this name."""

    def __init__(self, name: str, ours: Any, theirs: Any) -> None:
        self.name, self.ours, self.theirs = name, ours, theirs

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if is_ours(instance._sharding):
            attribute = self.ours
        elif self.theirs is _ABSENT:
            return getattr(super(ArrayImpl, instance), self.name)
        else:
            attribute = self.theirs
        return attribute.__get__(instance, owner) if hasattr(type(attribute), "__get__") else attribute

    def __set__(self, instance: Any, value: Any) -> None:
        attribute = self.ours if is_ours(instance._sharding) else self.theirs
        if not hasattr(type(attribute), "__set__"):
            raise AttributeError(f"attribute {self.name!r} of an array cannot be set")
        attribute.__set__(instance, value)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        """Called through the class, as `copy.copy` does."""
        return self.__get__(instance, type(instance))(*args, **kwargs)


def refuse_jax(frame: Any) -> None:
    """AttributeError if the code of this frame is jax's, which takes all arrays of this class for its own. (It replaces the
    text of a TypeError, and asks some arrays that it can do without.)"""
    while jax_is_here() and frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("jax."):
            raise AttributeError(
                "a meshjit Array cannot be an argument of jax's transformations\n"
                "  fix: pass numpy.asarray(x) or jax.numpy.asarray(x), which copy it"
            )
        frame = frame.f_back if name == __name__ else None


after_import(("jax._src.array", "jax"), _attach_all)
