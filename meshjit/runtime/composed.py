"""Functions that several ops make up. Under config.debug_nans and debug_infs, outside of jit, their results are looked at alone:
`var` writes NaN for what has no freedom, and `softmax` minus infinity for what is masked, also where nobody gets to see it.

Where a result holds NaN the function is called once more, as a chain of ops, and the first of them that makes one is named.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from meshjit.config import config
from meshjit.runtime import nans
from meshjit.runtime.array import Array
from meshjit.trace import active_trace, line_of, user_source
from meshjit.trees import WORDS as tree

_calls = threading.local()


def is_inside() -> bool:
    """Whether such a function runs in this thread, and looks at its results itself."""
    return getattr(_calls, "inside", False)


def composed(module: dict[str, Any], names: str = "") -> None:
    """Make these functions of a module such; by default all that it defines and that are public."""
    own = [name for name, value in module.items() if _is_own(module, name, value)]
    for name in names.split() or own:
        module[name] = as_one(module[name])


def _is_own(module: dict[str, Any], name: str, value: Any) -> bool:
    return isinstance(value, FunctionType) and not name.startswith("_") and value.__module__ == module["__name__"]


def as_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """One such function."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not (config.debug_nans or config.debug_infs) or is_inside() or active_trace() is not None:
            return function(*args, **kwargs)
        _calls.inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            _calls.inside = False
        arrays = [leaf for leaf in tree.leaves(result) if isinstance(leaf, Array)]
        kind = nans.kind_in(arrays)
        if kind is not None:
            function(*args, **kwargs)
            raise FloatingPointError(f"{function.__name__} at {line_of(user_source())}: the result holds {kind}")
        return result

    return call
