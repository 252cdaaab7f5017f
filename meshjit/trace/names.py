"""What functions and their parameters are called, for messages and printed Programs."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any


def function_name(fun: Any) -> str:
    """`loss`, for a lambda `lambda`; looks through functools.partial. Objects that are called have the name of their class."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    own = getattr(fun, "__name__", None)
    name = own if isinstance(own, str) and own else type(fun).__name__
    return re.sub(r"\W+", "_", name).strip("_") or "function"


def wraps(fun: Callable[..., Any], updated: tuple[str, ...] = ("__dict__",)) -> Callable[[Any], Any]:
    """`functools.wraps`, also of an object that is called and has something else for a name, or whatever it is asked for."""
    kinds = {"__name__": str, "__qualname__": str, "__annotations__": dict}
    fitting = [n for n in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(fun, n, None), kinds.get(n, object))]
    return functools.wraps(fun, fitting, updated)


def hint_of(name: str) -> str:
    """`params['w1'].x` as an identifier that programs are printed with: `params_w1_x`."""
    return re.sub(r"\W+", "_", name).strip("_")


def parameter_names(fun: Callable[..., Any], count: int) -> list[str]:
    """Names of the first `count` positional arguments; those that *args takes are `args[2]`."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (ValueError, TypeError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds][:count]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    first = len(names) if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) else 0
    return names + [f"{rest}[{i - first}]" for i in range(len(names), count)]
