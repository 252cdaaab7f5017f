"""Running totals along one dim: cumsum, cumprod, cummax, cummin. Params: axis, and reverse for totals from the end.

Done in blocks: a running total within every block, the same over the blocks' totals, and both combined. That is O(n)
work in few steps, each a reduce_window of a few places, where one reduce_window of the whole extent may be O(n²).
Targets whose compiler blocks it by itself get that one.

Along a sharded dim, two passes: every device scans its shard, the shards' totals are gathered (one element per line and
shard), and what stands before the shard is combined into what stands before each of its blocks. So neither the total nor
that costs a pass over the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers, literal
from meshjit.ops.base.arithmetic import add, maximum, minimum, multiply
from meshjit.ops.base.batching import shifted
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, iota, scalar, spread
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.reduction import reduce_max, reduce_min, reduce_prod, reduce_sum, restore
from meshjit.ops.base.shape import broadcast_in_dim, expand, require_one, reshape
from meshjit.ops.collective.collectives import all_gather
from meshjit.ops.slicing.concatenation import concatenate, reverse
from meshjit.ops.slicing.halos import cut, shard_axes
from meshjit.ops.slicing.slices import pad
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_SMALL = 1 << 17  # bytes of what may be written out to save a kernel

# f32[262144, 16] takes 147 thousand cycles of a TPU v5e, 4.8 times reading it (libtpu 0.0.52); f32[64, 4096] on a CPU 1.1 ms, in
# which two cores read it five times.
_PASSES = 4.0

_REDUCERS = {"sum": reduce_sum, "prod": reduce_prod, "max": reduce_max, "min": reduce_min}


def _cumulative(name: str, kind: str, scan: Callable[..., Any], combine: Op, accepts: str, **rules: Any) -> Op:
    def type_rule(in_types: Types, params: Params) -> Types:
        type, axis = require_one(name, in_types), params["axis"]
        require_param(0 <= axis < type.rank, name, "axis", axis, f"operand {type} has {type.rank} dims")
        require(DTYPE_CLASSES[accepts](type.dtype), name, f"takes {accepts} operands, was given {type}")
        return (type,)

    def run(x: Array, axis: int, reverse: bool) -> Array:
        wide = np.flip(widened(x), axis) if reverse else widened(x)
        with np.errstate(all="ignore"):
            out = scan(wide, axis=axis, dtype=wide.dtype)
            return (np.flip(out, axis) if reverse else out).astype(x.dtype, copy=False)

    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        dim = dims[0] or 0
        return [op(operands[0], axis=shifted(params["axis"], dim), reverse=params["reverse"])], [dim]

    def emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
        type, axis, backwards = outs[0], params["axis"], params["reverse"]
        block = 0 if e.target.blocks_running_totals else _block(type, axis, e.target.running_total_block)
        if block:
            return e.program(block_program(type, axis, backwards, block), operands)
        return [_emit_window(e, operands[0], type, axis, backwards, kind) if type.shape[axis] > 1 else operands[0]]

    @functools.lru_cache(maxsize=256)
    def block_program(type: TensorType, axis: int, backwards: bool, block: int) -> Program:
        with Builder(name) as builder:
            return builder.build([_in_blocks(builder.input(type), op, combine, kind, axis, backwards, block)])

    def partition(local: LocalEquation) -> list[Var]:
        return [_partition_scan(local, op, combine, kind)]

    def samples() -> list[Sample]:
        calls = [((8, 3), 0), ((3, 5), 1), ((40,), 0), ((1, 2), 0), ((0, 2), 0), ((2, 300), 1)]
        dtypes = [d for d in ("f32", "i32", "c64", "bf16") if DTYPE_CLASSES[accepts](DTYPES[d])]
        types = [(TensorType(shape, DTYPES[d]), axis) for d in dtypes for shape, axis in calls]
        return [Sample((t,), {"axis": a, "reverse": r}, _scan_fill(kind)) for t, a in types for r in (False, True)]

    op = Op(
        name=name,
        type_rule=type_rule,
        factor_rule=_rule,
        evaluate=run,
        emit=emit,
        samples=samples,
        batch=batch,
        partition=partition,
        fills_registers=True,
        passes=lambda in_types, params: _PASSES if in_types[0].shape[params["axis"]] > 1 else 0.0,
        **rules,
    )
    return op


def _scan_fill(kind: str) -> Any:
    """Small numbers, and for products ones and minus ones but few others: products of 300 must not overflow."""

    def fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
        if kind != "prod":
            return generator.integers(-2, 3, type.shape)
        return generator.choice([-1, 1, 1, 2] if type.size < 50 else [-1, 1], type.shape)

    return fill


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    names = factor_names(in_types[0].rank)
    dims = tuple((n,) for n in names)
    rule = FactorRule((dims,), (dims,), {names[params["axis"]]: "permute"})
    return rule.with_sizes([in_types[0].shape], [out_types[0].shape])


# -- blocks


def _block(type: TensorType, axis: int, longest: int) -> int:
    """How long blocks are, of which as few as possible and alike; 0 where one window does."""
    extent = type.shape[axis]
    return 0 if extent <= longest else -(-extent // -(-extent // longest))


def _in_blocks(
    x: Var, op: Op, combine: Op, kind: str, axis: int, backwards: bool, block: int, begin: Callable[[Var], Var] | None = None
) -> Var:
    """Worked example, blocks of 2: 1 2 3 4 5 → [1 3] [3 7] [5 5]; totals 3 7 5 → before: 0 3 10 → 1 3 6 10 15.

    `begin` is given the total of all, of extent 1 along the axis, and gives along it what stands before the first block."""
    n, neutral = x.shape[axis], scalar(identity_element(kind, x.dtype), x.dtype)
    count = -(-n // block)
    spare = count * block - n
    padded = _padded(x, axis, (spare, 0) if backwards else (0, spare), neutral)
    blocks = reshape(padded, shape=(*x.shape[:axis], count, block, *x.shape[axis + 1 :]))
    totals = _REDUCERS[kind](blocks, axes=(axis + 1,))
    others = None if begin is None else begin(expand(_REDUCERS[kind](totals, axes=(axis,)), axis))
    candidates = count + (0 if others is None else others.shape[axis])
    if totals.type.nbytes * candidates <= max(_SMALL, x.type.nbytes):
        before = _each_before(totals, others, kind, axis, backwards, neutral)
    else:
        running = op(totals, axis=axis, reverse=backwards)
        before = _padded(running, axis, (-1, 1) if backwards else (1, -1), neutral)
        if others is not None:
            before = combine(_spread_along(_REDUCERS[kind](others, axes=(axis,)), before.shape, axis), before)
    inner = op(blocks, axis=axis + 1, reverse=backwards)
    whole = reshape(combine(_spread_along(before, inner.shape, axis + 1), inner), shape=padded.shape)
    return cut(whole, axis, spare, spare + n) if backwards else cut(whole, axis, 0, n)


def _each_before(totals: Var, others: Var | None, kind: str, axis: int, backwards: bool, neutral: Var) -> Var:
    """What stands before each of a few, every one by itself: fewer kernels than a running total has."""
    count, more = totals.shape[axis], 0 if others is None else others.shape[axis]
    if others is not None:
        totals = concatenate(*((totals, others) if backwards else (others, totals)), dimension=axis)
    shape = (*totals.shape[:axis], count, *totals.shape[axis:])
    here, there = (iota(dtype=np.dtype(np.int32), shape=shape, dimension=d) for d in (axis, axis + 1))
    if backwards:
        is_before = compare(there, here, direction="GT")
    else:
        is_before = compare(there, add(here, full_like(here, more)), direction="LT")
    each = broadcast_in_dim(totals, shape=shape, dimensions=tuple(d for d in range(len(shape)) if d != axis))
    return _REDUCERS[kind](select(is_before, each, spread(neutral, shape)), axes=(axis + 1,))


def _padded(x: Var, axis: int, sides: tuple[int, int], neutral: Var) -> Var:
    if not any(sides):
        return x
    low, high = (tuple(_along(x.rank, axis, n, 0)) for n in sides)
    return pad(x, neutral, low=low, high=high, interior=(0,) * x.rank)


# -- emit


def _along(rank: int, axis: int, value: int, other: int) -> list[int]:
    return [value if d == axis else other for d in range(rank)]


def _emit_window(e: Any, x: str, type: TensorType, axis: int, backwards: bool, kind: str) -> str:
    """A reduce_window as long as the dim, padded on the side where totals begin. XLA makes blocks of such windows by
    itself. Where its blocks are poor (more and smaller steps), the window has one place more, which is padding always."""
    n, ones = type.shape[axis], integers([1] * type.rank)
    more = 0 if e.target.blocks_running_totals else 1
    sides = np.zeros((type.rank, 2), np.int64)
    sides[axis, 1 if backwards else 0] = n - 1 + more
    attributes = (
        f"base_dilations = {ones}, padding = {literal(sides)} : tensor<{type.rank}x2xi64>, window_dilations = {ones}, "
        f"window_dimensions = {integers(_along(type.rank, axis, n + more, 1))}, window_strides = {ones}"
    )
    neutral = e.constant(np.asarray(identity_element(kind, type.dtype)))
    return e.op("reduce_window", [x, neutral], [type], attributes, [e.reducer(kind, type.dtype)])[0]


# -- partition


def _partition_scan(local: LocalEquation, op: Op, combine: Op, kind: str) -> Var:
    (var,), axis, backwards = local.operands, local.params["axis"], local.params["reverse"]
    axes = shard_axes(local, factor_names(var.rank)[axis])
    if not axes or 0 in var.shape:
        return op(var, axis=axis, reverse=backwards)
    neutral = identity_element(kind, var.dtype)
    if backwards:  # forwards, padding stands behind everything and reaches nothing
        var = local.mask(var, axis, local.eqn.inputs[0].shape[axis], axes, neutral)

    def earlier(total: Var) -> Var:
        size = local.mesh.axes_size(axes)
        totals = all_gather(total, axes=tuple(axes), size=size, dim=axis)
        here = spread(local.index(axes), totals.shape)
        places = iota(dtype=here.dtype, shape=totals.shape, dimension=axis)
        is_earlier = compare(places, here, direction="GT" if backwards else "LT")
        return select(is_earlier, totals, full_like(totals, neutral))

    block = _block(var.type, axis, local.target.running_total_block)
    if block:
        return _in_blocks(var, op, combine, kind, axis, backwards, block, earlier)
    scanned = op(var, axis=axis, reverse=backwards)
    last = 0 if backwards else var.shape[axis] - 1
    before = _REDUCERS[kind](earlier(cut(scanned, axis, last, last + 1)), axes=(axis,))
    return combine(_spread_along(before, scanned.shape, axis), scanned)


def _spread_along(var: Var, shape: Sequence[int], axis: int) -> Var:
    return restore(var, shape, (axis,))


# -- derivatives


def _sum_transpose(cotangents, operands, in_types, params):
    return [cumsum(cotangents[0], axis=params["axis"], reverse=not params["reverse"])]


cumsum = _cumulative("cumsum", "sum", np.cumsum, add, "number", linear=((0,),), transpose=_sum_transpose)


def _pair_scan(x: Var, t: Var, axis: int, derivative: Callable[..., tuple[Var, Var]]) -> Var:
    """The tangent of a running total of (value, tangent) pairs, in log2(n) steps: after a step of k, every element has
    seen 2k elements. `derivative(earlier, later)` combines two pairs."""
    n, k = x.shape[axis], 1
    while k < n:
        earlier = (cut(x, axis, 0, n - k), cut(t, axis, 0, n - k))
        later = (cut(x, axis, k, n), cut(t, axis, k, n))
        value, tangent = derivative(earlier, later)
        x = concatenate(cut(x, axis, 0, k), value, dimension=axis)
        t = concatenate(cut(t, axis, 0, k), tangent, dimension=axis)
        k *= 2
    return t


def _scan_jvp(derivative: Callable[..., tuple[Var, Var]]) -> Any:
    def jvp(primals, tangents, outs, params):
        (x,), (t,), axis = primals, tangents, params["axis"]
        if t is None:
            return [None]
        if not params["reverse"]:
            return [_pair_scan(x, t, axis, derivative)]
        x, t = reverse(x, dimensions=(axis,)), reverse(t, dimensions=(axis,))
        return [reverse(_pair_scan(x, t, axis, derivative), dimensions=(axis,))]

    return jvp


def _product_pairs(earlier: tuple[Var, Var], later: tuple[Var, Var]) -> tuple[Var, Var]:
    (a, da), (b, db) = earlier, later
    return multiply(a, b), add(multiply(da, b), multiply(a, db))


def _choice_pairs(choose: Op) -> Any:
    def combine(earlier: tuple[Var, Var], later: tuple[Var, Var]) -> tuple[Var, Var]:
        (a, da), (b, db) = earlier, later
        chosen = choose(a, b)
        (tangent,) = choose.jvp((a, b), (da, db), (chosen,), {})
        assert tangent is not None, "both operands have a tangent"
        return chosen, tangent

    return combine


cumprod = _cumulative("cumprod", "prod", np.cumprod, multiply, "number", jvp=_scan_jvp(_product_pairs))
cummax = _cumulative("cummax", "max", np.maximum.accumulate, maximum, "ordered", jvp=_scan_jvp(_choice_pairs(maximum)))
cummin = _cumulative("cummin", "min", np.minimum.accumulate, minimum, "ordered", jvp=_scan_jvp(_choice_pairs(minimum)))


def product_of_others(x: Var, axis: int) -> Var:
    """At every place the product of all other elements along `axis`."""
    one = scalar(1, x.dtype)
    low = tuple(1 if d == axis else 0 for d in range(x.rank))
    none, back = (0,) * x.rank, tuple(-n for n in low)
    before = pad(cumprod(x, axis=axis, reverse=False), one, low=low, high=back, interior=none)
    behind = pad(cumprod(x, axis=axis, reverse=True), one, low=back, high=low, interior=none)
    return multiply(before, behind)
