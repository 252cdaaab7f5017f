"""What the arrays that a function closes over are called, for messages."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshjit.trees import WORDS as tree


class CapturedNames:
    """`w` or `params['w1']` for each array, by the variables that the function reads; `0`, `1`, … where it is none of them.

    Looked up when a message needs one. The function is known weakly: compiled code must not keep it alive."""

    def __init__(self, fun: Callable[..., Any], captured: Sequence[Any]) -> None:
        self.captured = captured
        try:
            self.fun = weakref.ref(fun)
        except TypeError:
            self.fun = None

    def __getitem__(self, i: int) -> str:
        fun = self.fun() if self.fun is not None else None
        for name, value in _variables(fun):
            for leaf, path in _leaves(value, name):
                if leaf is self.captured[i]:
                    return path
        return str(i)


def _variables(fun: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the function's free variables, then of the globals that it reads."""
    while hasattr(fun, "func"):
        fun = fun.func
    if hasattr(fun, "__self__"):
        yield from ((f"self.{name}", value) for name, value in getattr(fun.__self__, "__dict__", {}).items())
    fun = getattr(fun, "__func__", fun)
    code = getattr(fun, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # assigned later
            continue
    scope = getattr(fun, "__globals__", {})
    yield from ((name, scope[name]) for name in code.co_names if name in scope)


def _leaves(value: Any, name: str) -> Iterator[tuple[Any, str]]:
    try:
        pairs = tree.leaves_with_path(value)
    except Exception:  # a container that cannot be taken apart now is nobody's array
        return
    for path, leaf in pairs[:1000]:
        yield leaf, name + tree.keystr(path)
