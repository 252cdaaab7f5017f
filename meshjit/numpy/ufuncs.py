"""Elementwise functions, under the names of numpy (and so of jax.numpy)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.types import is_inexact, kind_of
from meshjit.numpy.filling import full_like
from meshjit.numpy.promote import (
    apply,
    asarray,
    broadcast_all,
    broadcast_to,
    cast,
    dtype_of,
    lifted,
    ops,
    promoted,
    shape_of,
    value,
)
from meshjit.trace import bind, line_of, user_source


def _function(name: str, op: str, *, inexact: bool = False) -> Callable[..., Any]:
    def one(x: Any) -> Any:
        return apply(op, x, inexact=inexact)

    def two(x: Any, y: Any) -> Any:
        return apply(op, x, y, inexact=inexact)

    function = two if name in ("bitwise_and", "bitwise_or", "bitwise_xor") else one
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}`, elementwise, with broadcasting and JAX's promotion. Op: {op}."
    return function


_FLOAT = {
    "exp": "exponential", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "sqrt": "sqrt",
    "cbrt": "cbrt", "sin": "sine", "cos": "cosine", "tan": "tan", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip

exp, expm1, log, log1p, sqrt, cbrt, sin, cos, tan, arcsin, arccos, arctan, sinh, cosh, tanh, \
    arcsinh, arccosh, arctanh = (_function(name, op, inexact=True) for name, op in _FLOAT.items())  # fmt: skip
negative = _function("negative", "negate")
asin, acos, atan, asinh, acosh, atanh = arcsin, arccos, arctan, arcsinh, arccosh, arctanh


def arctan2(x: Any, y: Any) -> Any:
    """`numpy.arctan2`: the angle of the point (y, x). Of complex numbers -i log((y + i x) / sqrt(y*y + x*x))."""
    if "c" not in (dtype_of(x).kind, dtype_of(y).kind):
        return apply("atan2", x, y, inexact=True)
    size = sqrt(add(multiply(x, x), multiply(y, y)))
    return multiply(log(true_divide(add(y, multiply(x, 1j)), size)), -1j)


atan2 = arctan2


def _is_bool(*xs: Any) -> bool:
    for x in xs:
        if type(x) is float or type(x) is int or dtype_of(x) != np.bool_:
            return False
    return True


def add(x: Any, y: Any) -> Any:
    """`numpy.add`; of booleans it is `or`."""
    return apply("or" if _is_bool(x, y) else "add", x, y)


def multiply(x: Any, y: Any) -> Any:
    """`numpy.multiply`; of booleans it is `and`. A number times a boolean is the number or 0, also where it is infinite or NaN:
    XLA makes that of the product, and so JAX's is it."""
    masks = _is_bool(x), _is_bool(y)
    if masks == (True, False) and _is_masked(y, x):
        return where(x, y, 0.0)
    if masks == (False, True) and _is_masked(x, y):
        return where(y, x, 0.0)
    return apply("and" if all(masks) else "multiply", x, y)


def _is_masked(number: Any, mask: Any) -> bool:
    """Whether a product with a boolean may be 0 times infinity; of dtypes and shapes that go together."""
    if config.numpy_dtype_promotion == "strict" or config.numpy_rank_promotion != "allow":
        return False
    pairs = zip(reversed(shape_of(number)), reversed(shape_of(mask)), strict=False)
    return is_inexact(dtype_of(number)) and all(m == n or 1 in (m, n) for m, n in pairs)


def subtract(x: Any, y: Any) -> Any:
    """`numpy.subtract`."""
    if _is_bool(x, y):
        raise TypeError(
            f"subtract of two boolean arrays\n  at {line_of(user_source())}\n"
            "  fix: logical_xor(x, y), or convert one with .astype(int)"
        )
    return apply("subtract", x, y)


def true_divide(x: Any, y: Any) -> Any:
    """`x / y` in floating point; integers become floats."""
    return apply("divide", x, y, inexact=True)


divide = true_divide


def common_numbers(x: Any, y: Any) -> tuple[Any, Any, bool]:
    """Both in their common dtype and shape, booleans as integers; and whether the result is weak."""
    (x, y), weak = promoted(x, y)
    if dtype_of(x) == np.bool_:
        x, y = cast(x, np.int32), cast(y, np.int32)
    x, y = broadcast_all([x, y], TypeError)
    return x, y, weak


def select(condition: Any, x: Any, y: Any, weak: bool) -> Any:
    """`where` of operands of one type, with the weakness that is known already."""
    return bind(ops("select"), condition, x, y, weak_type=weak)


def absolute(x: Any) -> Any:
    """`numpy.absolute`; of complex numbers their real magnitude."""
    x = asarray(x)
    return x if dtype_of(x) == np.bool_ or kind_of(dtype_of(x)) == "u" else apply("abs", x)


abs = absolute  # noqa: A001
fabs = _function("fabs", "abs", inexact=True)


def positive(x: Any) -> Any:
    return lifted(x)


def sign_of(x: Any) -> Any:
    """`jax.lax.sign`: -1, 0 or 1, of complex numbers x / abs(x); a zero stays the zero that it is."""
    x = asarray(x)
    if kind_of(dtype_of(x)) == "u":
        return cast(not_equal(x, 0), dtype_of(x))
    return apply("sign", x)


def sign(x: Any) -> Any:
    """`numpy.sign`: -1, 0 or 1, of complex numbers x / abs(x). Of -0.0 it is 0.0."""
    signs = sign_of(x)
    if not is_inexact(dtype_of(x)):
        return signs
    return select(equal(x, 0), broadcast_to(np.zeros((), dtype_of(x)), shape_of(x)), signs, value(x)[2])


