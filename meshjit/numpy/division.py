"""Division rounded to integers, and what remains, under the names of numpy (and so of jax.numpy)."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit.core.types import is_inexact, kind_of
from meshjit.numpy.promote import broadcast_to, dtype_of, ops, shape_of
from meshjit.numpy.ufuncs import (
    add,
    common_numbers,
    divide,
    equal,
    less,
    logical_and,
    multiply,
    not_equal,
    rint,
    select,
    sign,
    subtract,
)
from meshjit.trace import bind


def floor_divide(x: Any, y: Any) -> Any:
    """`x // y`: rounded towards minus infinity; by a floating zero it is `x / y`. It is constant between its steps, and so
    has derivative 0 everywhere."""
    x, y, weak = common_numbers(x, y)
    quotient = bind(ops("divide"), x, y, weak_type=weak)
    if kind_of(dtype_of(x)) == "u":
        return quotient
    if is_inexact(dtype_of(x)):
        rest = _truncated_remainder(x, y, False)
        whole = rint(divide(subtract(x, rest), y))
        lower = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), less(y, 0)))
        down = select(lower, subtract(whole, 1), whole, weak)
        down = select(equal(down, 0), multiply(quotient, 0), down, weak)  # a zero has the sign of x / y
        result = select(equal(y, 0), quotient, down, weak)
        return bind(ops("stop_gradient"), result, weak_type=weak)
    rest = bind(ops("remainder"), x, y)
    lower = logical_and(not_equal(rest, 0), not_equal(sign(rest), sign(y)))
    return select(lower, subtract(quotient, 1), quotient, weak)


def remainder(x: Any, y: Any) -> Any:
    """`x % y`: has the sign of y, a zero, too; of integers modulo 0 it is 0."""
    return _remainder(*common_numbers(x, y))


def _remainder(x: Any, y: Any, weak: bool) -> Any:
    rest = _truncated_remainder(x, y, weak)
    if kind_of(dtype_of(x)) == "u":
        return rest
    is_below = less(y, 0)
    wrong = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), is_below))
    result = select(wrong, add(rest, y), rest, weak)
    if not is_inexact(dtype_of(x)):
        return result
    return select(equal(rest, 0), _signed_zero(rest, is_below, weak), result, weak)


def _signed_zero(rest: Any, is_below: Any, weak: bool) -> Any:
    """-0 or +0, with the derivative of `rest`, which is a zero, too: what is taken away here is +0."""
    plus, minus = (broadcast_to(np.array(zero, dtype_of(rest)), shape_of(rest)) for zero in (0.0, -0.0))
    return subtract(select(is_below, minus, plus, weak), subtract(bind(ops("stop_gradient"), rest), rest))


mod = remainder


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of x; of integers modulo 0 it is 0."""
    return _truncated_remainder(*common_numbers(x, y))


def _truncated_remainder(x: Any, y: Any, weak: bool) -> Any:
    rest = bind(ops("remainder"), x, y, weak_type=weak)
    if is_inexact(dtype_of(x)):
        return rest
    zero = broadcast_to(np.zeros((), dtype_of(x)), shape_of(x))
    return select(equal(y, zero), zero, rest, weak)


def divmod(x: Any, y: Any) -> tuple[Any, Any]:  # noqa: A001
    return floor_divide(x, y), remainder(x, y)
