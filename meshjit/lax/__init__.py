"""`jax.lax` for meshjit: the ops themselves, without NumPy's broadcasting between arrays of different ranks."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.constraint import with_sharding_constraint as with_sharding_constraint
from meshjit.lax import linalg as linalg
from meshjit.lax.branches import cond as cond
from meshjit.lax.branches import switch as switch
from meshjit.lax.collectives import all_gather as all_gather
from meshjit.lax.collectives import all_to_all as all_to_all
from meshjit.lax.collectives import axis_index as axis_index
from meshjit.lax.collectives import axis_size as axis_size
from meshjit.lax.collectives import pbroadcast as pbroadcast
from meshjit.lax.collectives import pmax as pmax
from meshjit.lax.collectives import pmean as pmean
from meshjit.lax.collectives import pmin as pmin
from meshjit.lax.collectives import ppermute as ppermute
from meshjit.lax.collectives import pshuffle as pshuffle
from meshjit.lax.collectives import psum as psum
from meshjit.lax.collectives import psum_scatter as psum_scatter
from meshjit.lax.collectives import pswapaxes as pswapaxes
from meshjit.lax.convolution import ConvDimensionNumbers as ConvDimensionNumbers
from meshjit.lax.convolution import conv as conv
from meshjit.lax.convolution import conv_dimension_numbers as conv_dimension_numbers
from meshjit.lax.convolution import conv_general_dilated as conv_general_dilated
from meshjit.lax.convolution import conv_general_dilated_local as conv_general_dilated_local
from meshjit.lax.convolution import conv_general_dilated_patches as conv_general_dilated_patches
from meshjit.lax.convolution import conv_transpose as conv_transpose
from meshjit.lax.convolution import conv_with_general_padding as conv_with_general_padding
from meshjit.lax.convolution import padding_of as _padding_of
from meshjit.lax.elementwise import (
    RoundingMethod as RoundingMethod,
)
from meshjit.lax.elementwise import (
    abs as abs,  # noqa: A004
)
from meshjit.lax.elementwise import (
    acos as acos,
)
from meshjit.lax.elementwise import (
    acosh as acosh,
)
from meshjit.lax.elementwise import (
    add as add,
)
from meshjit.lax.elementwise import (
    asin as asin,
)
from meshjit.lax.elementwise import (
    asinh as asinh,
)
from meshjit.lax.elementwise import (
    atan as atan,
)
from meshjit.lax.elementwise import (
    atan2 as atan2,
)
from meshjit.lax.elementwise import (
    atanh as atanh,
)
from meshjit.lax.elementwise import (
    bitwise_and as bitwise_and,
)
from meshjit.lax.elementwise import (
    bitwise_not as bitwise_not,
)
from meshjit.lax.elementwise import (
    bitwise_or as bitwise_or,
)
from meshjit.lax.elementwise import (
    bitwise_xor as bitwise_xor,
)
from meshjit.lax.elementwise import (
    cbrt as cbrt,
)
from meshjit.lax.elementwise import (
    ceil as ceil,
)
from meshjit.lax.elementwise import (
    clamp as clamp,
)
from meshjit.lax.elementwise import (
    clz as clz,
)
from meshjit.lax.elementwise import (
    complex as complex,  # noqa: A004
)
from meshjit.lax.elementwise import (
    conj as conj,
)
from meshjit.lax.elementwise import (
    convert_element_type as convert_element_type,
)
from meshjit.lax.elementwise import (
    cos as cos,
)
from meshjit.lax.elementwise import (
    cosh as cosh,
)
from meshjit.lax.elementwise import (
    digamma as digamma,
)
from meshjit.lax.elementwise import (
    div as div,
)
from meshjit.lax.elementwise import (
    eq as eq,
)
from meshjit.lax.elementwise import (
    erf as erf,
)
from meshjit.lax.elementwise import (
    erf_inv as erf_inv,
)
from meshjit.lax.elementwise import (
    erfc as erfc,
)
from meshjit.lax.elementwise import (
    exp as exp,
)
from meshjit.lax.elementwise import (
    exp2 as exp2,
)
from meshjit.lax.elementwise import (
    expm1 as expm1,
)
from meshjit.lax.elementwise import (
    floor as floor,
)
from meshjit.lax.elementwise import (
    ge as ge,
)
from meshjit.lax.elementwise import (
    gt as gt,
)
from meshjit.lax.elementwise import (
    imag as imag,
)
from meshjit.lax.elementwise import (
    integer_pow as integer_pow,
)
from meshjit.lax.elementwise import (
    is_finite as is_finite,
)
from meshjit.lax.elementwise import (
    le as le,
)
from meshjit.lax.elementwise import (
    lgamma as lgamma,
)
from meshjit.lax.elementwise import (
    log as log,
)
from meshjit.lax.elementwise import (
    log1p as log1p,
)
from meshjit.lax.elementwise import (
    logistic as logistic,
)
from meshjit.lax.elementwise import (
    lt as lt,
)
from meshjit.lax.elementwise import (
    max as max,  # noqa: A004
)
from meshjit.lax.elementwise import (
    min as min,  # noqa: A004
)
from meshjit.lax.elementwise import (
    mul as mul,
)
from meshjit.lax.elementwise import (
    ne as ne,
)
from meshjit.lax.elementwise import (
    neg as neg,
)
from meshjit.lax.elementwise import (
    nextafter as nextafter,
)
from meshjit.lax.elementwise import (
    optimization_barrier as optimization_barrier,
)
from meshjit.lax.elementwise import (
    polygamma as polygamma,
)
from meshjit.lax.elementwise import (
    population_count as population_count,
)
from meshjit.lax.elementwise import (
    pow as pow,  # noqa: A004
)
from meshjit.lax.elementwise import (
    real as real,
)
from meshjit.lax.elementwise import (
    reciprocal as reciprocal,
)
from meshjit.lax.elementwise import (
    reduce_precision as reduce_precision,
)
from meshjit.lax.elementwise import (
    rem as rem,
)
from meshjit.lax.elementwise import (
    round as round,  # noqa: A004
)
from meshjit.lax.elementwise import (
    rsqrt as rsqrt,
)
from meshjit.lax.elementwise import (
    select as select,
)
from meshjit.lax.elementwise import (
    select_n as select_n,
)
from meshjit.lax.elementwise import (
    shift_left as shift_left,
)
from meshjit.lax.elementwise import (
    shift_right_arithmetic as shift_right_arithmetic,
)
from meshjit.lax.elementwise import (
    shift_right_logical as shift_right_logical,
)
from meshjit.lax.elementwise import (
    sign as sign,
)
from meshjit.lax.elementwise import (
    sin as sin,
)
from meshjit.lax.elementwise import (
    sinh as sinh,
)
from meshjit.lax.elementwise import (
    sqrt as sqrt,
)
from meshjit.lax.elementwise import (
    square as square,
)
from meshjit.lax.elementwise import (
    stop_gradient as stop_gradient,
)
from meshjit.lax.elementwise import (
    sub as sub,
)
from meshjit.lax.elementwise import (
    tan as tan,
)
from meshjit.lax.elementwise import (
    tanh as tanh,
)
from meshjit.lax.fourier import FftType as FftType
from meshjit.lax.fourier import fft as fft
from meshjit.lax.gathering import (
    GatherDimensionNumbers as GatherDimensionNumbers,
)
from meshjit.lax.gathering import (
    GatherScatterMode as GatherScatterMode,
)
from meshjit.lax.gathering import (
    ScatterDimensionNumbers as ScatterDimensionNumbers,
)
from meshjit.lax.gathering import (
    gather as gather,
)
from meshjit.lax.gathering import (
    scatter as scatter,
)
from meshjit.lax.gathering import (
    scatter_add as scatter_add,
)
from meshjit.lax.gathering import (
    scatter_max as scatter_max,
)
from meshjit.lax.gathering import (
    scatter_min as scatter_min,
)
from meshjit.lax.gathering import (
    scatter_mul as scatter_mul,
)
from meshjit.lax.loops import fori_loop as fori_loop
from meshjit.lax.loops import map as map  # noqa: A004
from meshjit.lax.loops import scan as scan
from meshjit.lax.loops import while_loop as while_loop
from meshjit.lax.reducing import (
    approx_max_k as approx_max_k,
)
from meshjit.lax.reducing import (
    approx_min_k as approx_min_k,
)
from meshjit.lax.reducing import (
    argmax as argmax,
)
from meshjit.lax.reducing import (
    argmin as argmin,
)
from meshjit.lax.reducing import (
    associative_scan as associative_scan,
)
from meshjit.lax.reducing import (
    cumlogsumexp as cumlogsumexp,
)
from meshjit.lax.reducing import (
    cummax as cummax,
)
from meshjit.lax.reducing import (
    cummin as cummin,
)
from meshjit.lax.reducing import (
    cumprod as cumprod,
)
from meshjit.lax.reducing import (
    cumsum as cumsum,
)
from meshjit.lax.reducing import (
    reduce as reduce,
)
from meshjit.lax.reducing import (
    reduce_and as reduce_and,
)
from meshjit.lax.reducing import (
    reduce_max as reduce_max,
)
from meshjit.lax.reducing import (
    reduce_min as reduce_min,
)
from meshjit.lax.reducing import (
    reduce_or as reduce_or,
)
from meshjit.lax.reducing import (
    reduce_prod as reduce_prod,
)
from meshjit.lax.reducing import (
    reduce_sum as reduce_sum,
)
from meshjit.lax.reducing import (
    reduce_xor as reduce_xor,
)
from meshjit.lax.reducing import (
    sort as sort,
)
from meshjit.lax.reducing import (
    sort_key_val as sort_key_val,
)
from meshjit.lax.reducing import (
    top_k as top_k,
)
from meshjit.lax.slicing import dynamic_index_in_dim as dynamic_index_in_dim
from meshjit.lax.slicing import dynamic_slice as dynamic_slice
from meshjit.lax.slicing import dynamic_slice_in_dim as dynamic_slice_in_dim
from meshjit.lax.slicing import dynamic_update_index_in_dim as dynamic_update_index_in_dim
from meshjit.lax.slicing import dynamic_update_slice as dynamic_update_slice
from meshjit.lax.slicing import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
from meshjit.lax.slicing import index_in_dim as index_in_dim
from meshjit.lax.slicing import slice as slice  # noqa: A004
from meshjit.lax.slicing import slice_in_dim as slice_in_dim
from meshjit.lax.windows import reduce_window as reduce_window
from meshjit.numpy import ufuncs
from meshjit.numpy.bits import bitcast_convert_type as bitcast_convert_type
from meshjit.numpy.contraction import dot_general as dot_general
from meshjit.numpy.creation import iota as _iota
from meshjit.numpy.promote import asarray, cast, dtype_of, normal_axis, ops, promoted, shape_of
from meshjit.numpy.promote import broadcast_shapes as broadcast_shapes
from meshjit.numpy.rearranging import flip as _flip
from meshjit.numpy.shaping import concatenate as _concatenate
from meshjit.numpy.shaping import expand_dims as expand_dims
from meshjit.numpy.shaping import slice_in_dim as _slice_in_dim
from meshjit.numpy.shaping import squeeze as squeeze
from meshjit.trace import bind, line_of, user_source


class Precision(enum.Enum):
    """How exactly products are computed where the device has several ways."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def broadcast(x: Any, sizes: Sequence[int]) -> Any:
    """New dims of these extents in front."""
    return mnp.broadcast_to(x, (*sizes, *shape_of(x)))


