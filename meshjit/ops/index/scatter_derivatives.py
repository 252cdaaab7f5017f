"""Derivatives of `scatter`: scatters and gathers again, with care for several updates of one element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import MissingRule, Params
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, divide, multiply
from meshjit.ops.base.comparison import compare, masked
from meshjit.ops.base.constants import iota, ones, zeros, zeros_like
from meshjit.ops.base.conversion import convert
from meshjit.ops.base.shape import reshape
from meshjit.ops.index.columns import Windows
from meshjit.ops.index.gather import gather

NAMES = {
    "places": "update_window_dims",
    "dropped": "inserted_window_dims",
    "batching": "input_batching_dims",
    "index_batching": "scatter_indices_batching_dims",
    "columns": "scatter_dims_to_operand_dims",
}


def windows_of(operand: TensorType, updates: TensorType, params: Params) -> Windows:
    """Sizes of windows are those of the updates; of dropped and batching dims a window has one element."""
    dims = {field: params[name] for field, name in NAMES.items()}
    single = (*dims["dropped"], *dims["batching"])
    inner = iter([updates.shape[d] for d in dims["places"] if d < updates.rank])
    sizes = tuple(min(1, n) if d in single else next(inner, 0) for d, n in enumerate(operand.shape))
    return Windows(op="scatter", operand=operand.shape, sizes=sizes, **dims)


def gather_back(params: Params, windows: Windows, **options: Any) -> dict[str, Any]:
    """The params of the gather that takes the windows which a scatter writes; zeros for windows left out."""
    dims = {
        "offset_dims": params["update_window_dims"],
        "collapsed_slice_dims": params["inserted_window_dims"],
        "operand_batching_dims": params["input_batching_dims"],
        "start_indices_batching_dims": params["scatter_indices_batching_dims"],
        "start_index_map": params["scatter_dims_to_operand_dims"],
    }
    chosen = {"mode": params["mode"], "fill_value": 0, "indices_are_sorted": params["indices_are_sorted"]}
    return dims | {"slice_sizes": windows.sizes} | chosen | options


def scatter_transpose(cotangents, operands, in_types, params):
    (ct,), (operand, indices, updates), kind = cotangents, operands, params["kind"]
    windows = windows_of(in_types[0], in_types[2], params)
    if kind == "mul":
        return [ops.scatter(ct, indices, updates, **params), None, None]
    kept = ct if kind == "add" else ops.scatter(ct, indices, zeros(in_types[2]), **params)
    taken = gather(ct, indices, **gather_back(params, windows)) if updates is None else None
    return [kept if operand is None else None, None, taken]


def scatter_jvp(primals: Any, tangents: Any, outs: Any, params: Any) -> list[Var | None]:
    operand, indices, updates = primals
    moved, _, updated = tangents
    if moved is None and updated is None:
        return [None]
    moved = zeros_like(operand) if moved is None else moved
    if params["kind"] == "mul":
        return [_multiply_jvp(primals, moved, updated, params)]
    updated = zeros_like(updates) if updated is None else updated
    if params["kind"] == "add" or (params["kind"] == "set" and params["unique_indices"]):
        return [ops.scatter(moved, indices, updated, **params)]
    if params["kind"] == "set":
        return [_last_write_jvp(primals, moved, updated, params)]
    return [_extremum_jvp(primals, outs[0], moved, updated, params)]


def _multiply_jvp(primals: Sequence[Var], moved: Var, updated: Var | None, params: Params) -> Var:
    """With several updates of one element each one's tangent would need the product of the others."""
    operand, indices, updates = primals
    out = ops.scatter(moved, indices, updates, **params)
    if updated is None:
        return out
    if not params["unique_indices"]:
        raise MissingRule(
            "scatter of kind mul has no derivative with respect to updates that may meet in one element; "
            "pass unique_indices=True if they do not"
        )
    windows = windows_of(operand.type, updates.type, params)
    factors = gather(operand, indices, **gather_back(params, windows))
    return ops.scatter(out, indices, multiply(factors, updated), **{**params, "kind": "add"})


def _last_write_jvp(primals: Sequence[Var], moved: Var, updated: Var, params: Params) -> Var:
    """Which of several updates of one element wins is unspecified: every update writes its number, and one that reads its own
    number back has won. Tangents of the others are left out."""
    operand, indices, updates = primals
    dtype = np.dtype(np.uint32)
    count = updates.type.size
    numbers = reshape(iota(dtype=dtype, shape=(count,), dimension=0), shape=updates.shape)
    numbers = add(numbers, ones(numbers.type))
    blank = zeros_like(moved)
    written = ops.scatter(zeros(operand.type.with_dtype(dtype)), indices, numbers, **params)
    windows = windows_of(operand.type, updates.type, params)
    read = gather(written, indices, **gather_back(params, windows))
    kept = masked(compare(written, zeros_like(written), direction="EQ"), moved, blank)
    winners = masked(compare(read, numbers, direction="EQ"), updated)
    return ops.scatter(kept, indices, winners, **{**params, "kind": "add"})


def _extremum_jvp(primals: Sequence[Var], out: Var, moved: Var, updated: Var, params: Params) -> Var:
    """The mean of the tangents of all that attain the extremum."""
    operand, indices, updates = primals
    windows = windows_of(operand.type, updates.type, params)
    there = gather(out, indices, **gather_back(params, windows))
    adding = {**params, "kind": "add"}
    first = convert(compare(operand, out, direction="EQ"), dtype=out.dtype)
    others = convert(compare(updates, there, direction="EQ"), dtype=out.dtype)
    count = ops.scatter(first, indices, others, **adding)
    return divide(ops.scatter(multiply(moved, first), indices, multiply(updated, others), **adding), count)
