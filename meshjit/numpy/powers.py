"""Powers, under the names of numpy (and so of jax.numpy)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from meshjit.core.types import bits_of, is_inexact, is_integer, kind_of
from meshjit.numpy.promote import apply, broadcast_to, cast, dtype_of, exactly, ops, promoted, shape_of, value, weak_of
from meshjit.numpy.ufuncs import (
    absolute,
    bitwise_and,
    common_numbers,
    less,
    logical_and,
    multiply,
    not_equal,
    right_shift,
    select,
    subtract,
    where,
)
from meshjit.trace import Tracer, bind, line_of, user_source


def power(x: Any, y: Any) -> Any:
    """`x ** y`. One integer `y` whose value is known multiplies repeatedly in the dtype of `x`, exactly for integers.

    TypeError for an integer to a negative power that is known: the result would not be an integer."""
    y = _known_integer(y)
    if isinstance(y, int):
        operand, type, weak = value(x)
        if y < 0 and not is_inexact(type.dtype):
            raise TypeError(
                f"power: integers {type} cannot be raised to the negative power {y}\n  at {line_of(user_source())}\n"
                f"  fix: x.astype(float) ** {y}"
            )
        if type.dtype == np.bool_:
            operand = cast(operand, np.int32)
        return bind(ops("integer_pow"), operand, exponent=y, weak_type=weak)
    dtype = dtype_of(promoted(x, y)[0][0])
    if not is_inexact(dtype):
        return _integer_power(*common_numbers(x, y)[:2])
    if is_integer(dtype_of(y)) and not weak_of(y):
        x = exactly(x, dtype)  # `2.5 ** integers` is not weak
    return apply("power", x, y)


def _known_integer(y: Any) -> Any:
    """As a Python integer, if it is one integer and no tracer."""
    if isinstance(y, Tracer):
        return y
    try:
        return operator.index(y)
    except TypeError:
        return y


pow = power  # noqa: A001


def _integer_power(x: Any, y: Any) -> Any:
    """By squaring over the bits of the exponent, never weak. Negative exponents: the true power rounded towards 0."""
    dtype, base = dtype_of(x), x
    one = broadcast_to(np.ones((), dtype), shape_of(x))
    result = one
    for bit in range(bits_of(dtype) - (kind_of(dtype) == "i")):
        odd = not_equal(bitwise_and(right_shift(y, bit), 1), 0)
        result = where(odd, multiply(result, x), result)
        x = multiply(x, x)
    if kind_of(dtype) == "u":
        return result
    # The lowest bit is the parity of a negative exponent, too, so powers of 1 and -1 are right.
    vanishes = logical_and(less(y, 0), not_equal(absolute(base), one))
    return select(vanishes, subtract(one, one), result, False)


def square(x: Any) -> Any:
    """x * x."""
    return power(x, 2)
