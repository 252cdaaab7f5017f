"""`jax.experimental.hijax`: types of a library's own. Classes can be derived; meshjit has no values of such types.

What flax.nnx defines by them is used by its variables of hijax mode alone, which ask for `HiPrimitive.bind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from meshjit.as_jax.jax.core import AbstractValue as AbstractValue, ShapedArray as ShapedArray
from meshjit.as_jax.jax.interpreters.ad import (
    Zero as Zero,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
)
from meshjit.missing import explain as _explain


class HiPrimitive:
    """An op on values of a library's own types, which cannot be bound."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{self.name}: values of a library's own types (hijax) are not there yet")


class HiType:
    """A type of a library's own."""


class MutableHiType(HiType):
    """A type of values that change."""


class AvalQDD:
    """A type with what it holds at the moment."""


AvalMutableQDD = AvalQDD


class aval_property(property):  # noqa: N801 - JAX's name
    """An attribute that traced values of a type get."""


class aval_method:  # noqa: N801
    """A method that traced values of a type get."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


class _Effects:
    """Effects that loops and branches may have. None of a library's own happens."""

    def add_type(self, kind: type) -> None:
        """Allow effects of this class."""


control_flow_allowed_effects = _Effects()


def register_hitype(kind: type, type_of: Callable[[Any], Any]) -> None:
    """Say of which type the instances of a class are."""


_explain(__name__)
