"""Operators outside of any trace, by C++: `x + y` and `x + 1` of concrete Arrays.

An operator goes the usual way first, op by op. What is called again and again is compiled as one Program, and C++ then calls
that. A Python number becomes an Array that is kept; only beside an Array of a dtype that has the number without rounding it
again, and never as an exponent, so that nothing is seen of it. Whatever C++ cannot do, and every error, is left to the usual way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from meshjit.api.caches import on_forgetting
from meshjit.config import config
from meshjit.numpy.quick.numbers import keep_number, kept_number
from meshjit.runtime import _jaxlib, eager
from meshjit.runtime.array import Array
from meshjit.runtime.fast import fast_call, fast_function, forget_calls
from meshjit.runtime.shardings import fits, mesh_of
from meshjit.trace import Argument, active_trace, function_name, trace_to_program
from meshjit.trace.thread import traces
from meshjit.trees import WORDS as tree

Function = Callable[[Any, Any], Any]

_PATIENCE = 3  # calls of one kind by the usual way: most operators run once
_context = _jaxlib.call_context


def quick(function: Function, numbers: bool = True) -> Function:
    """`function`, of an Array and anything, quicker."""
    fast = fast_function(function_name(function), _miss(function))
    on_forgetting.append(functools.partial(forget_calls, fast))
    array_class = _jaxlib.ArrayImpl

    def call(a: Any, b: Any) -> Any:
        if type(a) is not array_class or traces.stack:
            return function(a, b)
        kind = type(b)
        if kind is not array_class:
            if not numbers or (kind is not int and kind is not float):
                return function(a, b)
            number = kept_number(a, b)
            if number is None:
                return _with_number(function, a, b)
            b, operand = number, b
        else:
            operand = b
        try:
            return fast(a, b)
        except Exception:
            pass
        return function(a, operand)

    return call


def _with_number(function: Function, a: Any, number: float) -> Any:
    """The usual way; the number is kept as an Array, if it is seen again."""
    result = function(a, number)
    if isinstance(a, Array):
        keep_number(a, number)
    return result


def _miss(function: Function) -> Callable[..., tuple[Any, Any, bool]]:
    seen: dict[Any, int] = {}

    def miss(a: Any, b: Any) -> tuple[Any, Any, bool]:
        result = function(a, b)
        if active_trace() is not None or not (isinstance(a, Array) and isinstance(b, Array)):
            return result, None, False
        key = (a._key, b._key, _context.value)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] < _PATIENCE:
            return result, None, True
        seen.pop(key, None)
        return result, _how(function, a, b, result), False

    return miss


def _how(function: Function, a: Array, b: Array, result: Any) -> Any:
    """How C++ makes this result; None where it would be another one, or has to be looked at."""
    mesh, keys = mesh_of(a.sharding), [a._key, b._key]
    if config.debug_nans or config.debug_infs or mesh != eager.common_mesh((a, b), "") or mesh.is_multi_process:
        return None
    arguments = [Argument(key.type, key.weak) for key in keys]
    traced = trace_to_program(lambda a, b: function(a, b), arguments, tree.structure(((a, b), {})), function_name(function))
    executable = eager.compiled(traced.program, mesh, keys, traced.out_weak)
    if not all(map(fits, keys, executable.in_shardings)):
        return None
    if [getattr(x, "_key", None) for x in tree.leaves(result)] != executable.out_keys:
        return None
    return fast_call(executable, traced.out_tree, [True, True])
