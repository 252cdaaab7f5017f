"""`jax.lax` for meshjit: the ops themselves, without NumPy's broadcasting between arrays of different ranks."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.constraint import with_sharding_constraint as with_sharding_constraint
from meshjit.api.out_sharding import takes_out_sharding as _takes_out_sharding
from meshjit.api.primitives import composed as _composed
from meshjit.core.primitives import PRIMITIVES as _PRIMITIVES, primitive as _primitive
from meshjit.lax import linalg as linalg
from meshjit.lax.accuracy import AccuracyMode as AccuracyMode, Tolerance as Tolerance
from meshjit.lax.applying import scatter_apply as scatter_apply
from meshjit.lax.branches import cond as cond, switch as switch
from meshjit.lax.collectives import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pcast as pcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
    pvary as pvary,
    ragged_all_to_all as ragged_all_to_all,
)
from meshjit.lax.convolution import (
    ConvDimensionNumbers as ConvDimensionNumbers,
    conv as conv,
    conv_dimension_numbers as conv_dimension_numbers,
    conv_general_dilated as conv_general_dilated,
    conv_general_dilated_local as conv_general_dilated_local,
    conv_general_dilated_patches as conv_general_dilated_patches,
    conv_general_permutations as conv_general_permutations,
    conv_general_shape_tuple as conv_general_shape_tuple,
    conv_shape_tuple as conv_shape_tuple,
    conv_transpose as conv_transpose,
    conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    conv_with_general_padding as conv_with_general_padding,
    padding_of as _padding_of,
)
from meshjit.lax.elementwise import (
    RoundingMethod as RoundingMethod,
    abs as abs,  # noqa: A004
    acos as acos,
    acosh as acosh,
    add as add,
    after_all as after_all,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bessel_i0e as bessel_i0e,
    bessel_i1e as bessel_i1e,
    betainc as betainc,
    bitwise_and as bitwise_and,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    cbrt as cbrt,
    ceil as ceil,
    clamp as clamp,
    clz as clz,
    complex as complex,  # noqa: A004
    conj as conj,
    convert_element_type as convert_element_type,
    cos as cos,
    cosh as cosh,
    create_token as create_token,
    digamma as digamma,
    div as div,
    eq as eq,
    erf as erf,
    erf_inv as erf_inv,
    erfc as erfc,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    floor as floor,
    ge as ge,
    gt as gt,
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    imag as imag,
    integer_pow as integer_pow,
    is_finite as is_finite,
    le as le,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    logistic as logistic,
    lt as lt,
    max as max,  # noqa: A004
    min as min,  # noqa: A004
    mul as mul,
    mulhi as mulhi,
    ne as ne,
    neg as neg,
    nextafter as nextafter,
    optimization_barrier as optimization_barrier,
    polygamma as polygamma,
    population_count as population_count,
    pow as pow,  # noqa: A004
    random_gamma_grad as random_gamma_grad,
    real as real,
    reciprocal as reciprocal,
    reduce_precision as reduce_precision,
    rem as rem,
    round as round,  # noqa: A004
    rsqrt as rsqrt,
    select as select,
    select_n as select_n,
    shift_left as shift_left,
    shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    stop_gradient as stop_gradient,
    sub as sub,
    tan as tan,
    tanh as tanh,
    zeta as zeta,
)
from meshjit.lax.fourier import FftType as FftType, fft as fft
from meshjit.lax.gathering import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    gather as gather,
    index_take as index_take,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_sub as scatter_sub,
)
from meshjit.lax.loops import (
    fori_loop as fori_loop,
    map as map,  # noqa: A004
    scan as scan,
    while_loop as while_loop,
)
from meshjit.lax.operands import dims_from_front as _dims_from_front, require_alike as _require_alike
from meshjit.lax.platforms import platform_dependent as platform_dependent, stage as stage
from meshjit.lax.ragged import (
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    ragged_dot as ragged_dot,
    ragged_dot_general as ragged_dot_general,
)
from meshjit.lax.reducing import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    argmax as argmax,
    argmin as argmin,
    associative_scan as associative_scan,
    cumlogsumexp as cumlogsumexp,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce as reduce,
    reduce_and as reduce_and,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_or as reduce_or,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_xor as reduce_xor,
    sort as sort,
    sort_key_val as sort_key_val,
    top_k as top_k,
)
from meshjit.lax.scaled import scaled_dot as scaled_dot
from meshjit.lax.shapes import (
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    DotDimensionNumbers as DotDimensionNumbers,
    PrecisionLike as PrecisionLike,
    broadcast_like as broadcast_like,
    composite as composite,
    empty as empty,
    shape_as_value as shape_as_value,
)
from meshjit.lax.slicing import (
    dynamic_index_in_dim as dynamic_index_in_dim,
    dynamic_slice as dynamic_slice,
    dynamic_slice_in_dim as dynamic_slice_in_dim,
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    dynamic_update_slice as dynamic_update_slice,
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    index_in_dim as index_in_dim,
    slice as slice,  # noqa: A004
    slice_in_dim as slice_in_dim,
    split as split,
    stack as stack,
    tile as tile,
    unstack as unstack,
)
from meshjit.lax.solving import custom_linear_solve as custom_linear_solve, custom_root as custom_root
from meshjit.lax.windows import reduce_window as reduce_window, reduce_window_shape_tuple as reduce_window_shape_tuple
from meshjit.missing import explain as _explain
from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import axis_number as _axis_number, shape_tuple
from meshjit.numpy.bits import bitcast_convert_type as bitcast_convert_type
from meshjit.numpy.contraction import dot_general as dot_general
from meshjit.numpy.creation import iota as _iota
from meshjit.numpy.dot_algorithms import DotAlgorithm as DotAlgorithm, DotAlgorithmPreset as DotAlgorithmPreset
from meshjit.numpy.key_arrays import install as _take_keys
from meshjit.numpy.promote import (
    asarray,
    broadcast_shapes as broadcast_shapes,
    cast,
    dtype_of,
    exactly,
    normal_axis,
    ops,
    promoted,
    shape_of,
    weak_of,
)
from meshjit.numpy.quick.names import install as _quicken
from meshjit.numpy.rearranging import flip as _flip
from meshjit.numpy.shaping import (
    concatenate as _concatenate,
    slice_in_dim as _slice_in_dim,
)
from meshjit.trace import bind, line_of, user_source


class Precision(enum.Enum):
    """How exactly products are computed where the device has several ways."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


