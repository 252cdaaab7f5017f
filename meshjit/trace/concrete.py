"""What an operand may be beside Tracers: concrete arrays, of classes that the runtime registers, and NumPy's."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.splat import is_splat
from meshjit.core.types import TensorType, type_of
from meshjit.trace.tracer import Tracer

Value = Any  # Tracer, concrete array, np.ndarray or np.generic
Put = Callable[[Any], Value]

_concrete: dict[type, Callable[[Any], tuple[TensorType, bool] | None]] = {}
_put: Put | None = None
LARGE = 1 << 20  # bytes


def register_concrete(kind: type, type_and_weak: Callable[[Any], tuple[TensorType, bool] | None]) -> None:
    """Values of this class are concrete arrays: operands of ops, captured by traces. None: this one is not."""
    _concrete[kind] = type_and_weak


def concrete_info(value: Any) -> tuple[TensorType, bool] | None:
    """(type, weak) of an instance of a registered class, else None."""
    describe = _concrete.get(type(value))
    if describe is None:
        describe = next((_concrete[k] for k in type(value).__mro__[1:] if k in _concrete), None)
        if describe is None:
            return None
    return describe(value)


def type_and_weak(value: Value) -> tuple[TensorType, bool] | None:
    """(type, weak) of anything an operand may be, else None."""
    if isinstance(value, Tracer):
        return value.variable.type, value.weak_type
    if isinstance(value, np.ndarray | np.generic):
        return type_of(np.asarray(value)), False
    return concrete_info(value)


def set_put(put: Put | None) -> Put | None:
    """Install what makes concrete arrays of large NumPy arrays; gives back what was installed before."""
    global _put
    before, _put = _put, put
    return before


def is_large(value: Any) -> bool:
    """Whether a constant is worth an input of its own: a megabyte or more that is not one value throughout."""
    return _put is not None and value.nbytes >= LARGE and not is_splat(value)


def put(value: np.ndarray[Any, Any]) -> Value:
    """A concrete array of these elements."""
    assert _put is not None
    return _put(value)


class Copy:
    """Elements of a NumPy array as they were when a function was traced; None: too many to keep."""

    __slots__ = ("_array", "_elements")

    def __init__(self, array: np.ndarray[Any, Any], elements: np.ndarray[Any, Any] | None) -> None:
        self._array, self._elements = weakref.ref(array), elements

    @property
    def is_current(self) -> bool:
        """Whether the array still has them. One that is gone is read by nobody."""
        array = self._array()
        if array is None:
            return True
        return self._elements is not None and array.shape == self._elements.shape and array.tobytes() == self._elements.tobytes()
