"""NumPy's own functions on traced values: `numpy.tanh(x)` inside of jit is `meshjit.numpy.tanh(x)`.

NumPy hands its functions on by `__array_ufunc__` and `__array_function__`. They are looked up here by name, so the table is
`meshjit.numpy` itself. Concrete Arrays are left to NumPy, which reads their elements.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from opcode import opmap
from typing import Any

import numpy as np

from meshjit.errors import TracerArrayConversionError
from meshjit.numpy.promote import shape_of
from meshjit.numpy.views import expand_dims
from meshjit.trace import Tracer, line_of, user_source
from meshjit.trace.source import user_frame

_MODULES = {"numpy": "meshjit.numpy", "numpy.linalg": "meshjit.numpy.linalg", "numpy.fft": "meshjit.numpy.fft"}
_REDUCTIONS = {  # numpy.add.reduce is a sum
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def _of_ufunc(self: Tracer, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
    """`__array_ufunc__`: the ufunc itself, and of its methods reduce, accumulate and outer."""
    del self
    name = f"numpy.{ufunc.__name__}" if method == "__call__" else f"numpy.{ufunc.__name__}.{method}"
    if options.pop("out", None) is not None and not _is_operator():
        raise _error(name, "cannot write into an array of NumPy's", "use what it returns, without out=")
    function = _ufunc(ufunc, method)
    if function is None:
        raise _error(name, "has no counterpart in meshjit.numpy", "write it by other functions of meshjit.numpy")
    if options and method in ("__call__", "outer"):
        fix = "jnp.where(mask, ..., x) for where=, x.astype(...) for dtype="
        raise _error(name, f"was given {', '.join(f'{key}=' for key in options)}", fix)
    if method in ("reduce", "accumulate"):
        options = {"axis": 0, **options}
    return function(*operands, **options)


def _is_operator() -> bool:
    """Whether the user's line is `a += x`, which names the result a, as it does for traced a, and not a call with out=."""
    frame = user_frame()
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == opmap["BINARY_OP"]


def _ufunc(ufunc: np.ufunc, method: str) -> Callable[..., Any] | None:
    if method == "reduce":
        return _counterpart("numpy", _REDUCTIONS.get(ufunc.__name__, ""))
    if method == "accumulate":
        return _counterpart("numpy", _ACCUMULATIONS.get(ufunc.__name__, ""))
    function = _counterpart("numpy", ufunc.__name__)
    if method == "outer" and function is not None:
        return lambda a, b: function(expand_dims(a, tuple(range(-len(shape_of(b)), 0))), b)
    return function if method == "__call__" else None


def _of_function(self: Tracer, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`__array_function__`: the function of that name here. NumPy's own is left those that look at shapes and dtypes alone."""
    del self, types
    own = _counterpart(function.__module__, function.__name__)
    if own is not None:
        return own(*args, **kwargs)
    try:
        return function._implementation(*args, **kwargs)
    except TracerArrayConversionError:
        name = f"{function.__module__}.{function.__name__}"
    raise _error(name, "has no counterpart in meshjit.numpy", "write it by other functions of meshjit.numpy")


def _counterpart(module: str, name: str) -> Callable[..., Any] | None:
    own = sys.modules.get(_MODULES.get(module, ""))
    return None if own is None else getattr(own, name, None)


def _error(name: str, what: str, fix: str) -> TracerArrayConversionError:
    return TracerArrayConversionError(f"{name} of a traced value {what}\n  at {line_of(user_source())}\n  fix: {fix}")


def install(kind: type) -> None:
    """Let NumPy hand its functions on to this class."""
    kind.__array_ufunc__ = _of_ufunc  # pyright: ignore[reportAttributeAccessIssue]
    kind.__array_function__ = _of_function  # pyright: ignore[reportAttributeAccessIssue]
