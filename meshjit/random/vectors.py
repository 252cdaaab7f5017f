"""Random matrices and vectors whose elements depend on each other."""

from __future__ import annotations

from typing import Any

from meshjit import numpy as mnp
from meshjit.numpy import linalg
from meshjit.numpy.arguments import shape_tuple
from meshjit.random.floats import float_dtype, normal


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Any:
    """Matrices (*shape, n, m) with orthonormal columns or rows, whichever are fewer, uniformly distributed;
    arXiv math-ph/0609050. m is n by default; complex ones are unitary. Source: jax.random.orthogonal."""
    columns = n if m is None else m
    dtype = float_dtype(dtype, "orthogonal", complexes=True)
    q, r = linalg.qr(normal(key, (*shape_tuple(shape), max(n, columns), min(n, columns)), dtype))
    diagonal = mnp.diagonal(r, axis1=-2, axis2=-1)
    q = q * (diagonal / abs(diagonal))[..., None, :]
    return q.swapaxes(-1, -2) if n < columns else q
