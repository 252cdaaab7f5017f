"""Arrays from nothing: zeros, arange, eye and the like. Extents are Python ints, as in JAX."""

from __future__ import annotations

import array as buffers
import math
import operator
from typing import Any

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical, promote
from meshjit.core.types import TensorType, is_float
from meshjit.numpy import powers, ufuncs
from meshjit.numpy.arguments import count_of, diagonal_number, shape_tuple
from meshjit.numpy.elementwise import log10
from meshjit.numpy.filling import dtype_or_default, filled_with, full_like, placed
from meshjit.numpy.places import counted, place_dtype
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    exactly,
    float_of,
    fresh,
    index_dtype,
    lies_on_gpu,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.numpy.shaping import moveaxis, stack, swapaxes
from meshjit.runtime.array import Array
from meshjit.runtime.exchange import from_dlpack
from meshjit.trace import Tracer, bind, line_of, user_source
from meshjit.trace.float0 import FLOAT0, float0_zeros, is_float0


def check_order(name: str, order: Any) -> None:
    """NotImplementedError, as in JAX, for an order of elements in memory: arrays have none that a program could see."""
    if order is not None and (not isinstance(order, str) or order != "K"):
        raise NotImplementedError(
            f"{name}: order={order!r:.60} is not there, XLA chooses how arrays lie in memory\n  at {line_of(user_source())}\n"
            "  fix: leave it out"
        )


@takes_out_sharding
def array(
    object: Any, dtype: Any = None, copy: bool | None = True, order: str | None = None, ndmin: int = 0, *, device: Any = None
) -> Any:
    """`numpy.array`: nested lists, ranges, scalars, NumPy arrays and Arrays, which are copied unless `copy` is false.

    `device`: a device or a sharding."""
    check_order("array", order)
    if object.__class__ is np.ndarray and dtype is None and device is None and not ndmin and object.dtype.kind in "fiub":
        return bind(ops("copy"), np.asarray(object, canonical(object.dtype, config.enable_x64)), weak_type=False)
    if not isinstance(object, np.ndarray | Array | Tracer) and lies_on_gpu(object):
        object = from_dlpack(object)
    if isinstance(object, range | bytearray | memoryview | buffers.array):
        object = np.asarray(object)
    operand, type, weak = _value(object, dtype)
    weak = weak and dtype is None
    operand = exactly(operand, type.dtype, weak) if dtype is None else cast(operand, dtype)
    if type.rank < ndmin:
        operand = bind(ops("reshape"), operand, shape=(1,) * (ndmin - type.rank) + type.shape, weak_type=weak)
    if isinstance(operand, np.ndarray):  # a copy op turns it into an array of the framework, staged or on a device
        operand = bind(ops("copy"), operand, weak_type=weak)
    return placed(fresh(operand) if copy and operand is object else operand, device)


def _value(x: Any, dtype: Any) -> tuple[Any, TensorType, bool]:
    """As `value`. ValueError, as in JAX, where None stands for an array, or in a list of numbers."""
    try:
        return value(x, dtype=dtype)
    except TypeError:
        if not _has_none(x):
            raise
    line = line_of(user_source())
    raise ValueError(f"None is not a valid value for an array: {x!r:.60}\n  at {line}\n  fix: leave it out, or write nan")


def _has_none(x: Any) -> bool:
    return x is None or (isinstance(x, list | tuple) and any(map(_has_none, x)))


@takes_out_sharding
def asarray_(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None) -> Any:
    """`numpy.asarray`: an Array of the right dtype is given back itself, unless `copy`."""
    if is_float0(a) and dtype is None:
        return a
    return array(a, dtype, copy, order, device=device)


@takes_out_sharding
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """`numpy.full`; without a dtype that of fill_value, weak if it is a Python number. `device`: a device or a sharding."""
    operand, type, weak = value(fill_value, dtype=dtype)
    return filled_with(shape_tuple(shape), operand, dtype_or_default(dtype, type.dtype), weak and dtype is None, device)


@takes_out_sharding
def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    if isinstance(dtype, np.dtype) and dtype == FLOAT0:
        return float0_zeros(shape_tuple(shape))
    return full(shape, np.asarray(0).astype(dtype_or_default(dtype)), device=device)


@takes_out_sharding
def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    return full(shape, np.ones((), dtype_or_default(dtype)), device=device)


