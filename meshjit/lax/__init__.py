"""`jax.lax` for meshjit: the ops themselves, without NumPy's broadcasting between arrays of different ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit import tree
from meshjit.api.constraint import with_sharding_constraint as with_sharding_constraint
from meshjit.lax.convolution import conv as conv
from meshjit.lax.convolution import conv_general_dilated as conv_general_dilated
from meshjit.numpy import ufuncs
from meshjit.numpy.contraction import dot_general as dot_general
from meshjit.numpy.creation import iota as _iota
from meshjit.numpy.promote import apply, asarray, cast, dtype_of, normal_axis, ops, promoted, shape_of
from meshjit.numpy.shaping import concatenate as _concatenate
from meshjit.numpy.shaping import expand_dims as expand_dims
from meshjit.numpy.shaping import flip as _flip
from meshjit.numpy.shaping import slice_in_dim as _slice_in_dim
from meshjit.numpy.shaping import squeeze as squeeze
from meshjit.trace import bind

add, sub, mul, div, rem = ufuncs.add, ufuncs.subtract, ufuncs.multiply, ufuncs.true_divide, ufuncs.fmod
max, min, pow = ufuncs.maximum, ufuncs.minimum, ufuncs.power  # noqa: A001
neg, abs, sign, exp, expm1, log, log1p = (  # noqa: A001
    ufuncs.negative, ufuncs.absolute, ufuncs.sign, ufuncs.exp, ufuncs.expm1, ufuncs.log, ufuncs.log1p,
)  # fmt: skip
sin, cos, tan, tanh, sinh, cosh, sqrt, cbrt = (
    ufuncs.sin, ufuncs.cos, ufuncs.tan, ufuncs.tanh, ufuncs.sinh, ufuncs.cosh, ufuncs.sqrt, ufuncs.cbrt,
)  # fmt: skip
asin, acos, atan, atan2, asinh, acosh, atanh = (
    ufuncs.arcsin, ufuncs.arccos, ufuncs.arctan, ufuncs.arctan2, ufuncs.arcsinh, ufuncs.arccosh, ufuncs.arctanh,
)  # fmt: skip
floor, ceil, is_finite, square, reciprocal = ufuncs.floor, ufuncs.ceil, ufuncs.isfinite, ufuncs.square, ufuncs.reciprocal
eq, ne, lt, le, gt, ge = (
    ufuncs.equal, ufuncs.not_equal, ufuncs.less, ufuncs.less_equal, ufuncs.greater, ufuncs.greater_equal,
)  # fmt: skip
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
    ufuncs.bitwise_and, ufuncs.bitwise_or, ufuncs.bitwise_xor, ufuncs.bitwise_not,
)  # fmt: skip
real, imag, conj = ufuncs.real, ufuncs.imag, ufuncs.conjugate


def _one(name: str, op: str) -> Any:
    def function(x: Any) -> Any:
        return apply(op, x)

    function.__name__ = name
    function.__doc__ = f"`jax.lax.{name}`."
    return function


rsqrt, logistic, erf, erfc, erf_inv, lgamma, digamma = (
    _one(n, o)
    for n, o in (("rsqrt", "rsqrt"), ("logistic", "logistic"), ("erf", "erf"), ("erfc", "erfc"), ("erf_inv", "erf_inv"),
                 ("lgamma", "lgamma"), ("digamma", "digamma"))
)  # fmt: skip
population_count, clz = _one("population_count", "popcnt"), _one("clz", "count_leading_zeros")
shift_left = ufuncs.left_shift


def shift_right_logical(x: Any, y: Any) -> Any:
    return apply("shift_right_logical", x, y)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    return apply("shift_right_arithmetic", x, y)



def stop_gradient(x: Any) -> Any:
    """The values of a tree, with derivative zero."""
    return tree.map(lambda leaf: bind(ops("stop_gradient"), asarray(leaf)), x)


def optimization_barrier(x: Any) -> Any:
    return tree.map(lambda leaf: bind(ops("optimization_barrier"), asarray(leaf)), x)


def integer_pow(x: Any, y: int) -> Any:
    return bind(ops("integer_pow"), asarray(x), exponent=int(y))


def convert_element_type(x: Any, new_dtype: Any) -> Any:
    return cast(x, new_dtype)


def bitcast_convert_type(x: Any, new_dtype: Any) -> Any:
    return bind(ops("bitcast_convert"), asarray(x), dtype=np.dtype(new_dtype))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    return ufuncs.where(pred, on_true, on_false)


def clamp(low: Any, x: Any, high: Any) -> Any:
    return ufuncs.minimum(ufuncs.maximum(low, x), high)


def broadcast(x: Any, sizes: Sequence[int]) -> Any:
    """New dims of these extents in front."""
    return mnp.broadcast_to(x, (*sizes, *shape_of(x)))


def broadcast_in_dim(x: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """Dim i of x becomes dim broadcast_dimensions[i] of the result."""
    return bind(
        ops("broadcast_in_dim"), asarray(x), shape=tuple(map(int, shape)), dimensions=tuple(map(int, broadcast_dimensions))
    )


def reshape(x: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Any:
    return mnp.reshape(x if dimensions is None else mnp.transpose(x, dimensions), tuple(new_sizes))


def transpose(x: Any, permutation: Sequence[int]) -> Any:
    return mnp.transpose(x, permutation)


def rev(x: Any, dimensions: Sequence[int]) -> Any:
    return _flip(x, tuple(dimensions))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    return _concatenate(operands, dimension)


def pad(x: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """(low, high, interior) per dim; negative low and high crop."""
    low, high, interior = (tuple(int(c[i]) for c in padding_config) for i in range(3))
    x = asarray(x)
    return bind(ops("pad"), x, cast(padding_value, dtype_of(x)), low=low, high=high, interior=interior)


def slice(x: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Any = None) -> Any:  # noqa: A001
    strides = (1,) * len(start_indices) if strides is None else tuple(strides)
    return bind(ops("slice"), asarray(x), start=tuple(start_indices), limit=tuple(limit_indices), strides=strides)


def slice_in_dim(x: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    start, limit, step = np.s_[start_index:limit_index:stride].indices(shape_of(x)[axis])
    return _slice_in_dim(x, start, limit, step, axis)


def iota(dtype: Any, size: int) -> Any:
    return _iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    return _iota(dtype, shape, dimension)


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None) -> Any:
    return mnp.full(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    return mnp.full_like(x, fill_value, dtype, shape)


def _starts(x: Any, start_indices: Any) -> list[Any]:
    """One i32 scalar per dim, negative ones counted from the end."""
    starts = start_indices if isinstance(start_indices, list | tuple) else [start_indices[i] for i in range(len(shape_of(x)))]
    found = []
    for start, extent in zip(starts, shape_of(x), strict=True):
        if isinstance(start, int | np.integer):
            found.append(np.asarray(start + extent if start < 0 else start, np.int32))
        else:
            found.append(cast(ufuncs.where(ufuncs.less(start, 0), ufuncs.add(start, extent), start), np.int32))
    return found


def dynamic_slice(x: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Any:
    """A block of fixed sizes at a traced place; starts are clamped so that it fits."""
    return bind(ops("dynamic_slice"), asarray(x), *_starts(x, start_indices), slice_sizes=tuple(map(int, slice_sizes)))


def dynamic_update_slice(x: Any, update: Any, start_indices: Any) -> Any:
    """x with a block replaced; starts are clamped so that it fits."""
    (x, update), _ = promoted(x, update)
    return bind(ops("dynamic_update_slice"), x, update, *_starts(x, start_indices))


def dynamic_slice_in_dim(x: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    sizes = [slice_size if d == axis else n for d, n in enumerate(shape_of(x))]
    return dynamic_slice(x, [start_index if d == axis else 0 for d in range(len(sizes))], sizes)


def dynamic_update_slice_in_dim(x: Any, update: Any, start_index: Any, axis: int) -> Any:
    axis = normal_axis(axis, len(shape_of(x)))
    return dynamic_update_slice(x, update, [start_index if d == axis else 0 for d in range(len(shape_of(x)))])


def dynamic_index_in_dim(x: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    result = dynamic_slice_in_dim(x, index, 1, axis)
    return result if keepdims else squeeze(result, axis)


def dynamic_update_index_in_dim(x: Any, update: Any, index: Any, axis: int) -> Any:
    if len(shape_of(update)) < len(shape_of(x)):
        update = expand_dims(update, axis)
    return dynamic_update_slice_in_dim(x, update, index, axis)


def index_in_dim(x: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    result = slice_in_dim(x, index, index + 1 or None, axis=axis)
    return result if keepdims else squeeze(result, axis)


def dot(x: Any, y: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    return mnp.dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def batch_matmul(x: Any, y: Any, precision: Any = None) -> Any:
    return mnp.matmul(x, y, precision=precision)


def _reduction(op: str) -> Any:
    def function(x: Any, axes: Sequence[int]) -> Any:
        x = asarray(x)
        return bind(ops(op), x, axes=tuple(normal_axis(a, len(shape_of(x))) for a in axes))

    function.__name__ = op
    function.__doc__ = f"`jax.lax.{op}`."
    return function


reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or = (
    _reduction(n) for n in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
)


def argmax(x: Any, axis: int, index_dtype: Any = np.int32) -> Any:
    return bind(ops("argmax"), asarray(x), axis=axis, index_dtype=np.dtype(index_dtype))


def argmin(x: Any, axis: int, index_dtype: Any = np.int32) -> Any:
    return bind(ops("argmin"), asarray(x), axis=axis, index_dtype=np.dtype(index_dtype))


def _cumulative(op: str) -> Any:
    def function(x: Any, axis: int = 0, reverse: bool = False) -> Any:
        x = asarray(x)
        return bind(ops(op), x, axis=normal_axis(axis, len(shape_of(x))), reverse=reverse)

    function.__name__ = op
    function.__doc__ = f"`jax.lax.{op}`."
    return function


cumsum, cumprod, cummax, cummin = (_cumulative(n) for n in ("cumsum", "cumprod", "cummax", "cummin"))
