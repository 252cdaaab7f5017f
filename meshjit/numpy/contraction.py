"""dot, matmul and their kin: every one of them is a few transposes around `dot_general`."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.stored import wide_of
from meshjit.core.types import STORED
from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import axis_number
from meshjit.numpy.dot_algorithms import DotAlgorithmPreset, algorithm_of, text_of
from meshjit.numpy.factor_dtypes import in_one_dtype
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    exactly,
    no_out,
    normal_axis,
    ops,
    promoted,
    shape_of,
)
from meshjit.numpy.rearranging import diagonal
from meshjit.numpy.reductions import sum as total
from meshjit.numpy.shaping import moveaxis, reshape, squeeze
from meshjit.trace import bind, line_of, user_source

Dims = tuple[tuple[int, ...], tuple[int, ...]]


@takes_out_sharding
def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: tuple[Dims, Dims],
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """`jax.lax.dot_general`: dimension_numbers = ((x contracted, y contracted), (x batch, y batch)).

    Operands of two dtypes are multiplied in the greater of them, so int4 weights go with bfloat16 activations: complex before
    floating before integer, then the one of the larger range, of more bits, the signed one. With `preferred_element_type` no
    operand is rounded: float8_e4m3fn and float8_e5m2, of which neither holds the other's numbers, are multiplied in float16."""
    preferred = preferred_dtype(preferred_element_type)
    (lhs, rhs), weak = in_one_dtype(lhs, rhs, preferred)
    algorithm = algorithm_of(config.default_matmul_precision if precision is None else precision)
    if algorithm is not None:
        return _by_algorithm(algorithm, lhs, rhs, dimension_numbers, preferred or dtype_of(lhs))
    if preferred is not None and preferred in STORED:
        return cast(dot_general(lhs, rhs, dimension_numbers, precision, wide_of(preferred)), preferred)
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in dimension_numbers)
    return bind(
        ops("dot_general"), lhs, rhs,
        contract=contract, batch=batch, preferred=preferred, precision=_precision(precision), weak_type=weak,
    )  # fmt: skip


def _by_algorithm(algorithm: Any, lhs: Any, rhs: Any, numbers: tuple[Dims, Dims], result: np.dtype[Any]) -> Any:
    """The product with factors of a dtype that the algorithm takes, added up in its own dtype, as `result`."""
    own = algorithm.storage_types if isinstance(algorithm, DotAlgorithmPreset) else ()
    if own and dtype_of(lhs) not in own:
        lhs, rhs = exactly(lhs, own[0]), exactly(rhs, own[0])
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in numbers)
    added = preferred_dtype(algorithm.accumulation_type)
    preferred = None if added == dtype_of(lhs) else added or result
    product = bind(
        ops("dot_general"), lhs, rhs, contract=contract, batch=batch, preferred=preferred, precision=text_of(algorithm)
    )
    return cast(product, result)


def _of_one_dtype(a: Any, b: Any, numbers: tuple[Dims, Dims], precision: Any, preferred: Any) -> Any:
    """dot_general of operands that are promoted as in arithmetic, unless the dtype of the result is given."""
    if preferred is None:
        (a, b), _ = promoted(a, b)
    return dot_general(a, b, numbers, precision, preferred)


_PRECISIONS = {
    "default": "default", "fastest": "default", "bfloat16": "default", "high": "high", "bfloat16_3x": "high",
    "tensorfloat32": "high", "highest": "highest", "float32": "highest",
}  # fmt: skip


def _precision(precision: Any) -> str | None:
    """JAX's words and lax.Precision as StableHLO's three words; of a pair, one per operand, the more exact one."""
    if isinstance(precision, tuple | list) and len(precision) == 2:
        words = [_precision(p) or "default" for p in precision]
        return max(words, key=["default", "high", "highest"].index)
    precision = config.default_matmul_precision if precision is None else precision
    if precision is None or algorithm_of(precision) is not None:  # a convolution has no algorithms
        return None
    word = str(getattr(precision, "name", precision)).lower()
    if word not in _PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of {', '.join(_PRECISIONS)}\n  at {line_of(user_source())}")
    return _PRECISIONS[word]


def preferred_dtype(dtype: Any) -> np.dtype[Any] | None:
    """What `preferred_element_type` asks to add up in, and to return."""
    return None if dtype is None else canonical(np.dtype(dtype), config.enable_x64)


