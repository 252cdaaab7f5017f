"""jax.lax's elementwise functions: operands have one rank (or are scalars), extents of 1 are repeated, dims are not added."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from meshjit.core.types import SMALL_INTEGERS, bits_of, is_inexact
from meshjit.lax.accuracy import AccuracyMode, Tolerance, accurate
from meshjit.lax.regions import apply as apply_equation
from meshjit.numpy import elementwise, ufuncs
from meshjit.numpy.bits import bitcast_convert_type
from meshjit.numpy.promote import apply, asarray, broadcast_all, cast, dtype_of, lifted, ops, promoted, shape_of, weak_of
from meshjit.trace import argument_of, bind, line_of, user_source
from meshjit.trees import WORDS as tree


def _strict(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on operands whose extents are equal or 1; scalars go with any."""

    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*xs: Any, **named: Any) -> Any:
        xs = signature.bind(*xs, **named).args if named else xs
        shapes = {shape_of(x) for x in xs} - {()}
        if len(shapes) > 1 and not _fit(shapes):
            listed = " and ".join(str(shape_of(x)) for x in xs)
            raise TypeError(
                f"{name}: operands have shapes {listed}; lax functions repeat extents of 1, and add no dims\n"
                f"  at {line_of(user_source())}\n  fix: use the function of meshjit.numpy, or lax.broadcast_in_dim"
            )
        return function(*xs)

    checked.__name__ = checked.__qualname__ = name
    return checked


def _fit(shapes: Collection[tuple[int, ...]]) -> bool:
    """Whether these are shapes of one rank, with one extent per dim beside 1."""
    return len(set(map(len, shapes))) == 1 and all(len({*extents} - {1}) <= 1 for extents in zip(*shapes, strict=True))


def _divide(x: Any, y: Any) -> Any:
    """x / y; of integers rounded towards zero."""
    return apply("divide", x, y)


add, sub, _mul = _strict("add", ufuncs.add), _strict("sub", ufuncs.subtract), _strict("mul", ufuncs.multiply)
div, rem = _strict("div", _divide), _strict("rem", ufuncs.fmod)
max, min, pow = _strict("max", ufuncs.maximum), _strict("min", ufuncs.minimum), _strict("pow", ufuncs.power)  # noqa: A001
atan2, nextafter = _strict("atan2", ufuncs.arctan2), _strict("nextafter", elementwise.nextafter)
eq, ne = _strict("eq", ufuncs.equal), _strict("ne", ufuncs.not_equal)
lt, le = _strict("lt", ufuncs.less), _strict("le", ufuncs.less_equal)
gt, ge = _strict("gt", ufuncs.greater), _strict("ge", ufuncs.greater_equal)
bitwise_and, bitwise_or = _strict("bitwise_and", ufuncs.bitwise_and), _strict("bitwise_or", ufuncs.bitwise_or)
bitwise_xor, shift_left = _strict("bitwise_xor", ufuncs.bitwise_xor), _strict("shift_left", ufuncs.left_shift)
shift_right_logical = _strict("shift_right_logical", lambda x, y: apply("shift_right_logical", x, y))
shift_right_arithmetic = _strict("shift_right_arithmetic", lambda x, y: apply("shift_right_arithmetic", x, y))


def _of_a_and_x(op: str) -> Callable[..., Any]:
    return lambda a, x: apply(op, a, x, inexact=True)


polygamma = _strict("polygamma", lambda m, x: apply("polygamma", m, x, inexact=True))
zeta = _strict("zeta", lambda x, q: apply("zeta", x, q, inexact=True))
betainc = _strict("betainc", lambda a, b, x: apply("betainc", a, b, x, inexact=True))
igamma, igammac, igamma_grad_a, random_gamma_grad = (
    _strict(n, _of_a_and_x(n))
    for n in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad")
)

neg, abs, sign = ufuncs.negative, ufuncs.absolute, ufuncs.sign  # noqa: A001
exp, expm1, log, log1p, sin, cos, tan, tanh, sqrt, cbrt = (
    accurate(n, o)
    for n, o in (("exp", "exponential"), ("expm1", "exponential_minus_one"), ("log", "log"), ("log1p", "log_plus_one"),
                 ("sin", "sine"), ("cos", "cosine"), ("tan", "tan"), ("tanh", "tanh"), ("sqrt", "sqrt"), ("cbrt", "cbrt"))
)  # fmt: skip
sinh, cosh = ufuncs.sinh, ufuncs.cosh
asin, acos, atan, asinh, acosh, atanh = (
    ufuncs.arcsin, ufuncs.arccos, ufuncs.arctan, ufuncs.arcsinh, ufuncs.arccosh, ufuncs.arctanh,
)  # fmt: skip
floor, ceil, is_finite, square = ufuncs.floor, ufuncs.ceil, ufuncs.isfinite, ufuncs.square
reciprocal, bitwise_not = elementwise.reciprocal, ufuncs.bitwise_not
real, imag = ufuncs.real, ufuncs.imag


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """x * y; with out_dtype in that dtype, to which both are converted before."""
    return _mul(x, y) if out_dtype is None else _mul(*(cast(v, out_dtype) for v in (x, y)))


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


def exp2(x: Any, *, accuracy: Tolerance | AccuracyMode | None = None) -> Any:
    """2 to the power x (`jax.lax.exp2`); accuracy: as of `exp`."""
    (x,), _ = promoted(x, inexact=True)
    return exp(ufuncs.multiply(x, float(np.log(2.0))), accuracy=accuracy)


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
    return ufuncs.power(x, int(y))


def complex(x: Any, y: Any) -> Any:  # noqa: A001
    """x + iy."""
    (x, y), _ = mnp_promoted(x, y)
    return bind(ops("complex"), x, y)


def mnp_promoted(*xs: Any) -> Any:
    operands, weak = promoted(*xs, inexact=True)
    return broadcast_all(operands, TypeError), weak


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
    """x moved inside [low, high]; NaN stays. On a bound the derivative is 0."""
    (min, x, max), weak = promoted(min, x, max)
    return bind(ops("clamp"), *broadcast_all([min, x, max]), weak_type=weak)


def stop_gradient(x: Any) -> Any:
    """The values of a tree, with derivative zero."""
    return tree.map(_stopped, x)


def _stopped(leaf: Any) -> Any:
    if not is_inexact(dtype_of(leaf)):
        return leaf
    return bind(ops("stop_gradient"), asarray(leaf), weak_type=weak_of(leaf))


def mulhi(x: Any, y: Any, /) -> Any:
    """The upper N bits of the products of integers of N bits, which have 2 N. TypeError for others."""
    (x, y), weak = promoted(x, y)
    dtype = dtype_of(x)
    if dtype.kind not in "iu":
        raise TypeError(f"mulhi takes integers, got {dtype}\n  at {line_of(user_source())}\n  fix: mul")
    x, y = broadcast_all([x, y])
    half = np.asarray(dtype.itemsize * 4, dtype)
    mask = np.asarray(2 ** (dtype.itemsize * 4) - 1, dtype)
    upper = shift_right_arithmetic if dtype.kind == "i" else shift_right_logical
    (x0, x1), (y0, y1) = ((bitwise_and(v, mask), upper(v, half)) for v in (x, y))
    cross = add(mul(x1, y0), shift_right_logical(mul(x0, y0), half))
    low = add(mul(x0, y1), bitwise_and(cross, mask))
    return add(mul(x1, y1), add(upper(cross, half), upper(low, half)))


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
