"""One placement under the axes of another mesh over the same devices in the same order.

An axis, or a part of one, is a digit of the flat position: the range [stride, stride * size). On a=8, P("a") is [1, 8); on
x=4, y=2 the axes are x = [2, 8) and y = [1, 2), so that P("a") is P(("x", "y")). And P("x") is P(a:(1)4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sharding.axes import AxisRef, SubAxis, canonical_axes, span
from sharding.mesh import BaseMesh
from sharding.placement import Placement

Range = tuple[int, int]  # of strides: from the minor end up to the major end


def translate(placement: Placement, source: BaseMesh, target: BaseMesh) -> Placement | None:
    """The placement on `target` with the same shards at the same flat positions; None where its axes cannot say it."""
    if source.shape_tuple == target.shape_tuple:
        return placement
    if source.device_count != target.device_count:
        return None
    dims = [_translated(axes, source, target) for axes in placement.dims]
    partial = [(_translated((axis,), source, target), kind) for axis, kind in placement.partial]
    if any(axes is None for axes in dims) or any(axes is None for axes, _ in partial):
        return None
    spread = tuple((axis, kind) for axes, kind in partial for axis in axes or ())
    return Placement(tuple(axes or () for axes in dims), spread)


def _translated(axes: Iterable[AxisRef], source: BaseMesh, target: BaseMesh) -> tuple[AxisRef, ...] | None:
    pieces: list[SubAxis] = []
    for low, high in _ranges(axes, source):
        cover = _cover(low, high, target)
        if cover is None:
            return None
        pieces += cover
    return canonical_axes(pieces, target.shape)


def _ranges(axes: Iterable[AxisRef], mesh: BaseMesh) -> list[Range]:
    """The axes as ranges of strides; those that continue one another are one."""
    strides = _strides(mesh)
    ranges: list[Range] = []
    for axis in axes:
        name, pre, size = span(axis, mesh.shape)
        low = strides[name] * (mesh.shape[name] // (pre * size))
        if size == 1:
            continue
        if ranges and ranges[-1][0] == low * size:
            ranges[-1] = (low, ranges[-1][1])
        else:
            ranges.append((low, low * size))
    return ranges


def _strides(mesh: BaseMesh) -> dict[str, int]:
    sizes = mesh.axis_sizes
    return {name: math.prod(sizes[i + 1 :]) for i, name in enumerate(mesh.axis_names)}


def _cover(low: int, high: int, mesh: BaseMesh) -> list[SubAxis] | None:
    """The range as parts of axes, major to minor. From the major end down: each axis gives what lies in the range."""
    pieces: list[SubAxis] = []
    for name, stride in _strides(mesh).items():  # major axis first
        end = stride * mesh.shape[name]
        if high <= low or mesh.shape[name] == 1 or not stride < high <= end:
            continue
        bottom = max(low, stride)
        if end % high or high % bottom or bottom % stride:
            return None
        pieces.append(SubAxis(name, end // high, high // bottom))
        high = bottom
    return pieces if high == low else None
