"""`searchsorted`: where values belong in sorted lines. Params: side ("left": before equal entries, "right": behind them),
batch_dims (leading dims that table and values share), method ("scan": halving; "compare_all": every entry with every
value; "default": whichever suits the extent).

The place of a value is the number of entries before it. So on a sharded line every device counts in its shard, and the
places are the sums of the counts: the table never moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.access import by_index
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Search, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float
from meshjit.emit.emitter import integers
from meshjit.ops.base.arithmetic import minimum, multiply, subtract
from meshjit.ops.base.batching import align, move
from meshjit.ops.base.comparison import clamp
from meshjit.ops.base.constants import emit_splat, scalar, spread
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened, zero_jvp
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.slicing.halos import shard_axes
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
_I32 = np.dtype(np.int32)
METHODS = ("default", "scan", "compare_all")
_COMPARES = {"default": None, "scan": False, "compare_all": True}  # None: as the target does


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "searchsorted", f"takes a table and values, was given {len(in_types)} operands")
    (table, values), count, side = in_types, params["batch_dims"], params["side"]
    require_param(side in ("left", "right"), "searchsorted", "side", repr(side), "write left or right")
    require_param(params["method"] in METHODS, "searchsorted", "method", params["method"], f"write one of {METHODS}")
    require(table.rank == count + 1, "searchsorted", f"table {table} must have {count} batch dims and one of entries")
    fits = values.shape[:count] == table.shape[:count]
    require(fits, "searchsorted", f"the first {count} dims of table {table} and values {values} differ")
    require(table.dtype == values.dtype, "searchsorted", f"table {table} and values {values} differ in dtype")
    require(DTYPE_CLASSES["ordered"](table.dtype), "searchsorted", f"takes ordered operands, was given {table}")
    return (values.with_dtype(_I32),)


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`a n, a m -> a m | sum n`."""
    (table, values), count = in_types, params["batch_dims"]
    names = factor_names(values.rank + 1)
    value_dims = tuple((n,) for n in names[:-1])
    rule = FactorRule(((*value_dims[:count], (names[-1],)), value_dims), (value_dims,), {names[-1]: "sum"})
    return rule.with_sizes([table.shape, values.shape], [values.shape])


def _evaluate(table: Array, values: Array, side: Any, batch_dims: int, method: str) -> Array:
    """NumPy has nan as the largest, too."""
    out = np.empty(values.shape, np.int32)
    wide, wide_values = widened(table), widened(values)
    for place in np.ndindex(values.shape[:batch_dims]):
        out[place] = np.searchsorted(wide[place], wide_values[place], side)
    return out


# -- StableHLO


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    (table, values), extent, compares = operands, ins[0].shape[-1], _COMPARES[params["method"]]
    if not extent or not outs[0].size:
        return [_full(e, outs[0], 0)]
    run = _emit_all_pairs if (e.target.compares(extent, outs[0].size) if compares is None else compares) else _emit_halving
    return [run(e, table, values, params["batch_dims"], params["side"])]


