"""What the arrays that a function closes over are called, for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshjit import tree


def names_of_captured(fun: Callable[..., Any], captured: Sequence[Any]) -> list[str]:
    """`w` or `params['w1']` for each array, by the variables that the function reads; `0`, `1`, … where it is none of them."""
    known: dict[int, str] = {}
    for name, value in _variables(fun):
        known.update((id(leaf), path) for leaf, path in _leaves(value, name) if id(leaf) not in known)
    return [known.get(id(x), str(i)) for i, x in enumerate(captured)]


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
