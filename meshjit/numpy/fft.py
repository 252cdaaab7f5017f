"""`jax.numpy.fft`: discrete Fourier transforms, one equation per dim.

Transforms of several dims go last dim first, their inverses first dim first: with the first dims sharded the first
transforms need no communication, one all-to-all brings the next dims together, and the inverse starts where the
transform ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit.core.splat import splat
from meshjit.core.types import is_float, kind_of
from meshjit.missing import explain as _explain
from meshjit.numpy import ufuncs
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.creation import iota
from meshjit.numpy.filling import placed
from meshjit.numpy.places import counted, place_dtype
from meshjit.numpy.promote import asarray, cast, concrete, dtype_of, float_of, lifted, normal_axis, ops, promoted, shape_of
from meshjit.numpy.rearranging import roll
from meshjit.numpy.shaping import slice_in_dim
from meshjit.trace import bind, line_of, user_source

Axes = tuple[int, ...]


# -- one dim after another


def transform(x: Any, kind: str, axes: Sequence[int], lengths: Sequence[int]) -> Any:
    """The op of this kind (FFT, IFFT, RFFT, IRFFT) along `axes`, an equation each; `lengths` are those of the real or
    complex lines. `x` has the extents and dtype that the op asks for."""
    pairs = list(zip(axes, lengths, strict=True))
    if not pairs:
        return asarray(x)
    if kind == "RFFT":
        x = _along(x, "RFFT", *pairs.pop())
        return transform(x, "FFT", [a for a, _ in pairs], [n for _, n in pairs])
    real = [pairs.pop()] if kind == "IRFFT" else []
    for axis, length in reversed(pairs) if kind == "FFT" else pairs:
        x = _along(x, "FFT" if kind == "FFT" else "IFFT", axis, length)
    for axis, length in real:
        x = _along(x, "IRFFT", axis, length)
    return x


def _along(x: Any, kind: str, axis: int, length: int) -> Any:
    return bind(ops("fft"), x, kind=kind, axes=(axis,), lengths=(int(length),))


def complex_of(x: Any) -> Any:
    """`x` in the complex dtype that it is transformed in: complex128 for 64 bits, else complex64."""
    wide = dtype_of(promoted(x, inexact=True)[0][0]) in (np.float64, np.complex128)
    return cast(x, np.complex128 if wide else np.complex64)


def real_of(x: Any, name: str) -> Any:
    """`x` in the real dtype that it is transformed in; ValueError for complex numbers."""
    x = promoted(x, inexact=True)[0][0]
    if dtype_of(x).kind == "c":
        raise ValueError(
            f"{name} takes real arrays, got {dtype_of(x)}\n  at {line_of(user_source())}\n"
            f"  fix: pass x.real, or use {name.replace('rfft', 'fft')}"
        )
    return x if dtype_of(x) == np.float64 else cast(x, np.float32)


# -- arguments as JAX's


def _fft(name: str, kind: str, x: Any, s: Any, axes: Any, norm: str | None) -> Any:
    shape = shape_of(x)
    if axes is None:
        axes = range(len(shape)) if s is None else range(len(shape) - len(s), len(shape))
    axes = _checked_axes(name, axes, s, len(shape))
    x = real_of(x, name) if kind == "RFFT" else complex_of(x)
    lengths = _lengths(name, kind, shape, s, axes)
    _factor(name, kind, (1,), norm)
    if min(lengths, default=1) < 1:
        extents = dict(zip(axes, lengths, strict=True))
        nothing = tuple(max(extents.get(d, n), 0) for d, n in enumerate(shape))
        return _of_nothing(x, kind, nothing, axes)
    for i, (axis, length) in enumerate(zip(axes, lengths, strict=True)):
        half = kind == "IRFFT" and i == len(axes) - 1
        x = _resized(x, axis, length // 2 + 1 if half else length)
    result = transform(x, kind, axes, lengths)
    factor = _factor(name, kind, lengths, norm)
    return lifted(result if factor == 1 else ufuncs.multiply(result, factor))


def _of_nothing(x: Any, kind: str, shape: Sequence[int], axes: Axes) -> Any:
    """Complex lines of no points have a transform of none."""
    if kind == "RFFT":
        shape = tuple(n // 2 + 1 if d == axes[-1] else n for d, n in enumerate(shape))
    dtype = dtype_of(complex_of(x)) if kind != "IRFFT" else dtype_of(ufuncs.real(x))
    return lifted(np.zeros(shape, dtype))


def _checked_axes(name: str, axes: Any, s: Any, rank: int) -> Axes:
    dims = tuple(normal_axis(a, rank) for a in axes)
    if len(set(dims)) != len(dims):
        raise ValueError(f"{name}: axes {tuple(axes)} name a dim twice\n  at {line_of(user_source())}")
    if s is not None and len(s) != len(dims):
        raise ValueError(
            f"{name}: s has {len(s)} entries and axes {len(dims)}; they must be equally many\n"
            f"  at {line_of(user_source())}"
        )
    return dims


def _lengths(name: str, kind: str, shape: Sequence[int], s: Any, axes: Axes) -> list[int]:
    """Extents of the lines; of a spectrum by symmetry (IRFFT) that of the last dim defaults to 2 (extent - 1).

    ValueError for less than 1, but where that is the array's own extent: complex lines of no points have a transform of none."""
    lengths = [shape[a] for a in axes]
    if kind == "IRFFT" and lengths:
        lengths[-1] = 2 * (lengths[-1] - 1)
    given = [None] * len(lengths) if s is None else list(s)
    lengths = [n if entry is None else shape_tuple((entry,), unknown=True)[0] for n, entry in zip(lengths, given, strict=True)]
    for axis, length, entry in zip(axes, lengths, given, strict=True):
        if length < 1 and (entry is not None or (kind == "RFFT" and axis == axes[-1])):
            raise ValueError(
                f"{name}: the number of points along axis {axis} is {length}, it must be at least 1\n"
                f"  at {line_of(user_source())}"
            )
    return lengths


