"""What a jitted function sees of each argument: its key, by which compiled functions are found, or an error with its path."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from meshjit.api.layouts import place_of
from meshjit.config import config
from meshjit.core.promotion import canonical
from meshjit.core.types import tensor_type
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.trace import Argument, Tracer, argument_of
from meshjit.trace.source import user_frame
from meshjit.trace.tracer import leaked
from meshjit.trace.types import ShapedArray
from sharding.named import NamedSharding


def key_of_value(value: Any, name: str = "") -> LeafKey:
    """The key of an argument that a function is called with; TypeError, with its path, for what is no array."""
    if isinstance(value, Array):
        return value._key
    if isinstance(value, Tracer):
        raise leaked(value)
    argument = strict_argument(host_array(value), name)
    return leaf_key(argument.type, argument.weak, None, False)


def strict_argument(value: Any, name: str) -> Argument:
    """The Argument for a value; a Python bool is an array like any other, not weak."""
    argument = argument_of(value, name)
    return replace(argument, weak=False) if argument.type.dtype == np.bool_ else argument


def host_array(value: Any) -> Any:
    """Other libraries' arrays as NumPy's; everything else as it is."""
    own = isinstance(value, Array | Tracer | bool | int | float | complex | np.ndarray | np.generic)
    return np.asarray(value) if not own and hasattr(value, "__array__") else value


def key_of_shape(value: Any, name: str = "") -> LeafKey:
    """The same for an argument that a function is lowered for: anything with a shape and a dtype will do. 64 bits, which
    np.dtype(float) has, are 32 without enable_x64; a ShapedArray, the type of an array that exists, is what it says."""
    if isinstance(value, Array | bool | int | float | complex | np.ndarray | np.generic):
        return key_of_value(value, name)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        sharding = place_of(getattr(value, "format", None), name) or getattr(value, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.empty:  # of a type, which says no place
            sharding = None
        weak = bool(getattr(value, "weak_type", False))
        kind = value.dtype if isinstance(value, ShapedArray) else canonical(np.dtype(value.dtype), config.enable_x64)
        return leaf_key(tensor_type(value.shape, kind), weak, sharding, sharding is not None)
    return key_of_value(value, name)


def stack_level() -> int:
    """The `stacklevel` of the user's line, for a warning raised by the caller."""
    user, frame, level = user_frame(), sys._getframe(1), 1
    while frame is not None and frame is not user:
        frame, level = frame.f_back, level + 1
    return level
