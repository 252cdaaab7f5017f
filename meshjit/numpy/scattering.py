"""Scatters as users mean them: the op, and extremes of complex numbers, which no one op has an order of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from meshjit.numpy import ufuncs
from meshjit.numpy.promote import dtype_of, ops, shape_of
from meshjit.ops.base.identity_elements import identity_element
from meshjit.trace import bind

# What the windows of a scatter are called in the gather that reads them.
_OF_GATHER: Final = {
    "update_window_dims": "offset_dims",
    "inserted_window_dims": "collapsed_slice_dims",
    "input_batching_dims": "operand_batching_dims",
    "scatter_indices_batching_dims": "start_indices_batching_dims",
    "scatter_dims_to_operand_dims": "start_index_map",
    "mode": "mode",
    "indices_are_sorted": "indices_are_sorted",
}


def scattered(operand: Any, indices: Any, updates: Any, *, kind: str, weak_type: bool | None = None, **params: Any) -> Any:
    """The op's result. Complex numbers have minima and maxima by their real parts, then by their imaginary parts."""
    if kind in ("min", "max") and dtype_of(operand).kind == "c":
        return _complex_extreme(operand, indices, updates, kind, weak_type, params)
    return bind(ops("scatter"), operand, indices, updates, kind=kind, weak_type=weak_type, **params)


def _complex_extreme(x: Any, indices: Any, updates: Any, kind: str, weak: bool | None, params: dict[str, Any]) -> Any:
    """The extreme real part of each place, and of those that have it the extreme imaginary part; NaN where any is."""

    def extreme(start: Any, values: Any) -> Any:
        return bind(ops("scatter"), start, indices, values, kind=kind, weak_type=False, **params)

    first, second = (ufuncs.where(ufuncs.isnan(v), np.nan, ufuncs.real(v)) for v in (x, updates))
    reals = extreme(first, second)
    last = identity_element(kind, dtype_of(reals))
    level = ufuncs.where(ufuncs.equal(second, _read(reals, indices, updates, params)), ufuncs.imag(updates), last)
    imags = extreme(ufuncs.where(ufuncs.equal(first, reals), ufuncs.imag(x), last), level)
    return bind(ops("complex"), reals, ufuncs.where(ufuncs.isnan(reals), np.nan, imags), weak_type=weak)


def _read(x: Any, indices: Any, updates: Any, params: dict[str, Any]) -> Any:
    """The elements of x where updates go, in the shape of the updates."""
    sizes = iter([shape_of(updates)[d] for d in params["update_window_dims"]])
    single: Sequence[int] = (*params["inserted_window_dims"], *params["input_batching_dims"])
    return bind(
        ops("gather"), x, indices, fill_value=None, weak_type=False,
        slice_sizes=tuple(1 if d in single else next(sizes) for d in range(len(shape_of(x)))),
        **{ours: params[name] for name, ours in _OF_GATHER.items()},
    )  # fmt: skip
