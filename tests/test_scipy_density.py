"""`meshjit.scipy.stats.gaussian_kde` against SciPy: densities, integrals, sharded samples, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import meshjit as mj
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.device
stats: Any = mj.scipy.stats
gaussian_kde = stats.gaussian_kde


def close(ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(host(ours), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("method", ["scott", "silverman", 0.4])
def test_densities_from_samples(dims: int, method: Any) -> None:
    rng = np.random.default_rng(dims)
    samples, points = rng.normal(size=(dims, 40)).astype(np.float32), rng.normal(size=(dims, 9)).astype(np.float32)
    weights = rng.uniform(0.5, 2, 40).astype(np.float32)
    ours, theirs = gaussian_kde(samples, method, weights), scipy.stats.gaussian_kde(samples, method, weights)
    close(ours(points), theirs(points))
    close(ours.logpdf(points), theirs.logpdf(points))
    close(ours.integrate_gaussian(np.ones(dims), np.eye(dims)), theirs.integrate_gaussian(np.ones(dims), np.eye(dims)))
    close(ours.integrate_kde(gaussian_kde(points)), theirs.integrate_kde(scipy.stats.gaussian_kde(points)))
    mesh = mj.make_mesh((4,), ("x",))
    placed = mj.device_put(samples, NamedSharding(mesh, P(None, "x")))
    close(mj.jit(lambda s, w, p: gaussian_kde(s, method, w).pdf(p))(placed, weights, points), theirs(points))
    if dims == 1:
        close(ours.integrate_box_1d(-1, 0.5), theirs.integrate_box_1d(-1, 0.5))
    assert ours.resample(mj.random.key(0), (3, 2)[: 3 - dims]).shape == (dims, *(3, 2)[: 3 - dims])


def test_errors_of_densities() -> None:
    for call, error, text in [
        (lambda: gaussian_kde(np.ones(1)), ValueError, "at least two samples"),
        (lambda: gaussian_kde(np.ones(3) * 1j), NotImplementedError, "samples are complex"),
        (lambda: gaussian_kde(np.arange(4.0), "wide"), ValueError, "bw_method is 'wide'"),
        (lambda: gaussian_kde(np.arange(4.0), weights=np.ones(3)), ValueError, r"weights have shape \(3,\) for 4 samples"),
        (lambda: gaussian_kde(np.arange(4.0))(np.ones((2, 3))), ValueError, "points have 2 dims, the samples 1"),
        (lambda: gaussian_kde(np.arange(4.0)).set_bandwidth(), NotImplementedError, "stays"),
    ]:
        with pytest.raises(error, match=f"gaussian_kde: .*{text}"):
            call()
