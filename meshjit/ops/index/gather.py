"""`gather` in StableHLO's full generality, but for the index vector, which is always the last dim of the indices.

Indices are never negative from the end here; that is for the functions that users call. A gather from a sharded dim of
which one element is taken needs no table in one place: every device gives the rows that it owns and zeros elsewhere,
which is a partial sum. (columns.py has the words.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_dtypes import iinfo

from meshjit import ops
from meshjit.core.access import by_index
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType, is_float, is_inexact, is_integer, kind_of
from meshjit.emit.emitter import integers
from meshjit.ops.base.batching import move, shifted
from meshjit.ops.base.constants import emit_splat, zeros
from meshjit.ops.base.families import factor_names, require, require_param, require_zero
from meshjit.ops.index.columns import MODES, Array, Windows, emit_clamped, emit_inside, emit_signed
from meshjit.ops.index.gather_partition import partition_gather
from meshjit.ops.slicing.slices import reduction_of
from sharding.rule import FactorRule

_NAMES = {
    "places": "offset_dims",
    "dropped": "collapsed_slice_dims",
    "batching": "operand_batching_dims",
    "index_batching": "start_indices_batching_dims",
    "columns": "start_index_map",
}


def windows_of(operand: TensorType, params: Params) -> Windows:
    dims = {field: params[name] for field, name in _NAMES.items()}
    return Windows(op="gather", operand=operand.shape, sizes=params["slice_sizes"], **dims)


def fill_of(dtype: np.dtype[Any], value: Any = None) -> Any:
    """What fills a window that is out of bounds; by default nan, the lowest or highest integer, or True."""
    if value is None:
        if is_inexact(dtype):
            value = np.nan
        elif is_integer(dtype):
            value = iinfo(dtype).min if kind_of(dtype) == "i" else iinfo(dtype).max
        else:
            value = True
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 2, "gather", f"takes an operand and indices, was given {len(in_types)} operands")
    operand, indices = in_types
    require_zero("gather", operand)
    sizes, mode = params["slice_sizes"], params["mode"]
    fits = len(sizes) == operand.rank and all(0 <= m <= n for m, n in zip(sizes, operand.shape, strict=True))
    require_param(fits, "gather", "slice_sizes", sizes, f"no window of operand {operand} is that large")
    require_param(mode in MODES, "gather", "mode", repr(mode), f"write one of {', '.join(MODES)}")
    windows = windows_of(operand, params)
    windows.check(operand, indices, _NAMES)
    for d in (*windows.dropped, *windows.batching):
        single = sizes[d] == (min(1, operand.shape[d]) if d in windows.batching else 1)
        require_param(single, "gather", "slice_sizes", sizes, f"of dim {d} of operand {operand} one element is taken")
    return (operand.with_shape(_out_shape(windows, indices)),)


def _out_shape(windows: Windows, indices: TensorType) -> tuple[int, ...]:
    rank = indices.rank - 1 + len(windows.places)
    require_param(
        all(0 <= d < rank for d in windows.places) and list(windows.places) == sorted(set(windows.places)),
        "gather", "offset_dims", windows.places, f"different ascending dims of the result, of rank {rank}, are needed",
    )  # fmt: skip
    inner, outer = iter(windows.kept), iter(indices.shape)
    return tuple(windows.sizes[next(inner)] if d in windows.places else next(outer) for d in range(rank))


def _evaluate(operand: Array, indices: Array, **params: Any) -> Array:
    windows = windows_of(TensorType(operand.shape, operand.dtype), params)
    index, inside = windows.elements(indices)
    out = operand.reshape(operand.shape or (1,))[index]
    if params["mode"] == "fill":
        out = np.where(inside, out, fill_of(operand.dtype, params["fill_value"]))
    rank = out.ndim
    order = [*windows.outer(rank), *windows.places]  # where every dim of `out` belongs
    return np.ascontiguousarray(np.transpose(out, np.argsort(order))) if rank else np.asarray(out)


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    windows, out = windows_of(ins[0], params), outs[0]
    indices = emit_signed(e, operands[1])
    limits = [windows.limits[d] for d in windows.columns]
    # XLA turns a gather of one window into a dynamic-slice, which it may merge with another before it clamps (docs/xla.md).
    clamped = emit_clamped(e, indices, limits) if limits and math.prod(ins[1].shape[:-1]) == 1 else indices
    taken = e.op("gather", [operands[0], clamped], outs, _attributes(windows, ins[1].rank, params))
    if params["mode"] != "fill" or not windows.columns:
        return taken
    inside = emit_inside(e, indices, limits)
    dims = integers(windows.outer(out.rank))
    keep = e.op("broadcast_in_dim", [inside], [out.with_dtype(np.bool_)], f"broadcast_dimensions = {dims}")[0]
    fill = emit_splat(e, out, fill_of(out.dtype, params["fill_value"]))
    return e.op("select", [keep, taken[0], fill], outs)


def _attributes(windows: Windows, index_rank: int, params: Params) -> str:
    numbers = ", ".join(f"{name} = {list(params[name])}" for name in _NAMES.values())
    numbers = f"#stablehlo.gather<{numbers}, index_vector_dim = {index_rank - 1}>"
    is_sorted = str(bool(params["indices_are_sorted"])).lower()
    sizes = integers(windows.sizes)
    return f"dimension_numbers = {numbers}, indices_are_sorted = {is_sorted}, slice_sizes = {sizes}"


# -- placement


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`v d, b 1 -> b d | sum v`: rows of a table. Of a dim of which windows take a part every device gives what it has."""
    (operand, indices), (out,) = in_types, out_types
    windows = windows_of(operand, params)
    names = iter(factor_names(operand.rank + out.rank))
    outer = [(next(names),) for _ in range(indices.rank - 1)]
    source: list[tuple[str, ...]] = [()] * operand.rank
    inner: dict[int, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    for d, (n, m) in enumerate(zip(operand.shape, windows.sizes, strict=True)):
        if d in windows.batching:
            source[d] = outer[windows.index_batching[windows.batching.index(d)]]
        elif n != 1 or d in windows.kept:
            source[d] = (next(names),)
            inner[d] = source[d] if m == n else ()
            if m != n and m > 0:
                kinds[source[d][0]] = reduction_of(operand.dtype)
                inner[d] = (next(names),) if m > 1 else ()
            elif m != n:
                inner[d] = (next(names),)
                kinds[source[d][0]] = kinds[inner[d][0]] = "replicate"
    kept, rest = iter(windows.kept), iter(outer)
    result = tuple(inner[next(kept)] if d in windows.places else next(rest) for d in range(out.rank))
    rule = FactorRule((tuple(source), (*outer, ())), (result,), kinds)
    return rule.with_sizes([operand.shape, indices.shape], [out.shape])


def _partition(local: LocalEquation) -> list[Var]:
    rule = _rule(local.eqn.input_types, local.eqn.output_types, local.params)
    windows, fill = windows_of(local.eqn.inputs[0].type, local.params), local.params["fill_value"]
    return partition_gather(local, rule, windows, fill_of(local.eqn.inputs[0].dtype, fill))


# -- derivatives and batching


def _linear(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    """Filling with anything but zero is not linear."""
    if params["mode"] == "fill" and np.asarray(fill_of(in_types[0].dtype, params["fill_value"]) != 0).any():
        return ()
    return ((0,),)


def _jvp(primals: Sequence[Var], tangents: Sequence[Var | None], outs: Sequence[Var], params: Params) -> Any:
    """What is filled in has no tangent."""
    if tangents[0] is None:
        return [None]
    return [gather(tangents[0], primals[1], **{**params, "fill_value": 0})]


def _transpose(cotangents, operands, in_types, params):
    """Every window's cotangent is added back to where it was taken."""
    dims = {
        "update_window_dims": params["offset_dims"],
        "inserted_window_dims": params["collapsed_slice_dims"],
        "input_batching_dims": params["operand_batching_dims"],
        "scatter_indices_batching_dims": params["start_indices_batching_dims"],
        "scatter_dims_to_operand_dims": params["start_index_map"],
    }
    options = {"kind": "add", "mode": params["mode"], "indices_are_sorted": params["indices_are_sorted"]}
    back = ops.scatter(zeros(in_types[0]), operands[1], cotangents[0], **dims, **options, unique_indices=False)
    return [back, None]


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    (operand, indices), (i, j) = operands, dims
    names = ("collapsed_slice_dims", "operand_batching_dims", "start_index_map")
    new = dict(params)
    if i is not None:
        new |= {name: tuple(shifted(d, i) for d in params[name]) for name in names}
    if j is not None:
        indices = move(indices, j, 0)
        new["start_indices_batching_dims"] = tuple(d + 1 for d in params["start_indices_batching_dims"])
        new["offset_dims"] = tuple(d + 1 for d in params["offset_dims"])
        new["indices_are_sorted"] = False
    if i is None:
        return [gather(operand, indices, **new)], [0]
    sizes = params["slice_sizes"]
    if j is None:
        new["slice_sizes"] = (*sizes[:i], operand.shape[i], *sizes[i:])
        new["offset_dims"], place = _offsets_with(i, operand.rank, indices.rank, new)
        return [gather(operand, indices, **new)], [place]
    new["slice_sizes"] = (*sizes[:i], min(1, operand.shape[i]), *sizes[i:])
    pairs = zip(new["operand_batching_dims"], new["start_indices_batching_dims"], strict=True)
    sides = zip(*sorted([*pairs, (i, 0)]), strict=True)
    new["operand_batching_dims"], new["start_indices_batching_dims"] = map(tuple, sides)
    return [gather(operand, indices, **new)], [0]


def _offsets_with(dim: int, rank: int, index_rank: int, params: Params) -> tuple[tuple[int, ...], int]:
    """The offset dims when `dim` of the operand, of this rank, is a window dim besides; and where that one stands."""
    gone = (*params["collapsed_slice_dims"], *params["operand_batching_dims"])
    before = sum(d < dim for d in range(rank) if d not in gone)
    offsets = params["offset_dims"]
    place = offsets[before] if before < len(offsets) else len(offsets) + index_rank - 1
    return tuple(sorted([place, *(d + (d >= place) for d in offsets)])), place


def _fetches(in_types: Types, params: Params) -> tuple[int, int]:
    operand, indices = in_types
    return math.prod(indices.shape[:-1]), math.prod(windows_of(operand, params).sizes)


# -- samples

_FIELDS = (*_NAMES.values(), "slice_sizes")
CALLS: list[tuple[Any, ...]] = [  # operand, indices, then the params in the order of _FIELDS
    ((8, 6), (5, 1), (1,), (0,), (), (), (0,), (1, 6)),  # rows of a table
    ((8, 6), (4, 3, 1), (0,), (1,), (), (), (1,), (8, 1)),  # columns, the window in front
    ((9, 5), (7, 2), (), (0, 1), (), (), (0, 1), (1, 1)),  # single elements
    ((9, 5), (7, 2), (), (0, 1), (), (), (1, 0), (1, 1)),  # columns the other way round
    ((7, 8), (3, 1), (0, 2), (), (), (), (0,), (3, 8)),  # windows of three rows
    ((4, 8, 6), (4, 5, 1), (2,), (1,), (0,), (0,), (1,), (1, 1, 6)),  # every batch member its own table
    ((6, 4, 5), (3, 4, 6, 1), (1,), (), (0, 1), (2, 1), (2,), (1, 1, 2)),  # batching dims crossed
    ((10,), (1,), (), (0,), (), (), (0,), (1,)),  # x[i]
    ((10,), (1,), (0,), (), (), (), (0,), (1,)),  # x[i:i+1]
    ((6, 5), (4, 0), (1,), (0,), (), (), (), (1, 5)),  # no columns: always the first row
    ((3, 4), (0, 1), (1,), (0,), (), (), (0,), (1, 4)),  # nothing is taken
    ((1, 6), (5, 1), (1,), (0,), (), (), (0,), (1, 6)),  # a table of one row
]


def index_fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Small integers; indices (operand 1) from before the operand to beyond it."""
    low, high = (-2, 11) if index == 1 else (-4, 5)
    if is_float(type.dtype):
        return generator.integers(low, high, type.shape).astype(np.float32).astype(type.dtype)
    return generator.integers(0 if type.dtype.kind in "ub" else low, 2 if type.dtype == np.bool_ else high, type.shape)


def _samples() -> list[Sample]:
    samples: list[Sample] = []
    dtypes = [("f32", "i32", "clip", None), ("f32", "i32", "fill", 3.5), ("i32", "i64", "fill", 7)]
    dtypes += [("c64", "u8", "fill", 0), ("bool", "u32", "clip", None), ("bool", "i8", "fill", None)]
    dtypes += [("u8", "i32", "fill", None), ("bf16", "u64", "clip", None), ("i4", "i32", "fill", None)]
    for number, (shape, index, *rest) in enumerate(CALLS):
        for dtype, index_dtype, mode, fill in dtypes if number < 6 else dtypes[:3]:
            types = (TensorType(shape, DTYPES[dtype]), TensorType(index, DTYPES[index_dtype]))
            options = {"mode": mode, "fill_value": fill, "indices_are_sorted": False}
            samples.append(Sample(types, dict(zip(_FIELDS, rest, strict=True)) | options, index_fill))
    return samples


gather = Op(
    name="gather",
    type_rule=_type,
    factor_rule=_rule,
    access=lambda in_types, out_types, params: by_index(_rule(in_types, out_types, params)),
    whole="the numbers of an index are read together",
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    batch=_batch,
    linear=_linear,
    jvp=_jvp,
    transpose=_transpose,
    partition=_partition,
    touches="part",
    fetches=_fetches,
)