def _resized(x: Any, axis: int, extent: int) -> Any:
    """Cut, or filled with zeros at the end."""
    missing = extent - shape_of(x)[axis]
    if missing <= 0:
        return slice_in_dim(x, 0, extent, axis=axis)
    rank = len(shape_of(x))
    high = tuple(missing if d == axis else 0 for d in range(rank))
    zero = np.zeros((), dtype_of(x))
    return bind(ops("pad"), x, zero, low=(0,) * rank, high=high, interior=(0,) * rank)


def _factor(name: str, kind: str, lengths: Sequence[int], norm: str | None) -> float:
    """What the result is multiplied by: inverse transforms divide by the number of points already ("backward")."""
    count = math.prod(lengths)
    forward = {None: 1.0, "backward": 1.0, "ortho": 1 / math.sqrt(count), "forward": 1 / count}
    if norm not in forward:
        raise ValueError(
            f'{name}: norm is {norm!r}; write "backward", "ortho" or "forward"\n  at {line_of(user_source())}'
        )
    inverse = {None: 1.0, "backward": 1.0, "ortho": math.sqrt(count), "forward": float(count)}
    return inverse[norm] if kind in ("IFFT", "IRFFT") else forward[norm]


def _one(n: int | None) -> Any:
    return None if n is None else (n,)


def _line(name: str, axis: Any) -> Any:
    """The one dim of fft and its kin; None, as in JAX: the last with n, else all. ValueError for several."""
    if isinstance(axis, tuple | list):
        fix = f"{name}n" if name.endswith("fft") and "h" not in name else "one call per axis"
        raise ValueError(f"{name} transforms along one axis, got {axis}\n  at {line_of(user_source())}\n  fix: {fix}")
    return None if axis is None else (axis,)


