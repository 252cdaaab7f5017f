"""Drawn equations whose results depend on places: gathers, scatters, dynamic slices, scans, sorts, places of maxima.

Indices are values of the program converted to integers, so they lie before, in and beyond what they point at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshjit.core.op import REGISTRY
from meshjit.core.program import Var
from meshjit.core.types import DTYPES
from meshjit.ops.base.constants import scalar

if TYPE_CHECKING:
    from tests.tools.fuzz import Drawer

I32, F32 = DTYPES["i32"], DTYPES["f32"]


def _indices(d: Drawer) -> Var | None:
    """Indices with one column: i32[..., 1]."""
    x = d.pick(lambda v: 0 < v.rank < 3 and v.type.size <= 64)
    if x is None:
        return None
    return REGISTRY["reshape"](REGISTRY["convert"](x, dtype=I32), shape=(*x.shape, 1))


def _take(d: Drawer, table: Var, indices: Var, dim: int, window: int, mode: str) -> Var:
    """Windows of `window` rows along `dim`; windows of one row lose the dim."""
    outer = indices.rank - 1
    dropped = (dim,) if window == 1 else ()
    return REGISTRY["gather"](
        table, indices, offset_dims=tuple(range(outer, outer + table.rank - len(dropped))), collapsed_slice_dims=dropped,
        operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(dim,),
        slice_sizes=tuple(window if i == dim else n for i, n in enumerate(table.shape)),
        mode=mode, fill_value=0 if mode == "fill" else None, indices_are_sorted=False,
    )  # fmt: skip


def gathered(d: Drawer) -> Var | None:
    table, indices = d.pick(lambda v: v.rank > 0 and v.type.size > 0), _indices(d)
    if table is None or indices is None or table.type.size * indices.type.size > 4096:
        return None
    dim = d.number(0, table.rank)
    window = d.number(1, table.shape[dim] + 1) if d.number(0, 2) else 1
    return _take(d, table, indices, dim, window, ("clip", "fill")[d.number(0, 2)])


def scattered(d: Drawer) -> Var | None:
    """Rows, or windows of rows, of one table combined with another of the same type, at drawn places."""
    table, indices = d.pick(lambda v: v.rank > 0 and v.type.size > 0), _indices(d)
    if table is None or indices is None or table.type.size * indices.type.size > 4096:
        return None
    other = d.pick(lambda v: v.type == table.type) or table
    dim, outer = d.number(0, table.rank), indices.rank - 1
    window = d.number(1, table.shape[dim] + 1) if d.number(0, 2) else 1
    updates = _take(d, other, indices, dim, window, "clip")
    dropped = (dim,) if window == 1 else ()
    return REGISTRY["scatter"](
        table, indices, updates, update_window_dims=tuple(range(outer, updates.rank)), inserted_window_dims=dropped,
        input_batching_dims=(), scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(dim,),
        kind=("add", "set", "max", "min")[d.number(0, 4)], mode=("clip", "fill")[d.number(0, 2)],
        indices_are_sorted=False, unique_indices=False,
    )  # fmt: skip


def _starts(d: Drawer, rank: int) -> list[Var]:
    """One scalar i32 per dim, computed from values."""
    x = d.values[d.number(0, len(d.values))]
    # Of an empty value the least int32 becomes the start: clamped, like any other.
    start = REGISTRY["convert"](REGISTRY["reduce_max"](x, axes=tuple(range(x.rank))), dtype=I32)
    return [start if d.number(0, 2) else scalar(d.number(-1, 6), I32) for _ in range(rank)]


def dynamically_sliced(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    sizes = tuple(d.number(0 if n == 0 else 1, n + 1) for n in x.shape)
    return REGISTRY["dynamic_slice"](x, *_starts(d, x.rank), slice_sizes=sizes)


def dynamically_updated(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    part = x and d.pick(lambda v: v.rank == x.rank and all(m <= n for m, n in zip(v.shape, x.shape, strict=True)))
    return part and REGISTRY["dynamic_update_slice"](x, part, *_starts(d, x.rank))


def scanned(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    return REGISTRY[("cumsum", "cummax")[d.number(0, 2)]](x, axis=d.number(0, x.rank), reverse=bool(d.number(0, 2)))


def placed(d: Drawer) -> Var | None:
    """Where the maximum stands, as a float."""
    x = d.pick(lambda v: v.rank > 0 and v.type.size > 0)
    if x is None:
        return None
    name = ("argmax", "argmin")[d.number(0, 2)]
    return REGISTRY["convert"](REGISTRY[name](x, axis=d.number(0, x.rank), index_dtype=I32), dtype=F32)


def ordered(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    turned = {"descending": True} if d.number(0, 2) else {}
    return x and REGISTRY["sort"](x, dimension=d.number(0, x.rank), num_keys=1, is_stable=True, **turned)


def chosen(d: Drawer) -> Var | None:
    """The greatest elements, or their places as floats."""
    x = d.pick(lambda v: v.rank > 0 and v.type.size > 0)
    if x is None:
        return None
    values, places = REGISTRY["top_k"](x, k=d.number(1, x.shape[-1] + 1))
    return values if d.number(0, 2) else REGISTRY["convert"](places, dtype=F32)


def searched(d: Drawer) -> Var | None:
    """How many elements of a vector stand before others, as floats."""
    table, values = d.pick(lambda v: v.rank == 1), d.pick(lambda v: v.type.size <= 64)
    if table is None or values is None:
        return None
    table = REGISTRY["sort"](table, dimension=0, num_keys=1, is_stable=True)
    side, method = ("left", "right")[d.number(0, 2)], ("default", "scan")[d.number(0, 2)]
    return REGISTRY["convert"](REGISTRY["searchsorted"](table, values, side=side, batch_dims=0, method=method), dtype=F32)


INDEXING = (
    gathered, gathered, scattered, scattered, dynamically_sliced, dynamically_updated, scanned, placed, ordered, chosen, searched,
)  # fmt: skip
