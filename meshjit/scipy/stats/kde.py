"""`jax.scipy.stats.gaussian_kde`: a density from samples, each of which counts as a normal distribution around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit import numpy as mnp, random
from meshjit.numpy.promote import promoted
from meshjit.scipy.linalg import cho_factor, cho_solve
from meshjit.scipy.special import logsumexp, ndtr
from meshjit.trace import line_of, user_source
from meshjit.tree_util import register_pytree_node_class


def _refuse(problem: str, fix: str, error: type[Exception] = ValueError) -> Exception:
    return error(f"gaussian_kde: {problem}\n  at {line_of(user_source())}\n  fix: {fix}")


@register_pytree_node_class
class gaussian_kde:  # noqa: N801 - SciPy's name
    """The density that samples [dims, n], or [n], come from.

    bw_method: how wide the distributions are: "scott" (None), "silverman", a factor of the samples' covariance, or a function
    of this object that gives it. weights: [n], how much samples count. ValueError for fewer than two samples, other weights or
    methods; NotImplementedError for complex samples."""

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        if mnp.iscomplexobj(dataset):
            raise _refuse("samples are complex", "their real and imaginary parts as two dims", NotImplementedError)
        dataset = mnp.atleast_2d(dataset)
        if dataset.size < 2:
            raise _refuse(f"there must be at least two samples, dataset has shape {dataset.shape}", "samples along the last dim")
        if weights is None:
            (dataset,), _ = promoted(dataset, inexact=True)
            weights = mnp.full(dataset.shape[1], 1 / dataset.shape[1], dataset.dtype)
        else:
            (dataset, weights), _ = promoted(dataset, mnp.atleast_1d(weights), inexact=True)
            if weights.shape != dataset.shape[1:]:
                raise _refuse(f"weights have shape {weights.shape} for {dataset.shape[1]} samples", "one weight per sample")
            weights = weights / mnp.sum(weights)
        self.dataset, self.weights = dataset, weights
        self.neff = 1 / mnp.sum(weights**2)
        factor = self._factor(bw_method)
        samples = mnp.atleast_2d(mnp.cov(dataset, rowvar=True, bias=False, aweights=weights))
        self.covariance = samples * factor**2
        self.inv_cov = mnp.linalg.inv(samples) / factor**2

    def _factor(self, method: Any) -> Any:
        exponent = -1.0 / (self.d + 4)
        if method is None or method == "scott":
            return mnp.power(self.neff, exponent)
        if isinstance(method, str) and method == "silverman":
            return mnp.power(self.neff * (self.d + 2) / 4.0, exponent)
        if callable(method):
            return method(self)
        if not isinstance(method, str) and mnp.ndim(method) == 0:
            return method
        raise _refuse(f"bw_method is {method!r}", "'scott', 'silverman', a number or a function")

    def tree_flatten(self) -> Any:
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, known: Any, children: Any) -> gaussian_kde:
        self = object.__new__(cls)
        self.neff, self.dataset, self.weights, self.covariance, self.inv_cov = children
        return self

    @property
    def d(self) -> int:
        """The number of dims."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: Any) -> Any:
        """The density at points [dims, m]: [m]."""
        logs = self._logs(points)
        return mnp.sum(mnp.exp(logs) * self.weights, -1)

    __call__ = evaluate

    def pdf(self, x: Any) -> Any:
        """The density at points [dims, m]: [m]."""
        return self.evaluate(x)

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points [dims, m], precise where it is small: [m]."""
        return logsumexp(self._logs(x) + mnp.log(self.weights), axis=-1)

    def _logs(self, points: Any) -> Any:
        """log of each sample's density at each point, [m, n]."""
        points, dataset = promoted(self._points(points), self.dataset, inexact=True)[0]
        whitening = mnp.linalg.cholesky(self.inv_cov)
        norm = mnp.sum(mnp.log(mnp.diag(whitening))) - 0.5 * self.d * math.log(2 * math.pi)
        apart = (points.T @ whitening)[:, None] - (dataset.T @ whitening)[None]
        return norm - 0.5 * mnp.sum(mnp.square(apart), -1)

    def _points(self, points: Any) -> Any:
        if mnp.iscomplexobj(points):
            raise _refuse("points are complex", "their real and imaginary parts as two dims", NotImplementedError)
        points = mnp.atleast_2d(points)
        if points.shape == (1, self.d) and self.d != 1:
            return mnp.reshape(points, (self.d, 1))
        if points.shape[0] != self.d:
            raise _refuse(f"points have {points.shape[0]} dims, the samples {self.d}", f"points of shape ({self.d}, m)")
        return points

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times that of a normal distribution."""
        mean, cov = mnp.atleast_1d(mnp.squeeze(mean)), mnp.atleast_2d(cov)
        if mean.shape != (self.d,) or cov.shape != (self.d, self.d):
            raise _refuse(f"mean {mean.shape} and cov {cov.shape} do not fit samples of {self.d} dims", "[d] and [d, d]")
        return mnp.sum(self._overlap(self.covariance + cov, self.dataset - mean[:, None]) * self.weights)

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two densities."""
        if other.d != self.d:
            raise _refuse(f"the other density has {other.d} dims, this {self.d}", "densities of equally many dims")
        apart = self.dataset[:, :, None] - other.dataset[:, None, :]
        each = self._overlap(self.covariance + other.covariance, mnp.reshape(apart, (self.d, -1)))
        return self.weights @ mnp.reshape(each, (self.n, other.n)) @ other.weights

    def _overlap(self, covariance: Any, apart: Any) -> Any:
        """The normal density with this covariance at [dims, m]."""
        factor = cho_factor(covariance)
        norm = math.sqrt(2 * math.pi) ** self.d * mnp.prod(mnp.diag(factor[0]))
        return mnp.exp(-0.5 * mnp.sum(apart * cho_solve(factor, apart), 0)) / norm

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability between two numbers. ValueError for samples of several dims."""
        if self.d != 1:
            raise _refuse(f"integrate_box_1d is for samples of 1 dim, these have {self.d}", "a sum of evaluate over a grid")
        if mnp.ndim(low) or mnp.ndim(high):
            raise _refuse(f"limits of shape {mnp.shape(low)} and {mnp.shape(high)} must be numbers", "vmap of integrate_box_1d")
        width, places = mnp.sqrt(self.covariance[0, 0]), self.dataset[0]
        return mnp.sum(self.weights * (ndtr((high - places) / width) - ndtr((low - places) / width)))

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """NotImplementedError, as in JAX."""
        raise _refuse("boxes of several dims are not integrated", "integrate_box_1d", NotImplementedError)

    def set_bandwidth(self, bw_method: str | float | Callable[..., Any] | None = None) -> None:
        """NotImplementedError, as in JAX."""
        raise _refuse("the bandwidth of one that is made stays", "gaussian_kde(dataset, bw_method)", NotImplementedError)

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """New samples, [dims, *shape]."""
        which, noise = random.split(key)
        chosen = random.choice(which, self.n, shape=shape, p=self.weights)
        zero = mnp.zeros(self.d, self.covariance.dtype)
        moved = random.multivariate_normal(noise, zero, self.covariance, shape=shape, dtype=np.dtype(self.dataset.dtype))
        return self.dataset[:, chosen] + mnp.moveaxis(moved, -1, 0)
