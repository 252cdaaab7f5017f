"""`quickened`: a function of Arrays whose calls outside of any trace go to C++.

Leading arguments are operands: Arrays, lists of them, None, or numbers. All others are settings (an axis, a shape,
a dtype), which C++ compares by value. A call goes the usual way first. Seen a few times, it runs as the executable of the op
that it is; one of several ops is compiled as one program, which takes as long as some hundred calls by the usual way: so
after more of them.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.api.caches import on_forgetting
from meshjit.numpy.quick import programs
from meshjit.numpy.quick.numbers import keep_number, kept_number, original
from meshjit.runtime import _jaxlib
from meshjit.runtime.fast import fast_function, forget_calls
from meshjit.trace import active_trace, function_name
from meshjit.trace.thread import traces
from meshjit.trees import WORDS as tree

Function = Callable[..., Any]

_ONE, _SEVERAL = 3, 100  # calls of one kind by the usual way, where that is one op, and where several
_NEVER = -1
_MOST = 4096  # kinds of calls that are counted
_POSITIONS = 16  # more arguments by position have only functions of any number of operands
_KEYWORDS = ("where", "b")  # operands of reductions that are given by name
_PLAIN = frozenset({int, bool, str, type(None)})
_context = _jaxlib.call_context
_array_class = _jaxlib.ArrayImpl
_NUMBERS = (int, float)
_OPERANDS = (_array_class, *_NUMBERS)
_ARRAYS = {_array_class}


class Kind:
    """Calls of a function whose operands by position are those from `start` to `stop`, and by name those `named`.

    `traced`: what to trace in its place. `patience`: calls of one kind by the usual way, where they are several ops.
    `at_any_size`: also for large operands."""

    def __init__(
        self, function: Function, traced: Function, start: int, stop: int, named: frozenset[str] = frozenset(), *,
        patience: int | None = None, at_any_size: bool = False,
    ) -> None:  # fmt: skip
        self.function, self.traced, self.start, self.stop, self.named = function, traced, start, stop, named
        self.patience, self.at_any_size = patience, at_any_size
        self.seen: dict[Any, int] = {}
        self.name = function_name(function)
        statics = [*range(start), *range(stop, _POSITIONS)]
        settings = [name for name in _parameters(function) if name not in named]
        self.fast = fast_function(self.name, self._miss, statics, settings)
        on_forgetting.append(self._forget)

    def _forget(self) -> None:
        self.seen.clear()
        forget_calls(self.fast)

    def _miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        operands = args[self.start : self.stop], {k: v for k, v in kwargs.items() if k in self.named}
        leaves, structure = tree.flatten(operands)
        given, named = tree.unflatten(structure, list(map(original, leaves)))
        settings = args[: self.start], args[self.stop :], {k: v for k, v in kwargs.items() if k not in self.named}
        result = _apply(self.function, settings, given, named)
        if active_trace() is not None or not all(type(x) is _array_class for x in leaves):
            return result, None, False
        key = (structure, tuple([x._sharding for x in leaves]), _key_of(settings), _context.value)
        count, most = self._counted(key), self.patience or _SEVERAL
        if count not in (_ONE, most):
            return result, None, True
        way = self._way(leaves, structure, settings, tree.leaves(result), count == most)
        if way is None and count == most:
            self.seen[key] = _NEVER
        return result, way, way is None

    def _counted(self, key: Any) -> int:
        count = self.seen.get(key, 0)
        if count != _NEVER:
            if len(self.seen) >= _MOST:
                self.seen.clear()
            count = self.seen[key] = count + 1
        return count

    def _way(self, leaves: Sequence[Any], structure: Any, settings: Any, results: Sequence[Any], several: bool) -> Any:
        """How C++ makes these results; None where it cannot. Errors of the trace mean that values decide about the results."""
        if not programs.is_possible(leaves):
            return None

        def of(function: Function) -> Function:
            return lambda *given, **named: _apply(function, settings, given, named)

        call = programs.Call(self.name, of(self.function), of(self.traced), leaves, structure, self.at_any_size)
        try:
            traced = call.trace()
            if traced is None:
                return None
            way = programs.of_one_op(call, traced, results)
            return programs.of_several_ops(call, traced, results) if way is None and several else way
        except Exception:  # whatever it is, the usual way says it
            return None


def _apply(function: Function, settings: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    before, after, keywords = settings
    return function(*before, *given, *after, **named, **keywords)


def _key_of(settings: Any) -> Any:
    before, after, keywords = settings
    return tuple([(type(x), x) for x in (*before, *after)]), tuple(sorted((k, type(v).__name__, v) for k, v in keywords.items()))


def _parameters(function: Any) -> Iterator[str]:
    """Its names, without the cost of `inspect.signature`."""
    while not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return iter(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _is_setting(x: Any) -> bool:
    """What C++ may compare: equal ones of one type mean the same."""
    kind = type(x)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(type(e) is int for e in x)
    if kind is float:
        return bool(x) and x == x
    return isinstance(x, np.dtype | type | enum.Enum)


class _Quick:
    """A function's kinds of calls, by where its operands stop."""

    def __init__(self, function: Function, start: int, most: int, numbers: bool) -> None:
        self.function, self.start, self.most, self.numbers = function, start, most, numbers
        names = list(_parameters(function))
        self.named = frozenset([*names[start:most], *(name for name in names if name in _KEYWORDS)])
        self.kinds: dict[int, Kind] = {}

    def kind(self, stop: int) -> Kind:
        kind = self.kinds.get(stop)
        if kind is None:
            kind = self.kinds[stop] = Kind(self.function, self.function, self.start, stop, self.named)
        return kind

    def prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """(C++ function, args, kwargs), or None for the usual way."""
        stop, arrays, has_numbers = self._operands(args)
        if not arrays and self.most > self.start:
            return None
        for x in (*args[: self.start], *args[stop:]) if self.start else args[stop:]:
            if type(x) not in _PLAIN and not _is_setting(x):
                return None
        for name, x in kwargs.items():
            kind = type(x)
            if name in self.named and kind in _OPERANDS:
                if kind is _array_class:
                    arrays.append(x)
                else:
                    has_numbers = True
            elif kind not in _PLAIN and not _is_setting(x):
                return None
        if has_numbers:
            return self._with_numbers(stop, args, kwargs, arrays)
        return self.kind(stop).fast, args, kwargs

    def _operands(self, args: tuple[Any, ...]) -> tuple[int, list[Any], bool]:
        """Where operands stop, the Arrays among them (of lists the first), and whether there are numbers."""
        stop, arrays, has_numbers = self.start, [], False
        for x in args[self.start : self.most]:
            kind = type(x)
            if kind is _array_class:
                arrays.append(x)
            elif kind in _NUMBERS and self.numbers:
                has_numbers = True
            elif kind is list or kind is tuple:
                if not x or type(x[0]) is not _array_class:
                    break
                arrays.append(x[0])
            elif x is not None:
                break
            stop += 1
        return stop, arrays, has_numbers

    def _with_numbers(self, stop: int, args: tuple[Any, ...], kwargs: dict[str, Any], arrays: list[Any]) -> Any:
        like = arrays[0] if len(arrays) == 1 else _common(arrays)
        if like is None or not self.numbers:
            return None
        args = (*args[: self.start], *[_number(like, x) for x in args[self.start : stop]], *args[stop:])
        kwargs = {k: _number(like, v) if k in self.named else v for k, v in kwargs.items()}
        if any([x is _MISSING for x in (*args, *kwargs.values())]):
            return None
        return self.kind(stop).fast, args, kwargs