# -- one dim


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.fft`: of `n` points along one axis; complex64, or complex128 of 64-bit operands."""
    return _fft("fft", "FFT", a, _one(n), _line("fft", axis), norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.ifft`: the inverse of fft."""
    return _fft("ifft", "IFFT", a, _one(n), _line("ifft", axis), norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.rfft`: of real lines, the first n // 2 + 1 elements."""
    return _fft("rfft", "RFFT", a, _one(n), _line("rfft", axis), norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.irfft`: the inverse of rfft; n defaults to 2 * (extent - 1)."""
    return _fft("irfft", "IRFFT", a, _one(n), _line("irfft", axis), norm)


_OPPOSITE: dict[str | None, str] = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.hfft`: the real spectrum of lines with Hermitian symmetry."""
    _factor("hfft", "FFT", (1,), norm)
    return _fft("hfft", "IRFFT", ufuncs.conj(complex_of(a)), _one(n), _line("hfft", axis), _OPPOSITE[norm])


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """`jax.numpy.fft.ihfft`: the inverse of hfft."""
    _factor("ihfft", "IFFT", (1,), norm)
    return ufuncs.conj(_fft("ihfft", "RFFT", a, _one(n), _line("ihfft", axis), _OPPOSITE[norm]))


# -- several dims


def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`jax.numpy.fft.fftn`: along `axes` (None: the last len(s), or all), of `s` points each."""
    return _fft("fftn", "FFT", a, s, axes, norm)


def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`jax.numpy.fft.ifftn`."""
    return _fft("ifftn", "IFFT", a, s, axes, norm)


def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`jax.numpy.fft.rfftn`: real along the last of `axes`."""
    return _fft("rfftn", "RFFT", a, s, axes, norm)


def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`jax.numpy.fft.irfftn`."""
    return _fft("irfftn", "IRFFT", a, s, axes, norm)


def _two(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    if len(axes) != 2:
        raise ValueError(f"{name}: axes must name 2 dims, got {tuple(axes)}\n  at {line_of(user_source())}")
    return _fft(name, kind, a, s, axes, norm)


def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`jax.numpy.fft.fft2`."""
    return _two("fft2", "FFT", a, s, axes, norm)


def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`jax.numpy.fft.ifft2`."""
    return _two("ifft2", "IFFT", a, s, axes, norm)


def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`jax.numpy.fft.rfft2`."""
    return _two("rfft2", "RFFT", a, s, axes, norm)


def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """`jax.numpy.fft.irfft2`."""
    return _two("irfft2", "IRFFT", a, s, axes, norm)


# -- frequencies, and where they stand


def _frequencies(name: str, n: Any, d: Any, places: Any, dtype: Any) -> Any:
    """The spacing may be an array of no dims, traced or not."""
    is_count = _is_one(n, "biu") and _count(name, n) >= 1
    if not is_count or not _is_one(d, "biuf"):
        raise ValueError(
            f"{name}: n must be an int of at least 1 and d a number, got n={n!r}, d={d!r}\n  at {line_of(user_source())}"
        )
    kind = float_of(np.dtype(np.int64)) if dtype is None else np.dtype(dtype)
    if not is_float(kind):
        raise ValueError(f"{name}: dtype must be floating, got {kind}\n  at {line_of(user_source())}")
    if not isinstance(d, int | float | np.number):
        return ufuncs.true_divide(places(kind), ufuncs.multiply(cast(d, kind), float(int(n))))
    with np.errstate(over="ignore"):
        step = np.asarray(int(n) * float(d)).astype(kind)
    # XLA multiplies by the reciprocal of a divisor that it knows, which rounds twice.
    return ufuncs.true_divide(places(kind), bind(ops("optimization_barrier"), step))


def _count(name: str, n: Any) -> int:
    return int(n) if isinstance(n, int | np.integer) else int(concrete(n, f"{name}: n is the result's extent", "an int"))


def _is_one(x: Any, kinds: str) -> bool:
    """Whether it is one number of these kinds, however large."""
    if isinstance(x, int | float | np.number):
        return np.dtype(type(x)).kind in kinds
    return hasattr(x, "dtype") and shape_of(x) == () and kind_of(dtype_of(x)) in kinds


def _signed(n: Any) -> Any:
    """0, 1, …, -2, -1."""

    def places(dtype: np.dtype[Any]) -> Any:
        shape, kind = (int(n),), place_dtype(int(n))
        half = bind(ops("constant"), value=splat(kind.type((int(n) + 1) // 2), shape))
        is_first = bind(ops("compare"), counted(shape, 0, kind), half, direction="LT")
        signed = bind(ops("select"), is_first, counted(shape, 0, kind), counted(shape, 0, kind, -int(n)))
        return bind(ops("convert"), signed, dtype=dtype)

    return places


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """`jax.numpy.fft.fftfreq`: the frequencies of fft's n elements at sample spacing d: [0, 1, …, -2, -1] / (n d)."""
    return placed(_frequencies("fftfreq", n, d, _signed(n), dtype), device)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """`jax.numpy.fft.rfftfreq`: [0, 1, …, n // 2] / (n d)."""
    return placed(_frequencies("rfftfreq", n, d, lambda dtype: iota(dtype, (int(n) // 2 + 1,), 0), dtype), device)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    """Rolled by half the extent along axes: forwards it is rounded down, back up."""
    shape = shape_of(x)
    entries = range(len(shape)) if axes is None else (axes,) if isinstance(axes, int | np.integer) else axes
    dims = tuple(normal_axis(int(a), len(shape)) for a in entries)
    return roll(x, tuple(sign * (shape[d] // 2) for d in dims), dims)


def fftshift(x: Any, axes: Any = None) -> Any:
    """`jax.numpy.fft.fftshift`: frequency 0 in the middle."""
    return _shifted(x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """`jax.numpy.fft.ifftshift`: the inverse of fftshift."""
    return _shifted(x, axes, -1)

_explain(__name__)
