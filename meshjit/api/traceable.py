"""Which functions jit can trace."""

from __future__ import annotations

import inspect
from typing import Any

from meshjit.trace.names import function_name


def check_function(fun: Any) -> None:
    """TypeError for what jit cannot trace: no function, a generator, a coroutine."""
    if not callable(fun):
        fix = "\n  fix: jit the function, not its result: jit(f)(x)" if hasattr(fun, "shape") else ""
        shown = f" of shape {fun.shape}" if fix else f": {fun!r}"
        raise TypeError(f"jit needs a function, was given {type(fun).__name__}{shown}{fix}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"jit({function_name(fun)}): it is a generator function (it has a yield)\n"
            "  fix: jit the function that it calls at each step, and yield outside"
        )
    if inspect.iscoroutinefunction(fun):
        raise TypeError(
            f"jit({function_name(fun)}): it is a coroutine function (async def)\n"
            "  fix: jit an ordinary function and call it from the coroutine; calls return at once and compute behind"
        )
