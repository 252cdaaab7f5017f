"""eval_shape in code for single devices, where a shape does not say all of a value: along which mesh axes it varies, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshjit.api.putting import ShapeDtypeStruct, with_words
from meshjit.core.types import TensorType
from meshjit.trace.shaped import axes_of
from meshjit.trace.tracing import Trace
from meshjit.trees import USERS as users, WORDS as words


def shapes_of_shards(call: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ShapeDtypeStruct, with its manual_axis_type, per result of `call(args, kwargs)`, of which nothing stays in the Program
    around. ShapeDtypeStructs among the arguments stand for values that vary as theirs says."""
    with Trace(name) as trace:

        def stand_in(x: Any) -> Any:
            if not isinstance(x, ShapeDtypeStruct):
                return x
            return trace.input(TensorType(x.shape, x.dtype), x.weak_type, varying=axes_of(x.manual_axis_type))

        args, kwargs = words.map(stand_in, with_words((args, kwargs)))
        return users.map(ShapeDtypeStruct.like, call(args, kwargs))
