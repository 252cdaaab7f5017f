"""`jax.core`, as far as libraries ask for it: what a traced value is, and what types look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from meshjit.api.jaxpr import (
    Atom as Atom,
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    eval_jaxpr as eval_jaxpr,
    jaxpr_as_fun as jaxpr_as_fun,
    jaxprs_in_params as jaxprs_in_params,
)
from meshjit.api.kinds import TracedArray as Tracer  # noqa: F401
from meshjit.api.tools import typeof
from meshjit.core.program import Var as Var
from meshjit.core.types import TensorType, tensor_type
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import concrete as _concrete
from meshjit.trace import ensure_compile_time_eval as ensure_compile_time_eval
from meshjit.trace.types import ShapedArray as _ShapedArray


class DropVar(Var):
    """A result that nobody reads. Equations here have none: such a result is a Var as others are."""



class _TypeMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorType | _ShapedArray)


class AbstractValue(metaclass=_TypeMeta):
    """What all types are instances of. Libraries' own can be derived."""


class ShapedArray(metaclass=_TypeMeta):
    """The type of an array. Called, it makes one; what `jax.typeof` gives is an instance."""

    def __new__(cls, shape: Any, dtype: Any, weak_type: bool = False, **more: Any) -> Any:
        return _ShapedArray(shape, dtype, weak_type, **more)


max_dim, min_dim = max, min  # extents are numbers


def is_constant_dim(d: Any) -> bool:
    """Whether an extent is a number, as all are here."""
    return True


pytype_aval_mappings: dict[type, Any] = {np.ndarray: typeof}  # what libraries add to it is not read: see interpreters.xla


def get_aval(x: Any) -> Any:
    """The type of a value: `jax.typeof`."""
    return typeof(x)


def valid_jaxtype(x: Any) -> bool:
    """Whether `x` is what an operand may be: an array, a traced value, or a Python number."""
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The type of one member of a batch of this type."""
    return aval if axis is None else tensor_type((*aval.shape[:axis], *aval.shape[axis + 1 :]), aval.dtype)


def unmapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The type of a batch of `size` members of this type."""
    return aval if axis is None else tensor_type((*aval.shape[:axis], size, *aval.shape[axis:]), aval.dtype)


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    known = _concrete(val, context or "concrete_or_error", "make it static") if isinstance(val, Tracer) else val
    return known if force is None else force(known)


class TraceTag:
    """What tells traces of a library's own apart. There are none here."""


class Trace:
    """The base of a library's own interpreters. meshjit traces functions itself: no other trace can be running."""

    def __init__(self, *_: Any) -> None:
        raise NotImplementedError(_NO_TRACES)


def take_current_trace() -> NoReturn:
    """Refused: libraries would put a trace of their own in its place."""
    raise NotImplementedError(_NO_TRACES)


def set_current_trace(trace: Any) -> NoReturn:
    """Refused."""
    raise NotImplementedError(_NO_TRACES)


_NO_TRACES = (
    "jax.core: a trace of a library's own cannot run in meshjit, which traces functions itself\n"
    "  fix: jax.make_jaxpr(f)(x), whose equations say what f does"
)


_explain(__name__)
