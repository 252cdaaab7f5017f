"""The examples in the documentation of `jax.jit` and `pjit`, with only their imports changed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import pjit
from meshjit.sharding import Mesh, PartitionSpec

pytestmark = pytest.mark.device


@mj.jit
def selu(x, alpha=1.67, lmbda=1.05):
    return lmbda * mnp.where(x > 0, x, alpha * mnp.exp(x) - alpha)


def printed(x) -> str:
    return " ".join(str(x).split())


def test_selu_of_todays_random_numbers() -> None:
    x = mj.random.normal(mj.random.key(0), (10,))
    expected = "1.7037742 2.1265278 -0.616925 -0.13257582 0.18489543 -1.0901651 -0.68493664 0.5190975 0.69756675 -1.0754603"
    np.testing.assert_allclose(np.asarray(selu(x)), np.array(expected.split(), np.float32), rtol=3e-7)


def test_selu_of_the_older_documentations_random_numbers() -> None:
    with mj.config.using(threefry_partitionable=False):
        x = mj.random.normal(mj.random.key(0), (10,))
    expected = "[-0.54485 0.27744 -0.29255 -0.91421 -0.62452 -0.24748 -0.85743 -0.78232 0.76827 0.59566]"
    cut = np.trunc(np.asarray(selu(x), np.float64) * 1e5) / 1e5  # the documentation shows five digits of each
    assert printed(cut) == expected


def test_static_argument_unrolls_a_python_loop() -> None:
    @partial(mj.jit, static_argnames=["n"])
    def g(x, n):
        for _ in range(n):
            x = x**2
        return x

    assert printed(g(mnp.arange(4), 3)) == "[ 0 1 256 6561]"
    assert printed(g(mnp.arange(4), n=3)) == "[ 0 1 256 6561]"


def test_pjit_convolution() -> None:
    x = mnp.arange(8.0)
    f = pjit(
        lambda x: mnp.convolve(x, mnp.asarray([0.5, 1.0, 0.5]), "same"),
        in_shardings=None,
        out_shardings=PartitionSpec("devices"),
    )
    with Mesh(np.array(mj.devices()), ("devices",)):
        y = f(x)
    assert printed(y) == "[ 0.5 2. 4. 6. 8. 10. 12. 10. ]"
    assert len({shard.device for shard in y.addressable_shards}) == len(mj.devices())
