"""Spectra of the pieces of a signal: short-time Fourier transforms, and power averaged over the pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.signal.windows import get_window

from meshjit import numpy as mnp
from meshjit.numpy.promote import broadcast_shapes, normal_axis, promoted, shape_of
from meshjit.ops.base.families import part_dtype
from meshjit.scipy.signal.trends import detrend as _detrend
from meshjit.trace import line_of, user_source

_BOUNDARIES = {
    "even": ("reflect", {}), "odd": ("reflect", {"reflect_type": "odd"}), "constant": ("edge", {}), "zeros": ("constant", {}),
}  # fmt: skip


def _settings(
    name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, length: int
) -> tuple[np.ndarray[Any, Any], int, int, int]:
    """The window as numbers; elements per piece, shared by neighbours, and of the transform."""
    if isinstance(window, str | tuple):
        size = 256 if nperseg is None else int(nperseg)
        size = min(size, length) if length else size
        numbers = np.asarray(get_window(window, size))
    else:
        numbers = np.asarray(window)
        size = len(numbers) if nperseg is None else int(nperseg)
    shared = size // 2 if noverlap is None else int(noverlap)
    wide = size if nfft is None else int(nfft)
    line = line_of(user_source())
    if numbers.shape != (size,) or size < 1:
        raise ValueError(f"{name}: window has shape {numbers.shape}, nperseg is {size}\n  at {line}")
    if not 0 <= shared < size or wide < size:
        raise ValueError(f"{name}: noverlap {shared} must be below nperseg {size}, nfft {wide} at least that\n  at {line}")
    return numbers, size, shared, wide


def _pieces(x: Any, size: int, step: int) -> Any:
    """[..., n] as [..., pieces, size]."""
    count = (shape_of(x)[-1] - size) // step + 1
    return x[..., np.arange(count)[:, None] * step + np.arange(size)]


def _trend_of(detrend: Any) -> Any:
    if not detrend:
        return lambda x: x
    return detrend if callable(detrend) else lambda x: _detrend(x, type=detrend)


def _transforms(x: Any, window: Any, size: int, shared: int, nfft: int, trend: Any, onesided: bool) -> Any:
    windowed = _trend_of(trend)(_pieces(x, size, size - shared)) * mnp.asarray(window.astype(part_dtype(x.dtype)))
    return mnp.fft.rfft(windowed, nfft) if onesided and x.dtype.kind != "c" else mnp.fft.fft(windowed, nfft)


def _frequencies(fs: float, nfft: int, onesided: bool, dtype: Any) -> Any:
    return (mnp.fft.rfftfreq if onesided else mnp.fft.fftfreq)(nfft, 1 / fs, dtype=dtype)


def stft(
    x: Any, fs: float = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None, nfft: int | None = None,
    detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True, axis: int = -1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """`scipy.signal.stft`: (frequencies [f], times [t], transforms of windowed pieces [..., f, t]), where x had its dim `axis`.

    fs: samples per unit of time. boundary: how x goes on at its ends, "zeros", "even", "odd", "constant" or None."""
    (x,), _ = promoted(x, inexact=True)
    line = line_of(user_source())
    dim = normal_axis(axis, len(shape_of(x)))
    window, size, shared, wide = _settings("stft", window, nperseg, noverlap, nfft, shape_of(x)[dim])
    if boundary is not None and boundary not in _BOUNDARIES:
        raise ValueError(f"stft: boundary is {boundary!r}; there are {', '.join(_BOUNDARIES)} and None\n  at {line}")
    if 0 in shape_of(x):
        kind = x.dtype if x.dtype.kind == "c" else np.dtype(np.complex64)
        empty = mnp.zeros(shape_of(x), part_dtype(kind))
        return empty, empty, mnp.zeros(shape_of(x), kind)
    onesided = return_onesided and x.dtype.kind != "c"
    signal = mnp.moveaxis(x, dim, -1)
    if boundary is not None:
        signal = _extended(signal, size // 2, size // 2, *_BOUNDARIES[boundary])
    if padded:
        rest = -(shape_of(signal)[-1] - size) % (size - shared) % size
        signal = _extended(signal, 0, rest, "constant", {})
    result = _transforms(signal, window, size, shared, wide, detrend, onesided) / float(window.sum())
    result = mnp.moveaxis(result, (-1, -2), (dim, len(shape_of(result)) - 1))
    kind = part_dtype(result.dtype)
    first = 0.0 if boundary is not None else size / 2
    times = (mnp.arange(shape_of(result)[-1], dtype=kind) * (size - shared) + first) / fs
    return _frequencies(fs, wide, onesided, kind), times, result


def _extended(x: Any, low: int, high: int, mode: str, how: dict[str, Any]) -> Any:
    if not low and not high:
        return x
    return mnp.pad(x, [(0, 0)] * (len(shape_of(x)) - 1) + [(low, high)], mode, **how)


def istft(
    Zxx: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
) -> tuple[Any, Any]:  # fmt: skip  # noqa: N803
    """`scipy.signal.istft`: (times, signal), the inverse of stft with the same arguments: pieces added where they overlap."""
    (z, _), _ = promoted(mnp.asarray(Zxx), np.complex64(0))
    rank = len(shape_of(z))
    if rank < 2 or normal_axis(time_axis, rank) == normal_axis(freq_axis, rank):
        raise ValueError(
            f"istft: Zxx {shape_of(z)} needs a dim of times and another of frequencies"
            f"\n  at {line_of(user_source())}"
        )
    z = mnp.moveaxis(z, (freq_axis, time_axis), (-1, -2))
    count = shape_of(z)[-1]
    natural = 2 * (count - 1) if input_onesided else count
    size = natural if nperseg is None else int(nperseg)
    wide = (natural + (input_onesided and size == natural + 1)) if nfft is None else int(nfft)
    window, size, shared, wide = _settings("istft", window, size, noverlap, wide, 0)
    pieces = (mnp.fft.irfft if input_onesided else mnp.fft.ifft)(z, wide)[..., :size]
    weights = window.astype(part_dtype(z.dtype))
    signal = _added(pieces * weights * float(window.sum()), size - shared)
    total = _added(mnp.broadcast_to(mnp.asarray(weights**2), shape_of(pieces)[-2:]), size - shared)
    if boundary:
        signal, total = (x[..., size // 2 : shape_of(x)[-1] - size // 2] for x in (signal, total))
    signal = signal / mnp.where(total > 1e-10, total, 1)
    times = mnp.arange(shape_of(signal)[-1], dtype=part_dtype(z.dtype)) / fs
    if rank > 2:  # the signal's dim stands where that of the times was, less the one of the frequencies
        place = normal_axis(time_axis, rank)
        signal = mnp.moveaxis(signal, -1, place - (normal_axis(freq_axis, rank) < place))
    return times, signal


def _added(pieces: Any, step: int) -> Any:
    """[..., pieces, size], each `step` behind the one before, as one line."""
    count, size = shape_of(pieces)[-2:]
    line = mnp.zeros((*shape_of(pieces)[:-2], (count - 1) * step + size), pieces.dtype)
    return line.at[..., np.arange(count)[:, None] * step + np.arange(size)].add(pieces)


def csd(
    x: Any, y: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1,
    average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """`scipy.signal.csd`: (frequencies, the cross power of x and y averaged over pieces), by Welch's method; y None is x."""
    same = y is None or y is x
    arrays, _ = promoted(*([x] if same else [x, y]), inexact=True)
    line = line_of(user_source())
    if scaling not in ("density", "spectrum") or average not in ("mean", "median"):
        raise ValueError(
            f"csd: scaling {scaling!r} is no density or spectrum, or average {average!r} no mean or median"
            f"\n  at {line}"
        )
    if any(0 in shape_of(a) for a in arrays):
        shape = broadcast_shapes(*(shape_of(a) for a in arrays))
        kind = arrays[0].dtype if arrays[0].dtype.kind == "c" else np.dtype(np.complex64)
        return mnp.zeros(shape, part_dtype(kind)), mnp.zeros(shape, part_dtype(kind) if same else kind)
    arrays = [mnp.moveaxis(a, axis, -1) for a in arrays]
    length = max(shape_of(a)[-1] for a in arrays)
    if not isinstance(window, str | tuple) and len(np.asarray(window)) > length:
        raise ValueError(f"csd: the window has {len(np.asarray(window))} elements, the signal {length}\n  at {line}")
    window, size, shared, wide = _settings("csd", window, nperseg, noverlap, nfft, length)
    arrays = [_extended(a, 0, length - shape_of(a)[-1], "constant", {}) for a in arrays]
    onesided = return_onesided and all(a.dtype.kind != "c" for a in arrays)
    spectra = [_transforms(a, window, size, shared, wide, detrend, onesided) for a in arrays]
    scale = 1 / (fs * (window**2).sum()) if scaling == "density" else 1 / window.sum() ** 2
    power = mnp.conj(spectra[0]) * spectra[-1] * float(scale)
    if onesided:
        last = shape_of(power)[-1] - (wide % 2 == 0)
        power = power * np.array([2.0 if 0 < k < last else 1.0 for k in range(shape_of(power)[-1])], part_dtype(power.dtype))
    power = _averaged(mnp.moveaxis(power, -1, -2), average)
    power = mnp.real(power) if same else power
    return _frequencies(fs, wide, onesided, part_dtype(power.dtype)), mnp.moveaxis(power, -1, axis)


def _averaged(power: Any, average: str) -> Any:
    """[..., frequencies, pieces] without its last dim. The median is divided by what it is too small by, on average."""
    if average == "mean":
        return mnp.mean(power, -1)
    count = shape_of(power)[-1]
    even = 2 * np.arange(1, (count - 1) // 2 + 1)
    bias = float(1 + np.sum(1 / (even + 1) - 1 / even))
    return (mnp.median(mnp.real(power), -1) + 1j * mnp.median(mnp.imag(power), -1)) / bias


def welch(
    x: Any, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1,
    average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """`scipy.signal.welch`: (frequencies, the power of x averaged over pieces)."""
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
