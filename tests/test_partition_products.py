"""Products whose pairs are on several devices, of dtypes that have no sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import PartitionSpec as P

SPECS = [(P(None, None, "y"), P(None, "y")), (P(None, None, ("x", "y")), P()), (P(None, "x", "y"), P(None, "y", "x"))]


@pytest.mark.parametrize("specs", SPECS)
@pytest.mark.parametrize("extent", [4, 5, 16, 0])
def test_products_of_booleans_on_several_devices(specs: Any, extent: int) -> None:
    """Whether any pair is true: devices that have a part of the pairs each say so, there is no sum."""
    mesh = mj.make_mesh((2, 4), ("x", "y"))
    generator = np.random.default_rng(0)
    a, b = (generator.integers(0, 2, shape).astype(bool) for shape in ((2, 3, extent), (2, extent, 5)))

    def f(a: Any, b: Any) -> Any:
        product = a @ b
        return product, mnp.where(product, 2.0, 1.0).sum(-1), ~product | product.any(0)

    product = np.einsum("bij,bjk->bik", a.astype(int), b.astype(int)) > 0
    results = mj.jit(f, in_shardings=tuple(mj.NamedSharding(mesh, spec) for spec in specs))(a, b)
    for result, expected in zip(results, (product, np.where(product, 2.0, 1.0).sum(-1), ~product | product.any(0)), strict=True):
        np.testing.assert_array_equal(np.asarray(result), expected)
