"""Random integers and choices: randint, permutation, choice, categorical."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from meshjit import numpy as mnp
from meshjit.api import jit
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.keys import PRNGKeyArray
from meshjit.core.promotion import canonical
from meshjit.core.types import is_integer
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import iota
from meshjit.numpy.promote import broadcast_to, cast, dtype_of, normal_axis, ops, shape_of, value
from meshjit.random.floats import check_mode, common_shape, gumbel_floats, options, scaled, unit_floats
from meshjit.random.keys import single
from meshjit.random.threefry import Shape, random_bits, split_data
from meshjit.trace import Tracer, bind, line_of, user_source


def _size(shape: Shape) -> int:
    return math.prod(shape)


# -- randint


def _bound(x: Any, name: str, low: int, high: int, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """A bound of any integer type moved into [low, high], and whether it was above."""
    if isinstance(x, int):
        return np.asarray(min(max(x, low), high), dtype), np.asarray(x > high)
    operand, type, _ = value(x, f"{name} of random.randint")
    if type.dtype.kind not in "iub":
        raise TypeError(f"random.randint: {name} must be an integer, got {type}\n  at {line_of(user_source())}")
    info = np.iinfo(np.int8 if type.dtype == np.bool_ else type.dtype)
    above: Any = np.asarray(False)
    if info.max > high:
        above = mnp.greater(operand, np.asarray(high, type.dtype))
        operand = mnp.where(above, np.asarray(high, type.dtype), operand)
    if info.min < low:
        operand = mnp.where(mnp.less(operand, np.asarray(low, type.dtype)), np.asarray(low, type.dtype), operand)
    return cast(operand, dtype), above


def _check_bound(x: Any, name: str, dtype: np.dtype[Any]) -> None:
    """OverflowError for a Python int that neither dtype nor the default integer holds; one past the largest is a maxval."""
    kinds = [ml_dtypes.iinfo(dtype), np.iinfo(canonical(np.dtype(np.int64), config.enable_x64))]
    if isinstance(x, int) and not min(k.min for k in kinds) <= x <= max(k.max for k in kinds) + 1:
        raise OverflowError(
            f"random.randint: {name} {x} is out of the range of {dtype}\n  at {line_of(user_source())}\n"
            "  fix: bounds within the range of the dtype; set enable_x64 for 64-bit integers"
        )


@takes_out_sharding
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Integers in [minval, maxval), which broadcast to `shape`. Source: jax.random.randint.

    dtype: an integer dtype, int32 by default (int64 under enable_x64). Bounds that it does not hold are moved to its
    range, so that maxval = 2**31 gives all of int32; where maxval <= minval the result is minval. OverflowError for Python
    integers that the default integer does not hold either.
    """
    data = single(key, "randint")
    dtype = canonical(np.dtype(np.int64 if dtype is None else dtype), config.enable_x64)
    if not is_integer(dtype):
        raise TypeError(
            f"random.randint: dtype must be an integer dtype, got {dtype}\n  at {line_of(user_source())}\n"
            "  fix: random.uniform for floats"
        )
    for name, x in (("minval", minval), ("maxval", maxval)):
        _check_bound(x, name, dtype)
    shapes = [() if isinstance(x, int) else shape_of(x) for x in (minval, maxval)]  # ints may be of any size
    return _randint(data, minval, maxval, **options(common_shape(shape, shapes, "randint"), dtype))


def _randint(data: Any, low: Any, high: Any, **settings: Any) -> Any:
    """In 32 bits at least, where the bias of the remainder is small; drawn from [low, high]'s span by two words."""
    dtype = settings["dtype"]
    info = ml_dtypes.iinfo(dtype)
    if dtype.itemsize < 4:
        wide = np.dtype(np.int32)
        low, _ = _bound(low, "minval", info.min, info.max, wide)
        high, _ = _bound(high, "maxval", info.min, info.max + 1, wide)
        return cast(_drawn(data, low, high, np.asarray(False), **{**settings, "dtype": wide}), dtype)
    low, _ = _bound(low, "minval", info.min, info.max, dtype)
    high, above = _bound(high, "maxval", info.min, info.max, dtype)
    return _drawn(data, low, high, above, **settings)


