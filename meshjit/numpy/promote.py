"""What the numpy layer does before ops see anything: values, promotion as JAX's, broadcasting as NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.api.putting import ShapeDtypeStruct
from meshjit.config import config
from meshjit.core.keys import KeyType, NotNumbersError, PRNGKeyArray, type_text
from meshjit.core.op import REGISTRY, Op
from meshjit.core.promotion import canonical, dtype_of_python_scalar, is_python_number, promote, refuse_conversion
from meshjit.core.stored import wide_of
from meshjit.core.types import TensorType, is_inexact, is_integer, type_of
from meshjit.errors import ConcretizationTypeError
from meshjit.numpy.arguments import axis_number, axis_out_of_range, shape_tuple
from meshjit.runtime.array import Array
from meshjit.runtime.exchange import from_dlpack
from meshjit.trace import Tracer, active_trace, bind, line_of, type_and_weak, user_source
from meshjit.trace.program import check_unmasked
from meshjit.trace.tracer import value_of

Shape = tuple[int, ...]


class WeakNumber(np.ndarray[Any, Any]):
    """A Python number as an array of no dims that still adapts to what it is combined with."""


def ops(name: str) -> Op:
    """The op of this StableHLO name."""
    return REGISTRY[name]


def value(x: Any, where: str = "argument", dtype: Any = None) -> tuple[Any, TensorType, bool]:
    """(operand, type, weak) of anything array-like: Tracers and Arrays as they are, scalars and nested lists as NumPy's.

    `dtype` is what the caller will convert to: Python integers too large for the default integer may fit into that.
    """
    if type(x) is Tracer:
        return x, x.variable.type, x.weak_type
    if is_python_number(x):
        array = _numbers(x, _at_once(dtype_of_python_scalar(x), dtype), dtype)
        weak = not isinstance(x, bool)
        return array.view(WeakNumber) if weak else array, TensorType((), array.dtype), weak
    if isinstance(x, list | tuple):
        x = _nested(x, dtype)
    typing = None if isinstance(x, np.ndarray | np.generic) else type_and_weak(x)
    if typing is not None:
        return x, typing[0], typing[1]
    if isinstance(x, PRNGKeyArray):
        raise not_numbers(x, where)
    if hasattr(type(x), "__jax_array__"):
        return value(x.__jax_array__(), where, dtype)  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(x, np.ndarray | np.generic) and hasattr(x, "__array__"):
        if lies_on_gpu(x):
            return value(from_dlpack(x), where, dtype)
        x = np.asarray(x)
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind not in "OSUMm":
        if type(x) is WeakNumber and not x.ndim:
            return x, type_of(x), True
        check_unmasked(x, where)
        array = np.asarray(x, canonical(x.dtype, config.enable_x64))
        return array, type_of(array), False
    kind = f"of dtype {x.dtype}" if isinstance(x, np.ndarray | np.generic) else type(x).__name__
    raise TypeError(
        f"{where} is not an array: {kind} {x!r:.60}\n  at {line_of(user_source())}\n"
        "  fix: pass an array, a Python number, or a nested list of numbers"
    )


def lies_on_gpu(x: Any) -> bool:
    """Whether this is another library's array on a GPU, which NumPy cannot read, and DLPack can."""
    return hasattr(x, "__dlpack__") and hasattr(x, "__cuda_array_interface__")


def not_numbers(keys: PRNGKeyArray, what: str) -> NotNumbersError:
    """The error of a function that computes with numbers, and was given keys."""
    return NotNumbersError(
        f"{what} is an array of keys, {type_text(keys.dtype, keys.shape)}: keys are no numbers\n  at {line_of(user_source())}\n"
        "  fix: random.fold_in(key, n) makes a key from a key and a number, random.split(key) new ones, and"
        " random.key_data(keys) are their words"
    )


