"""Elementwise functions that are several ops: rounding to places, logarithms of sums, angles, neighbours, closeness."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from meshjit.core.types import is_inexact
from meshjit.numpy.arguments import shape_tuple
from meshjit.numpy.powers import square
from meshjit.numpy.promote import apply, asarray, broadcast_all, cast, dtype_of, exactly, no_out, ops, promoted, weak_of
from meshjit.numpy.ufuncs import (
    absolute,
    add,
    arctan2,
    bitwise_and,
    bitwise_or,
    equal,
    exp,
    greater,
    greater_equal,
    imag,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    real,
    right_shift,
    rint,
    sin,
    sqrt,
    subtract,
    true_divide,
    trunc,
    where,
)
from meshjit.runtime.composed import composed
from meshjit.trace import bind, line_of, user_source


def float_power(x: Any, y: Any) -> Any:
    return apply("power", x, y, inexact=True)


def reciprocal(x: Any) -> Any:
    (x,), _ = promoted(x, inexact=True)
    return true_divide(1, x)


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """(fractional part, integral part), both with the sign of x."""
    no_out("modf", out)
    (x,), _ = promoted(x, inexact=True)
    whole = trunc(x)
    return where(isinf(x), copysign(0.0, x), subtract(x, whole)), whole


def round(a: Any, decimals: int = 0, out: None = None) -> Any:  # noqa: A001
    """To `decimals` places, halves to even; integers stay integers."""
    no_out("round", out)
    decimals = shape_tuple((decimals,), unknown=True)[0]
    a = asarray(a)
    if dtype_of(a).kind == "c":
        return add(round(real(a), decimals), multiply(round(imag(a), decimals), 1j))
    if decimals == 0 or (decimals > 0 and not is_inexact(dtype_of(a))):
        return rint(a) if is_inexact(dtype_of(a)) else a
    factor = float(10.0 ** np.abs(decimals))
    if decimals > 0:
        return true_divide(rint(multiply(a, factor)), factor)
    scaled = multiply(rint(true_divide(a, factor)), factor)
    return scaled if is_inexact(dtype_of(a)) else cast(scaled, dtype_of(a))


around = round


def exp2(x: Any) -> Any:
    """2 to the power x."""
    (x,), _ = promoted(x, inexact=True)
    return exp(multiply(x, float(np.log(2.0))))


def log2(x: Any) -> Any:
    return _log_to(x, 2.0)


def log10(x: Any) -> Any:
    return _log_to(x, 10.0)


def _log_to(x: Any, base: float) -> Any:
    """Never weak, as in JAX."""
    result = log(x)
    return true_divide(result, np.asarray(np.log(base), dtype_of(result)))


def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)) without overflow; derivatives are the two shares."""
    (x, y), _ = promoted(x, y, inexact=True)
    x, y = broadcast_all([x, y], TypeError)
    first = greater_equal(x, y)
    high, low = where(first, x, y), where(first, y, x)
    below = where(logical_and(equal(x, y), isinf(high)), 0, subtract(low, high))  # inf - inf would be nan
    return _principal(add(high, log1p(exp(below))))


def _principal(x: Any) -> Any:
    """Complex numbers with their imaginary part, an angle, moved into [-pi, pi]."""
    if dtype_of(x).kind != "c":
        return x
    turns = rint(multiply(imag(x), float(0.5 / np.pi)))
    return bind(ops("complex"), real(x), subtract(imag(x), multiply(turns, float(2 * np.pi))))


def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2**x + 2**y) without overflow."""
    (x, y), _ = promoted(x, y, inexact=True)
    natural = float(np.log(2.0))
    return true_divide(logaddexp(multiply(x, natural), multiply(y, natural)), natural)


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow: infinite where either is, also beside NaN. At the origin the derivatives are 1/2.
    ValueError for complex numbers."""
    _refuse_complex("hypot", ValueError, "abs(x)", x, y)
    weak = weak_of(x) and weak_of(y)  # an integer array beside 0.5 makes the result a strong float here
    (x, y), _ = promoted(absolute(x), absolute(y), inexact=True)
    x, y = (exactly(v, dtype_of(v), weak) for v in (x, y))
    high, low = maximum(x, y), minimum(x, y)
    ratio = true_divide(low, where(equal(high, 0), 1, high))
    result = where(equal(high, 0), high, multiply(high, sqrt(add(1, square(ratio)))))
    return where(logical_or(isinf(x), isinf(y)), np.inf, result)


