"""Elementwise arithmetic: one paragraph an op, the record last. Integers behave as XLA's do (see each op)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit import ops
from meshjit.core.op import Params, Types
from meshjit.core.program import Var
from meshjit.core.types import is_inexact
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import emit_splat, full_like, zeros_like
from meshjit.ops.base.families import elementwise, elementwise_type, part_dtype, require_param, zero_jvp

Array = np.ndarray[Any, Any]


def _negate_transpose(cotangents, operands, in_types, params):
    return [negate(cotangents[0])]


negate = elementwise("negate", np.negative, arity=1, linear=((0,),), transpose=_negate_transpose)


def _add_transpose(cotangents, operands, in_types, params):
    return [cotangents[0] if x is None else None for x in operands]


add = elementwise("add", np.add, arity=2, linear=((0, 1),), transpose=_add_transpose)


def add_tangents(*terms: Var | None) -> Var | None:
    """The sum of those tangents that are not zero; None if all are."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else add(total, term)
    return total


def _subtract_transpose(cotangents, operands, in_types, params):
    a, b = operands
    return [cotangents[0] if a is None else None, negate(cotangents[0]) if b is None else None]


subtract = elementwise("subtract", np.subtract, arity=2, linear=((0, 1),), transpose=_subtract_transpose)


def _multiply_transpose(cotangents, operands, in_types, params):
    a, b = operands
    return [multiply(cotangents[0], b), None] if a is None else [None, multiply(a, cotangents[0])]


multiply = elementwise("multiply", np.multiply, arity=2, linear=((0,), (1,)), transpose=_multiply_transpose)


def scale(var: Var, factor: Any) -> Var:
    """`var` times a number."""
    return multiply(var, full_like(var, factor))


# -- division: integers truncate towards zero; x / 0 is all bits set and x rem 0 is x; lowest / -1 is lowest


def _truncated_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient = np.abs(a) // np.abs(b) if a.dtype.kind == "u" else _signed_quotient(a, b)
    return np.where(b == 0, np.invert(np.zeros_like(a)), quotient)


def _signed_quotient(a: Array, b: Array) -> Array:
    """floor(a / b), one more where that is below the true quotient and the division leaves a rest."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    floor = np.floor_divide(a, safe)
    up = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.where(safe == -1, np.negative(a), floor + up.astype(a.dtype))


def _divide_jvp(primals, tangents, outs, params):
    """By the divisor: -t a / b², from the dividend a and not from the quotient. A backward pass of a softmax then reads its
    exponentials alone, which their own derivative reads, too. b² is not made, since it overflows."""
    a, b = primals
    left = None if tangents[0] is None else divide(tangents[0], b)
    right = None if tangents[1] is None else divide(multiply(divide(negate(tangents[1]), b), a), b)
    return [add_tangents(left, right)]


def _divide_transpose(cotangents, operands, in_types, params):
    return [divide(cotangents[0], operands[1]), None]


def _divide_linear(in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
    return ((0,),) if is_inexact(in_types[0].dtype) else ()


divide = elementwise(
    "divide",
    _truncated_divide,
    arity=2,
    linear=_divide_linear,
    jvp=_divide_jvp,
    transpose=_divide_transpose,
    fill=lambda generator, index, type: _operands_of_division(generator, index, type),
)


def _operands_of_division(generator: np.random.Generator, index: int, type: Any) -> Array:
    """Small integers; divisors are zero only for integers, where that has a meaning."""
    low = 0 if type.dtype.kind == "u" else -4
    values = generator.integers(low, 5, type.shape)
    return values if index == 0 or type.dtype.kind in "iu" else np.where(values == 0, 3, values)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    safe = np.where((b == 0) | (b == np.array(-1).astype(b.dtype)) & (b.dtype.kind == "i"), 1, b).astype(a.dtype)
    return np.where(b == 0, a, np.fmod(a, safe))


def _remainder_jvp(primals, tangents, outs, params):
    quotient = None if tangents[1] is None else truncate(divide(primals[0], primals[1]))
    return [add_tangents(tangents[0], None if quotient is None else negate(multiply(tangents[1], quotient)))]


remainder = elementwise(
    "remainder", _remainder, arity=2, accepts="real", jvp=_remainder_jvp, fill=_operands_of_division
)


# -- powers


def _power(a: Array, b: Array) -> Array:
    """Integers to a negative power are 0, but 1 for 1 and 1 or -1 for -1."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)) if a.dtype.kind == "i" else a
    return np.where(b < 0, negative, np.power(a, np.where(b < 0, 0, b).astype(a.dtype)))