def _at_once(natural: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """The canonical natural dtype of Python numbers; integers that become other integers are those at once."""
    if dtype is not None and natural.kind == "i" and is_integer(np.dtype(dtype)):
        natural = np.dtype(dtype)
    return canonical(natural, config.enable_x64)


def _numbers(x: Any, dtype: np.dtype[Any] | None, target: Any = None) -> np.ndarray[Any, Any]:
    """Python numbers, or nested lists of them. An integer that does not fit is of the dtype `target`, which the caller will
    convert it to, if that is inexact, else an error that names its dtype."""
    try:
        return np.asarray(x, dtype)
    except OverflowError:
        if target is not None and is_inexact(np.dtype(target)):
            return np.asarray(x, canonical(np.dtype(target), config.enable_x64))
        what = "a list" if isinstance(x, list | tuple) else "the integer"
        raise OverflowError(
            f"{what} {x!r:.60} does not fit {np.dtype(dtype)}\n  at {line_of(user_source())}\n"
            "  fix: write it as a float or as np.uint32(...), or set enable_x64"
        ) from None
    except ValueError as error:
        raise ValueError(f"not an array: {x!r:.60}\n  at {line_of(user_source())}\n  {error}") from None


def _nested(x: Any, dtype: Any) -> Any:
    """A nested list as an array, of the dtype that what it holds promotes to; lists that hold Tracers or Arrays are stacked."""
    if any(isinstance(e, list | tuple) or not isinstance(e, bool | int | float | complex | np.generic) for e in x):
        if _has_arrays(x):
            return _stacked(x)
    array = _numbers(x, None)
    if array.dtype.kind not in "OSUMm" and _has_numpy(x):
        return _numbers(x, array.dtype if dtype is not None or not array.size else _common_dtype(_leaves(x), False)[0])
    if array.dtype.kind in "iuO" and not _has_numpy(x) and not _has_strangers(array):  # Python integers: i32, as in JAX
        return _numbers(x, _at_once(np.dtype(np.int64), dtype), dtype)
    return array


def _stacked(x: Any) -> Any:
    """Numbers in lists beside arrays adapt to them, as numbers beside arrays do."""
    from meshjit.numpy.shaping import stack  # which takes what this file makes of operands

    dtype, weak = _common_dtype(_leaves(x), False)
    return stack([exactly(e, dtype) if isinstance(e, list | tuple) and not weak else asarray(e) for e in x])


def _leaves(x: Any) -> list[tuple[Any, TensorType, bool]]:
    """What nested lists hold, each once per type."""
    if isinstance(x, list | tuple):
        leaves = [leaf for e in x for leaf in _leaves(e)]
        return list({(type.dtype, weak): (operand, type, weak) for operand, type, weak in leaves}.values())
    return [value(x)]


def _has_strangers(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array of objects holds other things than integers that are too large for 64 bits."""
    return array.dtype.kind == "O" and not all(isinstance(e, int | float) for e in array.ravel())


def _has_arrays(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(_has_arrays(e) for e in x)
    if isinstance(x, np.ndarray | np.generic):
        return False
    return type_and_weak(x) is not None or hasattr(type(x), "__jax_array__")


def _has_numpy(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(_has_numpy(e) for e in x)
    return isinstance(x, np.ndarray | np.generic)


def asarray(x: Any) -> Any:
    """The operand alone, in its canonical dtype."""
    return value(x)[0]


def lifted(x: Any) -> Any:
    """The value as an array of the framework: NumPy arrays and scalars are staged, or put on a device."""
    operand, _, weak = value(x)
    return bind(ops("copy"), operand, weak_type=weak) if isinstance(operand, np.ndarray) else operand


def fresh(x: Any) -> Any:
    """`lifted`, in memory of its own: an Array is copied, so that it outlives a donation of x. Values of a function that is
    traced have no memory yet."""
    operand = value(x)[0]
    return operand.copy() if isinstance(operand, Array) and active_trace() is None else lifted(operand)


def concrete(x: Any, what: str, fix: str) -> np.ndarray[Any, Any]:
    """The elements of a value; ConcretizationTypeError, saying what needs them, for one that is traced and has none."""
    operand = asarray(x)
    return np.asarray(value_of(operand, ConcretizationTypeError, what, fix) if isinstance(operand, Tracer) else operand)


def weak_of(x: Any) -> bool:
    return value(x)[2]


def shape_of(x: Any) -> Shape:
    return x.shape if type(x) is PRNGKeyArray else value(x)[1].shape


def described(x: Any) -> tuple[TensorType, bool] | None:
    """Type and weakness of what says these and has no elements (ShapeDtypeStruct); None for others."""
    if not isinstance(x, ShapeDtypeStruct) or isinstance(x.dtype, KeyType):
        return None
    return TensorType(x.shape, canonical(x.dtype, config.enable_x64)), x.weak_type


def dtype_of(x: Any) -> np.dtype[Any]:
    return x.variable.type.dtype if type(x) is Tracer else value(x)[1].dtype


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` in `dtype` (canonical), without an op where it already is."""
    return exactly(x, canonical(np.dtype(dtype), config.enable_x64), weak)


def exactly(x: Any, dtype: np.dtype[Any], weak: bool = False) -> Any:
    """`x` in a dtype that arrays are of already: without enable_x64 too, 64 bits stay with arrays that were made under it."""
    return _converted(value(x), dtype, weak)


def _converted(valued: tuple[Any, TensorType, bool], dtype: np.dtype[Any], weak: bool) -> Any:
    operand, type, was_weak = valued
    if isinstance(operand, np.ndarray):
        real = type.dtype.kind == "c" and dtype.kind not in "cb"  # 1j is true
        # NumPy converts integers of few bits to no others of few
        operand: Any = operand.astype(wide_of(type.dtype), copy=False)
        array = np.asarray(operand.real if real else operand, dtype)
        if dtype != canonical(dtype, config.enable_x64):
            return bind(ops("copy"), array, weak_type=weak)  # an array keeps its dtype, NumPy's values lose it
        return array.view(WeakNumber) if weak and not type.shape else array
    if type.dtype == dtype and was_weak == weak:
        return operand
    return bind(ops("convert"), operand, dtype=dtype, weak_type=weak)


def promoted(*xs: Any, inexact: bool = False) -> tuple[list[Any], bool]:
    """All operands in their common dtype, and whether the result is weak. `inexact`: integers become floats."""
    values = [value(x, f"argument {i}") for i, x in enumerate(xs)]
    dtype, weak = _common_dtype(values, inexact)
    return [_converted(each, dtype, weak) for each in values], weak


def float_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that functions of real numbers compute in: integers of 64 bits give float64, others float32."""
    if is_inexact(dtype):
        return dtype
    return canonical(np.dtype(np.float64), config.enable_x64) if dtype.itemsize > 4 else np.dtype(np.float32)


def index_dtype() -> np.dtype[Any]:
    """The default integer: int32, or int64 with enable_x64."""
    return canonical(np.dtype(np.int64), config.enable_x64)


def broadcast_to(array: Any, shape: Any) -> Any:
    """NumPy's rule: dims are added in front, extents of 1 are repeated."""
    return _broadcast(value(array), shape_tuple(shape))


def _broadcast(valued: tuple[Any, TensorType, bool], shape: Shape) -> Any:
    operand, type, weak = valued
    if type.shape == shape:
        return operand
    offset = len(shape) - type.rank
    if offset < 0 or any(n not in (1, shape[offset + d]) for d, n in enumerate(type.shape)):
        raise ValueError(
            f"shape {type.shape} cannot be broadcast to {shape}\n  at {line_of(user_source())}\n"
            "  fix: extents of 1 are repeated, others must be equal, counted from the last dim: x[:, None] adds one"
        )
    trace = active_trace() if not type.shape and isinstance(operand, np.ndarray) else None
    if trace is not None:
        return trace.splat(operand, shape, weak)
    return bind(
        ops("broadcast_in_dim"), operand, shape=shape, dimensions=tuple(range(offset, len(shape))), weak_type=weak
    )


def broadcast_shapes(*shapes: Any, error: type[Exception] = ValueError) -> Shape:
    """The shape that all broadcast to; `error`, with the user's line, if there is none. TypeError for what is no shape."""
    tuples = [shape_tuple(s) for s in shapes]
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*tuples))
    except ValueError:
        listed = ", ".join(map(str, tuples))
        raise error(
            f"Incompatible shapes for broadcasting: shapes {listed} do not fit together: extents must be equal or 1, counted"
            " from the last dim\n"
            f"  at {line_of(user_source())}\n  fix: reshape or transpose one of them, for example x[:, None]"
        ) from None