def _emit_all_pairs(e: Any, table: str, values: str, count: int, side: str) -> str:
    """All entries before a value, counted; XLA makes one loop of it. Where it takes longer sums apart, entries are in rows."""
    entries, result = e.types[table], e.types[values].with_dtype(_I32)
    row = e.target.longest_sum
    if entries.shape[-1] <= row:
        return _emit_counted(e, table, values, count, side)
    full = entries.shape[-1] // row * row
    total = e.op("reshape", [_first(e, table, 0, full)], [entries.with_shape((*entries.shape[:-1], full // row, row))])[0]
    total = _emit_counted(e, total, values, count, side)
    if full == entries.shape[-1]:
        return total
    rest = _emit_counted(e, _first(e, table, full, entries.shape[-1]), values, count, side)
    return e.op("add", [total, rest], [result])[0]


def _first(e: Any, table: str, start: int, limit: int) -> str:
    """Entries `start` to `limit` of every line."""
    type = e.types[table]
    lead = len(type.shape) - 1
    bounds = [[0] * lead + [start], [*type.shape[:-1], limit], [1] * (lead + 1)]
    names = ("start_indices", "limit_indices", "strides")
    attributes = ", ".join(f"{n} = {integers(x)}" for n, x in zip(names, bounds, strict=True))
    return e.op("slice", [table], [type.with_shape((*type.shape[:-1], limit - start))], attributes)[0]


def _emit_counted(e: Any, table: str, values: str, count: int, side: str) -> str:
    """The number of entries, in the dims behind the first `count`, before every value."""
    entries, value_type = e.types[table], e.types[values]
    shape, rank = (*entries.shape, *value_type.shape[count:]), len(entries.shape)
    pairs = value_type.with_shape(shape)
    wide_table = _repeat(e, table, pairs, range(rank))
    wide_values = _repeat(e, values, pairs, [*range(count), *range(rank, len(shape))])
    before = _emit_before(e, wide_table, wide_values, side)
    counted = e.op("convert", [before], [pairs.with_dtype(_I32)])[0]
    zero = e.constant(np.zeros((), _I32))
    dimensions = f"dimensions = {integers(list(range(count, rank)))}"
    return e.op("reduce", [counted, zero], [value_type.with_dtype(_I32)], dimensions, [e.reducer("sum", _I32)])[0]


def _emit_halving(e: Any, table: str, values: str, count: int, side: str) -> str:
    """A loop of as many rounds as it takes: before low all entries are before the value, from high on none is."""
    extent, places = e.types[table].shape[-1], e.types[values].with_dtype(_I32)
    counter = TensorType((), _I32)
    types = [counter, e.types[table], e.types[values], places, places]
    state = [e.constant(np.zeros((), _I32)), table, values, _full(e, places, 0), _full(e, places, extent)]

    def condition(inner: Any, names: list[str]) -> Sequence[str]:
        return [_compare(inner, names[0], inner.constant(np.array(extent.bit_length(), _I32)), "LT")]

    def step(inner: Any, names: list[str]) -> Sequence[str]:
        round_, table, values, low, high = names
        following = inner.op("add", [round_, inner.constant(np.ones((), _I32))], [counter])
        return [*following, table, values, *_emit_half(inner, table, values, low, high, count, side)]

    return e.op("while", state, types, regions=[e.region(types, condition), e.region(types, step)])[3]


def _emit_half(e: Any, table: str, values: str, low: str, high: str, count: int, side: str) -> list[str]:
    """low and high after one round more."""
    places = e.types[low]
    one, flags = _full(e, places, 1), _flags(places)
    middle = e.op("shift_right_logical", [e.op("add", [low, high], [places])[0], one], [places])[0]
    entry = _emit_entries(e, table, middle, count)
    right = e.op("and", [_compare(e, low, high, "LT"), _emit_before(e, entry, values, side)], [flags])[0]
    behind = e.op("add", [middle, one], [places])[0]
    return [e.op("select", [right, *pair], [places])[0] for pair in ((behind, low), (high, middle))]


def _emit_entries(e: Any, table: str, places: str, count: int) -> str:
    """The entries at these places; those beyond the end are moved inside."""
    type = e.types[places]
    rank, batch = len(type.shape), list(range(count))
    indices = e.op("reshape", [places], [type.with_shape((*type.shape, 1))])[0]
    numbers = (
        f"#stablehlo.gather<collapsed_slice_dims = [{count}], operand_batching_dims = {batch}, "
        f"start_indices_batching_dims = {batch}, start_index_map = [{count}], index_vector_dim = {rank}>"
    )
    attributes = f"dimension_numbers = {numbers}, indices_are_sorted = false, slice_sizes = {integers([1] * (count + 1))}"
    return e.op("gather", [table, indices], [type.with_dtype(e.types[table].dtype)], attributes)[0]


def _emit_before(e: Any, entry: str, value: str, side: str) -> str:
    """Whether an entry stands before the place of a value, nan being the largest."""
    before = _compare(e, entry, value, "LT" if side == "left" else "LE")
    if not is_float(e.types[entry].dtype):
        return before
    flags = _flags(e.types[entry])
    behind = _compare(e, value, value, "NE")
    if side == "left":
        behind = e.op("and", [behind, _compare(e, entry, entry, "EQ")], [flags])[0]
    return e.op("or", [before, behind], [flags])[0]


def _compare(e: Any, a: str, b: str, direction: str) -> str:
    word = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
    return e.op("compare", [a, b], [_flags(e.types[a])], word)[0]


def _flags(type: TensorType) -> TensorType:
    return type.with_dtype(np.dtype(np.bool_))


def _repeat(e: Any, name: str, type: TensorType, dims: Sequence[int]) -> str:
    return e.op("broadcast_in_dim", [name], [type], f"broadcast_dimensions = {integers(list(dims))}")[0]


def _full(e: Any, type: TensorType, value: int) -> str:
    return emit_splat(e, type, value)


# -- partition and batching


def _partition(local: LocalEquation) -> list[Var]:
    """Padding is the greatest entry, which keeps the line sorted, and is not counted."""
    (table, values), count = local.operands, local.params["batch_dims"]
    rule = _rule(local.eqn.input_types, local.eqn.output_types, local.params)
    axes = shard_axes(local, rule.operands[0][count][0])
    if not axes or not table.shape[count]:
        return [searchsorted(table, values, **local.params)]
    extent, shard = local.eqn.inputs[0].shape[count], table.shape[count]
    greatest = np.nan if is_float(table.dtype) else identity_element("min", table.dtype)
    counts = searchsorted(local.mask(table, count, extent, axes, greatest), values, **local.params)
    if shard * local.mesh.axes_size(axes) == extent:
        return [counts]
    begin = multiply(local.index(axes), scalar(shard, _I32))
    here = clamp(scalar(0, _I32), subtract(scalar(extent, _I32), begin), scalar(shard, _I32))
    return [minimum(counts, spread(here, counts.shape))]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """Values of many members in one table are just more values."""
    (table, values), count = operands, params["batch_dims"]
    if dims[0] is None:
        assert dims[1] is not None
        return [searchsorted(table, move(values, dims[1], count), **params)], [count]
    table, values = align([table, values], dims)
    return [searchsorted(table, values, **{**params, "batch_dims": count + 1})], [0]


def _fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Few different values, among them nan; the table sorted."""
    values = generator.integers(0, 2 if type.dtype == np.bool_ else 9, type.shape)
    if is_float(type.dtype):
        values = np.where(generator.uniform(size=type.shape) < 0.15, np.nan, values)
    return values if index else np.sort(values, axis=-1)


def _samples() -> list[Sample]:
    calls = [((13,), (7,), 0), ((400,), (3, 2), 0), ((9,), (), 0), ((3, 10), (3, 5), 1), ((2, 3, 300), (2, 3), 2)]
    calls += [((2, 64), (2, 3), 1), ((0,), (4,), 0), ((5,), (0, 2), 0), ((1,), (6,), 0)]
    samples: list[Sample] = []
    for number, (table, values, count) in enumerate(calls):
        for d in ("f32", "i32", "bf16", "u8", "bool")[: 5 if number < 2 else 2]:
            types = (TensorType(table, DTYPES[d]), TensorType(values, DTYPES[d]))
            for side, method in zip(("left", "right", "left"), METHODS, strict=True):
                samples.append(Sample(types, {"side": side, "batch_dims": count, "method": method}, _fill))
    return samples


def _search(in_types: Types, params: Params) -> Search:
    table, values = in_types
    share = values.size / max(1, table.size + values.size)
    return Search(table.shape[-1], values.size, share, _COMPARES[params["method"]])


searchsorted = Op(
    name="searchsorted",
    type_rule=_type,
    factor_rule=_rule,
    access=lambda in_types, out_types, params: by_index(_rule(in_types, out_types, params)),
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    jvp=zero_jvp,
    partition=_partition,
    search=_search,
)