def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x); at 0 it is 1, with the derivatives of its series up to the seventh."""
    (x,), _ = promoted(x, inexact=True)
    scaled = multiply(x, float(np.pi))
    origin = equal(scaled, 0)
    safe, power = where(origin, 1, scaled), square(where(origin, scaled, 0))
    series = 1.0
    for factor in (6 * 7, 4 * 5, 2 * 3):  # 1 - s/6 (1 - s/20 (1 - s/42)) with s the square
        series = subtract(1, multiply(true_divide(power, factor), series))
    return where(origin, series, true_divide(sin(safe), safe))


def deg2rad(x: Any) -> Any:
    (x,), _ = promoted(x, inexact=True)
    return multiply(x, float(np.pi / 180))


def rad2deg(x: Any) -> Any:
    (x,), _ = promoted(x, inexact=True)
    return multiply(x, float(180 / np.pi))


radians, degrees = deg2rad, rad2deg


def fmax(x1: Any, x2: Any) -> Any:
    """The larger one; a number where the other is NaN."""
    return where(logical_or(greater(x1, x2), isnan(x2)), x1, x2)


def fmin(x1: Any, x2: Any) -> Any:
    """The smaller one; a number where the other is NaN."""
    return where(logical_or(less(x1, x2), isnan(x2)), x1, x2)


def bitwise_count(x: Any) -> Any:
    """u8: the number of ones in the magnitude's binary form."""
    return cast(apply("popcnt", absolute(cast(x, np.uint8) if dtype_of(x).kind == "b" else x)), np.uint8)


def isposinf(x: Any, /, out: None = None) -> Any:
    """`numpy.isposinf`."""
    no_out("isposinf", out)
    return equal(x, np.inf) if is_inexact(dtype_of(x)) else not_equal(x, x)


def isneginf(x: Any, /, out: None = None) -> Any:
    """`numpy.isneginf`."""
    no_out("isneginf", out)
    return equal(x, -np.inf) if is_inexact(dtype_of(x)) else not_equal(x, x)


def isreal(x: Any) -> Any:
    """Whether the imaginary part is 0."""
    return equal(imag(x), 0)


def iscomplex(x: Any) -> Any:
    """Whether the imaginary part is not 0."""
    return not_equal(imag(x), 0)


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex; of all that has a dtype."""
    return getattr(getattr(x, "dtype", None) or dtype_of(x), "kind", "") == "c"  # keys have no kind


def isrealobj(x: Any) -> bool:
    return not iscomplexobj(x)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """`numpy.nan_to_num`; `copy` is NumPy's, and means nothing."""
    del copy
    x = asarray(x)
    if not is_inexact(dtype_of(x)):
        return x
    if dtype_of(x).kind == "c":
        return bind(ops("complex"), *(nan_to_num(part, True, nan, posinf, neginf) for part in (real(x), imag(x))))
    dtype = dtype_of(x)
    info = ml_dtypes.finfo(dtype)
    x = where(isnan(x), cast(nan, dtype), x)
    x = where(equal(x, np.inf), cast(float(info.max) if posinf is None else posinf, dtype), x)
    return where(equal(x, -np.inf), cast(float(info.min) if neginf is None else neginf, dtype), x)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    (a, b), _ = promoted(a, b, inexact=True)
    close = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    close = logical_or(logical_and(close, logical_and(isfinite(a), isfinite(b))), equal(a, b))
    return logical_or(close, logical_and(isnan(a), isnan(b))) if equal_nan else close


def angle(z: Any, deg: bool = False) -> Any:
    """The argument of complex numbers: 0 or pi for real ones."""
    (z,), _ = promoted(z, inexact=True)
    result = arctan2(imag(z), real(z))
    result = result if dtype_of(z).kind == "c" else exactly(result, dtype_of(result))  # weak of complex numbers alone, as in JAX
    return rad2deg(result) if deg else result


def signbit(x: Any) -> Any:
    """Whether the sign bit is set: also of -0.0 and of negative NaN."""
    x = asarray(x)
    if not is_inexact(dtype_of(x)):
        return less(x, 0)
    return less(bind(ops("bitcast_convert"), x, dtype=_integer_like(dtype_of(x))), 0)