def quickened(function: Function, operands: int = 1, *, start: int = 0, numbers: bool = True) -> Function:
    """`function`, of up to so many operands from position `start` on, quicker for Arrays; without operands for settings alone.

    `numbers`: Python numbers among the operands become Arrays; without, they are settings."""
    quick = _Quick(function, start, start + operands, numbers)
    kinds, most = quick.kinds, 0 if start else operands

    def call(*args: Any, **kwargs: Any) -> Any:
        if traces.stack:
            return function(*args, **kwargs) if kwargs else function(*args)
        try:
            if kwargs or set(map(type, args)) != _ARRAYS or len(args) > most:  # of no arguments it is another set
                ready = quick.prepared(args, kwargs)
                if ready is not None:
                    fast, given, named = ready
                    return fast(*given, **named)
            else:
                return (kinds.get(len(args)) or quick.kind(len(args))).fast(*args)
        except Exception:  # the usual way raises it, from the user's line
            pass
        return function(*args, **kwargs)

    return functools.update_wrapper(call, function)


_MISSING = object()


def _common(arrays: Sequence[Any]) -> Any:
    """One of the Arrays that numbers adapt to; None where they have several dtypes."""
    no_bools = [x for x in arrays if x.dtype != np.bool_] or arrays
    return no_bools[0] if all(x.dtype == no_bools[0].dtype for x in no_bools) else None


def _number(like: Any, x: Any) -> Any:
    """The Array that is kept for a number, or _MISSING; anything else itself."""
    if type(x) not in _NUMBERS:
        return x
    kept = kept_number(like, x)
    if kept is None:
        keep_number(like, x)
        return _MISSING
    return kept
