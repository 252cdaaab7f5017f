"""Images made larger, smaller, and moved (`jax.image`): each spatial dim is a product with a small matrix of weights, so all
shardings of an image work, and its derivatives."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as onp

import meshjit.numpy as np
from meshjit import lax

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How an element between those of the image is made of them (`jax.image.ResizeMethod`)."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name. ValueError for an unknown one, with those that are known."""
        if s not in _NAMES:
            raise ValueError(f"image: there is no method {s!r}\n  fix: use one of {', '.join(_NAMES)}")
        return _NAMES[s]


_NAMES: Final = {
    **dict.fromkeys(("nearest",), ResizeMethod.NEAREST),
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    **dict.fromkeys(("lanczos3",), ResizeMethod.LANCZOS3),
    **dict.fromkeys(("lanczos5",), ResizeMethod.LANCZOS5),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
}


def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Any:
    """The image in another shape of as many dims (`jax.image.resize`); dims that keep their extent are left alone.

    method: "nearest", "linear", "cubic" (Keys, 1981, with a = -1/2), "lanczos3" or "lanczos5", or a ResizeMethod.
    antialias: whether elements of a smaller image are means of all that fall together. The image's dtype stays with
    "nearest"; otherwise whole numbers become floating. ValueError where `shape` has another number of dims."""
    method, image, shape = _method(method), np.asarray(image), tuple(int(n) for n in shape)
    if len(shape) != image.ndim:
        raise ValueError(
            f"shape must have length equal to the number of dimensions of x;  {shape} vs {image.shape}\n"
            "  fix: name every dim of the image, batch and channels too"
        )
    dims = [d for d, (before, after) in enumerate(zip(image.shape, shape, strict=True)) if before != after]
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape, dims)
    scales = [1.0 if image.shape[d] == 0 else shape[d] / image.shape[d] for d in dims]
    image = image.astype(np.result_type(image, np.float32) if not _is_inexact(image) else image.dtype)
    return _weighted(image, shape, dims, scales, [0.0] * len(dims), method, antialias, precision)


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Any:
    """An image of `shape` whose element at y in `spatial_dims` is that of `image` at (y - translation) / scale
    (`jax.image.scale_and_translate`). Elements outside of the image are 0.

    scale, translation: one number per spatial dim; both may be traced, and derivatives exist for both. ValueError for
    "nearest", for another number of dims, and where other dims than the spatial ones change."""
    method, image, shape = _method(method), np.asarray(image), tuple(int(n) for n in shape)
    if method is ResizeMethod.NEAREST:
        raise ValueError('scale_and_translate: "nearest" has no weights\n  fix: use image.resize, or another method')
    if len(shape) != image.ndim:
        raise ValueError(f"scale_and_translate: shape {shape} has {len(shape)} dims, and the image {image.ndim}")
    dims = [_dim(d, image.ndim) for d in spatial_dims]
    changed = [d for d in range(image.ndim) if d not in dims and shape[d] != image.shape[d]]
    if changed:
        raise ValueError(
            f"scale_and_translate: dim {changed[0]} is no spatial one, and its extent changes from"
            f" {image.shape[changed[0]]} to {shape[changed[0]]}"
        )
    scale, translation = (np.asarray(x) for x in (scale, translation))
    if not scale.shape == translation.shape == (len(dims),):
        raise ValueError(
            f"scale_and_translate: {len(dims)} spatial dims need as many scales and translations; these have shapes"
            f" {scale.shape} and {translation.shape}"
        )
    image = image if _is_inexact(image) else image.astype(np.result_type(image, np.float32))
    moves = [scale[i] for i in range(len(dims))], [translation[i] for i in range(len(dims))]
    return _weighted(image, shape, dims, *moves, method, antialias, precision)


def _dim(d: int, rank: int) -> int:
    if not -rank <= d < rank:
        raise ValueError(f"scale_and_translate: spatial_dims has {d}, and the image {rank} dims")
    return d % rank


def _method(method: str | ResizeMethod) -> ResizeMethod:
    return ResizeMethod.from_string(method) if isinstance(method, str) else method


def _is_inexact(x: Any) -> bool:
    return bool(np.issubdtype(x.dtype, np.inexact))


def _nearest(image: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
    for d in dims:
        before, after = image.shape[d], shape[d]
        places = onp.floor((onp.arange(after, dtype=onp.float32) + 0.5) * before / after).astype(onp.int32)
        image = np.take(image, places, axis=d)
    return image


def _weighted(
    image: Any,
    shape: Sequence[int],
    dims: Sequence[int],
    scales: Sequence[Any],
    translations: Sequence[Any],
    method: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Any:
    real = image.real.dtype
    for d, scale, translation in zip(dims, scales, translations, strict=True):
        weights = _weights(image.shape[d], shape[d], scale, translation, _KERNELS[method], antialias).astype(real)
        image = np.moveaxis(np.tensordot(image, weights, ((d,), (0,)), precision=precision), -1, d).astype(image.dtype)
    return image


def _weights(before: int, after: int, scale: Any, translation: Any, kernel: Callable[[Any], Any], antialias: bool) -> Any:
    """(before, after): how much of each element goes into each new one; a column adds up to 1, or to 0 outside of the image."""
    inverse = 1.0 / np.asarray(scale, np.float32)
    wide = np.maximum(inverse, 1.0) if antialias else 1.0
    places = (np.arange(after, dtype=np.float32) + 0.5) * inverse - np.asarray(translation, np.float32) * inverse - 0.5
    weights = kernel(np.abs(places - np.arange(before, dtype=np.float32)[:, None]) / wide)
    total = np.sum(weights, 0)
    tiny = 1000 * float(onp.finfo(onp.float32).eps)
    weights = np.where(np.abs(total) > tiny, weights / np.where(total != 0, total, 1), 0)
    return np.where((places >= -0.5) & (places <= before - 0.5), weights, 0)


def _triangle(x: Any) -> Any:
    return np.maximum(0.0, 1 - x)


def _keys(x: Any) -> Any:
    near, far = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0.0, np.where(x >= 1, far, near))


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        bell = radius * np.sin(math.pi * x) * np.sin(math.pi * x / radius)
        inside = np.where(x > 1e-3, bell / np.where(x != 0, math.pi**2 * x**2, 1), 1)
        return np.where(x > radius, 0.0, inside)

    return kernel


_KERNELS: Final[dict[ResizeMethod, Callable[[Any], Any]]] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.CUBIC: _keys,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
}
