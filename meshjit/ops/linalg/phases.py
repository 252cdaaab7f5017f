"""One direction for vectors that are unique up to a phase: those of eigh, eig and svd are the same on all backends.

Of every vector, which has length 1, the largest element is real and positive: of several that are equal to within 1/4096 the
first, so that rounding does not choose among those of [1, -1] / √2. That element is found by one maximum of integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.program import Var
from meshjit.core.types import DTYPES
from meshjit.ops.base.arithmetic import abs_, add, divide, multiply, scale, subtract
from meshjit.ops.base.bits import and_, shift_right_logical
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import full_like, iota, zeros_like
from meshjit.ops.base.conversion import complex_, convert, imag, real
from meshjit.ops.base.reduction import reduce_max, reduce_sum, restore
from meshjit.ops.base.transcendental import sqrt
from meshjit.ops.linalg.matrices import conj

Array = np.ndarray[Any, Any]
_INT = DTYPES["i32"]


def _bits(rows: int) -> tuple[int, int]:
    """Bits for an element's place and for its size, which together with one for the sign make an i32 that is not negative."""
    place = max(1, (rows - 1).bit_length())
    return place, max(1, min(12, 29 - place))


# -- NumPy: columns


def phases(vectors: Array) -> Array:
    """[..., 1, n]: what turns the largest element of every column to the positive reals."""
    with np.errstate(all="ignore"):
        size = np.sqrt(vectors.real**2 + vectors.imag**2) if vectors.dtype.kind == "c" else np.abs(vectors)
        rounded = (size * 2 ** _bits(vectors.shape[-2])[1]).astype(_INT)
        top = np.take_along_axis(vectors, np.argmax(rounded, -2)[..., None, :], -2)
        return np.conj(top) / np.abs(top)


# -- Vars: vectors along any dim, to which the results have their shape


def phase(vectors: Var, dim: int) -> Var:
    """What turns the largest element of every vector along `dim` to the positive reals; without that dim."""
    key = _largest(vectors, dim)
    if vectors.dtype.kind != "c":
        sign = subtract(full_like(key, 1), multiply(full_like(key, 2), and_(key, full_like(key, 1))))
        return convert(sign, dtype=vectors.dtype)
    top = _at(key, vectors, dim)
    size = _size(top)
    return divide(conj(top), complex_(size, zeros_like(size)))


def rotation(vectors: Var, change: Var, dim: int) -> Var:
    """i φ, where φ is how fast the largest element of every vector along `dim` leaves the reals; without that dim."""
    key = _largest(vectors, dim)
    angle = divide(_at(key, imag(change), dim), _at(key, real(vectors), dim))
    return complex_(zeros_like(angle), angle)


def _size(x: Var) -> Var:
    if x.dtype.kind != "c":
        return abs_(x)
    return sqrt(add(multiply(real(x), real(x)), multiply(imag(x), imag(x))))


def _largest(vectors: Var, dim: int) -> Var:
    """i32: size, place counted from the end, and sign of the largest element, in this order of bits."""
    rows = vectors.shape[dim]
    place_bits, size_bits = _bits(rows)
    size = convert(scale(_size(vectors), 2.0**size_bits), dtype=_INT)
    place = subtract(full_like(size, rows - 1), iota(dtype=_INT, shape=vectors.shape, dimension=dim))
    key = add(multiply(size, full_like(size, 2 << place_bits)), multiply(place, full_like(size, 2)))
    if vectors.dtype.kind != "c":
        is_negative = compare(vectors, zeros_like(vectors), direction="LT")
        key = add(key, convert(is_negative, dtype=_INT))
    return reduce_max(key, axes=(dim,))


def _at(key: Var, x: Var, dim: int) -> Var:
    """The element of every vector that `key` says."""
    rows = x.shape[dim]
    mask = full_like(key, (1 << _bits(rows)[0]) - 1)
    from_end = and_(shift_right_logical(key, full_like(key, 1)), mask)
    own = restore(subtract(full_like(key, rows - 1), from_end), x.shape, (dim,))
    chosen = compare(iota(dtype=_INT, shape=x.shape, dimension=dim), own, direction="EQ")
    return reduce_sum(select(chosen, x, zeros_like(x)), axes=(dim,))