def _power_jvp(primals, tangents, outs, params):
    """d(x**y) = y x**(y-1) dx + log(x) x**y dy, where 0 stands for 0 * x**-1 and for log(0) * 0."""
    (x, y), (dx, dy), out = primals, tangents, outs[0]
    left = right = None
    if dx is not None:
        slope = multiply(y, power(x, subtract(y, full_like(y, 1))))
        left = multiply(dx, select(compare(y, zeros_like(y), direction="EQ"), zeros_like(x), slope))
    if dy is not None:
        safe = select(compare(x, zeros_like(x), direction="EQ"), full_like(x, 1), x)
        right = multiply(dy, multiply(ops.log(safe), out))
    return [add_tangents(left, right)]


power = elementwise(
    "power", _power, arity=2, jvp=_power_jvp, fill="positive", sample_dtypes=("f32", "i32", "c64", "bf16")
)


def _integer_pow_type(in_types: Types, params: Params) -> Types:
    exponent = params["exponent"]
    require_param(isinstance(exponent, int), "integer_pow", "exponent", exponent, "an int is needed")
    fits = exponent >= 0 or is_inexact(in_types[0].dtype)
    require_param(fits, "integer_pow", "exponent", exponent, f"operand {in_types[0]} has no inverse")
    return elementwise_type("integer_pow", 1, "number", lambda types: types[0].dtype)(in_types, params)


def _integer_pow(a: Array, exponent: int) -> Array:
    result, base, left = np.ones_like(a), a, abs(exponent)
    while left:
        result = result * base if left & 1 else result
        base, left = base * base, left >> 1
    return result if exponent >= 0 else np.divide(1, result)


def _integer_pow_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """By repeated squaring; the inverse of a negative power is taken at the end."""
    base, left, result = operands[0], abs(params["exponent"]), None
    while left:
        if left & 1:
            result = base if result is None else e.op("multiply", [result, base], outs)[0]
        left >>= 1
        base = e.op("multiply", [base, base], outs)[0] if left else base
    one = "" if result and params["exponent"] > 0 else emit_splat(e, outs[0], 1)
    if result is None:
        return [one]
    return [result] if params["exponent"] > 0 else e.op("divide", [one, result], outs)


def _integer_pow_jvp(primals, tangents, outs, params):
    n, x = params["exponent"], primals[0]
    if tangents[0] is None or n == 0:
        return [None]
    slope = full_like(x, 1) if n == 1 else scale(integer_pow(x, exponent=n - 1), n)
    return [multiply(tangents[0], slope)]


integer_pow = elementwise(
    "integer_pow",
    _integer_pow,
    arity=1,
    type_rule=_integer_pow_type,
    emit=_integer_pow_emit,
    jvp=_integer_pow_jvp,
    fill="positive",
    sample_dtypes=("f32", "c64", "bf16"),
    sample_params=[{"exponent": n} for n in (0, 1, 2, 3, 7, -1, -2)],
)


# -- maximum and minimum: nan if either is; gradients of ties are halved


def _choice_jvp(primals, tangents, outs, params, beyond):
    """Each operand's tangent where it is `beyond` the other, half of it where they are equal. The result is not asked: XLA may
    compute an operand once for it and once for the comparison, and round otherwise."""
    a, b = primals
    shares = [_share(a, b, beyond), _share(b, a, beyond)]
    return [add_tangents(*(None if t is None else multiply(t, s()) for t, s in zip(tangents, shares, strict=True)))]


def _share(own: Var, other: Var, beyond: str) -> Callable[[], Var]:
    def build() -> Var:
        tie = select(compare(own, other, direction="EQ"), full_like(own, 0.5), zeros_like(own))
        return select(compare(own, other, direction=beyond), full_like(own, 1), tie)

    return build


