"""Histograms of points in several dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.numpy import reductions, ufuncs
from meshjit.numpy.creation import ones
from meshjit.numpy.indexing import getitem
from meshjit.numpy.promote import asarray, promoted, shape_of
from meshjit.numpy.shaping import reshape, stack
from meshjit.numpy.sorting import bincount, histogram_bin_edges, searchsorted
from meshjit.trace import line_of, user_source


def histogramdd(
    sample: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None, density: bool | None = None  # noqa: A002
) -> tuple[Any, list[Any]]:
    """`numpy.histogramdd` of points [n, dims]: (counts or weights per cell, the edges along each dim).

    bins: a number, or per dim a number or edges. range: (low, high) per dim. Points outside are not counted."""
    line = line_of(user_source())
    sample = asarray(sample) if not isinstance(sample, list | tuple) else stack([asarray(s) for s in sample], -1)
    (sample,), _ = promoted(sample, inexact=True)
    if len(shape_of(sample)) != 2:
        raise ValueError(f"histogramdd: sample must be [points, dims], got {shape_of(sample)}\n  at {line}")
    count, dims = shape_of(sample)
    per_dim = list(bins) if isinstance(bins, list | tuple) or np.ndim(bins) else [bins] * dims
    if len(per_dim) != dims or (range is not None and len(range) != dims):
        raise ValueError(f"histogramdd: {len(per_dim)} bins and range {range} for points of {dims} dims\n  at {line}")
    columns = [getitem(sample, (slice(None), d)) for d in np.arange(dims).tolist()]
    edges = [
        histogram_bin_edges(c, b, None if range is None else range[d])
        for d, (c, b) in enumerate(zip(columns, per_dim, strict=True))
    ]
    cell, inside, shape = _cells(columns, edges)
    weights = ones((count,), np.int32) if weights is None else asarray(weights)
    if shape_of(weights) != (count,):
        raise ValueError(f"histogramdd: weights have shape {shape_of(weights)}, there are {count} points\n  at {line}")
    total = int(np.prod(shape))
    counts = bincount(ufuncs.where(inside, cell, total), ufuncs.where(inside, weights, 0), length=total + 1)
    counts = reshape(getitem(counts, slice(None, total)), shape)
    return _dense(counts, edges) if density else counts, edges


def _cells(columns: Sequence[Any], edges: Sequence[Any]) -> tuple[Any, Any, tuple[int, ...]]:
    """The number of each point's cell in the flat histogram, whether it has one, and the histogram's shape."""
    cell: Any = 0
    inside: Any = True
    shape = tuple(shape_of(e)[0] - 1 for e in edges)
    for column, edge, extent in zip(columns, edges, shape, strict=True):
        place = ufuncs.subtract(searchsorted(edge, column, "right"), 1)
        place = ufuncs.where(ufuncs.equal(column, getitem(edge, -1)), extent - 1, place)
        inside = ufuncs.logical_and(inside, ufuncs.logical_and(ufuncs.greater_equal(place, 0), ufuncs.less(place, extent)))
        cell = ufuncs.add(ufuncs.multiply(cell, extent), place)
    return cell, inside, shape


def _dense(counts: Any, edges: Sequence[Any]) -> Any:
    """Per volume, so that the integral is 1."""
    density = ufuncs.true_divide(counts, reductions.sum(counts))
    for d, edge in enumerate(edges):
        widths = ufuncs.subtract(getitem(edge, slice(1, None)), getitem(edge, slice(None, -1)))
        density = ufuncs.true_divide(density, reshape(widths, (-1,) + (1,) * (len(edges) - 1 - d)))
    return density


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None, density: bool | None = None  # noqa: A002
) -> tuple[Any, Any, Any]:
    """`numpy.histogram2d` of points (x [n], y [n]): (counts [x, y], edges of x, edges of y), as histogramdd has them.

    bins may also be edges for both."""
    if shape_of(x) != shape_of(y) or len(shape_of(x)) != 1:
        raise ValueError(f"histogram2d: x and y must be vectors of one length, got {shape_of(x)}, {shape_of(y)}")
    if not isinstance(bins, int) and (hasattr(bins, "shape") or len(bins) not in (1, 2)):
        bins = [bins, bins]
    counts, (first, second) = histogramdd(stack(promoted(x, y, inexact=True)[0], -1), bins, range, weights, density)
    return counts, first, second
