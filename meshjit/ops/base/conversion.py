"""Other dtypes for the same numbers: convert, reduce_precision, and complex numbers and their parts.

Transposes pair a value x with a cotangent c as Re(sum(x * c)), without conjugation, as JAX does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.op import Params, Sample, Types
from meshjit.core.program import Var
from meshjit.core.stored import wide_of
from meshjit.core.types import (
    DTYPES,
    SMALL_FLOATS,
    STORED,
    TensorType,
    is_float,
    is_inexact,
    is_integer,
    kind_of,
    short_name,
)
from meshjit.ops.base.arithmetic import negate
from meshjit.ops.base.constants import emit_splat, zeros_like
from meshjit.ops.base.families import elementwise, elementwise_type, part_dtype, require, require_param

Array = np.ndarray[Any, Any]


# -- convert


def _convert_type(in_types: Types, params: Params) -> Types:
    require(len(in_types) == 1, "convert", f"takes 1 operand, was given {len(in_types)}")
    short_name(params["dtype"])
    return (in_types[0].with_dtype(params["dtype"]),)


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """What XLA makes of it: floats to integers truncate and saturate, nan is 0; a complex loses its imaginary part."""
    if dtype == np.bool_:
        return array != 0
    if array.dtype.kind == "c" and dtype.kind != "c":
        array = array.real
    with np.errstate(all="ignore"):
        if array.dtype in SMALL_FLOATS:  # not all of them are converted to one another by NumPy
            array = array.astype(np.float32)
        array = array.astype(wide_of(array.dtype))
        if is_float(array.dtype) and is_integer(dtype):
            return _saturated(array, dtype)
        return array.astype(wide_of(dtype)).astype(dtype)


def _saturated(array: Array, dtype: np.dtype[Any]) -> Array:
    limits, wide = ml_dtypes.iinfo(dtype), array.astype(np.float64)
    above, below = wide >= 2.0 ** (limits.bits - (kind_of(dtype) == "i")), wide <= float(limits.min)
    inside = np.where(above | below | np.isnan(wide), 0, wide).astype(wide_of(dtype))
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(wide_of(dtype)).astype(dtype)


def _convert_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    if outs[0] == ins[0]:
        return operands
    if outs[0].dtype == np.bool_ and ins[0].dtype.kind == "c":  # StableHLO looks at the real part alone

        zero = emit_splat(e, ins[0], 0)
        return e.op("compare", [operands[0], zero], outs, "comparison_direction = #stablehlo<comparison_direction NE>")
    if ins[0].dtype.kind == "c" and outs[0].dtype.kind != "c":  # XLA dies of folding a scalar constant that converts so
        part = ins[0].with_dtype(part_dtype(ins[0].dtype))
        return _convert_emit(e, e.op("real", operands, [part]), (part,), outs, params)
    return e.op("convert", operands, outs)


def _convert_linear(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    return ((0,),) if is_inexact(in_types[0].dtype) and is_inexact(params["dtype"]) else ()


def _convert_keeps_sums(in_types: Types, params: Params) -> bool:
    """Whether any number of the operand's dtype is near one of the result's: bfloat16 has float32's range, float16 has not."""
    kinds = (in_types[0].dtype, np.dtype(params["dtype"]))
    if kinds[0] in STORED:  # nothing is added up in it
        return False
    return not all(map(is_inexact, kinds)) or has_range_of(kinds[1], kinds[0])


