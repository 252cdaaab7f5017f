"""Reductions over the named axes of vmap and shard_map, beside dims: as NumPy reduces the whole array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn
from sharding.spec import PartitionSpec as P

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (mnp.sum, np.sum),
    "mean": (mnp.mean, np.mean),
    "max": (mnp.max, np.max),
    "min": (mnp.min, np.min),
    "var": (mnp.var, np.var),
    "std": (mnp.std, np.std),
    "logsumexp": (nn.logsumexp, lambda x, axis: np.log(np.sum(np.exp(x), axis))),
    "softmax": (nn.softmax, lambda x, axis: np.exp(x) / np.sum(np.exp(x), axis, keepdims=True)),
    "count_nonzero": (mnp.count_nonzero, np.count_nonzero),
}
AXES = {"name": ("i", (0,)), "tuple": (("i",), (0,)), "name and dim": (("i", 1), (0, 2)), "dims alone": ((0, 1), (1, 2))}


def values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_under_vmap(name: str, axes: str) -> None:
    own, numpys = FUNCTIONS[name]
    axis, whole = AXES[axes]
    x = values((3, 4, 5))
    expected = numpys(x, axis=whole)
    if name == "softmax":
        got = mj.vmap(lambda x: own(x, axis=axis), axis_name="i")(x)
    elif 0 in whole:
        got = mj.vmap(lambda x: own(x, axis=axis), axis_name="i", out_axes=None)(x)
    else:
        got = mj.vmap(lambda x: own(x, axis=axis), axis_name="i")(x)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "std"])
def test_in_shard_map(name: str) -> None:
    own, numpys = FUNCTIONS[name]
    mesh = mj.make_mesh((4, 2), ("x", "y"), axis_types=(mj.sharding.AxisType.Auto,) * 2)
    x = values((8, 6))
    f = mj.shard_map(lambda x: own(x, axis=("x", 0)), mesh=mesh, in_specs=P("x", "y"), out_specs=P("y"))
    np.testing.assert_allclose(mj.jit(f)(x), numpys(x, axis=0), rtol=1e-5)


def test_dtypes_dims_and_derivatives() -> None:
    over = lambda f, x: mj.vmap(f, axis_name="i")(x)  # noqa: E731
    assert over(lambda x: mnp.sum(x, axis="i"), np.ones(3, np.int8)).tolist() == [3, 3, 3]
    assert over(lambda x: mnp.sum(x, axis="i"), np.array([True, False, True])).dtype == np.int32
    assert over(lambda x: x.sum(axis=("i", 0), keepdims=True), np.ones((3, 2))).tolist() == [[6], [6], [6]]
    assert over(lambda x: mnp.max(x, axis="i"), np.array([1 + 2j, 3j, 1 - 1j], np.complex64))[0] == 1 + 2j
    half = over(lambda x: mnp.sum(x, axis="i"), np.full(4096, 1, mnp.bfloat16))
    assert (half.dtype, float(half[0])) == (mnp.bfloat16, 4096)
    where = over(lambda x: mnp.mean(x, axis="i", where=x > 0), np.array([-1.0, 2, 4]))
    np.testing.assert_allclose(where, [3, 3, 3])
    centred = mj.grad(lambda x: (over(lambda x: x - x.mean(axis="i"), x) ** 2).sum() / 2)(np.array([1.0, 2, 6]))
    np.testing.assert_allclose(centred, [-2, -1, 3], rtol=1e-6)


def test_says_what_there_is_not() -> None:
    with pytest.raises(NameError, match=r"unbound axis name: 'q'"):
        mnp.sum(mnp.ones(3), axis="q")
    text = (
        r"reduce_prod over the named axis 'i' is not there, as in JAX\n  at test_numpy_named_axes\.py:\d+.*\n"
        r"  fix: lax\.all_gather\(x, 'i'\), and the function over its dim 0"
    )
    with pytest.raises(NotImplementedError, match=text):
        mj.vmap(lambda x: mnp.prod(x, axis="i"), axis_name="i")(np.ones(3))
    fixed = mj.vmap(lambda x: mnp.prod(mj.lax.all_gather(x, "i"), axis=0), axis_name="i")(np.full(3, 2.0))
    assert fixed.tolist() == [8, 8, 8]
