"""Fourier transforms under jax.lax's name."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from meshjit.numpy.fft import complex_of, real_of, transform
from meshjit.numpy.promote import shape_of
from meshjit.trace import line_of, user_source


class FftType(enum.IntEnum):
    """Forwards or backwards, of complex lines or (R) of real ones."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: Any, fft_type: FftType | str | int, fft_lengths: Sequence[int]) -> Any:
    """`jax.lax.fft`: along the last len(fft_lengths) dims, of that many points each; backwards it divides by them.

    Real operands become complex, but for RFFT, which gives length // 2 + 1 elements of the last dim; IRFFT takes them.
    ValueError where the operand's extents are others, or complex for RFFT."""
    kind = _kind(fft_type)
    shape, lengths = shape_of(x), tuple(int(n) for n in fft_lengths)
    x = real_of(x, "rfft") if kind is FftType.RFFT else complex_of(x)
    expected = (*lengths[:-1], lengths[-1] // 2 + 1) if kind is FftType.IRFFT and lengths else lengths
    if len(lengths) > len(shape) or shape[len(shape) - len(lengths) :] != expected or 0 in lengths:
        raise ValueError(
            f"fft: {kind.name} of lengths {lengths} needs an operand whose last dims are {expected}, got {shape}\n"
            f"  at {line_of(user_source())}"
        )
    return transform(x, kind.name, range(len(shape) - len(lengths), len(shape)), lengths)


def _kind(fft_type: FftType | str | int) -> FftType:
    """JAX takes the enumeration, its names and, for some, jaxlib's own enumeration, which has the same names."""
    name = getattr(fft_type, "name", fft_type)
    try:
        return FftType[name.upper()] if isinstance(name, str) else FftType(name)
    except (KeyError, ValueError):
        names = ", ".join(f'"{kind.name}"' for kind in FftType)
        raise ValueError(f"fft: fft_type is {fft_type!r}; write one of {names}\n  at {line_of(user_source())}") from None