def has_range_of(result: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Whether any number of an inexact dtype is near one of another that is made for computing."""
    own, other = ml_dtypes.finfo(result), ml_dtypes.finfo(source)
    return own.bits >= 16 and other.maxexp <= own.maxexp and other.minexp >= own.minexp


def in_one_dtype(cotangent: Var, other: Var) -> tuple[Var, Var]:
    """Of a product whose result is wider than its factors (`preferred`): a cotangent and a factor, for the product backwards.
    In the factors' dtype if it has the range of the cotangent's, as bfloat16 has float32's; in float16 small ones would be 0."""
    if other.dtype == cotangent.dtype:
        return cotangent, other
    if has_range_of(other.dtype, cotangent.dtype):
        return convert(cotangent, dtype=other.dtype), other
    return cotangent, convert(other, dtype=cotangent.dtype)


def _convert_jvp(primals, tangents, outs, params):
    """Between inexact dtypes the tangent is converted, too; integers and bools have none."""
    if tangents[0] is None or not _convert_linear((primals[0].type,), params):
        return [None]
    return [convert(tangents[0], **params)]


def _convert_transpose(cotangents, operands, in_types, params):
    return [convert(cotangents[0], dtype=in_types[0].dtype)]


def _convert_samples() -> list[Sample]:
    names = ("f32", "i32", "bool", "c64", "bf16", "u8", "f64", "i8", "f16", *map(short_name, (*SMALL_FLOATS, *STORED)))
    pairs = [(a, b) for a in names for b in names]
    return [Sample((TensorType((4, 3), DTYPES[a]),), {"dtype": DTYPES[b]}) for a, b in pairs]


convert = elementwise(
    "convert",
    converted,
    arity=1,
    type_rule=_convert_type,
    emit=_convert_emit,
    linear=_convert_linear,
    keeps_sums=_convert_keeps_sums,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    samples=_convert_samples,
    widen=False,
)


def in_dtype(var: Var, dtype: np.dtype[Any]) -> Var:
    """The value converted to a dtype; itself if it has that one."""
    return var if var.dtype == dtype else convert(var, dtype=dtype)


# -- reduce_precision: as if the value were stored with fewer bits and read back


def _reduce_precision_type(in_types: Types, params: Params) -> Types:
    for name, least in (("exponent_bits", 1), ("mantissa_bits", 0)):
        fits = isinstance(params[name], int) and params[name] >= least
        require_param(fits, "reduce_precision", name, params[name], f"an int of at least {least} is needed")
    return elementwise_type("reduce_precision", 1, "float", lambda types: types[0].dtype)(in_types, params)


# dtype of the computation -> (an integer of the same width, mantissa bits, exponent bits)
_LAYOUT = {np.dtype(np.float32): (np.uint32, 23, 8), np.dtype(np.float64): (np.uint64, 52, 11)}


def _reduce_precision(array: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round the mantissa to nearest even; then too large is infinite, and too small for a normal number is zero."""
    kind, mantissa, exponent = _LAYOUT[array.dtype]
    rounded = _rounded_mantissa(array, kind, mantissa - mantissa_bits)
    if exponent_bits >= exponent:
        return np.where(np.isnan(array), array, rounded)
    bias = 2 ** (exponent_bits - 1) - 1
    largest = 2.0**bias * (2 - 2.0**-mantissa_bits)
    smallest = 2.0 ** (1 - bias)
    sized = np.where(np.abs(rounded) > largest, np.copysign(np.inf, array), rounded)
    sized = np.where(np.abs(rounded) < smallest, np.copysign(0, array), sized)
    return np.where(np.isnan(array), array, sized)


def _rounded_mantissa(array: Array, kind: Any, dropped: int) -> Array:
    """Drop this many mantissa bits, adding first what carries a half upwards, or an exact half to the even one."""
    if dropped <= 0:
        return array
    bits = np.ascontiguousarray(array).view(kind).reshape(array.shape)
    half = kind((1 << (dropped - 1)) - 1) + ((bits >> kind(dropped)) & kind(1))
    return ((bits + half) & ~kind((1 << dropped) - 1)).view(array.dtype)


def _reduce_precision_attributes(ins: Types, params: Params) -> str:
    return f"exponent_bits = {params['exponent_bits']} : i32, mantissa_bits = {params['mantissa_bits']} : i32"


def _reduce_precision_jvp(primals, tangents, outs, params):
    return [None if tangents[0] is None else reduce_precision(tangents[0], **params)]


def _reduce_precision_transpose(cotangents, operands, in_types, params):
    return [reduce_precision(cotangents[0], **params)]


def _any_float(generator: np.random.Generator, index: int, type: TensorType) -> Array:
    reach = 4 if type.dtype == np.float16 else 9
    return generator.normal(size=type.shape) * 10.0 ** generator.integers(-reach, reach, type.shape)


# Its tangents are rounded as the values are, so it has a transpose; but a sum of rounded addends is another number than
# the rounded sum, so it is not linear.
reduce_precision = elementwise(
    "reduce_precision",
    _reduce_precision,
    arity=1,
    type_rule=_reduce_precision_type,
    attributes=_reduce_precision_attributes,
    jvp=_reduce_precision_jvp,
    transpose=_reduce_precision_transpose,
    fill=_any_float,
    sample_dtypes=("f32", "f64", "bf16", "f16"),
    sample_params=[{"exponent_bits": e, "mantissa_bits": m} for e, m in ((8, 7), (5, 10), (4, 3), (11, 52), (8, 23))],
)


# -- complex numbers and their parts


def _part_dtype(types: Types) -> np.dtype[Any]:
    return part_dtype(types[0].dtype)


def _real_transpose(cotangents, operands, in_types, params):
    return [complex_(cotangents[0], zeros_like(cotangents[0]))]


def _imag_transpose(cotangents, operands, in_types, params):
    """Im(x) c = Re(x * -ic)."""
    return [complex_(zeros_like(cotangents[0]), negate(cotangents[0]))]


_PART: dict[str, Any] = {"arity": 1, "accepts": "complex", "result": _part_dtype, "linear": ((0,),)}
real = elementwise("real", np.real, transpose=_real_transpose, **_PART)
imag = elementwise("imag", np.imag, transpose=_imag_transpose, **_PART)


def _complex_type(in_types: Types, params: Params) -> Types:
    dtypes = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}
    types = elementwise_type("complex", 2, "float", lambda types: types[0].dtype)(in_types, params)
    require(types[0].dtype in dtypes, "complex", f"parts must be f32 or f64, are {types[0]}")
    return (types[0].with_dtype(dtypes[types[0].dtype]),)


def _complex(a: Array, b: Array) -> Array:
    out = np.empty(a.shape, np.result_type(a, np.complex64))
    out.real, out.imag = a, b  # a + 1j * b would make nan of an infinite b
    return out


def _complex_transpose(cotangents, operands, in_types, params):
    """Re((a + ib) c) = a Re(c) - b Im(c)."""
    (ct,), (a, b) = cotangents, operands
    return [real(ct) if a is None else None, negate(imag(ct)) if b is None else None]


complex_ = elementwise(
    "complex",
    _complex,
    arity=2,
    type_rule=_complex_type,
    linear=((0, 1),),
    transpose=_complex_transpose,
    sample_dtypes=("f32", "f64"),
)


def _conjugate_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    part = outs[0].with_dtype(_part_dtype(ins))
    re, im = e.op("real", operands, [part])[0], e.op("imag", operands, [part])[0]
    return e.op("complex", [re, e.op("negate", [im], [part])[0]], outs)


conjugate = elementwise(
    "conjugate",
    np.conj,
    arity=1,
    accepts="complex",
    linear=((0,),),
    emit=_conjugate_emit,
    transpose=lambda cotangents, operands, in_types, params: [conjugate(cotangents[0])],
)