def _integer_like(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The signed integer of the same width."""
    return np.dtype(f"int{8 * dtype.itemsize}")


def copysign(x: Any, y: Any) -> Any:
    (x, y), _ = promoted(x, y, inexact=True)
    return where(signbit(y), negative(absolute(x)), absolute(x))


def _refuse_complex(name: str, error: type[Exception], fix: str, *xs: Any) -> None:
    for x in xs:
        if dtype_of(x).kind == "c":
            raise error(f"{name} takes real numbers, got {dtype_of(x)}\n  at {line_of(user_source())}\n  fix: {fix}")


def heaviside(x: Any, y: Any) -> Any:
    """0 below 0, 1 above, y at 0. TypeError for complex numbers."""
    _refuse_complex("heaviside", TypeError, "x.real", x, y)
    (x, y), _ = promoted(x, y, inexact=True)
    return where(less(x, 0), 0, where(greater(x, 0), 1, where(isnan(x), x, y)))


def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2 ** exponent of integers. Three factors at most are needed from one end of the dtype to the other; each of them
    is neither 0 nor infinite, so that 0 stays 0 and infinity stays. TypeError for an exponent that is no integer."""
    (x,), _ = promoted(x, inexact=True)
    if dtype_of(exponent).kind not in "iub":
        raise TypeError(f"ldexp: the exponent must be an integer, it is {dtype_of(exponent)}\n  at {line_of(user_source())}")
    reach = ml_dtypes.finfo(dtype_of(x)).maxexp - 2
    if dtype_of(exponent).kind != "i" or dtype_of(exponent).itemsize < 4:  # in which -reach has no place
        exponent = cast(minimum(exponent, min(3 * reach, _most(exponent))), np.int32)
    for _ in range(3):
        step = minimum(maximum(exponent, -reach), reach)
        x, exponent = multiply(x, exp2_exact(step, dtype_of(x))), subtract(exponent, step)
    return x


def _most(x: Any) -> int:
    """The largest number of a dtype of integers, or bools."""
    return 1 if dtype_of(x).kind == "b" else int(ml_dtypes.iinfo(dtype_of(x)).max)


def frexp(x: Any) -> tuple[Any, Any]:
    """`numpy.frexp`: (mantissa of at least 0.5 and less than 1 with the sign of x, i32 exponent), x = mantissa * 2 ** exponent.

    0, infinity and NaN are their own mantissa, with exponent 0. Subnormal numbers are taken apart by their bits, since devices
    compute as if they were 0. TypeError for complex x. Source: jax.numpy.frexp."""
    (x,), _ = promoted(x, inexact=True)
    dtype = dtype_of(x)
    _refuse_complex("frexp", TypeError, "x.real", x)
    info = ml_dtypes.finfo(dtype)
    bits = bind(ops("bitcast_convert"), x, dtype=_integer_like(dtype))
    field = bitwise_and(right_shift(bits, info.nmant), (1 << info.nexp) - 1)
    exponent = where(logical_and(isfinite(x), not_equal(field, 0)), add(cast(field, np.int32), info.minexp), 0)
    mantissa = ldexp(x, negative(exponent))
    is_tiny = logical_and(equal(field, 0), not_equal(bitwise_and(bits, (1 << info.nmant) - 1), 0))
    tiny_mantissa, tiny_exponent = _frexp_of_subnormal(bits, dtype)
    return where(is_tiny, tiny_mantissa, mantissa), cast(where(is_tiny, tiny_exponent, exponent), np.int32)


def _frexp_of_subnormal(bits: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Mantissa and exponent of a number that has no bit but those of its sign and fraction: its first one gives the exponent."""
    info, width = ml_dtypes.finfo(dtype), dtype.itemsize * 8
    mask = (1 << info.nmant) - 1
    fraction = bitwise_and(bits, mask)
    zeros = bind(ops("count_leading_zeros"), fraction)
    rest = bitwise_and(left_shift(fraction, add(zeros, info.nmant + 1 - width)), mask)
    field_of_half = -info.minexp << info.nmant
    signed = bitwise_or(bitwise_and(bits, -1 << (width - 1)), bitwise_or(rest, field_of_half))
    return bind(ops("bitcast_convert"), signed, dtype=dtype), subtract(width + info.minexp - info.nmant, cast(zeros, np.int32))


def exp2_exact(exponent: Any, dtype: Any) -> Any:
    """2 ** exponent of integers, exact: 0 and inf where the dtype ends."""
    return apply("power", cast(2, dtype), cast(exponent, dtype))


def nextafter(x1: Any, x2: Any) -> Any:
    """The neighbour of x towards y in its dtype, by its bits: those of one sign are ordered as integers are."""
    (x1, x2), weak = promoted(x1, x2, inexact=True)
    x1, x2 = broadcast_all([x1, x2], TypeError)
    dtype = dtype_of(x1)
    kind = _integer_like(dtype)
    bits = bind(ops("bitcast_convert"), x1, dtype=kind)
    away = equal(less(x1, 0), less(x2, x1))  # the magnitude grows
    moved = bind(ops("bitcast_convert"), add(bits, where(away, 1, -1)), dtype=dtype)
    tiny = bind(ops("bitcast_convert"), cast(1, kind), dtype=dtype)
    moved = where(equal(x1, 0), copysign(tiny, x2), moved)
    result = where(equal(x1, x2), x2, where(logical_or(isnan(x1), isnan(x2)), np.nan, moved))
    return exactly(result, dtype, weak)


composed(globals(), "logaddexp logaddexp2 hypot nan_to_num")
