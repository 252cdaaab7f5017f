"""Everyday gathers and scatters: windows per member of a batch, elements along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshjit.core.program import Var
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.shape import expand
from meshjit.ops.index.gather import gather
from meshjit.ops.index.scatter import scatter

__all__ = ["gather", "gather_windows", "scatter", "scatter_windows", "take_along"]


def gather_windows(x: Var, dim: int | None, starts: Var, sizes: Sequence[int]) -> Var:
    """[batch, *sizes]: for every row of `starts` [batch, rank] the window that begins there, moved inside.

    `dim` is the dim of `x` that holds the batch members' operands, or None if all take from the same `x`.
    """
    rank = starts.shape[1]
    dims = tuple(d for d in range(x.rank) if d != dim)
    params: dict[str, Any] = {
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
        "slice_sizes": tuple(sizes),
    }
    if dim is not None:
        params["operand_batching_dims"], params["start_indices_batching_dims"] = (dim,), (0,)
        params["slice_sizes"] = (*sizes[:dim], min(1, x.shape[dim]), *sizes[dim:])
    offsets = tuple(range(1, rank + 1))
    return gather(
        x,
        starts,
        offset_dims=offsets,
        collapsed_slice_dims=(),
        start_index_map=dims,
        **params,
        **_OPTIONS,
        fill_value=None,
    )


def scatter_windows(x: Var, updates: Var, starts: Var) -> Var:
    """`x` [batch, ...] with the window of every member that begins at its row of `starts` [batch, rank], moved inside,
    replaced by its member of `updates` [batch, ...]."""
    rank = starts.shape[1]
    inner = tuple(range(1, rank + 1))
    return scatter(
        x,
        starts,
        updates,
        update_window_dims=inner,
        inserted_window_dims=(),
        input_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
        scatter_dims_to_operand_dims=inner,
        kind="set",
        **_OPTIONS,
        unique_indices=True,
    )


def take_along(x: Var, indices: Var, dim: int, mode: str = "promise_in_bounds") -> Var:
    """np.take_along_axis: `indices` has the shape of `x` but for the extent of `dim`; negative ones are not wrapped."""
    if x.shape[dim] == 0:
        return zeros(x.type.with_shape(indices.shape))
    others = tuple(d for d in range(x.rank) if d != dim)
    sizes = tuple(1 if d == dim else min(1, n) for d, n in enumerate(x.shape))
    return gather(
        x,
        expand(indices, x.rank),
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
        start_index_map=(dim,),
        slice_sizes=sizes,
        **(_OPTIONS | {"mode": mode}),
        fill_value=None,
    )


_OPTIONS: dict[str, Any] = {"mode": "clip", "indices_are_sorted": False}
