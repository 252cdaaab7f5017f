"""Derivatives with respect to integers: NumPy arrays of dtype float0, which have a shape and no elements, as in JAX.

They never reach a device. In traced functions' arguments and results a float0 array is not a leaf but part of the structure,
which gives it back when it is filled with arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.tree_views import FLOAT0 as FLOAT0, HiddenFloat0
from meshjit.trees import WORDS as tree

Shape = tuple[int, ...]


def float0_zeros(shape: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.zeros(tuple(shape), FLOAT0)


def is_float0(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == FLOAT0


def without_float0(value: Any) -> Any:
    """The same tree, whose float0 arrays are no leaves; itself where there are none."""
    if not any(map(is_float0, tree.leaves(value))):
        return value
    return tree.map(lambda x: HiddenFloat0(tuple(x.shape)) if is_float0(x) else x, value)


def with_float0_shapes(structure: Any, change: Callable[[Shape], Shape]) -> Any:
    """A structure whose float0 arrays are of other shapes: a batch of them, or one slice."""
    marks = [object() for _ in range(structure.num_leaves)]
    whole = tree.unflatten(structure, marks)
    leaves = tree.leaves(whole)
    if len(leaves) == len(marks):
        return structure
    return tree.structure(tree.map(lambda x: HiddenFloat0(change(tuple(x.shape))) if is_float0(x) else x, whole))
