"""`jax.interpreters.mlir`: a primitive is lowered by the function that it means (`lower_fun`), and by no MLIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshjit.as_jax.jax.interpreters.primitive import Primitive
from meshjit.missing import explain as _explain


@dataclass(frozen=True)
class _Lowered:
    """fun(*operands, **params), in terms of which a primitive is lowered."""

    fun: Callable[..., Any]
    multiple_results: bool


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> _Lowered:
    return _Lowered(fun, multiple_results)


def register_lowering(prim: Primitive, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Say what a primitive means under jit. A rule that writes MLIR is refused when the primitive is used."""
    if isinstance(rule, _Lowered):
        prim.lowered = rule.fun
    return rule


_explain(__name__)