def dtype(x: Any) -> np.dtype[Any]:
    """The dtype of an array, or that a number gets as an array."""
    return mnp.result_type(x)


@_takes_out_sharding
def broadcast(operand: Any, sizes: Sequence[int]) -> Any:
    """New dims of these extents in front."""
    return mnp.broadcast_to(operand, (*shape_tuple(sizes), *shape_of(operand)))


@_takes_out_sharding
def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """Dim i of x becomes dim broadcast_dimensions[i] of the result; x is transposed where these do not rise."""
    dims = tuple(int(d) for d in broadcast_dimensions)
    if len(dims) == len(shape_of(operand)):
        order = sorted(range(len(dims)), key=lambda i: dims[i])
        operand, dims = mnp.transpose(operand, order), tuple(dims[i] for i in order)
    return bind(ops("broadcast_in_dim"), asarray(operand), shape=shape_tuple(shape), dimensions=dims)


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Dims of 1 in front until there are `rank`."""
    shape = shape_of(x)
    if rank < len(shape):
        raise ValueError(f"broadcast_to_rank: {rank} dims are fewer than the {len(shape)} of shape {shape}")
    return mnp.reshape(x, (1,) * (rank - len(shape)) + shape)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """The dims from start to before stop merged into one."""
    shape = shape_of(operand)
    start, stop, _ = np.s_[start_dimension:stop_dimension].indices(len(shape))
    if stop <= start:
        raise ValueError(f"collapse: no dims from {start_dimension} to {stop_dimension} of shape {shape}")
    return mnp.reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """"SAME" and "VALID" as (low, high) per dim. TypeError for no word, RuntimeError for another one."""
    if not isinstance(padding, str):
        raise TypeError(f"padtype_to_pads: padding is {padding!r:.60}, not a word\n  at {line_of(user_source())}")
    return _padding_of(padding, in_shape, window_shape, window_strides)


@_takes_out_sharding
def reshape(operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> Any:
    return mnp.reshape(operand if dimensions is None else mnp.transpose(operand, dimensions), tuple(new_sizes))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """Dim permutation[i] of x becomes dim i. TypeError for what names not every dim once, counted from the front."""
    dims = tuple(permutation)
    if sorted(dims) != list(range(len(shape_of(operand)))):
        raise TypeError(
            f"lax.transpose: {dims} is no order of the dims of shape {shape_of(operand)}\n  at {line_of(user_source())}\n"
            "  fix: every dim once, counted from the front; jnp.transpose also counts from the end"
        )
    return mnp.transpose(operand, dims)


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """x with these dims backwards. TypeError for dims that there are not, counted from the front, or that are named twice."""
    return _flip(operand, _dims_from_front("rev", dimensions, len(shape_of(operand)), TypeError))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Arrays of one dtype side by side along a dim."""
    _require_alike("concatenate", *operands)
    return _concatenate(operands, _axis_number(dimension))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """(low, high, interior) per dim; negative low and high crop."""
    operand, config = asarray(operand), [tuple(c) for c in padding_config]
    _check_padding(shape_of(operand), shape_of(padding_value), config)
    _require_alike("pad", operand, padding_value)
    low, high, interior = (tuple(int(c[i]) for c in config) for i in range(3))
    weak, filling = weak_of(operand) and weak_of(padding_value), exactly(padding_value, dtype_of(operand))
    return bind(ops("pad"), operand, filling, low=low, high=high, interior=interior, weak_type=weak)


