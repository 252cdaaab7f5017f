"""Prefixes of an associative function: as few combinations as there are elements, and one border per round where sharded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from sharding.mesh import AbstractMesh
from sharding.spec import PartitionSpec as P
from tests.tools.wire import check_function, traced, traffic

X8 = AbstractMesh((8,), ("x",))


def recurrence(decay: Any, x: Any) -> Any:
    """h[i] = decay[i] * h[i - 1] + x[i] along dim 1."""
    return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, x), axis=1)[1]


@pytest.mark.parametrize("extent", range(18))
def test_prefixes_of_any_number_of_elements(extent: int) -> None:
    rng = np.random.default_rng(extent)
    x = rng.integers(-3, 4, (2, extent)).astype(np.float32)
    np.testing.assert_array_equal(lax.associative_scan(mnp.add, x, axis=1), np.cumsum(x, 1))
    np.testing.assert_array_equal(lax.associative_scan(mnp.add, x, axis=-1, reverse=True), np.cumsum(x[:, ::-1], 1)[:, ::-1])
    matrices = rng.integers(-1, 2, (extent, 2, 2)).astype(np.float32)
    products = [np.eye(2)]
    for matrix in matrices:
        products.append(products[-1] @ matrix)
    found = lax.associative_scan(mnp.matmul, matrices)  # which does not commute
    np.testing.assert_array_equal(found, np.asarray(products[1:], np.float32).reshape(extent, 2, 2))


@pytest.mark.parametrize("extent", [64, 100])
def test_less_than_two_combinations_an_element(extent: int) -> None:
    program = traced(lambda x: lax.associative_scan(mnp.add, x), [f"f32[{extent}]"])
    assert sum(eqn.outputs[0].shape[0] for eqn in program.eqns if eqn.op.name == "add") < 2 * extent


@pytest.mark.parametrize("extent", [5, 16, 24, 37])
def test_a_sharded_dim_and_its_derivative(extent: int) -> None:
    rng = np.random.default_rng(0)
    decay, x = (rng.integers(-1, 2, (2, extent)).astype(np.float32) for _ in range(2))
    spec = P(None, "x")
    check_function(recurrence, [decay, x], X8, [spec, spec], [spec])
    gradient = mj.grad(lambda d, x: mnp.sum(recurrence(d, x)), argnums=(0, 1))
    check_function(gradient, [decay, x], X8, [spec, spec], [spec, spec])


def test_rounds_exchange_one_element_over_each_border() -> None:
    types, spec = ["f32[4, 1024, 8]"] * 2, P(None, "x", None)
    moved = traffic(recurrence, types, X8, [spec, spec], [spec])
    row = 4 * 8 * 4
    assert sum(moved.values()) <= 40 * row, moved  # a device has 128 rows
