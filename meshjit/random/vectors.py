"""Random matrices and vectors whose elements depend on each other."""

from __future__ import annotations

import functools
from typing import Any

from meshjit import numpy as mnp
from meshjit.api import jit
from meshjit.api.out_sharding import takes_out_sharding
from meshjit.numpy import linalg
from meshjit.numpy.arguments import shape_tuple
from meshjit.random.floats import common_shape, float_dtype, normal, normal_floats, options
from meshjit.random.keys import single
from meshjit.trace import line_of, user_source


@takes_out_sharding
def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Any:
    """Matrices (*shape, n, m) with orthonormal columns or rows, whichever are fewer, uniformly distributed;
    arXiv math-ph/0609050. m is n by default; complex ones are unitary. Source: jax.random.orthogonal."""
    columns = n if m is None else m
    dtype = float_dtype(dtype, "orthogonal", complexes=True)
    q, r = linalg.qr(normal(key, (*shape_tuple(shape), max(n, columns), min(n, columns)), dtype))
    diagonal = mnp.diagonal(r, axis1=-2, axis2=-1)
    q = q * (diagonal / abs(diagonal))[..., None, :]
    return q.swapaxes(-1, -2) if n < columns else q


def _factor_of(cov: Any, method: str) -> Any:
    """F with F Fᵀ = cov."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = linalg.eigh(cov)
        return vectors * mnp.sqrt(values)[..., None, :]
    vectors, values, _ = linalg.svd(cov)
    return vectors * mnp.sqrt(values)[..., None, :]


@functools.partial(jit, static_argnames=("shape", "dtype", "partitionable", "method"))
def _multivariate(data: Any, mean: Any, cov: Any, *, shape: Any, dtype: Any, partitionable: bool, method: str) -> Any:
    normals = normal_floats(data, (*shape, mean.shape[-1]), dtype, partitionable)
    return mean + mnp.einsum("...ij,...j->...i", _factor_of(cov, method), normals)


@takes_out_sharding
def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: str = "cholesky") -> Any:
    """Normal vectors f[*shape, n] of this mean f[..., n] and covariance f[..., n, n], whose leading dims broadcast to `shape`.

    method: how the covariance is factored, "cholesky", "eigh" or "svd" (slower, for singular ones). ValueError for shapes that do
    not fit. Source: jax.random.multivariate_normal."""
    data, dtype = single(key, "multivariate_normal"), float_dtype(dtype, "multivariate_normal")
    mean, cov = mnp.asarray(mean, dtype), mnp.asarray(cov, dtype)
    _check_normal(mean.shape, cov.shape, method)
    whole = common_shape(shape, [mean.shape[:-1], cov.shape[:-2]], "multivariate_normal")
    return _multivariate(data, mean, cov, **options(whole, dtype), method=method)


def _check_normal(mean: tuple[int, ...], cov: tuple[int, ...], method: str) -> None:
    at = f"\n  at {line_of(user_source())}"
    if method not in ("cholesky", "eigh", "svd"):
        raise ValueError(f'random.multivariate_normal: method is {method!r}, not "cholesky", "eigh" or "svd"{at}')
    if not mean:
        raise ValueError(f"random.multivariate_normal: mean is a scalar\n  fix: a vector, or random.normal{at}")
    if cov[-2:] != (mean[-1], mean[-1]):
        raise ValueError(f"random.multivariate_normal: cov has shape {cov}; mean {mean} needs (..., {mean[-1]}, {mean[-1]}){at}")