def _check_padding(shape: tuple[int, ...], value: tuple[int, ...], config: list[tuple[int, ...]]) -> None:
    """ValueError where there is not one (low, high, interior) per dim, or what is padded would have a negative extent."""
    wrong = next((i for i, c in enumerate(config) if len(c) != 3), None)
    if len(config) != len(shape) or wrong is not None:
        problem = f"{len(config)} entries for {len(shape)} dims" if wrong is None else f"entry {wrong} is {config[wrong]}"
        fix = "one (low, high, interior) per dim; interior is 0 but for strides"
    elif value != ():
        problem, fix = f"the padding value has shape {value}", "a scalar; for others jnp.where or jnp.concatenate"
    else:
        wide = [n + low + high + (n - 1 if n else 0) * interior for n, (low, high, interior) in zip(shape, config, strict=True)]
        if all(n >= 0 for n in wide) and all(c[2] >= 0 for c in config):
            return
        problem, fix = f"{config} of shape {shape} gives {tuple(wide)}", "crop by no more than there is; interior is 0 or more"
    raise ValueError(f"lax.pad: {problem}\n  at {line_of(user_source())}\n  fix: {fix}")


def iota(dtype: Any, size: int) -> Any:
    return _iota(dtype, (size,), 0)


@_takes_out_sharding
def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    return _iota(dtype, shape, dimension)


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    return mnp.full(shape, fill_value, dtype, device=sharding)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None) -> Any:
    return mnp.full_like(x, fill_value, dtype, shape, device=sharding)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New dims of one element at these places of the result."""
    return mnp.expand_dims(array, tuple(dimensions))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Without these dims, which have one element each."""
    return mnp.squeeze(array, tuple(dimensions))


@_takes_out_sharding
def dot(
    lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None, *, dimension_numbers: Any = None
) -> Any:
    """The product of vectors and matrices; with dimension_numbers that of dot_general. ValueError for other ranks without."""
    if dimension_numbers is None and 1 <= mnp.ndim(lhs) <= 2 and 1 <= mnp.ndim(rhs) <= 2:
        dimension_numbers = ((mnp.ndim(lhs) - 1,), (0,)), ((), ())
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    raise ValueError(
        f"lax.dot: operands have {mnp.ndim(lhs)} and {mnp.ndim(rhs)} dims; without dimension_numbers they have 1 or 2\n"
        f"  at {line_of(user_source())}\n  fix: dimension_numbers=..., or jnp.dot"
    )


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    return mnp.matmul(lhs, rhs, precision=precision)


_composed("c", {"max": max, "min": min, "reduce_max": reduce_max, "reduce_min": reduce_min})
_composed("biuf", {"conj": conj})
globals().update({f"{name}_p": _primitive(name) for name in _PRIMITIVES})
_take_keys(globals())
_quicken(__name__)
_LATER = {name: "meshjit.random.bit_generator" for name in ("RandomAlgorithm", "rng_bit_generator")}

_explain(__name__, _LATER)
