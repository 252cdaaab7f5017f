"""`jax.scipy.ndimage`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import dtype_of, promoted, shape_of
from meshjit.trace import line_of, user_source

Place = Callable[[Any, int], Any]


def _mirrored(index: Any, size: int) -> Any:
    """Back from the middle of the element at a border: 3 2 1 | 0 1 2 3 | 2 1 0."""
    period = 2 * (size - 1)
    return mnp.abs((index + (size - 1)) % max(period, 1) - (size - 1))


def _reflected(index: Any, size: int) -> Any:
    """Back from the border itself: 2 1 0 | 0 1 2 3 | 3 2 1."""
    return mnp.floor_divide(_mirrored(2 * index + 1, 2 * size + 1), 2)


# Where the element outside stands in the array. With "constant", outside is cval.
_MODES: dict[str, Place] = {
    "constant": lambda index, size: mnp.clip(index, 0, size - 1),
    "nearest": lambda index, size: mnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0  # noqa: A002
) -> Any:
    """`scipy.ndimage.map_coordinates`: input at places that need not be whole, one array of coordinates per dim.

    order 0 takes the nearest element, 1 interpolates linearly. mode says what lies outside: "constant" (cval), "nearest",
    "wrap", "mirror" or "reflect". Whole numbers stay whole, rounded. The result has the shape of a coordinate."""
    line = line_of(user_source())
    image, places = mnp.asarray(input), [mnp.asarray(c) for c in coordinates]
    if len(places) != len(shape_of(image)):
        raise ValueError(f"map_coordinates: {len(places)} coordinates for an input of {len(shape_of(image))} dims\n  at {line}")
    if mode not in _MODES:
        raise NotImplementedError(f"map_coordinates: mode is {mode!r}; there are {', '.join(_MODES)}\n  at {line}")
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates: order is {order!r}; 0 and 1 are there\n  at {line}")
    per_dim = [_nodes(c, n, order, mode) for c, n in zip(places, shape_of(image), strict=True)]
    parts = []
    for nodes in itertools.product(*per_dim):
        value = image[tuple(index for index, _, _ in nodes)]
        outside = [valid for _, _, valid in nodes if valid is not None]
        for valid in outside:
            value = mnp.where(valid, value, mnp.asarray(cval).astype(image.dtype))
        parts.append(math.prod((weight for _, weight, _ in nodes), start=value))
    return _as(sum(parts[1:], parts[0]), image.dtype)


def _nodes(place: Any, size: int, order: int, mode: str) -> list[tuple[Any, Any, Any]]:
    """Elements of one dim that count at these places: index, weight, and whether it is inside (None: nobody asks)."""
    (place,), _ = promoted(place, inexact=True)
    if order == 0:
        return [_node(lax.round(place).astype(np.int32), 1, size, mode)]
    low = mnp.floor(place)
    share = place - low
    index = low.astype(np.int32)
    return [_node(index, 1 - share, size, mode), _node(index + 1, share, size, mode)]


def _node(index: Any, weight: Any, size: int, mode: str) -> tuple[Any, Any, Any]:
    valid = (index >= 0) & (index < size) if mode == "constant" else None
    return _MODES[mode](index, size), weight, valid


def _as(result: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iu" and dtype_of(result).kind == "f":
        result = lax.round(result)
    return result.astype(dtype)


_explain(__name__)