maximum = elementwise("maximum", np.maximum, arity=2, accepts="ordered", jvp=functools.partial(_choice_jvp, beyond="GT"))
minimum = elementwise("minimum", np.minimum, arity=2, accepts="ordered", jvp=functools.partial(_choice_jvp, beyond="LT"))


# -- relu: max(x, 0), as one op because its derivative at 0 is 0, and that of a maximum a half


def _relu_jvp(primals, tangents, outs, params):
    """Of x alone, which XLA then keeps; of the result it makes a second one for every reader (GPU: half as much memory again)."""
    (x,), (t,) = primals, tangents
    return [None if t is None else select(compare(x, zeros_like(x), direction="LE"), zeros_like(t), t)]


def _relu_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.op("maximum", [*operands, emit_splat(e, ins[0], 0)], outs)


relu = elementwise(
    "relu", lambda x: np.maximum(x, np.zeros((), x.dtype)), arity=1, accepts="ordered", jvp=_relu_jvp, emit=_relu_emit
)


# -- abs and sign


def _abs_jvp(primals, tangents, outs, params):
    """t, or -t where x is negative; at 0 it is t. For complex x the part of t along x: Re(t conj(x)) / |x|."""
    (x,), (t,) = primals, tangents
    if t is None:
        return [None]
    if x.dtype.kind == "c":
        return [ops.real(multiply(t, ops.conjugate(sign(x))))]
    return [select(compare(x, zeros_like(x), direction="GE"), t, negate(t))]


def _abs_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """StableHLO has no abs of unsigned integers, which are their own."""
    return operands if ins[0].dtype.kind == "u" else e.op("abs", operands, outs)


abs_ = elementwise(
    "abs", np.abs, arity=1, result=lambda types: part_dtype(types[0].dtype), jvp=_abs_jvp, emit=_abs_emit
)


def _sign_jvp(primals, tangents, outs, params):
    """Zero for reals. A complex sign turns: s i Im(conj(s) t) / |x|, and 0 at 0."""
    (x,), (t,), (s,) = primals, tangents, outs
    if t is None or x.dtype.kind != "c":
        return [None]
    size = abs_(x)
    safe = select(compare(size, zeros_like(size), direction="EQ"), full_like(size, 1), size)
    rotation = divide(ops.imag(multiply(ops.conjugate(s), t)), safe)
    return [multiply(s, ops.complex_(zeros_like(rotation), rotation))]


def _sign(a: Array) -> Array:
    """-0.0 keeps its sign, as in XLA."""
    return np.where(a == 0, a, np.sign(a)) if a.dtype.kind == "f" else np.sign(a)


def _sign_emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    """StableHLO has no sign of unsigned integers: 1, or 0 for 0."""
    if ins[0].dtype.kind == "u":
        return e.op("minimum", [operands[0], emit_splat(e, outs[0], 1)], outs)
    return e.op("sign", operands, outs)


sign = elementwise("sign", _sign, arity=1, jvp=_sign_jvp, emit=_sign_emit)


# -- rounding: derivatives are zero wherever they exist


def _round_away(a: Array) -> Array:
    """Halves away from zero. Not trunc(x + 0.5), which rounds 0.49999997 up."""
    whole = np.trunc(a)
    return np.copysign(whole + np.where(np.abs(a - whole) >= 0.5, np.sign(a), 0), a)


floor = elementwise("floor", np.floor, arity=1, accepts="float", jvp=zero_jvp)
ceil = elementwise("ceil", np.ceil, arity=1, accepts="float", jvp=zero_jvp)
round_nearest_even = elementwise("round_nearest_even", np.rint, arity=1, accepts="float", jvp=zero_jvp)
round_nearest_afz = elementwise("round_nearest_afz", _round_away, arity=1, accepts="float", jvp=zero_jvp)


def truncate(var: Var) -> Var:
    """Towards zero."""
    return select(compare(var, zeros_like(var), direction="LT"), ceil(var), floor(var))
