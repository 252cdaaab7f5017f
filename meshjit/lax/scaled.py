"""`jax.lax.scaled_dot`: products of numbers that have a scale for every block of the dim that is contracted."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.numpy.contraction import dot_general
from meshjit.numpy.promote import asarray, broadcast_to, cast, shape_of
from meshjit.trace import line_of, user_source


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """dot_general of (lhs * lhs_scale) and (rhs * rhs_scale), both computed in bfloat16; the result is of preferred_element_type,
    bfloat16 by default (`jax.lax.scaled_dot`).

    A scale has the shape of its operand, but in contracted dims, of whose extents its own are divisors: each of its elements is
    for a block of two elements or more. dimension_numbers: of matrices, behind batch dims, by default. TypeError for shapes that
    do not fit. Unlike JAX's it has derivatives."""
    operands, scales = (asarray(lhs), asarray(rhs)), (lhs_scale, rhs_scale)
    _check_ranks([*operands, *(asarray(s) for s in scales if s is not None)])
    rank = len(shape_of(lhs))
    lead = tuple(range(rank - 2))
    (contract, batch) = ((rank - 1,), (rank - 2,)), (lead, lead)
    if dimension_numbers is not None:
        contract, batch = dimension_numbers
    sides = zip(("LHS", "RHS"), operands, scales, contract, strict=True)
    factors = [_scaled(name, x, s, [int(d) for d in dims]) for name, x, s, dims in sides]
    preferred = np.dtype("bfloat16") if preferred_element_type is None else preferred_element_type
    return dot_general(*factors, (contract, batch), preferred_element_type=preferred)


def _check_ranks(values: list[Any]) -> None:
    ranks = [len(shape_of(x)) for x in values]
    if len(set(ranks)) > 1 or ranks[0] < 2:
        raise TypeError(
            f"scaled_dot: operands and scales need one rank of at least 2, got ranks {', '.join(map(str, ranks))}"
            f"\n  at {line_of(user_source())}"
        )


def _scaled(name: str, x: Any, scale: Any, contracted: list[int]) -> Any:
    x = cast(x, "bfloat16")
    if scale is None:
        return x
    shape, blocks = shape_of(x), shape_of(scale)
    for d, (n, m) in enumerate(zip(shape, blocks, strict=True)):
        if d not in contracted and n != m:
            raise TypeError(f"{name} dim {d} of size {n} does not match scale dim size {m}.\n  at {line_of(user_source())}")
        if d in contracted and (m == 0 or n % m):
            raise TypeError(
                f"{name} contracting dim {d} of size {n} must be divisible by its scale's dim size {m}."
                f"\n  at {line_of(user_source())}"
            )
        if d in contracted and n // m < 2:
            raise TypeError(
                f"The ratio of {name} contracting dim {d} to its scale's dim size ({n // m}) must be at least 2."
                f"\n  at {line_of(user_source())}"
            )
    return mnp.multiply(x, per_element(cast(scale, "bfloat16"), shape))


def per_element(scale: Any, shape: tuple[int, ...]) -> Any:
    """A scale for every element: each of the blocks' repeated over its own."""
    blocks = shape_of(scale)
    split = [(m, n // m) if m != n else (n, 1) for n, m in zip(shape, blocks, strict=True)]
    spread = mnp.reshape(scale, tuple(e for m, _ in split for e in (m, 1)))
    return mnp.reshape(broadcast_to(spread, tuple(e for pair in split for e in pair)), shape)
