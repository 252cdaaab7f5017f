"""Operators outside of any trace, by C++: `x + y` and `x + 1` of concrete Arrays.

A Python number that is an exponent is no operand but a setting: for each there is another program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshjit.numpy.quick.calls import Kind
from meshjit.numpy.quick.numbers import keep_number, kept_number
from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array
from meshjit.trace.thread import traces

Function = Callable[[Any, Any], Any]

_PATIENCE = 3  # calls of one kind by the usual way: most operators run once


def quick(function: Function, numbers: bool = True) -> Function:
    """`function`, of an Array and anything, quicker."""
    fast = Kind(function, function, 0, 2, patience=_PATIENCE, at_any_size=True).fast
    fast_of_one = None if numbers else Kind(function, function, 0, 1, patience=_PATIENCE, at_any_size=True).fast
    array_class = _jaxlib.ArrayImpl

    def call(a: Any, b: Any) -> Any:
        if type(a) is not array_class or traces.stack:
            return function(a, b)
        kind = type(b)
        if kind is not array_class:
            if (kind is not int and kind is not float) or b != b:
                return function(a, b)
            if fast_of_one is not None:
                try:
                    return fast_of_one(a, b) if b else function(a, b)
                except Exception:  # as below
                    return function(a, b)
            number = kept_number(a, b)
            if number is None:
                return _with_number(function, a, b)
            b, operand = number, b
        else:
            operand = b
        try:
            return fast(a, b)
        except Exception:  # the usual way raises it, from the user's line
            pass
        return function(a, operand)

    return call


def _with_number(function: Function, a: Any, number: float) -> Any:
    """The usual way; the number is kept as an Array, if it is seen again."""
    result = function(a, number)
    if isinstance(a, Array):
        keep_number(a, number)
    return result
