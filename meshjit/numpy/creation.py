"""Arrays from nothing: zeros, arange, eye and the like. Extents are Python ints, as in JAX."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.numpy import ufuncs
from meshjit.numpy.promote import (
    asarray,
    broadcast_to,
    cast,
    concrete,
    dtype_of,
    float_of,
    index_dtype,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.trace import Tracer, bind


def shape_tuple(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence of ints; a traced extent is an error that says so."""
    if isinstance(shape, int | np.integer):
        return (int(shape),)
    return tuple(operator.index(n) for n in shape)


def _dtype(dtype: Any, default: Any = np.float32) -> np.dtype[Any]:
    if dtype is None:
        return canonical(np.dtype(np.float64), config.enable_x64) if default is np.float32 else np.dtype(default)
    return canonical(np.dtype(dtype), config.enable_x64)


def array(x: Any, dtype: Any = None, copy: bool = True, order: str | None = None, ndmin: int = 0) -> Any:
    """`numpy.array`: nested lists, scalars, NumPy arrays and Arrays."""
    operand, type, weak = value(x, dtype=dtype)
    weak = weak and dtype is None
    operand = cast(operand, type.dtype if dtype is None else dtype, weak)
    if type.rank < ndmin:
        operand = bind(ops("reshape"), operand, shape=(1,) * (ndmin - type.rank) + type.shape, weak_type=weak)
    # A copy op turns NumPy values into arrays of the framework, staged or on a device.
    return bind(ops("copy"), operand, weak_type=weak) if isinstance(operand, np.ndarray) else operand