def broadcast_all(xs: Sequence[Any], error: type[Exception] = ValueError) -> list[Any]:
    values = [value(x) for x in xs]
    shape = _common_shape({type.shape for _, type, _ in values}, error)
    return [_broadcast(each, shape) for each in values]


def apply(name: str, *xs: Any, inexact: bool = False, **params: Any) -> Any:
    """One elementwise op on promoted and broadcast operands."""
    first = xs[0]
    if type(first) is Tracer and (not inexact or is_inexact(first.variable.type.dtype)):
        first_type = first.variable.type
        if all([type(x) is Tracer and x.variable.type == first_type for x in xs]):  # nothing to promote or to broadcast
            return bind(REGISTRY[name], *xs, weak_type=all([x.weak_type for x in xs]), **params)
    values = [value(x, f"argument {i}") for i, x in enumerate(xs)]
    dtype, weak = _common_dtype(values, inexact)
    shape = _common_shape({type.shape for _, type, _ in values}, TypeError)
    operands = [_fitted(v, dtype, weak, shape) for v in values]
    return bind(REGISTRY[name], *operands, weak_type=weak, **params)


def _common_dtype(values: Sequence[tuple[Any, TensorType, bool]], inexact: bool) -> tuple[np.dtype[Any], bool]:
    infos = [(type.dtype, weak) for _, type, weak in values]
    dtype, weak = promote(infos)
    if not weak and all([info == (dtype, False) for info in infos]):  # nothing is promoted: 64 bits stay
        return (dtype if is_inexact(dtype) or not inexact else np.dtype(f"f{max(4, dtype.itemsize)}")), weak
    if config.numpy_dtype_promotion == "strict":
        refuse_conversion(infos, dtype)
    return (float_of(dtype) if inexact else canonical(dtype, config.enable_x64)), weak


