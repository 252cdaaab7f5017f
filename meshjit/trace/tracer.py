"""Tracer: what a traced function computes with. It has a shape and a dtype and no elements.

Operators and methods (`x + y`, `x.sum()`) are attached by `meshjit.numpy.methods`; this file knows what a Tracer is and
explains why it is not a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from meshjit.core.program import Source, Var
from meshjit.core.types import TensorType, short_name
from meshjit.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from meshjit.trace.source import line_of, user_source

if TYPE_CHECKING:
    from meshjit.trace.stack import Trace


class Tracer:
    """A value of a function that is being traced; `variable` is its name in the Program that `tracing` is building.

    `weak_type` says that its dtype came from a Python scalar and yields to that of any array (see core/promotion.py).
    """

    __slots__ = ("variable", "tracing", "weak_type", "source", "__weakref__")
    __array_priority__ = 100  # NumPy scalars and arrays leave `np_array + tracer` to the Tracer

    def __init__(self, var: Var, trace: Trace, weak_type: bool, source: Source | None) -> None:
        self.variable = var
        self.tracing = trace
        self.weak_type = weak_type
        self.source = source

    @property
    def type(self) -> TensorType:
        return self.variable.type

    aval = type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.variable.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.variable.type.shape)

    @property
    def size(self) -> int:
        return self.variable.type.size

    @property
    def itemsize(self) -> int:
        return self.variable.type.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.variable.type.nbytes

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"Traced<{short_name(self.dtype)}[{dims}]{' weak' if self.weak_type else ''}>"

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: {self!r}, {origin(self)}; traced values have no elements to hash")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {self!r}, which has no dims; {origin(self)}")
        return self.shape[0]

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_CONCRETE_ARRAYS:
            fix = "ask the result of the call; jit(f).lower(...).compile().output_shardings says where results will live"
            raise not_concrete(self, ConcretizationTypeError, f".{name} was asked for", fix)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> NoReturn:
        raise not_concrete(self, ConcretizationTypeError, "it was pickled", "return it and pickle the result")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __bool__(self) -> NoReturn:
        raise not_concrete(
            self,
            TracerBoolConversionError,
            "its truth value was asked for",
            "mnp.where(cond, a, b) or lax.cond for a choice, lax.while_loop for a loop, & | ~ instead of and or not, "
            "or static_argnames=... if it is an argument that rarely changes",
        )

    def __index__(self) -> NoReturn:
        raise not_concrete(
            self,
            TracerIntegerConversionError,
            "it was used as a Python integer (an index, a range, a size)",
            "index an array instead of a list (mnp.asarray(items)[i]), loop with lax.fori_loop, "
            "or static_argnames=... if it is an argument that sets a size",
        )

    def __int__(self) -> NoReturn:
        raise self._not_a_number("int")

    def __float__(self) -> NoReturn:
        raise self._not_a_number("float")

    def __complex__(self) -> NoReturn:
        raise self._not_a_number("complex")

    def _not_a_number(self, kind: str) -> ConcretizationTypeError:
        fix = f"x.astype({kind}) keeps it traced; return it and convert outside; or static_argnames=... for an argument"
        return not_concrete(self, ConcretizationTypeError, f"{kind}() was called on it", fix)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        fix = "return it and format the result; without the format, f'{x}' shows its type"
        raise not_concrete(self, ConcretizationTypeError, f"it was formatted with {spec!r}", fix)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_concrete(
            self,
            TracerArrayConversionError,
            "NumPy asked for its elements",
            "the function of the same name in meshjit.numpy, or convert outside of the traced function",
        )

    def item(self, *args: Any) -> NoReturn:
        raise not_concrete(self, ConcretizationTypeError, ".item() was called on it", "return it and call .item() outside")

    def tolist(self) -> NoReturn:
        raise not_concrete(
            self, ConcretizationTypeError, ".tolist() was called on it", "return it and call .tolist() outside"
        )


# What only arrays with elements and a place have. (Asked for by `hasattr` it raises, too, as in JAX.)
_OF_CONCRETE_ARRAYS = frozenset({
    "addressable_data", "addressable_shards", "committed", "delete", "devices", "global_shards", "is_deleted",
    "is_fully_addressable", "is_fully_replicated", "on_device_size_in_bytes", "tobytes", "unsafe_buffer_pointer", "__dlpack__",
    "__dlpack_device__",
})  # fmt: skip


def origin(tracer: Tracer) -> str:
    """Where a traced value comes from: `argument params['w1']` or `computed at train.py:31 (loss)`."""
    name = tracer.tracing.names.get(tracer.variable)
    return f"argument {name}" if name else f"computed at {line_of(tracer.source)}"


def not_concrete(
    tracer: Tracer, kind: type[ConcretizationTypeError], what: str, fix: str
) -> ConcretizationTypeError:
    """The error for a traced value that Python wanted concrete; a leaked Tracer is reported as that instead."""
    if tracer.tracing.ended:
        raise leaked(tracer)
    return kind(
        f"{tracer!r} has no value while {tracer.tracing.name} is traced: {what} at {line_of(user_source())}\n"
        f"  the value: {origin(tracer)}\n"
        f"  fix: {fix}"
    )


def leaked(tracer: Tracer) -> UnexpectedTracerError:
    """The error for a Tracer used after its trace ended, or in a thread that is not tracing it."""
    why = "has ended" if tracer.tracing.ended else "runs in another thread"
    return UnexpectedTracerError(
        f"{tracer!r} belongs to the trace of {tracer.tracing.name}, which {why}; used at {line_of(user_source())}\n"
        f"  the value: {origin(tracer)}\n"
        f"  fix: return it from the function instead of keeping it in a global, an attribute or a closure"
    )
