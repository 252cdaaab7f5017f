"""Convolutions of arrays of any rank, directly and by transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import lax, numpy as mnp
from meshjit.numpy.promote import normal_axis, promoted, shape_of
from meshjit.trace import line_of, user_source

_MODES = ("full", "same", "valid")


def _operands(name: str, x: Any, y: Any, mode: str) -> tuple[Any, Any]:
    if mode not in _MODES:
        raise ValueError(f"{name}: mode is {mode!r}; write 'full', 'same' or 'valid'\n  at {line_of(user_source())}")
    if len(shape_of(x)) != len(shape_of(y)):
        raise ValueError(f"{name}: in1 {shape_of(x)} and in2 {shape_of(y)} must have one rank\n  at {line_of(user_source())}")
    (x, y), _ = promoted(x, y, inexact=True)
    return x, y


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """`scipy.signal.convolve` of arrays of one rank. method "direct" (also "auto") or "fft".

    mode "full" has every overlap, "same" its middle of in1's shape, "valid" where one lies inside the other."""
    x, y = _operands("convolve", in1, in2, mode)
    if method == "fft":
        return fftconvolve(x, y, mode)
    if method not in ("auto", "direct"):
        raise ValueError(f'convolve: method is {method!r}; write "auto", "direct" or "fft"\n  at {line_of(user_source())}')
    if 0 in (*shape_of(x), *shape_of(y)):
        raise ValueError(f"convolve needs elements of both, got {shape_of(x)} and {shape_of(y)}\n  at {line_of(user_source())}")
    return _direct(x, y, mode, precision)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """`scipy.signal.correlate`: convolve with in2 turned round along every dim, and conjugated."""
    return convolve(in1, mnp.flip(mnp.conj(in2)), mode, method, precision)


def _direct(x: Any, y: Any, mode: str, precision: Any, later: int = 0) -> Any:
    """One convolution of lax. later: how much further the middle of an even kernel lies, which mode "same" begins at."""
    sizes, windows = shape_of(x), shape_of(y)
    if mode == "valid" and all(n < m for n, m in zip(sizes, windows, strict=True)):
        x, y, sizes, windows = y, x, windows, sizes
    if mode == "valid" and any(n < m for n, m in zip(sizes, windows, strict=True)):
        raise ValueError(
            f"convolve: mode 'valid' needs one to be as long as the other in every dim, got {sizes} and {windows}\n"
            f"  at {line_of(user_source())}"
        )
    pads = {
        "full": [(m - 1, m - 1) for m in windows],
        "same": [(m - 1 - (m - 1 + later) // 2, (m - 1 + later) // 2) for m in windows],
        "valid": [(0, 0)] * len(windows),
    }[mode]
    if not sizes:
        return x * y
    strides = (1,) * len(sizes)
    result = lax.conv_general_dilated(x[None, None], mnp.flip(y)[None, None], strides, pads, precision=precision)
    return result[0, 0]


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: int | Sequence[int] | None = None) -> Any:
    """`scipy.signal.fftconvolve`: convolve by transforms, along `axes` (all); other dims are broadcast."""
    x, y = _operands("fftconvolve", in1, in2, mode)
    rank = len(shape_of(x))
    if axes is None:
        dims = list(range(rank))
    else:
        dims = [normal_axis(a, rank) for a in ((axes,) if isinstance(axes, int) else axes)]
    others = [d for d in range(rank) if d not in dims]
    if any(1 not in (shape_of(x)[d], shape_of(y)[d]) and shape_of(x)[d] != shape_of(y)[d] for d in others):
        raise ValueError(
            f"fftconvolve: in1 {shape_of(x)} and in2 {shape_of(y)} differ beside axes {dims}\n  at {line_of(user_source())}"
        )
    if 0 in (*shape_of(x), *shape_of(y)):
        return mnp.zeros((0,), x.dtype)
    if mode == "valid" and any(shape_of(x)[d] < shape_of(y)[d] for d in dims):
        x, y = y, x
    lengths = [shape_of(x)[d] + shape_of(y)[d] - 1 for d in dims]
    whole = _by_transforms(x, y, dims, lengths)
    kept = {
        "full": lengths,
        "same": [shape_of(x)[d] for d in dims],
        "valid": [abs(shape_of(x)[d] - shape_of(y)[d]) + 1 for d in dims],
    }[mode]
    for d, length, n in zip(dims, lengths, kept, strict=True):
        start = (length - n) // 2
        whole = lax.slice_in_dim(whole, start, start + n, axis=d)
    return whole


def _by_transforms(x: Any, y: Any, dims: Sequence[int], lengths: Sequence[int]) -> Any:
    if not dims:
        return x * y
    if x.dtype.kind == "c":
        return mnp.fft.ifftn(mnp.fft.fftn(x, lengths, dims) * mnp.fft.fftn(y, lengths, dims), lengths, dims).astype(x.dtype)
    return mnp.fft.irfftn(mnp.fft.rfftn(x, lengths, dims) * mnp.fft.rfftn(y, lengths, dims), lengths, dims).astype(x.dtype)


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """`scipy.signal.convolve2d` of matrices, which are zero outside: boundary "fill" with fillvalue 0 is all there is, as in
    JAX."""
    return _of_matrices("convolve2d", in1, in2, mode, boundary, fillvalue, precision, 0)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """`scipy.signal.correlate2d` of matrices, with the arguments of convolve2d."""
    return _of_matrices("correlate2d", in1, mnp.flip(mnp.conj(in2)), mode, boundary, fillvalue, precision, 1)


def _of_matrices(
    name: str, x: Any, y: Any, mode: str, boundary: str, fillvalue: Any, precision: Any, later: int
) -> Any:
    line = line_of(user_source())
    if boundary != "fill" or not (isinstance(fillvalue, int | float | np.number) and fillvalue == 0):
        raise NotImplementedError(
            f"{name}: boundary is {boundary!r} with fillvalue {fillvalue}; 'fill' with 0 is there\n  at {line}\n"
            "  fix: pad in1 by mnp.pad, and take mode='valid'"
        )
    if len(shape_of(x)) != 2 or len(shape_of(y)) != 2:
        raise ValueError(f"{name} takes matrices, got shapes {shape_of(x)} and {shape_of(y)}\n  at {line}")
    return _direct(*_operands(name, x, y, mode), mode, precision, later)


