"""jax.lax's elementwise functions: operands have one rank (or are scalars), extents of 1 are repeated, dims are not added."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.types import SMALL_INTEGERS, bits_of, is_inexact, kind_of
from meshjit.lax.accuracy import AccuracyMode, Tolerance, accurate
from meshjit.lax.operands import require_alike, strict
from meshjit.lax.regions import apply as apply_equation
from meshjit.numpy import elementwise, powers, ufuncs
from meshjit.numpy.bits import bitcast_convert_type
from meshjit.numpy.promote import apply, asarray, broadcast_all, cast, dtype_of, exactly, lifted, ops, shape_of, weak_of
from meshjit.trace import argument_of, bind, line_of, user_source
from meshjit.trees import WORDS as tree


def _divide(x: Any, y: Any) -> Any:
    """x / y; of integers rounded towards zero."""
    return apply("divide", x, y)


add, sub, _mul = (
    strict(n, "number", f) for n, f in (("add", ufuncs.add), ("sub", ufuncs.subtract), ("mul", ufuncs.multiply))
)  # fmt: skip
div = strict("div", "number", _divide)
rem = strict("rem", "real", lambda x, y: apply("remainder", x, y))  # of integers modulo 0 the dividend
max, min = strict("max", "any", ufuncs.maximum), strict("min", "any", ufuncs.minimum)  # noqa: A001
nextafter = strict("nextafter", "float", elementwise.nextafter)


def _angle(x: Any, y: Any) -> Any:
    """The angle of the point (y, x); of complex numbers by its logarithm: -i log((y + ix) / sqrt(x² + y²))."""
    if kind_of(dtype_of(x)) != "c":
        return ufuncs.arctan2(x, y)
    x, y = (lifted(v) for v in (x, y))
    return -1j * ufuncs.log((y + 1j * x) / ufuncs.sqrt(x * x + y * y))


atan2 = strict("atan2", "inexact", _angle)
eq, ne = strict("eq", "any", ufuncs.equal), strict("ne", "any", ufuncs.not_equal)
lt, le = strict("lt", "ordered", ufuncs.less), strict("le", "ordered", ufuncs.less_equal)
gt, ge = strict("gt", "ordered", ufuncs.greater), strict("ge", "ordered", ufuncs.greater_equal)
bitwise_and, bitwise_or, bitwise_xor = (
    strict(n, "bits", f)
    for n, f in (("bitwise_and", ufuncs.bitwise_and), ("bitwise_or", ufuncs.bitwise_or), ("bitwise_xor", ufuncs.bitwise_xor))
)  # fmt: skip
shift_left = strict("shift_left", "integer", ufuncs.left_shift)
shift_right_logical = strict("shift_right_logical", "integer", lambda x, y: apply("shift_right_logical", x, y))
shift_right_arithmetic = strict("shift_right_arithmetic", "integer", lambda x, y: apply("shift_right_arithmetic", x, y))


def pow(x: Any, y: Any) -> Any:  # noqa: A001
    """x ** y of floating or complex x, and y of its dtype or of integers."""
    if kind_of(dtype_of(y)) not in "iub":
        return _power(x, y)
    result = _power_of_integers(x, y)
    return result if weak_of(y) else exactly(result, dtype_of(result), False)


_power = strict("pow", "inexact", powers.power)
_power_of_integers = strict("pow", "inexact", powers.power, alike=False)


def _of_a_and_x(op: str) -> Callable[..., Any]:
    return lambda a, x: apply(op, a, x)


polygamma = strict("polygamma", "float", lambda m, x: apply("polygamma", m, x))
zeta = strict("zeta", "float", lambda x, q: apply("zeta", x, q))
betainc = strict("betainc", "float", lambda a, b, x: apply("betainc", a, b, x))
igamma, igammac, igamma_grad_a = (strict(n, "float", _of_a_and_x(n)) for n in ("igamma", "igammac", "igamma_grad_a"))


def random_gamma_grad(a: Any, x: Any) -> Any:
    """The derivative of a sample x of the gamma distribution with respect to its parameter a; the shapes are broadcast."""
    return _random_gamma_grad(*broadcast_all([a, x]))


_random_gamma_grad = strict("random_gamma_grad", "float", _of_a_and_x("random_gamma_grad"))

neg, sign, square, abs = (  # noqa: A001
    strict(n, k, f)
    for n, k, f in (("neg", "number", ufuncs.negative), ("sign", "number", ufuncs.sign_of), ("square", "number", powers.square),
                    ("abs", "signed", ufuncs.absolute))
)  # fmt: skip
exp, expm1, log, log1p, sin, cos, tan, tanh, sqrt = (
    strict(n, "inexact", accurate(n, o))
    for n, o in (("exp", "exponential"), ("expm1", "exponential_minus_one"), ("log", "log"), ("log1p", "log_plus_one"),
                 ("sin", "sine"), ("cos", "cosine"), ("tan", "tan"), ("tanh", "tanh"), ("sqrt", "sqrt"))
)  # fmt: skip
cbrt, reciprocal = strict("cbrt", "float", accurate("cbrt", "cbrt")), strict("reciprocal", "inexact", elementwise.reciprocal)
sinh, cosh = strict("sinh", "inexact", ufuncs.sinh), strict("cosh", "inexact", ufuncs.cosh)
asin, acos, atan, asinh, acosh, atanh = (
    strict(f.__name__.replace("arc", "a"), "inexact", f)
    for f in (ufuncs.arcsin, ufuncs.arccos, ufuncs.arctan, ufuncs.arcsinh, ufuncs.arccosh, ufuncs.arctanh)
)
floor, ceil, is_finite = (
    strict(n, "float", f)
    for n, f in (("floor", ufuncs.floor), ("ceil", ufuncs.ceil), ("is_finite", ufuncs.isfinite))
)
bitwise_not = strict("bitwise_not", "bits", ufuncs.bitwise_not)
real, imag = strict("real", "complex", ufuncs.real), strict("imag", "complex", ufuncs.imag)


_number = strict("mul", "number", lambda x: x)


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """x * y; with out_dtype in that dtype, to which both are converted before."""
    if out_dtype is None:
        return _mul(x, y)
    for v in (x, y):
        _number(v)
    return _mul(*(cast(v, out_dtype) for v in (x, y)))


def conj(x: Any) -> Any:
    """`jax.lax.conj`: a complex number with the other sign of its imaginary part, also of a real one. TypeError for others."""
    dtype = dtype_of(x)
    if dtype.kind == "c":
        return ufuncs.conjugate(x)
    if dtype not in (np.float32, np.float64):
        raise TypeError(
            f"conj: complex numbers, f32 and f64 have conjugates, not {dtype}\n  at {line_of(user_source())}\n"
            "  fix: use the conj of meshjit.numpy"
        )
    return lifted(cast(x, np.result_type(dtype, np.complex64), weak_of(x)))


def _one(name: str, op: str) -> Any:
    def function(x: Any) -> Any:
        return apply(op, x)

    function.__name__ = name
    function.__doc__ = f"`jax.lax.{name}`."
    return function


rsqrt, logistic = accurate("rsqrt", "rsqrt", inexact=False), accurate("logistic", "logistic", inexact=False)
erf, erfc, erf_inv, lgamma, digamma = (
    _one(n, o)
    for n, o in (("erf", "erf"), ("erfc", "erfc"), ("erf_inv", "erf_inv"), ("lgamma", "lgamma"), ("digamma", "digamma"))
)  # fmt: skip


def _power_of_2(x: Any, *, accuracy: Tolerance | AccuracyMode | None = None) -> Any:
    """2 to the power x (`jax.lax.exp2`); accuracy: as of `exp`."""
    return exp(ufuncs.multiply(x, float(np.log(2.0))), accuracy=accuracy)


exp2 = strict("exp2", "inexact", _power_of_2)

bessel_i0e, bessel_i1e = _one("bessel_i0e", "bessel_i0e"), _one("bessel_i1e", "bessel_i1e")
population_count, _leading_zeros = _one("population_count", "popcnt"), _one("clz", "count_leading_zeros")


def clz(x: Any) -> Any:
    """How many of the highest bits of integers are 0, of as many as the dtype has (`jax.lax.clz`)."""
    dtype = dtype_of(x)
    if dtype not in SMALL_INTEGERS:
        return _leading_zeros(x)
    unsigned = cast(bitcast_convert_type(x, np.dtype(f"uint{bits_of(dtype)}")), np.uint8)
    return cast(ufuncs.subtract(_leading_zeros(unsigned), np.uint8(8 - bits_of(dtype))), dtype)


class RoundingMethod(enum.IntEnum):
    """Where halves are rounded to."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:  # noqa: A001
    """To whole numbers."""
    even = RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN
    return apply("round_nearest_even" if even else "round_nearest_afz", x)


