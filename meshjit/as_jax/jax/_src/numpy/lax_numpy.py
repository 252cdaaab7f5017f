"""`jax._src.numpy.lax_numpy`: what haliax's own einsum calls, with opt_einsum's paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.missing import explain as _explain
from meshjit.numpy import einsum


def _einsum(
    operands: Sequence[Any],
    contractions: Sequence[tuple[tuple[int, ...], frozenset[str], str]],
    precision: Any,
    preferred_element_type: Any,
    _dot_general: Callable[..., Any],
) -> Any:
    """The result of all contractions: each takes operands by their numbers, and puts its result behind the others."""
    left = list(operands)
    for numbers, _, subscripts in contractions:
        taken = [left.pop(number) for number in numbers]
        left.append(
            einsum(
                subscripts,
                *taken,
                precision=precision,
                preferred_element_type=preferred_element_type,
                _dot_general=_dot_general,
            )
        )
    return left[0]


_explain(__name__)
