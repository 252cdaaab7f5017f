"""Batch gathers whose indices count: `x[arange(b), i]` takes one element from every line of x, and so the lines are a batch.

A column of a gather's or scatter's indices that counts 0, 1, 2, … along one of their dims, as many as the operand's dim
has, says that both dims are one: it becomes a batching dim, along which nothing is looked up and which may be sharded
without anything being sent.

    logits[8, 50], indices[8, 2] = [iota, labels]  ->  logits[8, 50], indices[8, 1] = [labels], batching dims 0 and 0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.splat import element_of, is_splat
from meshjit.core.types import TensorType
from meshjit.ops.base.constants import constant, zeros
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.transform.rewriting import Rewriter

_KNOWN = 1 << 16  # constants of more elements are not looked through

# What gather and scatter call: dropped dims, batching dims of the operand and of the indices, dims of the columns.
_PARAMS = {
    "gather": ("collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map"),
    "scatter": (
        "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims",
    ),
}  # fmt: skip


def batch_gathers(program: Program) -> Program:
    """The Program with columns that count turned into batching dims."""
    here = Rewriter(program)
    counts = _Counts(here.makers)
    return here.run(dict.fromkeys(_PARAMS, lambda eqn, here: _batched(eqn, counts)))


def _batched(eqn: Eqn, counts: _Counts) -> Eqn | None:
    names = _PARAMS[eqn.op.name]
    dropped, batching, index_batching, dims = (eqn.params[name] for name in names)
    operand, indices = eqn.inputs[:2]
    columns = counts.columns(indices)
    lines: dict[int, int] = {}  # column -> the dim of the indices along which it counts
    for k, (d, column) in enumerate(zip(dims, columns, strict=True) if columns else ()):
        line = counts.line(column)
        free = line is not None and line not in index_batching and line not in lines.values() and d in dropped
        if free and operand.shape[d] == indices.shape[line or 0]:
            lines[k] = line or 0
    if not lines:
        return None
    pairs = sorted([*zip(batching, index_batching, strict=True), *((dims[k], line) for k, line in lines.items())])
    rest = [k for k in range(len(dims)) if k not in lines]
    values = (
        tuple(d for d in dropped if d not in {dims[k] for k in lines}),
        tuple(d for d, _ in pairs),
        tuple(line for _, line in pairs),
        tuple(dims[k] for k in rest),
    )
    joined = _joined([_var(columns[k]) for k in rest], indices)
    params = {**eqn.params, **dict(zip(names, values, strict=True)), "indices_are_sorted": False}
    return replace(eqn, inputs=(operand, joined, *eqn.inputs[2:]), params=params)


def _joined(columns: list[Var], indices: Var) -> Var:
    if not columns:
        return zeros(TensorType((*indices.shape[:-1], 0), indices.dtype))
    return columns[0] if len(columns) == 1 else concatenate(*columns, dimension=indices.rank - 1)


def _var(column: Any) -> Var:
    return column if isinstance(column, Var) else constant(value=column)


class _Counts:
    """Which values count 0, 1, 2, … along one of their dims and are alike along the others."""

    def __init__(self, makers: Mapping[Var, Eqn]) -> None:
        self.makers = makers
        self.lines: dict[Var, int | None] = {}

    def columns(self, indices: Var) -> list[Any]:
        """Every column, as a Var or an array of last extent 1; [] if they cannot be told apart."""
        eqn, last = self.makers.get(indices), indices.rank - 1
        if indices.shape[last] == 1:
            return [indices]
        if eqn is None:
            return []
        if eqn.op.name == "constant" and eqn.params["value"].size <= _KNOWN:
            value = eqn.params["value"]
            return [np.ascontiguousarray(value[..., k : k + 1]) for k in range(indices.shape[last])]
        is_joined = eqn.op.name == "concatenate" and eqn.params["dimension"] == last
        return list(eqn.inputs) if is_joined and all(v.shape[last] == 1 for v in eqn.inputs) else []

    def line(self, value: Any) -> int | None:
        """The dim along which the value counts; None if it does not. Dims of extent 1 do not count."""
        if not isinstance(value, Var):
            return _counting_dim(value)
        if value not in self.lines:
            eqn = self.makers.get(value)
            rule = _RULES.get(eqn.op.name) if eqn is not None and value.dtype.kind in "iu" else None
            line = rule(self, eqn) if rule is not None and eqn is not None else None
            self.lines[value] = None if line is None or value.shape[line] == 1 else line
        return self.lines[value]

    def number(self, var: Var) -> int | None:
        """The one integer that a constant is everywhere."""
        eqn = self.makers.get(var)
        if eqn is None or eqn.op.name != "constant" or var.dtype.kind not in "iu" or not var.type.size:
            return None
        value = eqn.params["value"]
        return int(element_of(value)) if is_splat(value) else None


def _counting_dim(value: np.ndarray[Any, Any]) -> int | None:
    if value.dtype.kind not in "iu" or not value.ndim or value.size > _KNOWN:
        return None
    for dim, extent in enumerate(value.shape):
        line = np.arange(extent).reshape([-1 if d == dim else 1 for d in range(value.ndim)])
        if extent > 1 and (value == line).all():
            return dim
    return None


# -- how ops pass counting on


def _of_iota(eqn: Eqn) -> int | None:
    """Unless the numbers do not fit."""
    dim, (result,) = eqn.params["dimension"], eqn.outputs
    return dim if result.shape[dim] - 1 <= np.iinfo(result.dtype).max else None


def _of_broadcast(counts: _Counts, eqn: Eqn) -> int | None:
    line = counts.line(eqn.inputs[0])
    return None if line is None else eqn.params["dimensions"][line]


def _of_reshape(counts: _Counts, eqn: Eqn) -> int | None:
    """Through reshapes that add and drop dims of extent 1 only."""
    line, (source,), target = counts.line(eqn.inputs[0]), eqn.inputs, eqn.params["shape"]
    old, new = ([d for d, n in enumerate(shape) if n != 1] for shape in (source.shape, target))
    if line is None or [source.shape[d] for d in old] != [target[d] for d in new]:
        return None
    return new[old.index(line)]


def _of_convert(counts: _Counts, eqn: Eqn) -> int | None:
    """Unless the numbers do not fit."""
    line = counts.line(eqn.inputs[0])
    dtype = eqn.outputs[0].dtype
    fits = line is not None and dtype.kind in "iu" and eqn.inputs[0].shape[line] - 1 <= np.iinfo(dtype).max
    return line if fits else None


def _of_select(counts: _Counts, eqn: Eqn) -> int | None:
    """`where(i < 0, i + n, i)`, which counts numbers from the end, is i."""
    test = counts.makers.get(eqn.inputs[0])
    if test is None or test.op.name != "compare" or counts.number(test.inputs[1]) != 0:
        return None
    chosen = {"LT": 2, "GE": 1}.get(test.params["direction"])
    if chosen is None or counts.line(test.inputs[0]) is None:
        return None
    return counts.line(eqn.inputs[chosen])


def _of_bound(counts: _Counts, eqn: Eqn) -> int | None:
    """Clipping to the numbers that are counted anyway."""
    value, bound = eqn.inputs if counts.number(eqn.inputs[1]) is not None else reversed(eqn.inputs)
    line, number = counts.line(value), counts.number(bound)
    if line is None or number is None:
        return None
    fits = number <= 0 if eqn.op.name == "maximum" else number >= value.shape[line] - 1
    return line if fits else None


_RULES: dict[str, Callable[[_Counts, Eqn], int | None]] = {
    "iota": lambda counts, eqn: _of_iota(eqn),
    "constant": lambda counts, eqn: _counting_dim(eqn.params["value"]),
    "broadcast_in_dim": _of_broadcast,
    "reshape": _of_reshape,
    "convert": _of_convert,
    "select": _of_select,
    "maximum": _of_bound,
    "minimum": _of_bound,
}
