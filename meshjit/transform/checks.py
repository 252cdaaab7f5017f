"""Which errors equations can make, and how they are worded: divisions by zero, NaNs, indices out of bounds, failed checks.

    bounds_of(eqn, operands)      (whether some index is out of bounds, [index, dim, extent])

Messages, and names of ops in them, are JAX's (`jax.experimental.checkify`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from meshjit.core.program import Eqn, Source, Var
from meshjit.core.types import is_inexact
from meshjit.ops.base.arithmetic import remainder
from meshjit.ops.base.bits import or_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import constant, full, full_like, iota, scalar
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.reduction import reduce_min, reduce_or
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.index.dynamic import dynamic_slice
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.trees import WORDS as tree

INT: Final = np.dtype(np.int32)

# What can make a NaN → its name in messages
NAN_OPS: Final[Mapping[str, str]] = {
    **{name: name for name in (
        "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cosh", "cummax", "cummin", "cumprod",
        "cumsum", "digamma", "dot_general", "erf", "erf_inv", "erfc", "fft", "integer_pow", "lgamma", "log", "logistic", "pad",
        "reduce_prod", "reduce_sum", "rsqrt", "sinh", "sqrt", "tan", "tanh",
    )},
    "convolution": "conv_general_dilated", "cosine": "cos", "divide": "div", "exponential": "exp", "all_reduce": "psum",
    "exponential_minus_one": "expm1", "log_plus_one": "log1p", "multiply": "mul", "power": "pow", "psum_invariant": "psum",
    "reduce_window": "reduce_window_sum", "remainder": "rem", "scatter": "scatter", "sine": "sin", "subtract": "sub",
}  # fmt: skip


class JaxException(Exception):
    """An error that a program found. `source`: the user's line."""

    source: Source | None = None


class DivisionByZeroError(JaxException):
    """A division by zero."""


class NaNError(JaxException):
    """An operation made a NaN."""


class OOBError(JaxException):
    """An index was out of bounds."""


class FailedCheckError(JaxException):
    """The predicate of a check was False."""


class JaxRuntimeError(ValueError):
    """What throwing an error raises; its cause is a JaxException."""

    @classmethod
    def of(cls, error: JaxException) -> JaxRuntimeError:
        """With the user's line as a note."""
        thrown = cls(str(error))
        if error.source is not None:
            thrown.add_note(f"  at {error.source}")
        return thrown


CATEGORIES: Final[Mapping[str, type[JaxException]]] = {
    kind.__name__: kind for kind in (DivisionByZeroError, NaNError, OOBError, FailedCheckError)
}


@dataclass(frozen=True)
class Wording:
    """An exception from the values of an error: `text.format(*args, **kwargs)`, which `structure` is the tree of."""

    category: str
    text: str
    source: Source | None = None
    structure: Any = None

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        args, kwargs = (tuple(arrays), {}) if self.structure is None else tree.unflatten(self.structure, list(arrays))
        error = CATEGORIES[self.category](self.text.format(*args, **kwargs))
        error.source = self.source
        return [error]


def braced(text: str) -> str:
    """Text that `format` leaves as it is."""
    return text.replace("{", "{{").replace("}", "}}")


# -- numbers


def has_nan(values: Sequence[Var]) -> Var | None:
    """bool[]: whether one of the values has a NaN; None of integers."""
    flags = [_any(compare(v, v, direction="NE")) for v in values if is_inexact(v.dtype)]
    return _or(flags) if flags else None


def has_zero(value: Var) -> Var:
    return _any(compare(value, full_like(value, 0), direction="EQ"))


def _any(flags: Var) -> Var:
    return reduce_or(flags, axes=tuple(range(flags.rank))) if flags.rank else flags


def _or(flags: Sequence[Var]) -> Var:
    first, *rest = flags
    return or_(first, _or(rest)) if rest else first


# -- indices


def bounds_of(eqn: Eqn, operands: Sequence[Var]) -> tuple[Var, Var] | None:
    """(bool[]: whether an index is out of bounds, i32[3]: the first that is, its dim and that dim's extent); None of ops without
    indices, and of those whose indices are none."""
    rule = _BOUNDS.get(eqn.op.name)
    if rule is None:
        return None
    indices, dims, windows = rule(operands, eqn.params)
    if not dims or 0 in indices.shape:
        return None
    shape = operands[0].shape
    most = np.array([shape[d] - n for d, n in zip(dims, windows, strict=True)], np.int64)
    limit = constant(value=np.minimum(most, np.iinfo(indices.dtype).max).astype(indices.dtype))
    limits = broadcast_in_dim(limit, shape=indices.shape, dimensions=(indices.rank - 1,))
    above = compare(indices, limits, direction="GT")
    below = [compare(indices, full_like(indices, 0), direction="LT")] if indices.dtype.kind == "i" else []
    outside = _or([*below, above])
    return _any(outside), _first(indices, outside, dims, shape)


def _first(indices: Var, outside: Var, dims: Sequence[int], shape: Sequence[int]) -> Var:
    count = math.prod(indices.shape)
    places = iota(dtype=INT, shape=(count,), dimension=0)
    flags = reshape(outside, shape=(count,))
    place = reduce_min(select(flags, places, full(places.type, count - 1)), axes=(0,))
    index = dynamic_slice(convert(reshape(indices, shape=(count,)), dtype=INT), place, slice_sizes=(1,))
    table = constant(value=np.array([[d, shape[d]] for d in dims], np.int32))
    row = dynamic_slice(table, remainder(place, scalar(len(dims), INT)), scalar(0, INT), slice_sizes=(1, 2))
    return concatenate(index, reshape(row, shape=(2,)), dimension=0)


Indices = tuple[Var, Sequence[int], Sequence[int]]  # along their last dim of the operand's dims; these dims; the windows' extents


def _starts(starts: Sequence[Var], window: Sequence[int]) -> Indices:
    together = [reshape(v, shape=(1,)) for v in starts]
    return concatenate(*together, dimension=0), range(len(window)), window


def _gathered(operands: Sequence[Var], params: Mapping[str, Any]) -> Indices:
    dims = params["start_index_map"]
    return operands[1], dims, [params["slice_sizes"][d] for d in dims]


def _scattered(operands: Sequence[Var], params: Mapping[str, Any]) -> Indices:
    gone = {*params["inserted_window_dims"], *params["input_batching_dims"]}
    extents = iter(operands[2].shape[d] for d in params["update_window_dims"])
    window = [1 if d in gone else next(extents) for d in range(operands[0].rank)]
    dims = params["scatter_dims_to_operand_dims"]
    return operands[1], dims, [window[d] for d in dims]


_BOUNDS: Final[Mapping[str, Callable[[Sequence[Var], Mapping[str, Any]], Indices]]] = {
    "dynamic_slice": lambda operands, params: _starts(operands[1:], params["slice_sizes"]),
    "dynamic_update_slice": lambda operands, params: _starts(operands[2:], operands[1].shape),
    "gather": _gathered,
    "scatter": _scattered,
}