def integer_pow(x: Any, y: int) -> Any:
    """x ** y of a Python integer y, by repeated multiplication."""
    return powers.power(x, int(y))


def _complex(x: Any, y: Any) -> Any:
    """x + iy."""
    return bind(ops("complex"), *broadcast_all([x, y]))


complex = strict("complex", "part", _complex)  # noqa: A001


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """`x` in another dtype."""
    return lifted(cast(operand, new_dtype))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Rounded to a floating format with these many bits, in the dtype it has."""
    bits = {"exponent_bits": int(exponent_bits), "mantissa_bits": int(mantissa_bits)}
    return bind(ops("reduce_precision"), asarray(operand), **bits, weak_type=weak_of(operand))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """on_true where pred holds, else on_false; both of one shape and dtype, pred of that shape or a scalar."""
    if shape_of(on_true) != shape_of(on_false) or shape_of(pred) not in ((), shape_of(on_true)):
        raise TypeError(
            f"select: shapes {shape_of(pred)}, {shape_of(on_true)} and {shape_of(on_false)} must be equal"
            f" (the first may be a scalar)\n  at {line_of(user_source())}\n  fix: mnp.where broadcasts"
        )
    if dtype_of(pred).kind not in "biu":
        raise TypeError(
            f"select: the first operand is boolean, it is {dtype_of(pred)}\n  at {line_of(user_source())}\n  fix: pred != 0"
        )
    require_alike("select", on_true, on_false)
    return ufuncs.where(pred, on_true, on_false)


def select_n(which: Any, *cases: Any) -> Any:
    """cases[which]: `which` is boolean (False: the first) or an integer below the number of cases."""
    if dtype_of(which) == np.bool_:
        if len(cases) != 2:
            raise TypeError(f"select_n: a boolean selects among 2 cases, was given {len(cases)}")
        return select(which, cases[1], cases[0])
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = select(ufuncs.less_equal(which, i), cases[i], result)
    return lifted(result)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x moved inside [low, high]; NaN stays. On a bound the derivative is 0. Complex numbers are ordered as by max and min."""
    require_alike("clamp", min, x, max)
    if len({shape_of(min), shape_of(x), shape_of(max)} - {()}) > 1:
        raise TypeError(
            f"clamp: shapes {shape_of(min)}, {shape_of(x)} and {shape_of(max)} must be equal (some may be scalars)"
            f"\n  at {line_of(user_source())}\n  fix: mnp.clip broadcasts"
        )
    if dtype_of(x).kind == "c":
        return ufuncs.minimum(ufuncs.maximum(min, x), max)
    weak = weak_of(min) and weak_of(x) and weak_of(max)
    return bind(ops("clamp"), *broadcast_all([min, x, max]), weak_type=weak)


