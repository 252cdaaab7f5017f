"""`gather` on a mesh: who owns a window's elements gives them, the others give zeros, which is a partial sum.

Of a sharded operand dim a window may take one element, all elements, or some of them. Windows of some elements are taken
apart into single elements first, and so become one more dim of indices, which may be sharded like any other:

    operand [9@x], indices [3, 1], windows of 4 → columns [3, 4] = start + (0 1 2 3), each with an owner among x
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.core.types import TensorType, is_inexact
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import full, full_like, spread, zeros
from meshjit.ops.base.shape import broadcast_in_dim, transpose
from meshjit.ops.index.columns import I32, Windows, clamp_column, conjunction, is_first, join_columns, localized, split_columns
from meshjit.ops.slicing.halos import between, positions
from sharding.rule import FactorRule

Axes = tuple[Any, ...]
Parts = Mapping[int, tuple[int, Axes]]  # operand dim -> how many elements of the window this device has, over which axes
Columns = dict[int, Var]  # operand dim -> the starts of all windows


def partition_gather(local: LocalEquation, rule: FactorRule, windows: Windows, fill: Any) -> list[Var]:
    """Columns are clipped globally, then made local. A window that is out of bounds and filled counts once: on the first
    device along the axes."""
    gather, (operand, indices) = local.eqn.op, local.operands
    sharded = owned_dims(local, windows)
    parts = parts_of(local, windows, sharded, rule.results[0], local.result_types[0].shape)
    params: dict[str, Any] = {**local.params, "slice_sizes": _local_sizes(local, windows)}
    if not sharded and not parts:
        return [gather(operand, indices, **params)]
    columns = dict(zip(windows.columns, split_columns(indices, windows), strict=True))
    inside = inside_of(columns, windows) if params["mode"] == "fill" and columns else None
    columns = {d: clamp_column(c, 0, windows.limits[d]) for d, c in columns.items()}
    columns = taken_apart(local, columns, indices.shape[:-1], parts)
    lead = (*indices.shape[:-1], *(count for count, _ in parts.values()))
    own: list[Var] = []
    for d, axes in sharded.items():
        columns[d], here = localized(local, column_of(d, columns, lead), operand.shape[d], axes)
        own.append(here)
    params |= _params_apart(windows, params, columns, parts, len(lead))
    taken = gather(operand, join_columns(list(columns.values()), lead), **params)
    first = [is_first(local, axes) for axes in sharded.values()]
    return [_in_order(_masked(taken, own, inside, first, fill), windows, parts)]


def owned_dims(local: LocalEquation, windows: Windows) -> dict[int, Axes]:
    """The sharded dims of the operand of which a window takes a part, with their axes."""
    pairs = enumerate(zip(windows.operand, windows.sizes, local.operand_placements[0].dims, strict=True))
    return {d: axes for d, (n, m, axes) in pairs if axes and m != n and d not in windows.batching}


def parts_of(
    local: LocalEquation, windows: Windows, sharded: Mapping[int, Axes], dims: Sequence[Any], shape: Sequence[int]
) -> Parts:
    """The dims of which windows of some elements must be taken apart. `dims` and `shape`: factors and local extents of
    the value that the windows stand in."""
    parts: dict[int, tuple[int, Axes]] = {}
    for d, place in zip(windows.kept, windows.places, strict=True):
        axes = tuple(local.assignment.get(dims[place][0], ())) if dims[place] else ()
        if 1 < windows.sizes[d] < windows.operand[d] and (axes or d in sharded):
            parts[d] = (shape[place], axes)
    return parts


def _local_sizes(local: LocalEquation, windows: Windows) -> tuple[int, ...]:
    shapes = zip(windows.operand, local.operands[0].shape, windows.sizes, strict=True)
    return tuple(here if m == n and m != 1 else m for n, here, m in shapes)


def inside_of(columns: Columns, windows: Windows) -> Var:
    """bool[outer]: which windows are in bounds."""
    return conjunction([between(c, 0, windows.limits[d] + 1) for d, c in columns.items()])


def column_of(dim: int, columns: Columns, shape: Sequence[int]) -> Var:
    """The column of this dim; a dim without one starts at 0."""
    if dim in columns:
        return columns[dim]
    dtype = next(iter(columns.values())).dtype if columns else I32
    return zeros(TensorType(tuple(shape), dtype))


def taken_apart(local: LocalEquation, columns: Columns, outer: Sequence[int], parts: Parts) -> Columns:
    """Columns of shape [outer, one dim per part], in which the parts' windows are single elements."""
    if not parts:
        return columns
    shape = (*outer, *(count for count, _ in parts.values()))
    wide = {d: column_of(d, columns, outer) for d in (*columns, *parts)}
    wide = {d: broadcast_in_dim(c, shape=shape, dimensions=tuple(range(len(outer)))) for d, c in wide.items()}
    for number, (d, (_, axes)) in enumerate(parts.items()):
        steps = positions(local, shape, len(outer) + number, axes, wide[d].dtype)
        wide[d] = add(wide[d], steps)
    return wide


def _params_apart(windows: Windows, params: Mapping[str, Any], columns: Columns, parts: Parts, lead: int) -> dict[str, Any]:
    """Params for windows without the parts' dims, which stand behind the dims of the indices."""
    rest = [d for d in windows.kept if d not in parts]
    sizes = params["slice_sizes"]
    return {
        "offset_dims": tuple(range(lead, lead + len(rest))),
        "collapsed_slice_dims": tuple(sorted((*windows.dropped, *parts))),
        "start_index_map": tuple(columns),
        "slice_sizes": tuple(1 if d in parts else m for d, m in enumerate(sizes)),
        "mode": "clip",
        "fill_value": None,
        "indices_are_sorted": False,
    }


def _masked(taken: Var, own: Sequence[Var], inside: Var | None, first: Sequence[Var], fill: Any) -> Var:
    """Elements that this device owns, `nothing` elsewhere; fill in place of windows out of bounds, on the first device."""

    def wide(flag: Var) -> Var:
        return broadcast_in_dim(flag, shape=taken.shape, dimensions=tuple(range(flag.rank)))

    blank = nothing(taken.type)
    out = select(wide(conjunction(own)), taken, blank) if own else taken
    if inside is None:
        return out
    filled = full_like(taken, fill)
    if first:
        filled = select(spread(conjunction(first), taken.shape), filled, blank)
    return select(wide(inside), out, filled)


def nothing(type: TensorType) -> Var:
    """What changes nothing in a sum, not even the sign of a zero: -0.0, 0 or False."""
    return full(type, -0.0 if is_inexact(type.dtype) else np.zeros((), type.dtype)[()])


def _in_order(taken: Var, windows: Windows, parts: Parts) -> Var:
    """From [outer, parts, other window dims] to the dims of the result."""
    rest = [d for d in windows.kept if d not in parts]
    outer = taken.rank - len(windows.kept)
    behind = {d: outer + i for i, d in enumerate((*parts, *rest))}
    kept = dict(zip(windows.places, windows.kept, strict=True))
    counter = iter(range(outer))
    order = tuple(behind[kept[r]] if r in kept else next(counter) for r in range(taken.rank))
    return taken if order == tuple(range(taken.rank)) else transpose(taken, permutation=order)
