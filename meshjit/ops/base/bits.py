"""Bits of integers and bools, and values seen as other values of the same width."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.op import Params, Sample, Types
from meshjit.core.types import DTYPES, TensorType, bits_of
from meshjit.ops.base.families import elementwise, require, require_param, zero_jvp

Array = np.ndarray[Any, Any]

and_ = elementwise("and", np.bitwise_and, arity=2, accepts="bits")
or_ = elementwise("or", np.bitwise_or, arity=2, accepts="bits")
xor = elementwise("xor", np.bitwise_xor, arity=2, accepts="bits")
not_ = elementwise("not", np.invert, arity=1, accepts="bits")


# -- shifts: the amount is unsigned; at the width or beyond everything is shifted out


def _amount(b: Array) -> tuple[Array, Array]:
    """The amounts where they are below the width, else 0; and where they are not below it."""
    width = 8 * b.dtype.itemsize
    beyond = (b < 0) | (b >= width)
    return np.where(beyond, 0, b).astype(b.dtype), beyond


def _shift_left(a: Array, b: Array) -> Array:
    amount, beyond = _amount(b)
    return np.where(beyond, 0, np.left_shift(a, amount))


def _shift_right_arithmetic(a: Array, b: Array) -> Array:
    """Fills with the sign bit, of unsigned integers too."""
    signed = a.view(f"i{a.dtype.itemsize}")
    amount, beyond = _amount(b)
    shifted = np.right_shift(signed, amount.astype(signed.dtype))
    return np.where(beyond, np.where(signed < 0, -1, 0), shifted).astype(signed.dtype).view(a.dtype)


def _shift_right_logical(a: Array, b: Array) -> Array:
    unsigned = a.view(f"u{a.dtype.itemsize}")
    amount, beyond = _amount(b)
    shifted = np.right_shift(unsigned, amount.astype(unsigned.dtype))
    return np.where(beyond, 0, shifted).astype(unsigned.dtype).view(a.dtype)


def _shift_fill(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    """Any bits, shifted by amounts from below zero (where there is a sign) to beyond the width."""
    limits = np.iinfo(type.dtype)
    low, high = (limits.min, limits.max) if index == 0 else (max(limits.min, -2), 8 * type.dtype.itemsize + 3)
    return generator.integers(low, high, type.shape)


_SHIFTS = {"arity": 2, "accepts": "integer", "fill": _shift_fill, "sample_dtypes": ("i32", "u8", "i8", "u32")}
shift_left = elementwise("shift_left", _shift_left, **_SHIFTS)
shift_right_arithmetic = elementwise("shift_right_arithmetic", _shift_right_arithmetic, **_SHIFTS)
shift_right_logical = elementwise("shift_right_logical", _shift_right_logical, few_bits="zero", **_SHIFTS)


# -- counting


def _bit_table(a: Array) -> Array:
    """The bits of every element along a new last dim, most significant first."""
    raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(*a.shape, a.dtype.itemsize)
    return np.unpackbits(raw[..., ::-1], axis=-1)


def _count_leading_zeros(a: Array) -> Array:
    bits = _bit_table(a)
    return np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1])


popcnt = elementwise(
    "popcnt",
    lambda a: _bit_table(a).sum(-1),
    arity=1,
    accepts="integer",
    sample_dtypes=("i32", "u8", "i8"),
    few_bits="zero",
)
count_leading_zeros = elementwise(
    "count_leading_zeros",
    _count_leading_zeros,
    arity=1,
    accepts="integer",
    sample_dtypes=("i32", "u8", "i8"),
    few_bits="none",
)


# -- bitcast_convert: the same bits as another dtype of the same width


def _bitcast_type(in_types: Types, params: Params) -> Types:
    (type,), dtype = in_types, params["dtype"]
    for each in (type.dtype, dtype):
        fits = each != np.bool_ and each.kind != "c"
        require(fits, "bitcast_convert", f"{type} to {dtype}: bool and complex have no such bits; convert them")
    fits = bits_of(type.dtype) == bits_of(dtype)
    why = f"{type} has {bits_of(type.dtype)} bits per element and {dtype} has {bits_of(dtype)}"
    require_param(fits, "bitcast_convert", "dtype", dtype, why)
    return (type.with_dtype(dtype),)


def _bitcast_samples() -> list[Sample]:
    pairs = [("f32", "i32"), ("i32", "f32"), ("f32", "u32"), ("bf16", "u16"), ("i8", "u8")]
    pairs += [("i4", "u4"), ("f4e2m1fn", "i4"), ("u2", "i2")]
    return [Sample((TensorType(s, DTYPES[a]),), {"dtype": DTYPES[b]}) for a, b in pairs for s in ((4, 3), (), (0,))]


bitcast_convert = elementwise(
    "bitcast_convert",
    lambda a, dtype: np.ascontiguousarray(a).view(dtype).reshape(a.shape),
    arity=1,
    type_rule=_bitcast_type,
    jvp=zero_jvp,
    samples=_bitcast_samples,
    widen=False,
)