def stop_gradient(x: Any) -> Any:
    """The values of a tree, with derivative zero."""
    return tree.map(_stopped, x)


def _stopped(leaf: Any) -> Any:
    if not is_inexact(dtype_of(leaf)):
        return leaf
    return bind(ops("stop_gradient"), asarray(leaf), weak_type=weak_of(leaf))


def _upper_half(x: Any, y: Any, /) -> Any:
    """The upper N bits of the products of integers of N bits, which have 2 N. TypeError for others."""
    dtype = dtype_of(x)
    x, y = broadcast_all([x, y])
    bits = bits_of(dtype) // 2
    half, mask = np.asarray(bits, dtype), np.asarray(2**bits - 1, dtype)
    upper = shift_right_arithmetic if kind_of(dtype) == "i" else shift_right_logical
    (x0, x1), (y0, y1) = ((bitwise_and(v, mask), upper(v, half)) for v in (x, y))
    cross = add(mul(x1, y0), shift_right_logical(mul(x0, y0), half))
    low = add(mul(x0, y1), bitwise_and(cross, mask))
    return add(mul(x1, y1), add(upper(cross, half), upper(low, half)))


mulhi = strict("mulhi", "integer", _upper_half)


def create_token(_: Any = None) -> Any:
    """A token: an array without elements, which orders what depends on it (`jax.lax.create_token`)."""
    return bind(ops("constant"), value=np.zeros(*_TOKEN))


def after_all(*operands: Any) -> Any:
    """A token that is there once all of these are (`jax.lax.after_all`)."""
    for x in operands:
        if (tuple(getattr(x, "shape", (1,))), getattr(x, "dtype", None)) != _TOKEN:
            raise TypeError(f"Arguments to after_all must be tokens, got {x!r}\n  fix: lax.create_token() makes one")
    return optimization_barrier(operands)[0] if operands else create_token()


_TOKEN = (0,), np.dtype(np.bool_)


def optimization_barrier(x: Any) -> Any:
    """The values of a tree, which the compiler does not move computations across."""
    leaves, structure = tree.flatten(x)
    if not leaves:
        return x
    operands = [asarray(leaf) for leaf in leaves]
    types, weak = [argument_of(x).type for x in operands], [weak_of(leaf) for leaf in leaves]
    return tree.unflatten(structure, apply_equation(ops("optimization_barrier"), operands, types, weak))
