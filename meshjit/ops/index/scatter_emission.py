"""What `scatter` is in StableHLO: its scatter, or for one window an update of a slice (docs/xla.md says why)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Params, Types
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers
from meshjit.ops.index.columns import Windows, emit_clamped, emit_inside, emit_row, emit_signed
from meshjit.ops.index.scatter_derivatives import NAMES, windows_of

_STABLEHLO = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


def emit_scatter(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    windows = windows_of(ins[0], ins[2], params)
    if is_one_window(ins):
        return _emit_one_window(e, operands, windows, outs, params)
    indices = _emit_indices(e, operands[1], windows, params["mode"])
    numbers = ", ".join(f"{name} = {list(params[name])}" for name in NAMES.values())
    numbers = f"#stablehlo.scatter<{numbers}, index_vector_dim = {ins[1].rank - 1}>"
    words = {name: str(bool(params[name])).lower() for name in ("indices_are_sorted", "unique_indices")}
    attributes = ", ".join([*(f"{k} = {v}" for k, v in words.items()), f"scatter_dimension_numbers = {numbers}"])
    scalar = TensorType((), ins[0].dtype)
    combine = e.region([scalar, scalar], lambda inner, names: [_combined(inner, names[0], names[1], params["kind"])])
    return e.op("scatter", [operands[0], indices, operands[2]], outs, attributes, [combine])


def is_one_window(ins: Types) -> bool:
    """Whether there is one row of indices, with a column."""
    return math.prod(ins[1].shape[:-1]) == 1 and ins[1].shape[-1] > 0


def _combined(e: Any, old: str, new: str, kind: str) -> str:
    return new if kind == "set" else e.op(_STABLEHLO[kind], [old, new], [e.types[old]])[0]


def _emit_indices(e: Any, indices: str, windows: Windows, mode: str) -> str:
    """Clipped if so asked. What is left out goes wholly beyond the operand: backends differ on windows half inside."""
    indices = emit_signed(e, indices)
    limits = [windows.limits[d] for d in windows.columns]
    if mode == "clip" and limits:
        return emit_clamped(e, indices, limits)
    if mode == "promise_in_bounds" or all(windows.sizes[d] == 1 for d in windows.columns):
        return indices
    type = e.types[indices]
    inside = emit_inside(e, indices, limits)
    dims = ", ".join(map(str, range(type.rank - 1)))
    attribute = f"broadcast_dimensions = array<i64: {dims}>" if dims else "broadcast_dimensions = array<i64>"
    keep = e.op("broadcast_in_dim", [inside], [type.with_dtype(np.bool_)], attribute)[0]
    beyond = emit_row(e, indices, [windows.operand[d] for d in windows.columns])
    return e.op("select", [keep, indices, beyond], [type])[0]


def _emit_one_window(
    e: Any, operands: Sequence[str], windows: Windows, outs: Types, params: Params
) -> Sequence[str]:
    """The window is read at a place inside, combined, and put back; as it was, if its index points outside."""
    operand, indices, updates = operands[0], emit_signed(e, operands[1]), operands[2]
    limits = [windows.limits[d] for d in windows.columns]
    starts = _emit_starts(e, emit_clamped(e, indices, limits), windows)
    window = outs[0].with_shape(tuple(windows.sizes))
    old = e.op("dynamic_slice", [operand, *starts], [window], f"slice_sizes = {integers(window.shape)}")[0]
    new = _combined(e, old, e.op("reshape", [updates], [window])[0], params["kind"])
    if params["mode"] == "fill":
        flag = e.op("reshape", [emit_inside(e, indices, limits)], [TensorType((), DTYPES["bool"])])[0]
        new = e.op("select", [flag, new, old], [window])[0]
    return e.op("dynamic_update_slice", [operand, new, *starts], outs)


def _emit_starts(e: Any, indices: str, windows: Windows) -> list[str]:
    """One scalar per dim of the operand, from the one row of indices; 0 where there is no column."""
    scalar = TensorType((), e.types[indices].dtype)
    count = len(windows.columns)
    row = e.op("reshape", [indices], [scalar.with_shape((count,))])[0]
    starts = [e.constant(np.array(0, scalar.dtype))] * len(windows.operand)
    for k, d in enumerate(windows.columns):
        bounds = f"start_indices = array<i64: {k}>, limit_indices = array<i64: {k + 1}>, strides = array<i64: 1>"
        column = e.op("slice", [row], [scalar.with_shape((1,))], bounds)
        starts[d] = e.op("reshape", column, [scalar])[0]
    return starts