def _drawn_now(
    data: Any, low: Any, high: Any, above: Any, *, shape: Shape, dtype: np.dtype[Any], partitionable: bool
) -> Any:
    width = 8 * dtype.itemsize
    unsigned = np.dtype(f"uint{width}")
    low, high, above = mnp.broadcast_arrays(low, high, above)
    some = mnp.greater(high, low)
    span = mnp.where(some, cast(mnp.subtract(high, low), unsigned), np.ones((), unsigned))
    span = mnp.where(_both(above, some), mnp.add(span, np.ones((), unsigned)), span)
    half = _rest(np.asarray(2 ** (width // 2), unsigned), span)
    factor = _rest(mnp.multiply(half, half), span)  # 2**width modulo span
    keys = split_data(data, (2,), partitionable)
    span, factor = broadcast_to(span, shape), broadcast_to(factor, shape)
    upper, lower = (_rest(random_bits(keys[i], width, shape, partitionable), span) for i in range(2))
    return mnp.add(broadcast_to(low, shape), cast(_rest(mnp.add(mnp.multiply(upper, factor), lower), span), dtype))


_drawn = jit(_drawn_now, static_argnames=("shape", "dtype", "partitionable"))


def _both(a: Any, b: Any) -> Any:
    return bind(ops("and"), *mnp.broadcast_arrays(a, b))


def _rest(x: Any, by: Any) -> Any:
    """The remainder of unsigned integers; x where `by` is 0, which stands for 2**width."""
    return bind(ops("remainder"), *mnp.broadcast_arrays(x, by))


# -- permutation


def _shuffled(data: Any, x: Any, axis: int, partitionable: bool) -> Any:
    """Sorted by random words, so often that words which are equal by chance leave no trace."""
    size = max(1, _size(shape_of(x)))
    for _ in range(math.ceil(3 * math.log(size) / math.log(2**32 - 1))):
        keys = split_data(data, (2,), partitionable)
        data = keys[0]
        words = random_bits(keys[1], 32, shape_of(x), partitionable)
        x = bind(ops("sort"), words, x, dimension=axis, num_keys=1, is_stable=True)[1]
    return x


@jit(static_argnames=("size", "dtype", "partitionable"))
def _permuted_range(data: Any, *, size: int, dtype: Any, partitionable: bool) -> Any:
    return _shuffled(data, iota(dtype, (size,), 0), 0, partitionable)


@jit(static_argnames=("axis", "independent", "partitionable"))
def _permuted(data: Any, x: Any, *, axis: int, independent: bool, partitionable: bool) -> Any:
    if independent or x.ndim == 1:
        return _shuffled(data, x, axis, partitionable)
    order = _shuffled(data, iota(np.int32, (x.shape[axis],), 0), 0, partitionable)
    return mnp.take(x, order, axis, mode="promise_in_bounds")


@takes_out_sharding
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """arange(x) for an int x, or the array x, in random order along `axis`. Source: jax.random.permutation.

    independent: every vector along `axis` has an order of its own.
    """
    if isinstance(x, PRNGKeyArray) and x.shape and not independent:
        return mnp.take(x, permutation(key, x.shape[normal_axis(axis, x.ndim)]), axis=axis)
    data, form = single(key, "permutation"), config.threefry_partitionable
    operand, type, _ = value(x, "x of random.permutation")
    if not type.shape:
        if type.dtype.kind not in "iu" or isinstance(x, Tracer):
            raise TypeError(
                f"random.permutation: x must be a Python int or an array of one dim or more, got {type}\n"
                f"  at {line_of(user_source())}"
            )
        dtype = dtype_of(int(operand)) if isinstance(x, np.integer) else type.dtype
        return _permuted_range(data, size=int(operand), dtype=dtype, partitionable=form)
    axis = normal_axis(axis, type.rank)
    return _permuted(data, operand, axis=axis, independent=bool(independent), partitionable=form)


# -- choice


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Random elements of arange(a), for an int a, or of the array a along `axis`. Source: jax.random.choice.

    replace: whether an element may be drawn twice. p: f[a.shape[axis]], the probabilities; None: all equal.
    mode: of the gumbel numbers that draw without replacement. ValueError if the sample is larger than the population.
    """
    if isinstance(a, PRNGKeyArray) and a.shape:
        return mnp.take(a, choice(key, a.shape[normal_axis(axis, a.ndim)], shape, replace, p, mode=mode), axis=axis)
    data, shape = single(key, "choice"), shape_tuple(shape)
    operand, type, _ = value(a, "a of random.choice")
    if not type.shape and (isinstance(a, Tracer) or type.dtype.kind not in "iu"):
        raise TypeError(f"random.choice: a must be a Python int or an array, got {type}\n  at {line_of(user_source())}")
    axis = normal_axis(axis, type.rank) if type.shape else 0
    count = type.shape[axis] if type.shape else int(a)  # pyright: ignore[reportArgumentType]
    _check_choice(count, _size(shape), replace, p)
    settings = {"shape": shape, "axis": axis, "count": count, "replace": bool(replace), "mode": check_mode(mode, "choice")}
    source = operand if type.shape else None
    form = config.threefry_partitionable
    dtype = dtype_of(count) if isinstance(a, np.integer) else type.dtype
    return _choice(data, source, p, **settings, dtype=dtype, partitionable=form)


def _check_choice(count: int, draws: int, replace: bool, p: Any) -> None:
    where_ = f"\n  at {line_of(user_source())}"
    if count < 1 and draws:
        raise ValueError(f"random.choice: {draws} elements were asked for, but there are none to choose from{where_}")
    if not replace and draws > count:
        raise ValueError(f"random.choice: {draws} elements cannot be drawn from {count} without replacement{where_}")
    if p is not None and shape_of(p) != (count,):
        raise ValueError(
            f"random.choice: p has shape {shape_of(p)}, but there are {count} elements: ({count},){where_}"
        )


@jit(static_argnames=("shape", "axis", "count", "replace", "mode", "dtype", "partitionable"))
def _choice(
    data: Any,
    a: Any,
    p: Any,
    *,
    shape: Shape,
    axis: int,
    count: int,
    replace: bool,
    mode: str,
    dtype: Any,
    partitionable: bool,
) -> Any:
    draws = _size(shape)
    whole = a.shape if a is not None else (count,)
    kept = (*whole[:axis], *shape, *whole[axis + 1 :])
    if 0 in kept or not draws:
        return np.zeros(kept, dtype)
    if p is None and not replace:
        return _first_of_permutation(data, a, shape, axis, count, dtype, partitionable)
    if p is None:
        low, high = (np.asarray(n, np.int32) for n in (0, count))
        places = _drawn_now(
            data, low, high, np.asarray(False), shape=shape, dtype=_index_dtype(), partitionable=partitionable
        )
    elif replace:
        places = _by_probability(data, p, shape, partitionable)
    else:
        g = gumbel_floats(data, shape=(count,), dtype=_float(p), partitionable=partitionable, mode=mode)
        places = mnp.reshape(_largest(mnp.add(g, mnp.log(cast(p, _float(p)))), draws), shape)
    return cast(places, dtype) if a is None else mnp.take(a, places, axis, mode="promise_in_bounds")


def _index_dtype() -> np.dtype[Any]:
    return canonical(np.dtype(np.int64), config.enable_x64)


def _float(p: Any) -> np.dtype[Any]:
    dtype = value(p)[1].dtype
    return dtype if dtype.kind not in "iub" else canonical(np.dtype(np.float64), config.enable_x64)


def _first_of_permutation(
    data: Any, a: Any, shape: Shape, axis: int, count: int, dtype: Any, partitionable: bool
) -> Any:
    """The first elements of all in random order."""
    draws = _size(shape)
    if a is None:
        order = _shuffled(data, iota(dtype, (count,), 0), 0, partitionable)
        return mnp.reshape(order[:draws], shape)
    if a.ndim == 1:
        return mnp.reshape(_shuffled(data, a, 0, partitionable)[:draws], shape)
    order = _shuffled(data, iota(np.int32, (count,), 0), 0, partitionable)
    return mnp.take(a, mnp.reshape(order[:draws], shape), axis, mode="promise_in_bounds")


def _by_probability(data: Any, p: Any, shape: Shape, partitionable: bool) -> Any:
    """Where uniform numbers fall among the sums of the probabilities."""
    dtype = _float(p)
    sums = mnp.cumsum(cast(p, dtype))
    zero, one = np.zeros((), dtype), np.ones((), dtype)
    floats = scaled(unit_floats(data, shape, dtype, partitionable), zero, one, shape, dtype)
    return mnp.searchsorted(sums, mnp.multiply(sums[-1], mnp.subtract(one, floats)))


def _largest(x: Any, count: int) -> Any:
    """Where the `count` largest elements of the last dim are, the largest first; of equal ones the first."""
    return bind(ops("top_k"), x, k=count)[1]


# -- categorical


@takes_out_sharding
def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Any:
    """Indices along `axis` of `logits`, drawn with probability softmax(logits). Source: jax.random.categorical.

    shape: that of the result, ending in the shape of `logits` without `axis` (None: just that). replace: if False,
    the draws of one distribution differ. mode: of the gumbel numbers. Gives int32 (int64 under enable_x64).
    """
    data = single(key, "categorical")
    operand, type, _ = value(logits, "logits of random.categorical")
    if type.dtype.kind in "iubc":
        raise ValueError(f"random.categorical: logits must be floats, got {type}\n  at {line_of(user_source())}")
    axis = normal_axis(axis, type.rank)
    batch = type.shape[:axis] + type.shape[axis + 1 :]
    shape = batch if shape is None else shape_tuple(shape)
    common_shape(shape, [batch], "categorical")
    prefix = shape[: len(shape) - len(batch)]
    if not replace and _size(prefix) > type.shape[axis]:
        raise ValueError(
            f"random.categorical: {_size(prefix)} draws cannot differ among {type.shape[axis]} categories\n"
            f"  at {line_of(user_source())}"
        )
    return _categorical(
        data,
        operand,
        axis=axis,
        shape=shape,
        replace=bool(replace),
        mode=check_mode(mode, "categorical"),
        partitionable=config.threefry_partitionable,
    )


@jit(static_argnames=("axis", "shape", "replace", "mode", "partitionable"))
def _categorical(
    data: Any, logits: Any, *, axis: int, shape: Shape, replace: bool, mode: str, partitionable: bool
) -> Any:
    form: dict[str, Any] = {"dtype": logits.dtype, "partitionable": partitionable, "mode": mode}
    prefix = shape[: len(shape) - logits.ndim + 1]
    batch = list(shape[len(prefix) :])
    batch.insert(axis, logits.shape[axis])
    if not replace:
        scores = mnp.add(gumbel_floats(data, shape=tuple(batch), **form), logits)
        chosen = mnp.moveaxis(_largest(mnp.moveaxis(scores, axis, -1), _size(prefix)), -1, 0)
        return mnp.reshape(chosen, shape)
    scores = mnp.add(
        gumbel_floats(data, shape=(*prefix, *batch), **form), mnp.expand_dims(logits, tuple(range(len(prefix))))
    )
    return cast(mnp.argmax(scores, axis + len(prefix)), _index_dtype())