def broadcast_in_dim(x: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """Dim i of x becomes dim broadcast_dimensions[i] of the result."""
    return bind(
        ops("broadcast_in_dim"), asarray(x), shape=tuple(int(n) for n in shape),
        dimensions=tuple(int(d) for d in broadcast_dimensions),
    )


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Dims of 1 in front until there are `rank`."""
    shape = shape_of(x)
    if rank < len(shape):
        raise ValueError(f"broadcast_to_rank: {rank} dims are fewer than the {len(shape)} of shape {shape}")
    return mnp.reshape(x, (1,) * (rank - len(shape)) + shape)


def collapse(x: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """The dims from start to before stop merged into one."""
    shape = shape_of(x)
    start, stop, _ = np.s_[start_dimension:stop_dimension].indices(len(shape))
    if stop <= start:
        raise ValueError(f"collapse: no dims from {start_dimension} to {stop_dimension} of shape {shape}")
    return mnp.reshape(x, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """"SAME" and "VALID" as (low, high) per dim."""
    return _padding_of(padding, in_shape, window_shape, window_strides)


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


def iota(dtype: Any, size: int) -> Any:
    return _iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    return _iota(dtype, shape, dimension)


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None) -> Any:
    return mnp.full(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    return mnp.full_like(x, fill_value, dtype, shape)


def dot(x: Any, y: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    return mnp.dot(x, y, precision=precision, preferred_element_type=preferred_element_type)


def batch_matmul(x: Any, y: Any, precision: Any = None) -> Any:
    return mnp.matmul(x, y, precision=precision)
