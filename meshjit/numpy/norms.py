"""Norms of vectors and matrices, with NumPy's orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.numpy import powers, reductions, ufuncs
from meshjit.numpy.promote import cast, dtype_of, normal_axes, promoted, shape_of
from meshjit.numpy.shaping import expand_dims, moveaxis, reshape
from meshjit.numpy.singular import svdvals
from meshjit.trace import line_of, user_source


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """`jax.numpy.linalg.norm`: of all elements, of vectors along an axis, or of matrices along two.

    ord of vectors: None or 2, inf, -inf, 0 or a number; of matrices: None or "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    x = promoted(x, inexact=True)[0][0]
    rank = len(shape_of(x))
    if axis is None and (ord is None or rank > 2):
        if ord is not None:
            raise ValueError(_number_of_axes(rank))
        return _euclidean(x, tuple(range(rank)), keepdims)
    axes = normal_axes(tuple(range(rank)) if axis is None else axis, rank)
    if len(axes) == 1:
        return _vectors(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrices(x, ord, axes, keepdims)
    raise ValueError(_number_of_axes(len(axes)))


def _number_of_axes(count: int) -> str:
    return f"norm: {count} axes; name one for vectors or two for matrices\n  at {line_of(user_source())}"


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:  # noqa: A002
    """`jax.numpy.linalg.vector_norm`: along any number of axes, None for all."""
    x = promoted(x, inexact=True)[0][0]
    return _vectors(x, ord, normal_axes(axis, len(shape_of(x))), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:  # noqa: A002
    """`jax.numpy.linalg.matrix_norm`: of the last two dims."""
    return norm(x, ord, (-2, -1), keepdims)


def _euclidean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if dtype_of(x).kind == "c":
        square = ufuncs.add(powers.square(ufuncs.real(x)), powers.square(ufuncs.imag(x)))
    else:
        square = powers.square(x)
    return ufuncs.sqrt(reductions.sum(square, axis=axes, keepdims=keepdims))


def _vectors(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:  # noqa: A002
    if isinstance(ord, str) and ord not in ("inf", "-inf"):
        raise ValueError(f"norm: ord {ord!r} is no norm of vectors; write a number\n  at {line_of(user_source())}")
    order = float(ord)
    size = ufuncs.absolute(x)
    if np.isinf(order):
        return _extreme(size, order > 0, axes, keepdims)
    if order == 0:
        return reductions.sum(cast(ufuncs.not_equal(x, 0), dtype_of(size)), axis=axes, keepdims=keepdims)
    if order == 1:
        return reductions.sum(size, axis=axes, keepdims=keepdims)
    if order == 2:
        return _euclidean(x, axes, keepdims)
    return powers.power(reductions.sum(powers.power(size, order), axis=axes, keepdims=keepdims), 1 / order)


def _matrices(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:  # noqa: A002
    rows, columns = axes
    if ord in (None, "f", "fro"):
        return _euclidean(x, axes, keepdims)
    if ord in (2, -2, "nuc"):
        return _spectral(x, ord, axes, keepdims)
    order = 0.0 if isinstance(ord, str) else float(ord)
    summed, other = {1.0: (rows, columns), np.inf: (columns, rows)}.get(abs(order), (None, None))
    if summed is None or other is None:
        raise ValueError(
            f"norm: ord {ord!r} is no norm of matrices; write None, 'fro', 'nuc', 1, 2, inf or the negative of one\n"
            f"  at {line_of(user_source())}"
        )
    sums = reductions.sum(ufuncs.absolute(x), axis=summed, keepdims=True)
    result = _extreme(sums, order > 0, (other,), True)
    kept = [n for d, n in enumerate(shape_of(result)) if keepdims or d not in axes]
    return reshape(result, tuple(kept))


def _extreme(sizes: Any, largest: bool, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest size, 0 of none; or the smallest."""
    if largest:
        return reductions.max(sizes, axis=axes, keepdims=keepdims, initial=0)
    return reductions.min(sizes, axis=axes, keepdims=keepdims)


def _spectral(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:  # noqa: A002
    """Of singular values: the largest, the smallest, their sum."""
    values = svdvals(moveaxis(x, axes, (-2, -1)))
    dim = len(shape_of(values)) - 1
    norm = reductions.sum(values, axis=dim) if ord == "nuc" else _extreme(values, ord == 2, (dim,), False)
    result = cast(norm, dtype_of(values))
    return expand_dims(result, axes) if keepdims else result