def asarray_(x: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    return array(x, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """`numpy.full`; without a dtype that of fill_value, weak if it is a Python number."""
    operand, type, weak = value(fill_value, dtype=dtype)
    return _filled(shape_tuple(shape), operand, type.dtype if dtype is None else dtype, weak and dtype is None)


def _filled(shape: tuple[int, ...], fill_value: Any, dtype: Any, weak: bool) -> Any:
    operand = cast(fill_value, dtype, weak)
    if shape_of(operand) == shape:
        return bind(ops("copy"), operand, weak_type=weak) if isinstance(operand, np.ndarray) else operand
    rank = len(shape_of(operand))
    if np.broadcast_shapes(shape_of(operand), shape) != shape:
        raise ValueError(f"full: a value of shape {shape_of(operand)} cannot be broadcast to {shape}")
    dims = tuple(range(len(shape) - rank, len(shape)))
    return bind(ops("broadcast_in_dim"), operand, shape=shape, dimensions=dims, weak_type=weak)


def zeros(shape: Any, dtype: Any = None) -> Any:
    return full(shape, np.zeros((), _dtype(dtype)))


def ones(shape: Any, dtype: Any = None) -> Any:
    return full(shape, np.ones((), _dtype(dtype)))


def empty(shape: Any, dtype: Any = None) -> Any:
    """Zeros: there is no uninitialised memory to show."""
    return zeros(shape, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """`numpy.full_like`; weak if x is and no dtype is given."""
    _, type, weak = value(x)
    wanted = type.shape if shape is None else shape_tuple(shape)
    return _filled(wanted, fill_value, type.dtype if dtype is None else dtype, weak and dtype is None)


def zeros_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    return full_like(x, 0, dtype, shape)


def ones_like(x: Any, dtype: Any = None, shape: Any = None) -> Any:
    return full_like(x, 1, dtype, shape)


empty_like = zeros_like


def iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """Along `dimension` 0, 1, 2, …; constant along the others."""
    return bind(ops("iota"), dtype=_dtype(dtype), shape=shape_tuple(shape), dimension=dimension)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """`numpy.arange`; integers are counted on the devices, other steps are computed as NumPy does."""
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    for x in (start, stop, step):
        if isinstance(x, Tracer):
            fix = "static_argnames=... for an argument; or arange of the largest extent, and a mask"
            concrete(x, "arange needs it to know how many there are", fix)
    numbers = [operator.index(x) if isinstance(x, np.integer) else x for x in (start, stop, step)]
    for name, x in zip(("start", "stop", "step"), numbers, strict=True):
        if not isinstance(x, int | float | np.generic) and np.ndim(np.asarray(x)):
            raise TypeError(f"arange: {name} must be a scalar, got shape {np.shape(x)}")
    start, stop, step = (x if isinstance(x, int | float) else np.asarray(x)[()] for x in numbers)
    if dtype is None:
        dtype = np.result_type(*(np.asarray(x) for x in (start, stop, step)))
    dtype = _dtype(dtype)
    if all(isinstance(x, int) for x in (start, stop, step)) and dtype.kind in "iu":
        count = max(0, -(-(stop - start) // step))
        counted = iota(dtype, (count,), 0)
        counted = ufuncs.multiply(counted, np.asarray(step, dtype)) if step != 1 else counted
        return ufuncs.add(counted, np.asarray(start, dtype)) if start else counted
    return array(np.arange(start, stop, step).astype(dtype))


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """`numpy.linspace` of scalars or arrays."""
    dtype = float_of(dtype_of(promoted(start, stop)[0][0])) if dtype is None else _dtype(dtype)
    wide = float_of(dtype)
    start, stop = cast(start, wide), cast(stop, wide)
    gaps = (num - 1) if endpoint else num
    rank = max(len(shape_of(start)), len(shape_of(stop)))
    count = ufuncs.true_divide(iota(wide, (num,) + (1,) * rank, 0), max(gaps, 1))
    result = ufuncs.add(ufuncs.multiply(start, ufuncs.subtract(1, count)), ufuncs.multiply(stop, count))
    result = ufuncs.floor(result) if dtype.kind in "iu" else result
    if axis != 0:
        from meshjit.numpy.shaping import moveaxis

        result = moveaxis(result, 0, axis)
    result = cast(result, dtype)
    return (result, ufuncs.true_divide(ufuncs.subtract(stop, start), gaps)) if retstep else result


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None) -> Any:
    return cast(ufuncs.power(base, linspace(start, stop, num, endpoint)), _dtype(dtype))


def eye(rows: int, columns: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones on the k-th diagonal."""
    shape = (rows, rows if columns is None else columns)
    on = ufuncs.equal(ufuncs.add(iota(np.int32, shape, 0), k), iota(np.int32, shape, 1))
    return cast(on, _dtype(dtype))


def identity(n: int, dtype: Any = None) -> Any:
    return eye(n, dtype=dtype)


def tri(rows: int, columns: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones on and below the k-th diagonal."""
    shape = (rows, rows if columns is None else columns)
    below = ufuncs.greater_equal(ufuncs.add(iota(np.int32, shape, 0), k), iota(np.int32, shape, 1))
    return cast(below, np.float32 if dtype is None else dtype)


def tril(x: Any, k: int = 0) -> Any:
    """The lower triangle of the last two dims."""
    rows, columns = shape_of(x)[-2:]
    return ufuncs.where(tri(rows, columns, k, np.bool_), x, zeros_like(x))


def triu(x: Any, k: int = 0) -> Any:
    """The upper triangle of the last two dims."""
    rows, columns = shape_of(x)[-2:]
    return ufuncs.where(tri(rows, columns, k - 1, np.bool_), zeros_like(x), x)


def meshgrid(*xs: Any, indexing: str = "xy", sparse: bool = False) -> list[Any]:
    """`numpy.meshgrid` of vectors."""
    from meshjit.numpy.shaping import swapaxes

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
    """`numpy.geomspace` of positive numbers."""
    from meshjit.numpy.elementwise import log2

    ends = log2(cast(start, _dtype(None))), log2(cast(stop, _dtype(None)))
    return cast(ufuncs.power(2.0, linspace(*ends, num, endpoint, axis=axis)), _dtype(dtype))


def vander(x: Any, n: int | None = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, the highest first."""
    from meshjit.numpy.rearranging import flip
    from meshjit.numpy.shaping import expand_dims

    count = shape_of(x)[0] if n is None else n
    powers = ufuncs.power(expand_dims(x, 1), np.arange(count, dtype=np.int32))
    return powers if increasing else flip(powers, 1)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """`numpy.indices`: for every dim the positions along it."""
    from meshjit.numpy.shaping import stack

    shape = shape_tuple(dimensions)
    if sparse:
        return tuple(
            iota(_dtype(dtype), tuple(n if i == d else 1 for i, n in enumerate(shape)), d) for d in range(len(shape))
        )
    if not shape:
        return zeros((0,), dtype)
    return stack([iota(_dtype(dtype), shape, d) for d in range(len(shape))])


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """function(positions along dim 0, positions along dim 1, …), evaluated on whole arrays."""
    shape = shape_tuple(shape)
    return function(*(iota(_dtype(dtype), shape, d) for d in range(len(shape))), **kwargs)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the lower triangle."""
    return _places(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Rows and columns of the upper triangle."""
    return _places(np.triu_indices(n, k, m))


def tril_indices_from(x: Any, k: int = 0) -> tuple[Any, Any]:
    return tril_indices(shape_of(x)[-2], k, shape_of(x)[-1])


def triu_indices_from(x: Any, k: int = 0) -> tuple[Any, Any]:
    return triu_indices(shape_of(x)[-2], k, shape_of(x)[-1])


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    return _places(np.diag_indices(n, ndim))


def _places(arrays: Any) -> Any:
    return tuple(array(a.astype(index_dtype())) for a in arrays)
