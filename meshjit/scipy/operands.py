"""What elementwise functions of jax.scipy take: arrays and numbers, which become floats of one dtype and shape."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.numpy.promote import broadcast_all, promoted
from meshjit.trace import line_of, user_source


def refuse_lists(*xs: Any) -> None:
    """TypeError, with the user's line, for a list or a tuple."""
    for i, x in enumerate(xs):
        if isinstance(x, list | tuple):
            raise TypeError(
                f"argument {i} is a {type(x).__name__}: this function takes arrays and numbers\n"
                f"  at {line_of(user_source())}\n  fix: jnp.asarray of it"
            )


def floats(*xs: Any) -> list[Any]:
    """The operands in one float or complex dtype and one shape; TypeError for lists, and where there is no such shape."""
    refuse_lists(*xs)
    return [mnp.asarray(x) for x in broadcast_all(promoted(*xs, inexact=True)[0], TypeError)]


def reals(name: str, *xs: Any, error: type[Exception] = ValueError) -> list[Any]:
    """`floats`; `error`, with the user's line, for complex numbers."""
    operands = floats(*xs)
    if operands[0].dtype.kind == "c":
        raise error(
            f"{name} takes real numbers, not {operands[0].dtype}\n  at {line_of(user_source())}\n"
            "  fix: x.real, where the imaginary part is 0"
        )
    return operands


def strong(x: Any) -> Any:
    """The array in its dtype for good: one that came of Python numbers alone adapts no more."""
    return x.astype(x.dtype)
