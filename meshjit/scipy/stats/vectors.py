"""Distributions of vectors. JAX has a module for each, hence the names of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.types import is_integer
from meshjit.numpy import linalg
from meshjit.numpy.promote import dtype_of, promoted
from meshjit.scipy import special
from meshjit.scipy.linalg import solve_triangular
from meshjit.scipy.operands import floats, refuse_lists
from meshjit.scipy.stats.continuous import HALF_LOG_2PI
from meshjit.trace import line_of, user_source


class multivariate_normal:  # noqa: N801
    """`jax.scipy.stats.multivariate_normal`."""

    @staticmethod
    def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Any:
        """Of x (..., n), mean (..., n) and cov (..., n, n); a scalar cov is a variance.

        NotImplementedError for allow_singular."""
        if allow_singular is not None:
            raise NotImplementedError(
                "multivariate_normal.logpdf: allow_singular is not there, in JAX neither\n  fix: leave it out"
            )
        x, mean, cov = (mnp.asarray(a) for a in promoted(x, mean, cov, inexact=True)[0])
        if not mean.shape:
            return -((x - mean) ** 2) / cov / 2 - HALF_LOG_2PI - mnp.log(cov) / 2
        n = mean.shape[-1]
        if not cov.shape:
            y = x - mean
            return -mnp.einsum("...i,...i->...", y, y) / cov / 2 - n * (HALF_LOG_2PI + mnp.log(cov) / 2)
        factor = linalg.cholesky(cov)
        batch = mnp.broadcast_shapes(x.shape[:-1], mean.shape[:-1], cov.shape[:-2])
        y = mnp.broadcast_to(x - mean, (*batch, n))[..., None]
        y = solve_triangular(mnp.broadcast_to(factor, (*batch, n, n)), y, lower=True)[..., 0]
        return (
            -mnp.einsum("...i,...i->...", y, y) / 2 - n * HALF_LOG_2PI - mnp.log(mnp.diagonal(factor, axis1=-1, axis2=-2)).sum(-1)
        )

    @staticmethod
    def pdf(x: Any, mean: Any, cov: Any) -> Any:
        return mnp.exp(multivariate_normal.logpdf(x, mean, cov))


class dirichlet:  # noqa: N801
    """`jax.scipy.stats.dirichlet`."""

    @staticmethod
    def logpdf(x: Any, alpha: Any) -> Any:
        """Of x (n, ...) on the simplex, or (n - 1, ...) without its last part, and alpha (n,)."""
        x, alpha = (mnp.asarray(a) for a in promoted(x, alpha, inexact=True)[0])
        if alpha.ndim != 1:
            raise ValueError(f"dirichlet.logpdf: alpha has shape {alpha.shape}, not one dim")
        if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
            raise ValueError(f"dirichlet.logpdf: x has {x.shape[0]} parts, alpha has {alpha.shape[0]}")
        if x.shape[0] == alpha.shape[0] - 1:
            x = mnp.concatenate([x, 1 - x.sum(0, keepdims=True)])
        powers = alpha.reshape(-1, *[1] * (x.ndim - 1))
        norm = special.gammaln(alpha).sum() - special.gammaln(alpha.sum())
        inside = (x > 0).all(0) & (mnp.abs(x.sum(0) - 1) < 1e-6)
        return mnp.where(inside, special.xlogy(powers - 1, x).sum(0) - norm, -np.inf)

    @staticmethod
    def pdf(x: Any, alpha: Any) -> Any:
        return mnp.exp(dirichlet.logpdf(x, alpha))


class multinomial:  # noqa: N801
    """`jax.scipy.stats.multinomial`."""

    @staticmethod
    def logpmf(x: Any, n: Any, p: Any) -> Any:
        """Of counts x (..., k) that sum to n, and probabilities p (..., k). ValueError for counts that are no integers."""
        refuse_lists(x, n, p)
        (x, n), _ = promoted(x, n)
        if not is_integer(dtype_of(x)):
            at = f"\n  at {line_of(user_source())}"
            raise ValueError(f"multinomial: x and n must be integers, got {dtype_of(x)}{at}\n  fix: x.astype(int)")
        (p,) = floats(p)
        x, n = (mnp.asarray(a).astype(p.dtype) for a in (mnp.atleast_1d(x), n))
        log = special.gammaln(n + 1) + (special.xlogy(x, p) - special.gammaln(x + 1)).sum(-1)
        return mnp.where(x.sum(-1) == n, log, -np.inf)

    @staticmethod
    def pmf(x: Any, n: Any, p: Any) -> Any:
        return mnp.exp(multinomial.logpmf(x, n, p))
