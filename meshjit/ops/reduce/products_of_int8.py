"""Products of int8 that are added in int32, as they are written for GPUs.

XLA's own kernels for them (Triton's, jaxlib 0.11.2 on an H200) give twice the sum. Where all extents are multiples of 16 there
are cuBLAS's, too, with which XLA compares its own while it tunes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.op import Params, Types
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import integers

MULTIPLE: Final = 16
MOST_IN_FLOAT32: Final = 1024  # products of int8, at most 2**14, of which a float32 of 24 bits holds every sum

Dims = tuple[int, ...]
Plain = Callable[[Any, Sequence[str], Types, Types, Params], Sequence[str]]


def emit_in_int32(
    e: Any, operands: Sequence[str], ins: Types, out: TensorType, params: Params, free: tuple[Dims, Dims], plain: Plain
) -> str:
    """A dot_general of int8 with sums of int32 that XLA computes rightly on a GPU. `free`: the operands' dims that are neither
    contracted nor batches; `plain` writes a dot_general as it is."""
    left, right = params["contract"]
    groups = ((0, free[0]), (1, free[1]), (0, left))
    if 0 in out.shape or (e.target.compares_kernels and all(_extent(ins[n], dims) % MULTIPLE == 0 for n, dims in groups)):
        return plain(e, operands, ins, (out,), params)[0]
    if _extent(ins[0], left) <= MOST_IN_FLOAT32:
        return _through(e, operands, ins, out, params, plain, (DTYPES["bf16"], DTYPES["f32"]))
    if not e.target.compares_kernels or not all(dims for _, dims in groups):
        return _through(e, operands, ins, out, params, plain, (DTYPES["i32"], DTYPES["i32"]))
    padded = _filled(ins[0], free[0], left), _filled(ins[1], free[1], right)
    return _cut(e, _product_of_padded(e, operands, ins, padded, out, params, free, plain), out)


def _product_of_padded(
    e: Any, operands: Sequence[str], ins: Types, to: Types, out: TensorType, params: Params, free: tuple[Dims, Dims], plain: Plain
) -> str:
    factors = [_pad(e, x, type, padded) for x, type, padded in zip(operands, ins, to, strict=True)]
    extents = [to[n].shape[d] for n, dims in ((0, params["batch"][0]), (0, free[0]), (1, free[1])) for d in dims]
    return plain(e, factors, to, (out.with_shape(tuple(extents)),), params)[0]


def _extent(type: TensorType, dims: Dims) -> int:
    return math.prod(type.shape[d] for d in dims)


def _through(
    e: Any, operands: Sequence[str], ins: Types, out: TensorType, params: Params, plain: Plain, dtypes: Sequence[np.dtype[Any]]
) -> str:
    """By factors of one dtype, added up in another."""
    factors, sums = dtypes
    types = tuple(type.with_dtype(factors) for type in ins)
    converted = [e.op("convert", [x], [type])[0] for x, type in zip(operands, types, strict=True)]
    result = plain(e, converted, types, (out.with_dtype(sums),), params)[0]
    return result if sums == out.dtype else e.op("convert", [result], [out])[0]


def _filled(type: TensorType, *groups: Dims) -> TensorType:
    """With the last dim of each group so long that the product of the group's extents is a multiple."""
    shape = list(type.shape)
    for dims in groups:
        step = MULTIPLE // math.gcd(MULTIPLE, _extent(type, dims[:-1]))
        shape[dims[-1]] = -(-shape[dims[-1]] // step) * step
    return type.with_shape(tuple(shape))


def _pad(e: Any, operand: str, type: TensorType, to: TensorType) -> str:
    if type == to:
        return operand
    none = integers([0] * type.rank)
    high = integers([b - a for a, b in zip(type.shape, to.shape, strict=True)])
    edges = f"edge_padding_low = {none}, edge_padding_high = {high}, interior_padding = {none}"
    return e.op("pad", [operand, e.constant(np.zeros((), type.dtype))], [to], edges)[0]


def _cut(e: Any, operand: str, to: TensorType) -> str:
    start, ones = integers([0] * to.rank), integers([1] * to.rank)
    return e.op("slice", [operand], [to], f"start_indices = {start}, limit_indices = {integers(to.shape)}, strides = {ones}")[0]