@takes_out_sharding
def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Zeros: there is no uninitialised memory to show."""
    return zeros(shape, dtype, device=device)


@takes_out_sharding
def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    if is_float0(a) and dtype is None:
        return float0_zeros(a.shape if shape is None else shape_tuple(shape))
    return full_like(a, 0, dtype, shape, device=device)


@takes_out_sharding
def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    return full_like(a, 1, dtype, shape, device=device)


@takes_out_sharding
def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    return zeros_like(prototype, dtype, shape, device=device)


def iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """Along `dimension` 0, 1, 2, …; constant along the others."""
    dtype, shape = dtype_or_default(dtype), shape_tuple(shape)
    return bind(ops("iota"), dtype=dtype, shape=shape, dimension=operator.index(dimension))


@takes_out_sharding
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None) -> Any:
    """`numpy.arange`: start + i * step in the result's dtype, computed on the devices, as in JAX."""
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    natural = dtype_of(promoted(*(0 if isinstance(x, int) else x for x in (start, stop, step)))[0][0])
    fix = "static_argnames=... for an argument; or arange of the largest extent, and a mask"
    start, stop, step = (
        concrete(x, "arange needs it to know how many there are", fix) if isinstance(x, Tracer) else x
        for x in (start, stop, step)
    )
    numbers = [operator.index(x) if isinstance(x, np.integer) else x for x in (start, stop, step)]
    for name, x in zip(("start", "stop", "step"), numbers, strict=True):
        if not isinstance(x, int | float | np.generic) and np.ndim(np.asarray(x)):
            raise TypeError(f"arange: {name} must be a scalar, got shape {np.shape(x)}")
    start, stop, step = (x if isinstance(x, int | float) else np.asarray(x)[()] for x in numbers)
    dtype = natural if dtype is None else dtype_or_default(dtype)
    integers = all(isinstance(x, int) for x in (start, stop, step))
    if any(np.iscomplexobj(x) for x in (start, stop, step)):
        raise ValueError(
            f"arange: complex numbers have no order, got {start}, {stop}, {step}\n  at {line_of(user_source())}\n"
            "  fix: arange of real numbers, times a complex step"
        )
    if dtype == np.bool_:
        raise TypeError(f"arange: booleans do not count\n  at {line_of(user_source())}\n  fix: arange(...) != 0")
    count = -(-(stop - start) // step) if integers else math.ceil((stop - start) / step)
    wide = np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 4 else dtype
    start, step = (np.asarray(x).astype(wide) for x in (start, step))
    counted = iota(wide, (max(0, count),), 0)
    counted = ufuncs.multiply(counted, step) if step != 1 else counted
    counted = ufuncs.add(counted, start) if start or step < 0 and is_float(wide) else counted  # 0 + -0.0 is 0.0
    return placed(cast(counted, dtype), device)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0, *,
    device: Any = None,
) -> Any:  # fmt: skip
    """`numpy.linspace` of scalars or arrays. The last value is `stop` itself, not a sum that is rounded."""
    dtype = float_of(dtype_of(promoted(start, stop)[0][0])) if dtype is None else dtype_or_default(dtype)
    wide = float_of(dtype)
    start, stop = cast(start, wide), cast(stop, wide)
    num = count_of(num, "linspace: num")
    gaps = (num - 1) if endpoint else num
    rank = max(len(shape_of(start)), len(shape_of(stop)))
    gaps = float(gaps)  # i32 does not hold every number of gaps
    count = ufuncs.true_divide(iota(wide, (num,) + (1,) * rank, 0), max(gaps, 1.0))
    result = ufuncs.add(ufuncs.multiply(start, ufuncs.subtract(1, count)), ufuncs.multiply(stop, count))
    if endpoint and num > 1:
        dtype_of_places = place_dtype(num)
        last = np.asarray(num - 1, dtype_of_places)
        is_last = ufuncs.equal(counted((num,) + (1,) * rank, 0, dtype_of_places), last)
        result = ufuncs.where(is_last, stop, result)
    result = ufuncs.floor(result) if dtype.kind in "iu" else result
    if axis != 0:
        result = moveaxis(result, 0, axis)
    result = placed(cast(result, dtype), device)
    return (result, ufuncs.true_divide(ufuncs.subtract(stop, start), gaps)) if retstep else result


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """`numpy.logspace`: base ** linspace(start, stop)."""
    (start, stop), _ = promoted(*_no_coarser_than(dtype, start, stop), inexact=True)
    kind = dtype_of(start) if dtype is None else dtype_or_default(dtype)
    return cast(powers.power(base, linspace(start, stop, num, endpoint, axis=axis)), kind)


def _no_coarser_than(dtype: Any, *xs: Any) -> tuple[Any, ...]:
    """Numbers in a dtype in which a result of `dtype` loses nothing; as they are without one."""
    if dtype is None:
        return xs
    kind = float_of(dtype_or_default(dtype))
    return tuple(cast(x, promote([(float_of(dtype_of(x)), False), (kind, False)])[0]) for x in xs)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on the k-th diagonal."""
    shape = (count_of(N, "eye: rows"), count_of(N if M is None else M, "eye: columns"))
    return placed(cast(bind(ops("compare"), *_diagonals(shape, k), direction="EQ"), dtype_or_default(dtype)), device)


def identity(n: int, dtype: Any = None) -> Any:
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones on and below the k-th diagonal."""
    shape = (count_of(N, "tri: N"), count_of(N if M is None else M, "tri: M"))
    below = bind(ops("compare"), *_diagonals(shape, k), direction="GE")
    return cast(below, np.float32 if dtype is None else dtype)


