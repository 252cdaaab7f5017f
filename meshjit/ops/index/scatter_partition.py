"""`scatter` on a mesh. Two things may be sharded:

- a dim of the operand into which windows fall: every device writes what falls into its shard and leaves out the rest.
  Windows of some elements of such a dim are taken apart into single elements first (see gather_partition.py).
- the windows, that is the indices and the updates, or a dim of windows of some elements: every device applies its own,
  which makes a partial result. The operand is counted on one device only.

Setting is no reduction; of several updates of one element the last, in the order of the indices' elements, is kept. So
every device looks at the indices of all (indices, not updates, are gathered), finds the number of the last update of
every element, and adds those of its own updates that are the last into nothing:

    x[[2, 5, 2, 7]] = [a, b, c, d] over 2 devices     numbers 1 2 | 3 4     last: 2 → 3, 5 → 2, 7 → 4
    device 0 gives x without places 2, 5, 7, and b at 5; device 1 gives c at 2 and d at 7; the result is their sum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.program import Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, multiply
from meshjit.ops.base.bits import and_
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full, full_like, spread, zeros
from meshjit.ops.base.identity_elements import identity_element
from meshjit.ops.base.shape import broadcast_in_dim, transpose
from meshjit.ops.collective.collectives import all_gather
from meshjit.ops.index.columns import I32, Windows, clamp_column, conjunction, is_first, join_columns, localized, split_columns
from meshjit.ops.index.gather import gather
from meshjit.ops.index.gather_partition import Columns, Parts, column_of, inside_of, nothing, owned_dims, parts_of, taken_apart
from meshjit.ops.index.scatter_derivatives import gather_back, windows_of
from meshjit.ops.slicing.halos import between, positions
from sharding.rule import FactorRule

Axes = tuple[Any, ...]


def partition_scatter(local: LocalEquation, rule: FactorRule, windows: Windows) -> list[Var]:
    """Indices are settled globally first: clipped, or found out of bounds."""
    scatter, (operand, indices, updates) = local.eqn.op, local.operands
    sharded = owned_dims(local, windows)
    parts = parts_of(local, windows, sharded, rule.operands[2], updates.shape)
    params, everyone = dict(local.params), indices
    if sharded or parts:
        indices, order = _local_indices(local, windows, sharded, parts)
        whole = {d: (windows.sizes[d], ()) for d in parts}
        everyone = indices if whole == parts else _local_indices(local, windows, sharded, whole)[0]
        params |= {"scatter_dims_to_operand_dims": order, "mode": "fill", "indices_are_sorted": False}
    if parts:
        updates = _in_front(updates, windows, parts)
        params |= _params_apart(windows, updates.rank, parts)
    spread_over = {f: axes for f in rule.reductions if (axes := tuple(local.assignment.get(f, ())))}
    if not spread_over:
        return [scatter(operand, indices, updates, **params)]
    params |= {"unique_indices": False, "indices_are_sorted": False}  # the indices of padding are anything
    if params["kind"] == "set":
        return [_set_apart(local, (operand, indices, updates), everyone, rule, params, _all_axes(spread_over))]
    updates = _without_padding(local, updates, rule, windows, parts)
    operand = _counted_once(local, operand, next(iter(rule.reductions.values())), _all_axes(spread_over))
    return [scatter(operand, indices, updates, **params)]


def _all_axes(spread_over: Mapping[Any, Axes]) -> Axes:
    return tuple(axis for axes in spread_over.values() for axis in axes)


# -- indices of this shard


def _local_indices(
    local: LocalEquation, windows: Windows, sharded: Mapping[int, Axes], parts: Parts
) -> tuple[Var, tuple[int, ...]]:
    """Indices into this shard, beyond it for windows of others and out of bounds; and the operand dim of every column."""
    operand, indices = local.operands[:2]
    columns: Columns = dict(zip(windows.columns, split_columns(indices, windows), strict=True))
    if local.params["mode"] == "clip":
        columns = {d: clamp_column(c, 0, windows.limits[d]) for d, c in columns.items()}
    elif columns and any(d in parts for d in columns):  # a window that is left out is so with all its elements
        inside = inside_of(columns, windows)
        columns = {d: select(inside, c, full_like(c, windows.operand[d])) for d, c in columns.items()}
    outer = indices.shape[:-1]
    columns = taken_apart(local, {d: clamp_column(c, -1, windows.operand[d]) for d, c in columns.items()}, outer, parts)
    lead = (*outer, *(count for count, _ in parts.values()))
    for d, axes in sharded.items():
        column, shard = column_of(d, columns, lead), operand.shape[d]
        place, here = localized(local, column, shard, axes)
        here = conjunction([here, between(column, 0, windows.operand[d])])
        columns[d] = select(here, place, full_like(place, shard))
    return join_columns(list(columns.values()), lead), tuple(columns)


def _in_front(updates: Var, windows: Windows, parts: Parts) -> Var:
    """Updates with dims in the order [outer, parts, other window dims]."""
    kept = dict(zip(windows.kept, windows.places, strict=True))
    rest = [kept[d] for d in windows.kept if d not in parts]
    return transpose(updates, permutation=(*windows.outer(updates.rank), *(kept[d] for d in parts), *rest))


def _params_apart(windows: Windows, rank: int, parts: Parts) -> dict[str, Any]:
    rest = len(windows.kept) - len(parts)
    return {
        "update_window_dims": tuple(range(rank - rest, rank)),
        "inserted_window_dims": tuple(sorted((*windows.dropped, *parts))),
    }


# -- updates that are spread over devices


def _without_padding(local: LocalEquation, updates: Var, rule: FactorRule, windows: Windows, parts: Parts) -> Var:
    """Updates that are padding change nothing."""
    order = range(updates.rank)
    if parts:
        kept = dict(zip(windows.kept, windows.places, strict=True))
        rest = [kept[d] for d in windows.kept if d not in parts]
        order = [*windows.outer(updates.rank), *(kept[d] for d in parts), *rest]
    for dim, source in enumerate(order):
        factors, axes = rule.operands[2][source], local.operand_placements[2].dims[source]
        kind = rule.reductions.get(factors[0]) if factors else None
        if kind is not None and axes:
            extent = local.eqn.inputs[2].shape[source]
            updates = local.mask(updates, dim, extent, axes, identity_element(kind, updates.dtype))
    return updates


def _counted_once(local: LocalEquation, operand: Var, kind: str, axes: Axes) -> Var:
    """The operand stands on the first device, the identity on others; min and max can count it as often as they like."""
    if kind not in ("sum", "prod"):
        return operand
    blank = full_like(operand, identity_element(kind, operand.dtype))
    return select(spread(is_first(local, axes), operand.shape), operand, blank)


# -- setting


def _set_apart(
    local: LocalEquation, operands: Sequence[Var], everyone: Var, rule: FactorRule, params: dict[str, Any], together: Axes
) -> Var:
    """This device's addend of the result over the axes `together` (see the module's text). `everyone`: the indices of whole
    windows, where this device has those of parts only. What is padding of a part is in no window, and so never the last."""
    scatter, (operand, indices, updates) = local.eqn.op, operands
    windows = windows_of(operand.type, updates.type, params)
    outer = [dim[0] if dim else "" for dim in rule.operands[1][:-1]]  # dims of parts stand behind these
    axes = {i: local.assignment[f] for i, f in enumerate(outer) if f in rule.reductions and local.assignment.get(f)}
    for dim, over in axes.items():
        everyone = all_gather(everyone, axes=tuple(over), size=local.mesh.axes_size(over), dim=dim)
    small = [1 if d in windows.kept and m == n else n for d, (n, m) in enumerate(zip(operand.shape, windows.sizes, strict=True))]
    last = zeros(TensorType(tuple(small), I32))
    numbers = _numbers(local, everyone.shape[:-1], len(outer), {}, 0)
    shape = _small_shape(windows, everyone.shape[:-1], updates.rank)
    last = scatter(last, everyone, _wide(numbers, shape, windows), **{**params, "kind": "max"})
    mine = _numbers(local, indices.shape[:-1], len(outer), axes, -1, everyone.shape)
    shape = _small_shape(windows, indices.shape[:-1], updates.rank)
    small_windows = windows_of(last.type, updates.type.with_shape(shape), params)
    winners = gather(last, indices, **gather_back(params, small_windows))
    is_last = compare(winners, _wide(mine, shape, windows), direction="EQ")
    updates = select(_repeated(is_last, updates.shape), updates, nothing(updates.type))
    keep = and_(compare(last, zeros(last.type), direction="EQ"), spread(is_first(local, together), last.shape))
    rest = select(_repeated(keep, operand.shape), operand, nothing(operand.type))
    return scatter(rest, indices, updates, **{**params, "kind": "max" if operand.dtype == np.bool_ else "add"})


def _numbers(
    local: LocalEquation, shape: Sequence[int], count: int, axes: Mapping[int, Axes], padding: int, whole: Sequence[int] = ()
) -> Var:
    """i32 of this shape: 1, 2, … in the order of the first `count` dims, alike along the others; `padding` for padding.

    `axes`: over which a dim is a shard of one of extent `whole`; none if it is whole already.
    """
    whole, extents = tuple(whole or shape), local.eqn.inputs[1].shape
    total = full(TensorType(tuple(shape), I32), 1)
    for dim in range(count):
        places = positions(local, shape, dim, axes.get(dim, ()), I32)
        stride = int(np.prod(whole[dim + 1 : count], dtype=np.int64))
        total = add(total, multiply(places, full_like(places, stride)))
    for dim in range(count):
        if whole[dim] != extents[dim]:
            places = positions(local, shape, dim, axes.get(dim, ()), I32)
            total = select(between(places, 0, extents[dim]), total, full_like(total, padding))
    return total


def _small_shape(windows: Windows, outer: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape of updates whose windows have one element of dims of which they take all."""
    inner, lead = iter(windows.kept), iter(outer)
    shape: list[int] = []
    for r in range(rank):
        if r in windows.places:
            d = next(inner)
            shape.append(1 if windows.sizes[d] == windows.operand[d] else windows.sizes[d])
        else:
            shape.append(next(lead))
    return tuple(shape)


def _wide(numbers: Var, shape: Sequence[int], windows: Windows) -> Var:
    return broadcast_in_dim(numbers, shape=tuple(shape), dimensions=windows.outer(len(shape)))


def _repeated(flags: Var, shape: Sequence[int]) -> Var:
    """Flags, of extent 1 where the shape has another, repeated to the shape."""
    return broadcast_in_dim(flags, shape=tuple(shape), dimensions=tuple(range(len(shape))))


