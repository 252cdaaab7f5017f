"""`scatter` in StableHLO's full generality, but for the index vector, which is always the last dim of the indices.

Every window of the updates is combined with the window of the operand that its index points at: kind "set", "add",
"mul", "min" or "max". A window out of bounds is moved inside ("clip") or left out as a whole. On a sharded operand
every device applies the updates to what it owns; sharded updates make a partial result. (columns.py has the words.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.access import Access, by_index
from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.batching import batch_size, insert, move
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param, widened
from meshjit.ops.index.columns import MODES, Array, Windows
from meshjit.ops.index.gather import CALLS, index_fill
from meshjit.ops.index.scatter_derivatives import NAMES, scatter_jvp, scatter_transpose, windows_of
from meshjit.ops.index.scatter_emission import emit_scatter
from meshjit.ops.index.scatter_partition import partition_scatter
from sharding.rule import FactorRule

_UFUNCS: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_TAKES = {"set": "comparable", "add": "number", "mul": "number", "min": "ordered", "max": "ordered"}


def _type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 3, "scatter", f"takes an operand, indices and updates, was given {len(in_types)} operands")
    operand, indices, updates = in_types
    kind, mode = params["kind"], params["mode"]
    require_param(kind in _TAKES, "scatter", "kind", repr(kind), f"write one of {', '.join(_TAKES)}")
    require_param(mode in MODES, "scatter", "mode", repr(mode), f"write one of {', '.join(MODES)}")
    require(operand.dtype == updates.dtype, "scatter", f"operand {operand} and updates {updates} differ in dtype")
    takes = _TAKES[kind]
    require(DTYPE_CLASSES[takes](operand.dtype), "scatter", f"of kind {kind} takes {takes} operands, not {operand}")
    windows = windows_of(operand, updates, params)
    windows.check(operand, indices, NAMES)
    _check_updates(windows, indices, updates)
    return (operand,)


def _check_updates(windows: Windows, indices: TensorType, updates: TensorType) -> None:
    rank, places = indices.rank - 1 + len(windows.kept), windows.places
    require(updates.rank == rank, "scatter", f"updates {updates} must have rank {rank}: outer dims and window dims")
    fits = all(0 <= d < rank for d in places) and list(places) == sorted(set(places))
    require_param(fits, "scatter", NAMES["places"], places, f"different ascending dims of updates {updates} are needed")
    outer = tuple(updates.shape[d] for d in windows.outer(rank))
    fits = outer == indices.shape[:-1]
    require(fits, "scatter", f"updates {updates} have outer dims {outer}, indices {indices} have {indices.shape[:-1]}")
    for d in windows.kept:
        n, m = windows.operand[d], windows.sizes[d]
        require(m <= n, "scatter", f"windows of {m} elements do not fit into dim {d} of the operand, of extent {n}")
    for d in windows.dropped:
        require(windows.operand[d] > 0, "scatter", f"dim {d} of the operand is empty: it has no window of one element")


def _evaluate(operand: Array, indices: Array, updates: Array, **params: Any) -> Array:
    windows = windows_of(TensorType(operand.shape, operand.dtype), TensorType(updates.shape, updates.dtype), params)
    index, inside = windows.elements(indices)
    order = [*windows.outer(updates.ndim), *windows.places]
    values = np.transpose(updates, order)
    if params["mode"] != "clip" and values.size:
        keep = np.broadcast_to(inside, values.shape)
        index, values = tuple(i[keep] for i in index), values[keep]
    out = np.array(operand).reshape(operand.shape or (1,))
    if params["kind"] == "set":
        out[index] = values
        return out.reshape(operand.shape)
    out = widened(out)
    with np.errstate(all="ignore"):
        _UFUNCS[params["kind"]].at(out, index, widened(values))
        return out.astype(operand.dtype, copy=False).reshape(operand.shape)


# -- placement


def _reduction(kind: str, dtype: np.dtype[Any]) -> str:
    """How results of different updates are put together; of updates that set, only one is left for every element."""
    if dtype == np.bool_:
        return {"min": "and", "max": "or", "set": "or"}[kind]
    return {"add": "sum", "mul": "prod", "min": "min", "max": "max", "set": "sum"}[kind]


def _rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    """`v d, b 1, b d -> v d | sum b`: rows added to a table. Each device writes what falls into its shard of a dim."""
    operand, indices, updates = in_types
    windows = windows_of(operand, updates, params)
    names = iter(factor_names(operand.rank + updates.rank))
    outer = [(next(names),) for _ in range(indices.rank - 1)]
    target: list[tuple[str, ...]] = [()] * operand.rank
    inner: dict[int, tuple[str, ...]] = {}
    reduction = _reduction(params["kind"], operand.dtype)
    kinds = {f: reduction for i, (f,) in enumerate(outer) if i not in windows.index_batching}
    for d, (n, m) in enumerate(zip(operand.shape, windows.sizes, strict=True)):
        if d in windows.batching:
            target[d] = outer[windows.index_batching[windows.batching.index(d)]]
        elif n != 1 or d in windows.kept:
            target[d] = (next(names),)
            inner[d] = target[d] if m == n else ()
            if m not in (1, n):
                inner[d] = (next(names),)
                kinds[inner[d][0]] = reduction if m else "replicate"
    kept, rest = iter(windows.kept), iter(outer)
    update_dims = tuple(inner[next(kept)] if d in windows.places else next(rest) for d in range(updates.rank))
    rule = FactorRule((tuple(target), (*outer, ()), update_dims), (tuple(target),), kinds)
    return rule.with_sizes([t.shape for t in in_types], [operand.shape])


def _access(in_types: Types, out_types: Types, params: Params) -> tuple[Access, ...]:
    """Updates go to places of the result along the dims of which they are parts."""
    rule = _rule(in_types, out_types, params)
    (access,), window_factors = by_index(rule), {name for dim in rule.operands[2] for name in dim}
    written = {d for d, dim in enumerate(rule.results[0]) if window_factors.isdisjoint(dim)}
    return (replace(access, positions=access.positions | written),)


def _partition(local: LocalEquation) -> list[Var]:
    rule = _rule(local.eqn.input_types, local.eqn.output_types, local.params)
    return partition_scatter(local, rule, windows_of(local.eqn.inputs[0].type, local.eqn.inputs[2].type, local.params))


# -- linearity and batching


def _linear(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    kind, dtype = params["kind"], in_types[0].dtype
    if dtype == np.bool_ or kind in ("min", "max"):
        return ()
    if kind == "mul":
        return ((0,),)
    return ((0, 2),) if kind == "add" or params["unique_indices"] else ()


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    """With indices alike for all members the batch is one more window dim, else a batching dim."""
    size = batch_size(operands, dims)
    operand, updates = (
        insert(v, 0, size) if d is None else move(v, d, 0) for v, d in zip(operands[::2], dims[::2], strict=True)
    )
    shifting = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_dims_to_operand_dims")
    new = dict(params) | {name: tuple(d + 1 for d in params[name]) for name in shifting}
    if dims[1] is None:
        new["update_window_dims"] = (0, *new["update_window_dims"])
        return [scatter(operand, operands[1], updates, **new)], [0]
    new["input_batching_dims"] = (0, *new["input_batching_dims"])
    new["scatter_indices_batching_dims"] = (0, *(d + 1 for d in params["scatter_indices_batching_dims"]))
    new["indices_are_sorted"] = False
    return [scatter(operand, move(operands[1], dims[1], 0), updates, **new)], [0]


def _split(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> list[Var] | None:
    """A dim of indices and updates as two: the updates come in the same order. None for a dim of windows, which indices lack."""
    _, index, update = dims
    if index is None or update is None:
        return None
    new = dict(params) | {
        "update_window_dims": tuple(d + (d > update) for d in params["update_window_dims"]),
        "scatter_indices_batching_dims": tuple(d + (d > index) for d in params["scatter_indices_batching_dims"]),
    }
    return [scatter(*operands, **new)]


def _fetches(in_types: Types, params: Params) -> tuple[int, int]:
    """Each is read and written."""
    operand, indices, updates = in_types
    return 2 * math.prod(indices.shape[:-1]), math.prod(windows_of(operand, updates, params).sizes)


# -- samples


def _samples() -> list[Sample]:
    """The gathers' samples, written back."""
    samples: list[Sample] = []
    kinds = [("add", "f32", "i32", "fill"), ("add", "f32", "i64", "clip")]
    kinds += [("set", "f32", "i32", "fill"), ("max", "f32", "i32", "clip")]
    more = [("mul", "i32", "u8", "fill"), ("min", "u8", "i8", "fill"), ("max", "bool", "u32", "clip")]
    more += [("add", "c64", "u64", "fill"), ("set", "bool", "i32", "clip"), ("mul", "f32", "i32", "clip")]
    more += [("add", "bf16", "i32", "fill")]
    for number, (shape, index, *dims, sizes) in enumerate(CALLS):
        for kind, dtype, index_dtype, mode in kinds + more if number < 6 else kinds:
            samples.append(_sample(shape, index, dims, sizes, (kind, dtype, index_dtype, mode), index_fill, False))
        if number in (1, 4):
            for kind in ("set", "mul"):
                call = (kind, "f32", "i32", "fill")
                samples.append(_sample(shape, (1, 1), dims, sizes, call, index_fill, True, window_rank=index))
    return samples


