"""`flatten_util.ravel_pytree`: a tree as one vector, and back; what is expected was seen in JAX 0.10.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import tree
from meshjit.flatten_util import ravel_pytree

pytestmark = pytest.mark.device

TREES: list[tuple[Any, str]] = [
    ({"b": np.float32(1.5), "a": np.ones((2, 3), np.int32)}, "float32"), ([1, 2.5], "float32"), ([True, 1], "int32"), ({}, "float32"),
    (mnp.ones((2, 3), "bfloat16"), "bfloat16"), ([np.int8(1), np.uint8(3)], "int16"), ((np.zeros((0, 2), np.float32), None), "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "dtype"), TREES)
def test_there_and_back(given: Any, dtype: str) -> None:
    flat, unravel = ravel_pytree(given)
    assert flat.dtype == dtype and flat.ndim == 1
    back = unravel(flat)
    assert tree.structure(back) == tree.structure(given) and hash(unravel) == hash(ravel_pytree(given)[1])
    for new, old in zip(tree.leaves(back), tree.leaves(given), strict=True):
        assert new.dtype == mnp.result_type(old) and np.array_equal(new, old)


def test_other_vectors_are_refused() -> None:
    _, unravel = ravel_pytree([1, 2.5])
    with pytest.raises(ValueError, match=r"^the tree has 2 elements, the vector to unravel has shape \(3,\)\n  at test_flatten_util.py"):
        unravel(mnp.ones(3))
    with pytest.raises(TypeError, match=r"^the tree was raveled into float32, the vector to unravel is complex64\n"):
        unravel(mnp.ones(2, "complex64"))
    _, unravel = ravel_pytree(mnp.ones(2))  # of leaves of one dtype the vector decides
    assert unravel(mnp.ones(2, "complex64")).dtype == "complex64"


def test_under_transformations() -> None:
    params = {"w": mnp.ones((2, 2)), "b": mnp.arange(2.0)}
    flat, unravel = ravel_pytree(params)
    loss = lambda v: mnp.sum(unravel(v)["w"] @ unravel(v)["b"])  # noqa: E731
    assert np.array_equal(mj.jit(mj.grad(loss))(flat), [2, 2, 0, 1, 0, 1])
    assert mj.vmap(lambda p: ravel_pytree(p)[0])({"a": mnp.ones((3, 2)), "b": mnp.zeros(3)}).shape == (3, 3)
