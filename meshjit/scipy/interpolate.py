"""`jax.scipy.interpolate`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import promoted, shape_of
from meshjit.trace import line_of, user_source
from meshjit.tree_util import register_pytree_node_class


@register_pytree_node_class
class RegularGridInterpolator:
    """`scipy.interpolate.RegularGridInterpolator`: values on the grid of `points`, one rising vector per dim, at other places.

    method is "linear" or "nearest". Outside is fill_value; None extrapolates. ValueError with bounds_error, which cannot be
    found out in a compiled program. values: [*lengths of points, ...]."""

    def __init__(
        self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False, fill_value: Any = np.nan
    ) -> None:
        line = line_of(user_source())
        if method not in ("linear", "nearest"):
            raise ValueError(f'RegularGridInterpolator: method is {method!r}; write "linear" or "nearest"\n  at {line}')
        if bounds_error:
            raise NotImplementedError("RegularGridInterpolator: bounds_error must be False, as in JAX: devices raise nothing")
        values = mnp.asarray(promoted(values, inexact=True)[0][0])  # of NumPy, traced places could not index them
        grid = [mnp.asarray(p) for p in points]
        if len(grid) > len(shape_of(values)):
            raise ValueError(f"RegularGridInterpolator: {len(grid)} points for values of shape {shape_of(values)}\n  at {line}")
        for i, p in enumerate(grid):
            if shape_of(p) != (shape_of(values)[i],):
                raise ValueError(
                    f"RegularGridInterpolator: points[{i}] has shape {shape_of(p)}, dim {i} of values has {shape_of(values)[i]}"
                    f" elements\n  at {line}"
                )
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.grid, self.values = tuple(grid), values

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at xi, [..., dims of the grid] or one array of coordinates per dim: [..., *the values' other dims]."""
        method = self.method if method is None else method
        places = _places(xi, len(self.grid))
        batch = shape_of(places)[:-1]
        columns = [mnp.reshape(places[..., i], -1) for i in range(len(self.grid))]
        below = [mnp.clip(mnp.searchsorted(g, c, "right") - 1, 0, len(g) - 2) for g, c in zip(self.grid, columns, strict=True)]
        shares = [(c - g[i]) / (g[i + 1] - g[i]) for g, c, i in zip(self.grid, columns, below, strict=True)]
        result = self._linear(below, shares) if method == "linear" else self._nearest(below, shares)
        if self.fill_value is not None:
            outside = [(c < g[0]) | (c > g[-1]) for g, c in zip(self.grid, columns, strict=True)]
            result = mnp.where(_wide(mnp.any(mnp.stack(outside), 0), result), self.fill_value, result)
        missing = mnp.any(mnp.isnan(mnp.stack(columns)), 0)
        result = mnp.where(_wide(missing, result), np.nan, result)
        return mnp.reshape(result, (*batch, *shape_of(self.values)[len(self.grid) :]))

    def _linear(self, below: list[Any], shares: list[Any]) -> Any:
        total: Any = 0.0
        for corner in itertools.product((0, 1), repeat=len(below)):
            value = self.values[tuple(i + side for i, side in zip(below, corner, strict=True))]
            weight = math.prod((s if side else 1 - s for s, side in zip(shares, corner, strict=True)), start=1.0)
            total = total + value * _wide(mnp.asarray(weight), value)
        return total

    def _nearest(self, below: list[Any], shares: list[Any]) -> Any:
        return self.values[tuple(mnp.where(s <= 0.5, i, i + 1) for i, s in zip(below, shares, strict=True))]

    def tree_flatten(self) -> Any:
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, known: Any, children: Any) -> RegularGridInterpolator:
        self = object.__new__(cls)
        self.grid, self.values, self.fill_value = children
        self.method, self.bounds_error = known
        return self


def _places(xi: Any, dims: int) -> Any:
    if isinstance(xi, tuple):
        places = mnp.stack(mnp.broadcast_arrays(*xi), -1)
    else:
        places = mnp.asarray(xi)
        places = places[..., None] if len(shape_of(places)) == 1 and dims == 1 else places
    if shape_of(places)[-1:] != (dims,):
        raise ValueError(
            f"RegularGridInterpolator: the last dim of xi {shape_of(places)} must be the {dims} dims of the grid\n"
            f"  at {line_of(user_source())}"
        )
    return promoted(places, inexact=True)[0][0]


def _wide(x: Any, like: Any) -> Any:
    """x with dims of 1 behind, to go with each of `like`'s rows."""
    return mnp.reshape(x, shape_of(x) + (1,) * (len(shape_of(like)) - len(shape_of(x))))


_explain(__name__)