def _sample(shape, index, dims, sizes, call, fill, unique, window_rank=None):
    kind, dtype, index_dtype, mode = call
    kept = [m for d, m in enumerate(sizes) if d not in (*dims[1], *dims[2])]
    places = dims[0] if window_rank is None else tuple(range(1, 1 + len(kept)))
    inner, outer = iter(kept), iter(index[:-1])
    updates = tuple(next(inner) if d in places else next(outer) for d in range(len(index) - 1 + len(kept)))
    fields = (*NAMES.values(), "kind", "mode", "indices_are_sorted", "unique_indices")
    params = dict(zip(fields, (places, *dims[1:], kind, mode, False, unique), strict=True))
    dtypes = (dtype, index_dtype, dtype)
    types = tuple(TensorType(s, DTYPES[d]) for s, d in zip((shape, index, updates), dtypes, strict=True))
    return Sample(types, params, fill)


scatter = Op(
    name="scatter",
    joins=True,
    type_rule=_type,
    factor_rule=_rule,
    access=_access,
    whole="the numbers of an index are read together",
    evaluate=_evaluate,
    emit=emit_scatter,
    samples=_samples,
    batch=_batch,
    linear=_linear,
    jvp=scatter_jvp,
    transpose=scatter_transpose,
    partition=_partition,
    split=_split,
    passes=lambda in_types, params: 4.0,
    fetches=_fetches,
    in_place=lambda in_types: (0,),
)