def _rounding(name: str, op: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        x = asarray(x)
        return apply(op, x) if is_inexact(dtype_of(x)) else x

    function.__name__ = name
    function.__doc__ = f"`numpy.{name}`; integers stay as they are."
    return function


floor, ceil = _rounding("floor", "floor"), _rounding("ceil", "ceil")


def rint(x: Any) -> Any:
    """`numpy.rint`: the nearest integers, halves to even; of complex numbers in both parts."""
    if dtype_of(x).kind != "c":
        return apply("round_nearest_even", x, inexact=True)
    return bind(ops("complex"), *(apply("round_nearest_even", part(x)) for part in (real, imag)))


def trunc(x: Any) -> Any:
    """Towards zero."""
    return where(less(x, 0), ceil(x), floor(x)) if is_inexact(dtype_of(x)) else asarray(x)


fix = trunc


# -- comparisons and logic


def _comparison(name: str, direction: str) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        operands, _ = promoted(x, y)
        if direction not in ("EQ", "NE") and dtype_of(operands[0]).kind == "c":
            return _compare_complex(operands[0], operands[1], direction)
        return bind(ops("compare"), *broadcast_all(operands, TypeError), direction=direction, weak_type=False)

    function.__name__ = name
    function.__doc__ = f"`numpy.{name}`, elementwise; gives booleans."
    return function


equal, not_equal, less, less_equal, greater, greater_equal = (
    _comparison(n, d)
    for n, d in (("equal", "EQ"), ("not_equal", "NE"), ("less", "LT"), ("less_equal", "LE"), ("greater", "GT"),
                 ("greater_equal", "GE"))
)  # fmt: skip


def _compare_complex(x: Any, y: Any, direction: str) -> Any:
    """By real parts, where those are equal by imaginary parts (NumPy)."""
    compared = {"LT": less, "LE": less_equal, "GT": greater, "GE": greater_equal}[direction]
    return where(equal(real(x), real(y)), compared(imag(x), imag(y)), compared(real(x), real(y)))


def _choice(name: str, op: str, before: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        (a, b), _ = promoted(x, y)
        if dtype_of(a).kind == "c":
            return where(logical_or(isnan(a), before(a, b)), a, b)
        return apply(op, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`numpy.{name}`: NaN if either is NaN; complex numbers by real, then imaginary part."
    return function


maximum, minimum = _choice("maximum", "maximum", greater), _choice("minimum", "minimum", less)


def truth(x: Any) -> Any:
    """Booleans: x != 0."""
    x = asarray(x)
    return x if dtype_of(x) == np.bool_ else not_equal(x, 0)


def logical_and(x: Any, y: Any) -> Any:
    return apply("and", truth(x), truth(y))


def logical_or(x: Any, y: Any) -> Any:
    return apply("or", truth(x), truth(y))


def logical_xor(x: Any, y: Any) -> Any:
    return apply("xor", truth(x), truth(y))


def logical_not(x: Any) -> Any:
    return apply("not", truth(x))


bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
    _function(n, o) for n, o in (("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor"), ("bitwise_not", "not"))
)
invert = bitwise_invert = bitwise_not


def left_shift(x: Any, y: Any) -> Any:
    """`x << y`, in the dtype of the operands."""
    x, y, weak = common_numbers(x, y)
    return bind(ops("shift_left"), x, y, weak_type=weak)


bitwise_left_shift = left_shift


def right_shift(x: Any, y: Any) -> Any:
    """Arithmetic for signed integers, logical for unsigned ones."""
    x, y, weak = common_numbers(x, y)
    name = "shift_right_logical" if kind_of(dtype_of(x)) == "u" else "shift_right_arithmetic"
    return bind(ops(name), x, y, weak_type=weak)


bitwise_right_shift = right_shift


def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; all three are broadcast."""
    (x, y), weak = promoted(x, y)
    condition, x, y = broadcast_all([truth(condition), x, y])
    return bind(ops("select"), condition, x, y, weak_type=weak)


def isfinite(x: Any) -> Any:
    x = asarray(x)
    if not is_inexact(dtype_of(x)):
        return equal(x, x)
    if dtype_of(x).kind == "c":
        return logical_and(isfinite(real(x)), isfinite(imag(x)))
    return apply("is_finite", x)


def isnan(x: Any) -> Any:
    return not_equal(x, x)


def isinf(x: Any) -> Any:
    x = asarray(x)
    if dtype_of(x).kind == "c":
        return logical_or(isinf(real(x)), isinf(imag(x)))
    return equal(absolute(x), np.inf) if is_inexact(dtype_of(x)) else not_equal(x, x)


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Between min and max; None leaves a side open. ValueError without an array."""
    if arr is None:
        raise ValueError(f"clip: there is no array to clip\n  at {line_of(user_source())}\n  fix: clip(x, min, max)")
    x = asarray(arr)
    x = x if min is None else maximum(min, x)
    return asarray(x) if max is None else minimum(max, x)


# -- complex numbers


def real(x: Any) -> Any:
    operand, type, weak = value(x)
    return bind(ops("real"), operand, weak_type=weak) if type.dtype.kind == "c" else lifted(x)


def imag(x: Any) -> Any:
    """The imaginary part; zeros for real arrays."""
    x, type, weak = value(x)
    if type.dtype.kind == "c":
        return bind(ops("imag"), x, weak_type=weak)
    return full_like(x, 0)


def conjugate(x: Any) -> Any:
    x = lifted(x)
    return bind(ops("conjugate"), x) if dtype_of(x).kind == "c" else x


conj = conjugate