def _diagonals(shape: tuple[int, int], k: int) -> tuple[Any, Any]:
    """row + k and column of every element."""
    k = min(max(diagonal_number(k), -shape[0]), shape[1])  # beyond these there is nothing
    dtype = place_dtype(*(n + abs(k) for n in shape))
    return counted(shape, 0, dtype, k), counted(shape, 1, dtype)


def _matrix_extents(name: str, m: Any) -> tuple[int, int]:
    if len(shape_of(m)) < 2:
        raise ValueError(
            f"{name}: the argument has shape {shape_of(m)}, a matrix is needed\n  at {line_of(user_source())}\n"
            f"  fix: {name}(x[None, :]), or tri(n) for the triangle alone"
        )
    rows, columns = shape_of(m)[-2:]
    return rows, columns


def tril(m: Any, k: int = 0) -> Any:
    """The lower triangle of the last two dims."""
    rows, columns = _matrix_extents("tril", m)
    return ufuncs.where(tri(rows, columns, k, np.bool_), m, zeros_like(m))


def triu(m: Any, k: int = 0) -> Any:
    """The upper triangle of the last two dims."""
    rows, columns = _matrix_extents("triu", m)
    return ufuncs.where(tri(rows, columns, diagonal_number(k) - 1, np.bool_), zeros_like(m), m)


def meshgrid(*xs: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """`numpy.meshgrid` of vectors and numbers. ValueError for copy=False, as in JAX, and for arrays of more dims."""
    if not copy:
        raise ValueError(
            f"meshgrid: copy=False asks for views, which there are none of"
            f"\n  at {line_of(user_source())}\n  fix: leave it out"
        )
    if any(len(shape_of(x)) > 1 for x in xs):
        shapes = [shape_of(x) for x in xs]
        raise ValueError(f"meshgrid takes vectors, got shapes {shapes}\n  at {line_of(user_source())}\n  fix: x.ravel()")
    xs = tuple(x if shape_of(x) else bind(ops("reshape"), asarray(x), shape=(1,)) for x in xs)
    rank = len(xs)
    grids = []
    for i, x in enumerate(xs):
        shape = tuple(-1 if j == i else 1 for j in range(rank))
        grids.append(bind(ops("reshape"), asarray(x), shape=tuple(shape_of(x)[0] if n < 0 else 1 for n in shape)))
    if not sparse:
        whole = tuple(shape_of(x)[0] for x in xs)
        grids = [broadcast_to(g, whole) for g in grids]
    return [swapaxes(g, 0, 1) for g in grids] if indexing == "xy" and rank > 1 else grids


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """`numpy.geomspace`: from start to stop by one factor. Both have one sign, or either is complex."""
    (start, stop), _ = promoted(*_no_coarser_than(dtype, start, stop), inexact=True)
    dtype = dtype_of(start) if dtype is None else dtype_or_default(dtype)
    sign = ufuncs.sign(start)
    first, last = (log10(ufuncs.true_divide(x, sign)) for x in (start, stop))
    sizes = powers.power(10.0, linspace(first, last, num, endpoint))
    result = ufuncs.multiply(sign, sizes)
    if axis != 0:
        result = moveaxis(result, 0, axis)
    return cast(result, dtype)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """`numpy.indices`: for every dim the positions along it. TypeError for dimensions that are no sequence."""
    if not hasattr(dimensions, "__iter__"):
        raise TypeError(
            f"indices: dimensions are a sequence, got {type(dimensions).__name__} {dimensions!r:.60}\n"
            f"  at {line_of(user_source())}\n  fix: ({dimensions!r:.60},)"
        )
    shape = shape_tuple(dimensions)
    if sparse:
        return tuple(
            iota(dtype_or_default(dtype), tuple(n if i == d else 1 for i, n in enumerate(shape)), d) for d in range(len(shape))
        )
    if not shape:
        return zeros((0,), dtype)
    return stack([iota(dtype_or_default(dtype), shape, d) for d in range(len(shape))])


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """function(positions along dim 0, positions along dim 1, …), evaluated on whole arrays."""
    shape = shape_tuple(shape)
    return function(*(iota(dtype_or_default(dtype), shape, d) for d in range(len(shape))), **kwargs)


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    return (iota(index_dtype(), (n,), 0),) * ndim
