"""Functions of scalars, traced once and applied to arrays of any shape, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.lax.regions import leaves_of, trace_region
from meshjit.numpy.promote import cast
from meshjit.trace import bind_program, line_of, user_source
from meshjit.trace.names import function_name
from meshjit.transform.batch import batch
from meshjit.transform.inline_calls import inline_calls
from meshjit.trees import WORDS as tree


def combined(function: Callable[..., Any], structure: Any, xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    """The leaves of function(x, y) for the elements of these arrays, which have one shape, in the dtypes of xs. `structure` is
    that of x and of y. TypeError where the function gives another number of arrays."""
    flat = leaves_of((list(xs), list(ys)), "operands")
    scalars = flat.arguments
    for _ in flat.types[0].shape:
        scalars = [a.without_dim(0) for a in scalars]

    def of_scalars(x: Any, y: Any) -> list[Any]:
        leaves = tree.leaves(function(x, y))
        if len(leaves) != len(xs):
            raise TypeError(
                f"{function_name(function)} gives {len(leaves)} arrays, and combines {len(xs)}\n  at {line_of(user_source())}"
            )
        return [cast(leaf, type.dtype) for leaf, type in zip(leaves, flat.types[: len(xs)], strict=True)]

    traced = trace_region(of_scalars, scalars, structure, structure, of=function, what="combined")
    program = inline_calls(traced.program)
    places = [*[0] * len(scalars), *[None] * len(traced.captured)]
    for extent in reversed(flat.types[0].shape):
        program = batch(program, places, extent, [0] * len(program.outputs))
    return bind_program(program, [*flat.values, *traced.captured], None, traced.mesh)


__all__ = ["combined"]
