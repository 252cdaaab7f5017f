"""Reductions, cumulative functions, scans of associative functions, sorting: jax.lax's names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import is_float, kind_of
from meshjit.lax import elementwise
from meshjit.lax.combining import combined
from meshjit.lax.operands import dim_from_front, dims_from_front
from meshjit.lax.regions import check_callable
from meshjit.numpy.arguments import check_not_empty
from meshjit.numpy.promote import asarray, cast, dtype_of, normal_axes, normal_axis, ops, shape_of
from meshjit.numpy.quick.names import usual
from meshjit.numpy.rearranging import flip
from meshjit.numpy.shaping import concatenate, moveaxis, reshape, slice_in_dim as slice_dim
from meshjit.numpy.sorting import sort_together, top_k as top_k
from meshjit.ops.base.identity_elements import identity_element
from meshjit.trace import bind, line_of, user_source
from meshjit.trees import WORDS as tree

_EXTREME_OF = {"reduce_max": mnp.max, "reduce_min": mnp.min}


def _reduction(op: str) -> Any:
    def function(operand: Any, axes: Sequence[int]) -> Any:
        operand = asarray(operand)
        if not config.allow_f16_reductions and op == "reduce_sum" and dtype_of(operand).name in ("float16", "bfloat16"):
            raise ValueError(
                f"reduce_sum of {dtype_of(operand)}[{','.join(map(str, shape_of(operand)))}], and config.allow_f16_reductions is"
                f" False\n  at {line_of(user_source())}\n  fix: convert it to float32 first"
            )
        if op in ("reduce_and", "reduce_or") and kind_of(dtype_of(operand)) not in "iub":
            raise TypeError(
                f"lax.{op} takes booleans and integers, got {dtype_of(operand)}\n  at {line_of(user_source())}\n  fix: x != 0"
            )
        axes = dims_from_front(op, axes, len(shape_of(operand)))
        if op in _EXTREME_OF and dtype_of(operand).kind == "c":  # which one op has no order of
            return _EXTREME_OF[op](operand, axes, initial=-np.inf if op == "reduce_max" else np.inf)
        return bind(ops(op), operand, axes=axes)

    function.__name__ = op
    function.__doc__ = f"`jax.lax.{op}`: over `axes`, in the operand's dtype."
    return takes_out_sharding(function) if op == "reduce_sum" else function


reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or = (
    _reduction(n) for n in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or")
)


def reduce_xor(operand: Any, axes: Sequence[int]) -> Any:
    """`jax.lax.reduce_xor`."""
    return reduce(operand, np.zeros((), dtype_of(operand)), elementwise.bitwise_xor, axes)


def argmax(operand: Any, axis: int, index_dtype: Any = np.int32) -> Any:
    """The first place of the largest element; ValueError for no index_dtype, and for dims that there are not."""
    return _place_of("argmax", operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any = np.int32) -> Any:
    """The first place of the smallest element; errors as of argmax."""
    return _place_of("argmin", operand, axis, index_dtype)


def _place_of(op: str, operand: Any, axis: Any, index_dtype: Any) -> Any:
    operand = asarray(operand)
    if index_dtype is None:
        raise ValueError(f"lax.{op}: index_dtype is None\n  at {line_of(user_source())}\n  fix: np.int32")
    dim = dim_from_front(op, axis, len(shape_of(operand)))
    check_not_empty(op, shape_of(operand), dim)
    kind = canonical(np.dtype(index_dtype), config.enable_x64)
    return bind(ops(op), operand, axis=dim, index_dtype=kind, weak_type=False)


def _monoids() -> dict[Any, str]:
    """Functions of two operands that a reduction op knows."""
    names_of = {"reduce_sum": ("add",), "reduce_prod": ("mul", "multiply"), "reduce_max": ("max", "maximum"),
             "reduce_min": ("min", "minimum")}  # fmt: skip
    monoids: dict[Any, str] = {}
    for op, names in names_of.items():
        rooms: tuple[Any, ...] = (elementwise, mnp)
        for room, name in itertools.product(rooms, names):
            if hasattr(room, name) and not (room is mnp and name in ("max", "min")):
                monoids[usual(getattr(room, name))] = op
    return monoids


@takes_out_sharding
def reduce(operands: Any, init_values: Any, computation: Callable[..., Any], dimensions: Sequence[int]) -> Any:
    """`jax.lax.reduce`: `computation` (associative) over dims, started from init_values. Trees of arrays are reduced
    together; additions, products and extremes of one array are one op."""
    leaves, structure = tree.flatten(operands)
    starts = tree.leaves(init_values)
    axes = normal_axes(tuple(dimensions), len(shape_of(leaves[0])))
    op = _monoids().get(usual(computation))
    if len(leaves) == 1 and op is not None and _has_reduction(op, dtype_of(leaves[0])):
        reduced, start = bind(ops(op), asarray(leaves[0]), axes=axes), cast(starts[0], dtype_of(leaves[0]))
        if not _is_identity(start, op):
            reduced = computation(start, reduced)
        return tree.unflatten(structure, [reduced])

    def combine(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
        return combined(computation, structure, xs, ys)

    last = [_merged(x, axes) for x in leaves]
    kept = shape_of(last[0])[:-1]
    starts = [mnp.broadcast_to(cast(s, dtype_of(x)), kept) for s, x in zip(starts, leaves, strict=True)]
    return tree.unflatten(structure, _fold(last, starts, combine))


def _has_reduction(op: str, dtype: np.dtype[Any]) -> bool:
    """Complex numbers have an order in max and min alone."""
    return dtype != np.bool_ and not (dtype.kind == "c" and op in ("reduce_max", "reduce_min"))


def _is_identity(start: Any, op: str) -> bool:
    """Whether the start is known, and changes nothing: then it takes no share of a derivative either, where all is -inf."""
    return isinstance(start, np.ndarray) and bool(start == identity_element(op.removeprefix("reduce_"), start.dtype))


def _merged(x: Any, axes: tuple[int, ...]) -> Any:
    """The dims of `axes` as one last dim."""
    rank = len(shape_of(x))
    moved = moveaxis(x, axes, tuple(range(rank - len(axes), rank)))
    kept = shape_of(moved)[: rank - len(axes)]
    return reshape(moved, (*kept, math.prod(shape_of(moved)[len(kept) :])))


def _fold(xs: list[Any], starts: list[Any], combine: Callable[..., list[Any]]) -> list[Any]:
    """Reduce the last dim: halves are combined until one element is left; the odd one out joins the start."""
    result = starts
    dim = len(shape_of(xs[0])) - 1
    while (extent := shape_of(xs[0])[-1]) > 1:
        half = extent // 2
        if extent % 2:
            result = combine(result, [mnp.squeeze(slice_dim(x, extent - 1, extent, axis=dim), -1) for x in xs])
        first, second = ([slice_dim(x, a, a + half, axis=dim) for x in xs] for a in (0, half))
        xs = combine(first, second)
    return combine(result, [mnp.squeeze(x, -1) for x in xs]) if shape_of(xs[0])[-1] else result


_EXTREMES = {"cummax": elementwise.max, "cummin": elementwise.min}


def _cumulative(op: str) -> Any:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        operand = asarray(operand)
        dim = dim_from_front(op, axis, len(shape_of(operand)))
        if op in _EXTREMES and kind_of(dtype_of(operand)) == "c":  # complex numbers have an order in max and min alone
            return associative_scan(_EXTREMES[op], operand, reverse=bool(reverse), axis=dim)
        return bind(ops(op), operand, axis=dim, reverse=bool(reverse))

    function.__name__ = op
    function.__doc__ = f"`jax.lax.{op}`."
    return function


cumsum, cumprod, cummax, cummin = (_cumulative(n) for n in ("cumsum", "cumprod", "cummax", "cummin"))


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """log(cumsum(exp(x))) without overflow."""
    operand = asarray(operand)
    dim = dim_from_front("cumlogsumexp", axis, len(shape_of(operand)))
    return associative_scan(mnp.logaddexp, operand, reverse=reverse, axis=dim)


def associative_scan(fn: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """`jax.lax.associative_scan`: all prefixes x0, f(x0, x1), … of a tree of arrays.

    Prefixes of pairs give every other prefix, and with one more element each the rest: less than 2 n elements are combined,
    in 2 log2(n) rounds (Brent and Kung, "A regular layout for parallel adders", 1982). Elements 2i and 2i + 1 are of one
    device where a dim is sharded evenly, so that a round sends one element over each border.
    """
    check_callable("associative_scan", fn)
    leaves, structure = tree.flatten(elems)
    axes = [normal_axis(axis, len(shape_of(x))) for x in leaves]
    xs = [asarray(x) for x in leaves]
    extents = {shape_of(x)[a] for x, a in zip(xs, axes, strict=True)}
    if len(extents) > 1:
        raise ValueError(f"associative_scan: the arrays have different extents along axis {axis}: {sorted(extents)}")
    if reverse:
        xs = [flip(x, a) for x, a in zip(xs, axes, strict=True)]

    def combine(early: list[Any], late: list[Any]) -> list[Any]:
        return tree.leaves(fn(tree.unflatten(structure, early), tree.unflatten(structure, late)))

    xs = _prefixes(combine, xs, axes, max(extents, default=0))
    if reverse:
        xs = [flip(x, a) for x, a in zip(xs, axes, strict=True)]
    return tree.unflatten(structure, xs)


def _prefixes(combine: Callable[..., list[Any]], xs: list[Any], axes: list[int], extent: int) -> list[Any]:
    """Of x0 … x5: odd ones are the prefixes of (x0 x1), (x2 x3), (x4 x5); even ones x0, odd0 x2, odd1 x4. A x6 comes last."""
    if extent < 2:
        return xs

    def part(xs: list[Any], start: int, limit: int) -> list[Any]:
        return [slice_dim(x, start, limit, axis=a) for x, a in zip(xs, axes, strict=True)]

    def put(xs: list[Any], ys: list[Any]) -> list[Any]:
        return [concatenate([x, y], a) for x, y, a in zip(xs, ys, axes, strict=True)]

    if extent % 2:
        prefixes = _prefixes(combine, part(xs, 0, extent - 1), axes, extent - 1)
        return put(prefixes, combine(part(prefixes, extent - 2, extent - 1), part(xs, extent - 1, extent)))
    half = extent // 2
    even, odd = ([_every_other(x, first, a) for x, a in zip(xs, axes, strict=True)] for first in (0, 1))
    odd = _prefixes(combine, combine(even, odd), axes, half)
    if half > 1:
        even = put(part(even, 0, 1), combine(part(odd, 0, half - 1), part(even, 1, half)))
    return [_interleave(x, y, a) for x, y, a in zip(even, odd, axes, strict=True)]


def _every_other(x: Any, first: int, axis: int) -> Any:
    """One of every pair: a slice of pairs, because these stand together on a device and slices with strides need not."""
    shape = shape_of(x)
    half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
    pairs = reshape(x, (*half[: axis + 1], 2, *half[axis + 1 :]))
    return reshape(slice_dim(pairs, first, first + 1, axis=axis + 1), half)


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """even0, odd0, even1, …"""
    shape = shape_of(odd)
    pairs = [reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for x in (even, odd)]
    return reshape(concatenate(pairs, axis + 1), (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]))


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """`jax.lax.sort`: an array, or several (a tuple) together by the first num_keys of them."""
    several = isinstance(operand, tuple | list)
    operands = [asarray(x) for x in (operand if several else [operand])]
    if not isinstance(num_keys, int | np.integer) or not 1 <= num_keys <= len(operands):
        raise ValueError(
            f"lax.sort: num_keys is {num_keys}, there are {len(operands)} operands\n  at {line_of(user_source())}\n"
            "  fix: a number from 1 to that of the operands"
        )
    dim = normal_axis(dimension, len(shape_of(operands[0])))
    results = sort_together(operands, dim, int(num_keys), is_stable)
    return tuple(results) if several else results[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Both, sorted by the keys."""
    return sort((keys, values), dimension, is_stable)


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """`jax.lax.approx_max_k`, exact: the k largest along a dim and their places, whatever `recall_target` asks for.

    ValueError for aggregate_to_topk=False, whose result has as many candidates as the machine finds handy.
    """
    del recall_target, reduction_input_size_override
    operand = asarray(operand)
    if not shape_of(operand):
        raise TypeError(f"approx_max_k: an array of 0 dims has nothing to choose from\n  at {line_of(user_source())}")
    if not is_float(dtype_of(operand)):
        raise ValueError(
            f"approx_max_k: takes floating numbers, got {dtype_of(operand)}\n  at {line_of(user_source())}\n  fix: lax.top_k"
        )
    if not aggregate_to_topk:
        raise ValueError("approx_max_k: only aggregate_to_topk=True is supported, where the result has k elements")
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """`jax.lax.approx_min_k`, exact: the k smallest along a dim, smallest first, and their places; see approx_max_k."""
    options = recall_target, reduction_input_size_override, aggregate_to_topk
    operand = asarray(operand)
    turned = elementwise.neg(operand) if is_float(dtype_of(operand)) else operand  # which approx_max_k refuses
    values, places = approx_max_k(turned, k, reduction_dimension, *options)
    return [elementwise.neg(values), places]
