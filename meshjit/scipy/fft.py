"""`jax.scipy.fft`: cosine transforms of types 2 and 3, by the complex transform of twice the length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.missing import explain as _explain
from meshjit.numpy.promote import normal_axis, promoted, shape_of
from meshjit.ops.base.families import part_dtype
from meshjit.trace import line_of, user_source


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`scipy.fft.dct` of real numbers along one dim, cut or filled with zeros to n places. type is 2 or 3 (JAX has 2),
    norm None, "backward" or "ortho"."""
    return _transform("dct", x, type, n, axis, norm, inverse=False)


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:  # noqa: A002
    """`scipy.fft.idct`, the inverse of `dct` with the same arguments."""
    return _transform("idct", x, type, n, axis, norm, inverse=True)


def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None  # noqa: A002
) -> Any:
    """`scipy.fft.dctn`: dct along `axes` (all, or the last len(s)) one after another."""
    return _along_axes("dctn", x, type, s, axes, norm, inverse=False)


def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None  # noqa: A002
) -> Any:
    """`scipy.fft.idctn`, the inverse of `dctn` with the same arguments."""
    return _along_axes("idctn", x, type, s, axes, norm, inverse=True)


def _along_axes(name: str, x: Any, kind: int, s: Any, axes: Any, norm: str | None, inverse: bool) -> Any:
    rank = len(shape_of(x))
    if axes is None:
        axes = range(rank) if s is None else range(rank - len(s), rank)
    axes = tuple(axes) if hasattr(axes, "__iter__") else (axes,)
    if s is not None and len(s) > rank:
        raise ValueError(f"{name}: {len(s)} lengths for {rank} dims\n  at {line_of(user_source())}\n  fix: one per dim of axes")
    lengths = [None] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes) or len({normal_axis(a, rank) for a in axes}) != len(axes):
        raise ValueError(
            f"{name}: axes {tuple(axes)} must be different, and as many as lengths {s}"
            f"\n  at {line_of(user_source())}"
        )
    for axis, n in zip(axes, lengths, strict=True):
        x = _transform(name, x, kind, n, axis, norm, inverse)
    return mnp.asarray(x)


def _transform(name: str, x: Any, kind: int, n: int | None, axis: int, norm: str | None, inverse: bool) -> Any:
    (x,), _ = promoted(x, inexact=True)
    if x.dtype.kind == "c":
        raise TypeError(f"{name} takes real numbers, got {x.dtype}\n  at {line_of(user_source())}\n  fix: the parts one by one")
    if kind not in (2, 3):
        raise NotImplementedError(f"{name}: type is {kind!r}; types 2 and 3 are there\n  at {line_of(user_source())}")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f'{name}: norm is {norm!r}; write "backward" or "ortho"\n  at {line_of(user_source())}')
    dim = normal_axis(axis, len(shape_of(x)))
    x = mnp.moveaxis(x.astype(np.float32) if x.dtype.itemsize < 4 else x, dim, -1)  # as scipy.fft has 16-bit floats
    x = x if n is None else _of_length(x, n)
    if not shape_of(x)[-1]:
        raise ValueError(f"{name}: there is nothing to transform along dim {dim}\n  at {line_of(user_source())}")
    ortho = norm == "ortho"
    scale = 0.5 / shape_of(x)[-1] if inverse and not ortho else 1.0
    result = _second(x, ortho) if (kind == 2) != inverse else _third(x, ortho)
    return mnp.moveaxis(result * scale if scale != 1 else result, -1, dim)


def _of_length(x: Any, n: int) -> Any:
    x = x[..., :n]
    missing = n - shape_of(x)[-1]
    return mnp.pad(x, [(0, 0)] * (len(shape_of(x)) - 1) + [(0, missing)]) if missing else x


def _turns(n: int, dtype: Any, sign: int) -> Any:
    """exp(± i π k / 2n) for every k below n."""
    angle = mnp.arange(n, dtype=dtype) * (sign * math.pi / (2 * n))
    return mnp.cos(angle) + 1j * mnp.sin(angle)


def _norms(n: int, dtype: Any) -> Any:
    """The factors that make the transform of type 2 an orthogonal matrix."""
    return mnp.where(mnp.arange(n) == 0, math.sqrt(0.25 / n), math.sqrt(0.5 / n)).astype(dtype)


def _second(x: Any, ortho: bool) -> Any:
    """2 Σ x_m cos(π k (2m + 1) / 2n): x and its mirror image have a spectrum that is real but for a turn."""
    n, dtype = shape_of(x)[-1], x.dtype
    spectrum = mnp.fft.fft(mnp.concatenate([x, mnp.flip(x, -1)], -1))[..., :n]
    result = mnp.real(spectrum * _turns(n, dtype, -1)).astype(dtype)
    return result * _norms(n, dtype) if ortho else result


def _third(x: Any, ortho: bool) -> Any:
    """x_0 + 2 Σ x_m cos(π m (2k + 1) / 2n), of m from 1 on."""
    n, dtype = shape_of(x)[-1], x.dtype
    if ortho:
        x = x * _norms(n, dtype) * np.where(np.arange(n) == 0, 2, 1).astype(dtype)
    factors = mnp.where(mnp.arange(n) == 0, 1, 2).astype(dtype)
    turned = x * factors * _turns(n, dtype, 1)
    whole = mnp.concatenate([turned, mnp.zeros_like(turned)], -1)
    return (mnp.real(mnp.fft.ifft(whole))[..., :n] * (2 * n)).astype(part_dtype(turned.dtype))


_explain(__name__)
