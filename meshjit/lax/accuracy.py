"""How exact functions have to be: `accuracy=` of exp, log, tanh and their kin, which the compiler is told."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from meshjit.numpy.promote import apply
from meshjit.trace import line_of, user_source


class AccuracyMode(enum.Enum):
    """The most exact implementation that the compiler has, or the one that it takes by itself (`jax.lax.AccuracyMode`)."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """How far a result may be from the exact one: atol + rtol |result|, or so many units in the last place (`jax.lax.Tolerance`).

    ValueError for negative numbers. A compiler that has nothing so exact says so; XLA on CPU has one implementation of each."""

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        if atol < 0 or rtol < 0 or ulps < 0:
            raise ValueError(f"Tolerances must be non-negative, got atol={atol}, rtol={rtol}, ulps={ulps}")
        self.atol, self.rtol, self.ulps = atol, rtol, ulps

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"


def accurate(name: str, op: str, inexact: bool = True) -> Callable[..., Any]:
    """`jax.lax`'s function of this name. NotImplementedError for an accuracy that is neither a mode nor a tolerance."""

    def function(x: Any, *, accuracy: Tolerance | AccuracyMode | None = None) -> Any:
        word = _word(accuracy)
        return apply(op, x, inexact=inexact) if word is None else apply(op, x, inexact=inexact, accuracy=word)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`jax.lax.{name}`; accuracy: a Tolerance or an AccuracyMode for the compiler. Op: {op}."
    return function


def _word(accuracy: Any) -> str | None:
    """What the param of the op has."""
    if accuracy is None or accuracy is AccuracyMode.DEFAULT:
        return None
    if accuracy is AccuracyMode.HIGHEST:
        return "HIGHEST"
    if isinstance(accuracy, Tolerance):
        return f"{float(accuracy.atol):e} {float(accuracy.rtol):e} {int(accuracy.ulps)}"
    raise NotImplementedError(
        f"Accuracy {accuracy} not supported\n  at {line_of(user_source())}\n"
        "  fix: lax.AccuracyMode.HIGHEST, or lax.Tolerance(atol, rtol, ulps)"
    )
