"""Tracer: what a traced function computes with. It has a shape and a dtype, and elements only outside of jit, when asked for.

Operators and methods (`x + y`, `x.sum()`) are attached by `meshjit.numpy.methods`; this file knows what a Tracer is and
explains why it is not a number where it is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from meshjit.trace.tracing import Trace


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
    def _trace(self) -> Trace:
        """JAX's name of `tracing`, which libraries ask for."""
        return self.tracing

    @property
    def type(self) -> TensorType:
        return self.variable.type

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
        if (kept := self._kept()) is not None:
            return repr(kept)
        value = self.tracing.value(self.variable)
        return described(self) if value is None else f"{described(self)}({value})"

    def __str__(self) -> str:
        kept = self._kept()
        return repr(self) if kept is None else str(kept)

    def _kept(self) -> Any:
        """The array that this is once its trace has ended (`trace/outlived.py`); None before, or where it is none."""
        return self.tracing.kept_array(self) if self.tracing.ended else None

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: {described(self)}, {origin(self)}; traced values have no elements to hash")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {described(self)}, which has no dims; {origin(self)}")
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        if name in _OF_CONCRETE_ARRAYS:
            fix = "ask the result of the call; jit(f).lower(...).compile().output_shardings says where results will live"
            return getattr(self._array(ConcretizationTypeError, f".{name} was asked for", fix), name)
        if not name.startswith("_") and (kept := self._kept()) is not None:
            return getattr(kept, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> Any:
        if (kept := self._kept()) is not None:
            return kept.__reduce__()
        raise not_concrete(self, ConcretizationTypeError, "it was pickled", "return it and pickle the result")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __bool__(self) -> bool:
        fix = (
            "mnp.where(cond, a, b) or lax.cond for a choice, lax.while_loop for a loop, & | ~ instead of and or not, "
            "or static_argnames=... if it is an argument that rarely changes"
        )
        return bool(value_of(self, TracerBoolConversionError, "its truth value was asked for", fix))

    def __index__(self) -> int:
        fix = (
            "index an array instead of a list (mnp.asarray(items)[i]), loop with lax.fori_loop, "
            "or static_argnames=... if it is an argument that sets a size"
        )
        what = "it was used as a Python integer (an index, a range, a size)"
        return value_of(self, TracerIntegerConversionError, what, fix).__index__()

    def __int__(self) -> int:
        fix = "x.astype(int) keeps it traced; return it and convert outside; or static_argnames=... for an argument"
        return int(value_of(self, ConcretizationTypeError, "int() was called on it", fix))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def _number(self, kind: str) -> Any:
        fix = f"x.astype({kind}) keeps it traced; return it and convert outside; or static_argnames=... for an argument"
        return self._array(ConcretizationTypeError, f"{kind}() was called on it", fix)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        fix = "return it and format the result; without the format, f'{x}' shows its type"
        return format(value_of(self, ConcretizationTypeError, f"it was formatted with {spec!r}", fix), spec)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        fix = "the function of the same name in meshjit.numpy, or convert outside of the traced function"
        value = self._array(TracerArrayConversionError, "NumPy asked for its elements", fix)
        return np.asarray(value).__array__(*args, **kwargs)

    def item(self, *args: Any) -> Any:
        fix = "return it and call .item() outside"
        return value_of(self, ConcretizationTypeError, ".item() was called on it", fix).item(*args)

    def tolist(self) -> Any:
        fix = "return it and call .tolist() outside"
        return self._array(ConcretizationTypeError, ".tolist() was called on it", fix).tolist()

    def _array(self, kind: type[ConcretizationTypeError], what: str, fix: str) -> Any:
        """Its value, of which what is made has no derivative (`math.sqrt(x)`, `np.asarray(x)`); an error where there is none, or
        the function is differentiated with respect to what it depends on."""
        value = value_of(self, kind, what, fix)
        if self.tracing.is_differentiated(self.variable):
            raise kind(
                f"{described(self)} is differentiated while {self.tracing.name} is traced: {what} at {line_of(user_source())}\n"
                f"  the value: {origin(self)}\n"
                "  what Python or NumPy made of it would count as a constant: its derivative would be lost\n"
                "  fix: the function of the same name in meshjit.numpy; or lax.stop_gradient(x), which is read like any array"
            )
        return value


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


def described(tracer: Tracer) -> str:
    """`Traced<f32[3]>`, without asking for its value."""
    dims = ",".join(map(str, tracer.shape))
    return f"Traced<{short_name(tracer.dtype)}[{dims}]{' weak' if tracer.weak_type else ''}>"


def value_of(tracer: Tracer, kind: type[ConcretizationTypeError], what: str, fix: str) -> Any:
    """Its value, which is known outside of jit and vmap, computed by now; the error of `not_concrete` where it is not."""
    value = tracer.tracing.value(tracer.variable)
    if value is None:
        raise not_concrete(tracer, kind, what, fix)
    return value


def is_known(x: Any) -> bool:
    """Whether Python can be told the value: it is not traced, or outside of jit and vmap."""
    return not isinstance(x, Tracer) or x.tracing.value(x.variable) is not None


def not_concrete(
    tracer: Tracer, kind: type[ConcretizationTypeError], what: str, fix: str
) -> ConcretizationTypeError:
    """The error for a traced value that Python wanted concrete; a leaked Tracer is reported as that instead."""
    if tracer.tracing.ended:
        raise leaked(tracer)
    return kind(
        f"{described(tracer)} has no value while {tracer.tracing.name} is traced: {what} at {line_of(user_source())}\n"
        f"  the value: {origin(tracer)}\n"
        f"  fix: {fix}"
    )


def leaked(tracer: Tracer) -> UnexpectedTracerError:
    """The error for a Tracer used after its trace ended, or in a thread that is not tracing it."""
    why = "has ended" if tracer.tracing.ended else "runs in another thread"
    return UnexpectedTracerError(
        f"{described(tracer)} belongs to the trace of {tracer.tracing.name}, which {why}; used at {line_of(user_source())}\n"
        f"  the value: {origin(tracer)}\n"
        f"  fix: return it from the function instead of keeping it in a global, an attribute or a closure"
    )
