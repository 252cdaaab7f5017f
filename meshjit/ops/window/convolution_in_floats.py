"""Convolutions of complex numbers and integers by those of floats, for machines that have no others (cuDNN).

Complex ones are four real ones. Integers are cut into pieces of 16 bits. A sum of products of two pieces is exact in float64 as
long as a window has no more than 2**21 elements. The result, without its higher bits, is the sum of those that reach into it:

    x = x1 2**16 + x0    w = w1 2**16 + w0    of 32 bits:  x * w = x0 * w0 + (x0 * w1 + x1 * w0) 2**16
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.op import Params
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import add, subtract
from meshjit.ops.base.bits import and_, shift_left, shift_right_arithmetic, shift_right_logical
from meshjit.ops.base.constants import full_like
from meshjit.ops.base.conversion import complex_, convert, imag, in_dtype, real
from meshjit.ops.base.families import part_dtype

_PIECE = 16
_EXACT = np.dtype(np.float64)

Convolve = Callable[[Var, Var], Var]


@functools.lru_cache(maxsize=64)
def in_floats(types: tuple[TensorType, TensorType], out: TensorType, params: tuple[tuple[str, Any], ...], op: Any) -> Program:
    """The Program of one convolution; `op` is the op itself."""
    given: Params = dict(params)
    with Builder("convolution") as builder:
        x, w = (builder.input(type) for type in types)
        if x.dtype.kind == "c":
            floats = {**given, "preferred": given["preferred"] and part_dtype(out.dtype)}
            return builder.build([_complex(x, w, lambda a, b: op(a, b, **floats))])
        floats = {**given, "preferred": None, "precision": None}
        dtype = np.promote_types(x.dtype, out.dtype) if out.dtype.kind in "iu" else x.dtype
        total = _integer(x, w, dtype, lambda a, b: op(a, b, **floats))
        return builder.build([in_dtype(total, out.dtype)])


def _complex(x: Var, w: Var, convolve: Convolve) -> Var:
    (a, b), (c, d) = (real(x), imag(x)), (real(w), imag(w))
    return complex_(subtract(convolve(a, c), convolve(b, d)), add(convolve(a, d), convolve(b, c)))


def _integer(x: Var, w: Var, dtype: np.dtype[Any], convolve: Convolve) -> Var:
    left, right, products = _pieces(x), _pieces(w), list[Var]()
    for (i, a), (j, b) in itertools.product(enumerate(left), enumerate(right)):
        amount = _PIECE * (i + j)
        if amount < 8 * dtype.itemsize:
            whole = convert(convolve(a, b), dtype=np.dtype(np.int64))
            product = in_dtype(whole, dtype)
            products.append(shift_left(product, full_like(product, amount)) if amount else product)
    return functools.reduce(add, products)


def _pieces(x: Var) -> list[Var]:
    """As float64, the lowest first. All but the highest are positive."""
    bits, pieces = 8 * x.dtype.itemsize, []
    shift = shift_right_arithmetic if x.dtype.kind == "i" else shift_right_logical
    while bits > _PIECE:
        low = and_(x, full_like(x, (1 << _PIECE) - 1))
        pieces.append(convert(low, dtype=_EXACT))
        x, bits = shift(x, full_like(x, _PIECE)), bits - _PIECE
    return [*pieces, convert(x, dtype=_EXACT)]