@takes_out_sharding
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.dot`: last dim of a with the last but one of b."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        if preferred_element_type is None:
            return ufuncs.multiply(a, b)
        return dot_general(a, b, (((), ()), ((), ())), precision, preferred_element_type)
    numbers = (((m - 1,), (max(n - 2, 0),)), ((), ()))
    _check_contracted("dot", a, b, m - 1, max(n - 2, 0))
    return _of_one_dtype(a, b, numbers, precision, preferred_element_type)


def _check_contracted(name: str, x: Any, y: Any, i: int, j: int, error: type[Exception] = TypeError) -> None:
    if shape_of(x)[i] != shape_of(y)[j]:
        raise error(
            f"{name}: dim {i} of {shape_of(x)} and dim {j} of {shape_of(y)} are contracted,"
            f" but have extents {shape_of(x)[i]} and {shape_of(y)[j]}\n  at {line_of(user_source())}"
        )


@takes_out_sharding
def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.matmul`: batch dims are broadcast; vectors are rows on the left and columns on the right."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        raise ValueError(
            f"matmul: operands need at least one dim, got {shape_of(a)} and {shape_of(b)}\n  at {line_of(user_source())}"
        )
    if m == 1 or n <= 2:
        if n <= 2:
            return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)
        row = matmul(reshape(a, (1, -1)), b, precision=precision, preferred_element_type=preferred_element_type)
        return squeeze(row, -2)
    _check_contracted("matmul", a, b, m - 1, n - 2)
    lead = broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
    a = broadcast_to(a, (*lead, *shape_of(a)[-2:]))
    b = broadcast_to(b, (*lead, *shape_of(b)[-2:]))
    k = len(lead)
    batch = tuple(range(k))
    return _of_one_dtype(a, b, (((k + 1,), (k,)), (batch, batch)), precision, preferred_element_type)


def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.vdot`: both as vectors, the first conjugated."""
    a, b = ufuncs.conjugate(reshape(a, -1)), reshape(b, -1)
    _check_contracted("vdot", a, b, 0, 0)
    return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.vecdot`: products along one dim, the first operand conjugated; the others are broadcast."""
    axis = axis_number(axis)
    x1, x2 = (moveaxis(x, axis, -1) for x in (ufuncs.conjugate(x1), x2))
    lead = broadcast_shapes(shape_of(x1)[:-1], shape_of(x2)[:-1])
    _check_contracted("vecdot", x1, x2, len(shape_of(x1)) - 1, len(shape_of(x2)) - 1, ValueError)
    x1, x2 = (broadcast_to(x, (*lead, shape_of(x)[-1])) for x in (x1, x2))
    batch = tuple(range(len(lead)))
    return _of_one_dtype(x1, x2, (((len(lead),), (len(lead),)), (batch, batch)), precision, preferred_element_type)


def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.inner`: the last dims are contracted."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if m == 0 or n == 0:
        if preferred_element_type is None:
            return ufuncs.multiply(a, b)
        return dot_general(a, b, (((), ()), ((), ())), precision, preferred_element_type)
    _check_contracted("inner", a, b, m - 1, n - 1)
    return _of_one_dtype(a, b, (((m - 1,), (n - 1,)), ((), ())), precision, preferred_element_type)


def outer(a: Any, b: Any, out: None = None) -> Any:
    """`numpy.outer`: every element of a times every element of b."""
    no_out("outer", out)
    return ufuncs.multiply(reshape(a, (-1, 1)), reshape(b, (1, -1)))


@takes_out_sharding
def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """`numpy.tensordot`."""
    m, n = len(shape_of(a)), len(shape_of(b))
    if isinstance(axes, int):
        if not 0 <= axes <= min(m, n):
            raise TypeError(
                f"tensordot: {axes} dims are contracted of arrays of {m} and {n} dims\n  at {line_of(user_source())}"
            )
        left, right = tuple(range(m - axes, m)), tuple(range(axes))
    else:
        if isinstance(axes, str) or not hasattr(axes, "__len__") or len(axes) != 2:
            raise TypeError(
                f"tensordot: axes are a number, or two lists of dims, got {type(axes).__name__} {axes!r:.60}\n"
                f"  at {line_of(user_source())}\n  fix: axes=((dims of a), (dims of b))"
            )
        left, right = ((s,) if isinstance(s, int) else tuple(s) for s in axes)
    left, right = tuple(normal_axis(d, m) for d in left), tuple(normal_axis(d, n) for d in right)
    for i, j in zip(left, right, strict=True):
        _check_contracted("tensordot", a, b, i, j)
    return _of_one_dtype(a, b, ((left, right), ((), ())), precision, preferred_element_type)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """`numpy.trace`."""
    no_out("trace", out)
    return total(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def kron(a: Any, b: Any) -> Any:
    """`numpy.kron`: every element of a times all of b."""
    a, b = asarray(a), asarray(b)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    a, b = (reshape(v, (1,) * (rank - len(shape_of(v))) + shape_of(v)) for v in (a, b))
    rows, columns = sum(((n, 1) for n in shape_of(a)), ()), sum(((1, n) for n in shape_of(b)), ())
    return reshape(
        ufuncs.multiply(reshape(a, rows), reshape(b, columns)),
        tuple(m * n for m, n in zip(shape_of(a), shape_of(b), strict=True)),
    )