def _common_shape(shapes: set[Shape], error: type[Exception] = ValueError) -> Shape:
    """What all broadcast to. Where there is nothing, JAX's elementwise functions raise TypeError for shapes of one rank,
    ValueError for others; its other functions ValueError for all."""
    if len(shapes) == 1:
        return next(iter(shapes))
    if len(shapes) == 2 and () in shapes:  # scalars go with any shape
        return next(s for s in shapes if s)
    if len({len(shape) for shape in shapes if shape}) > 1:
        if config.numpy_rank_promotion != "allow":
            _mention_ranks(shapes)
        error = ValueError
    return broadcast_shapes(*shapes, error=error)


def _mention_ranks(shapes: set[Shape]) -> None:
    """Warn, or raise ValueError, as `numpy_rank_promotion` says."""
    mode = config.numpy_rank_promotion
    text = (
        f"shapes {', '.join(map(str, sorted(shapes)))} of different ranks are broadcast, and numpy_rank_promotion is {mode!r}\n"
        f"  at {line_of(user_source())}\n  fix: add dims, for example x[None, :]"
    )
    if mode == "raise":
        raise ValueError(text)
    warnings.warn(text, stacklevel=2)


def _fitted(operand: tuple[Any, TensorType, bool], dtype: np.dtype[Any], weak: bool, shape: Shape) -> Any:
    """One operand converted and broadcast, without ops where it fits already."""
    x, type, was_weak = operand
    if type.dtype != dtype or (was_weak != weak and not isinstance(x, np.ndarray)):
        x = _converted(operand, dtype, weak)
    if type.shape == shape:
        return x
    trace = active_trace() if not type.shape and isinstance(x, np.ndarray) else None
    return broadcast_to(x, shape) if trace is None else trace.splat(x, shape, x.__class__ is WeakNumber)


def normal_axis(axis: Any, rank: int) -> int:
    """A dim counted from the front; NumPy's AxisError (a ValueError and an IndexError), with the user's line, when there is no
    such dim, TypeError for what is no integer."""
    number = axis if type(axis) is int else axis_number(axis)
    if not -rank <= number < rank:
        raise axis_out_of_range(number, rank)
    return number % rank


def normal_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """None means all."""
    if axis is None:
        return tuple(range(rank))
    several = hasattr(axis, "__iter__") and not isinstance(axis, str) and getattr(axis, "shape", None) != ()
    dims = tuple(normal_axis(a, rank) for a in axis) if several else (normal_axis(axis, rank),)
    if len(set(dims)) != len(dims):
        raise ValueError(f"axis {axis} names a dim twice\n  at {line_of(user_source())}")
    return dims


def no_out(name: str, out: Any) -> None:
    """`out` is there so that arguments by position are NumPy's, and NumPy's functions of our arrays pass it on."""
    if out is not None:
        raise NotImplementedError(
            f"{name}: out= is not there, since arrays cannot be changed in place\n  fix: out = {name}(...)\n"
            f"  at {line_of(user_source())}"
        )
