"""What a signal drifts by, taken away."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.numpy.promote import normal_axis, promoted, shape_of
from meshjit.trace import line_of, user_source


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None) -> Any:  # noqa: A002
    """`scipy.signal.detrend`: data less its mean ("constant") or less a line of least squares ("linear") along a dim, one
    line for each of the pieces between the places `bp`."""
    if overwrite_data is not None:
        raise NotImplementedError("detrend: overwrite_data is not there, since arrays cannot be changed in place")
    (data,), _ = promoted(data, inexact=True)
    if type == "constant":
        return data - mnp.mean(data, axis, keepdims=True)
    if type != "linear":
        raise ValueError(f'detrend: type is {type!r}; write "constant" or "linear"\n  at {line_of(user_source())}')
    dim = normal_axis(axis, len(shape_of(data)))
    n = shape_of(data)[dim]
    breaks = np.unique(np.concatenate([[0], np.atleast_1d(bp), [n]])).astype(int)
    if breaks[0] < 0 or breaks[-1] > n:
        raise ValueError(f"detrend: a break of {bp} is beyond the {n} elements\n  at {line_of(user_source())}")
    lines = mnp.moveaxis(data, dim, 0)
    pieces = [_without_line(lines[low:high]) for low, high in zip(breaks[:-1], breaks[1:], strict=True)]
    return mnp.moveaxis(mnp.concatenate(pieces, 0), 0, dim)


def _without_line(x: Any) -> Any:
    """x less mean and slope along its first dim; the places are centred, so that the two are independent."""
    count = shape_of(x)[0]
    places = mnp.reshape(mnp.arange(count, dtype=x.real.dtype) - (count - 1) / 2, (-1,) + (1,) * (len(shape_of(x)) - 1))
    centred = x - mnp.mean(x, 0)
    if count < 2:
        return centred
    slope = mnp.sum(centred * places, 0) / (count * (count * count - 1) / 12)
    return centred - slope * places
