"""`jax.flatten_util`: a tree of arrays as one vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import numpy as mnp, tree
from meshjit.missing import explain as _explain
from meshjit.trace import line_of, user_source


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All leaves in one vector, of the dtype that they promote to, and the function that makes the tree of such a vector.

    That function is hashable. It takes vectors of this length (else ValueError) and, where the leaves have several dtypes, of
    this dtype (else TypeError). A tree without leaves gives f32[0].  Source: jax.flatten_util.ravel_pytree."""
    leaves, treedef = tree.flatten(pytree)
    if not leaves:
        return mnp.zeros(0, np.float32), _Unravel(treedef, (), (), None)
    dtypes = tuple(mnp.result_type(leaf) for leaf in leaves)
    dtype = mnp.result_type(*dtypes)
    is_one = len(set(dtypes)) == 1  # then what is weak stays so
    flat = mnp.concatenate([mnp.ravel(mnp.asarray(leaf, None if is_one else dtype)) for leaf in leaves])
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    return flat, _Unravel(treedef, shapes, dtypes, None if is_one else dtype)


@dataclass(frozen=True)
class _Unravel:
    """From a vector to a tree of this structure; `dtype` None: leaves have that of the vector."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    dtype: np.dtype[Any] | None

    def __call__(self, flat: Any) -> Any:
        self._check(flat)
        ends = list(itertools.accumulate(map(math.prod, self.shapes), initial=0))
        parts = [mnp.reshape(flat[a:b], shape) for (a, b), shape in zip(itertools.pairwise(ends), self.shapes, strict=True)]
        if self.dtype is not None:
            parts = [part.astype(dtype) for part, dtype in zip(parts, self.dtypes, strict=True)]
        return tree.unflatten(self.treedef, parts)

    def _check(self, flat: Any) -> None:
        if self.dtype is not None and mnp.result_type(flat) != self.dtype:
            raise TypeError(
                f"the tree was raveled into {self.dtype}, the vector to unravel is {mnp.result_type(flat)}\n"
                f"  at {line_of(user_source())}\n  fix: unravel(x.astype({str(self.dtype)!r}))"
            )
        size = sum(map(math.prod, self.shapes))
        if self.dtypes and np.shape(flat) != (size,):
            raise ValueError(
                f"the tree has {size} elements, the vector to unravel has shape {np.shape(flat)}\n  at {line_of(user_source())}"
            )


_explain(__name__)
